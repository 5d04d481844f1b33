//! One consumer of the library, and the queries to the cluster that use it. All queries block and must run where
//! blocking is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataPartition;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::client_callbacks::ClientCallbacks;

/// The maximum time for one query.
pub(super) const RESPONSE_TIME_MAX: Duration = Duration::from_secs(4);

/// The maximum time for the query for the ends of partitions that is made only for counting. Other queries wait behind
/// it, and it is repeated later.
const ENDS_TIME_MAX: Duration = Duration::from_secs(1);

/// The interval at which a query is repeated for a topic that has no leader or was just created.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The time after which an unknown topic counts as missing. Brokers learn of a new topic one after the other.
const UNKNOWN_TIME_MAX: Duration = Duration::from_millis(500);

/// The number of topics up to which each is queried on its own. For more, one query for all topics of the cluster costs
/// less.
const SINGLE_TOPIC_QUERIES_MAX: usize = 8;

/// The topic that is queried if any response is enough: most clusters have it, and the query does not create it.
const ANY_TOPIC: &str = "__consumer_offsets";

/// A partition of a topic.
pub(super) type TopicPartition = (Arc<str>, i32);

/// The number of partitions of each topic, or the error for that topic.
pub(super) type PartitionCounts = Vec<(Arc<str>, Result<i32, QueryError>)>;

/// A consumer. Closing one waits for its threads, so that happens on a thread of its own.
pub(super) struct ConsumerClient(Option<StreamConsumer<ClientCallbacks>>);

impl Drop for ConsumerClient {
    fn drop(&mut self) {
        let consumer = self.0.take();
        std::thread::spawn(move || drop(consumer));
    }
}

/// The metadata of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopicDescription {
    pub(super) partitions: usize,
    /// The first partition that has no leader.
    pub(super) without_leader: Option<i32>,
}

/// The reason why a query has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueryError {
    /// The cluster is unavailable. Another query may succeed.
    Unavailable(String),
    /// The topic does not exist.
    UnknownTopic(Arc<str>),
    /// The user is not allowed to make the query.
    Denied(String),
}

impl QueryError {
    fn of(error: &KafkaError, topic: &str) -> Self {
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition,
            ) => Self::UnknownTopic(topic.into()),
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic,
            ) => Self::Denied(format!("{topic}: {}", code(error))),
            _ => Self::Unavailable(code(error)),
        }
    }
}

/// Returns the words of the broker or the library.
pub(super) fn code(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

impl ConsumerClient {
    /// Makes the consumer. Must be called inside a Tokio runtime.
    pub(super) fn new(config: &ClientConfig, callbacks: ClientCallbacks) -> Result<Self, String> {
        let consumer = StreamConsumer::from_config_and_context(config, callbacks);
        consumer.map(|consumer| Self(Some(consumer))).map_err(|error| error.to_string())
    }

    /// Returns the consumer of the library.
    pub(super) fn consumer(&self) -> &StreamConsumer<ClientCallbacks> {
        self.0.as_ref().expect("it exists until it is dropped")
    }

    /// True if a broker responds.
    pub(super) fn has_broker(&self) -> bool {
        self.consumer().fetch_metadata(Some(ANY_TOPIC), RESPONSE_TIME_MAX).is_ok()
    }

    /// Returns the number of partitions of each topic, or the error for that topic.
    pub(super) fn count_partitions(
        &self,
        topics: &[Arc<str>],
    ) -> Result<PartitionCounts, QueryError> {
        let mut known: BTreeMap<String, Result<i32, RDKafkaErrorCode>> = BTreeMap::new();
        let mut ask = |topic: Option<&str>| {
            let metadata = self.consumer().fetch_metadata(topic, RESPONSE_TIME_MAX);
            let metadata = metadata.map_err(|error| QueryError::Unavailable(code(&error)))?;
            known.extend(metadata.topics().iter().map(|topic| {
                let count = i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX);
                let error = topic.error().map(RDKafkaErrorCode::from);
                (topic.name().to_owned(), error.map_or(Ok(count), Err))
            }));
            Ok(())
        };
        if topics.len() <= SINGLE_TOPIC_QUERIES_MAX {
            topics.iter().try_for_each(|topic| ask(Some(&**topic)))?;
        } else {
            ask(None)?;
        }
        let response = topics.iter().map(|topic| {
            let count = match known.get(&**topic) {
                // A topic that is being created or deleted may have no partitions.
                Some(Ok(0)) | None => Err(QueryError::UnknownTopic(Arc::clone(topic))),
                Some(Ok(count)) => Ok(*count),
                Some(Err(error)) => Err(QueryError::of(&KafkaError::MetadataFetch(*error), topic)),
            };
            (Arc::clone(topic), count)
        });
        Ok(response.collect())
    }

    /// Returns all partitions of the topics, which must exist. Waits a moment for a topic that was just created.
    pub(super) fn list_partitions(
        &self,
        topics: &[Arc<str>],
    ) -> Result<Vec<TopicPartition>, QueryError> {
        retry_until_known(|| {
            let mut partitions = Vec::new();
            for (topic, count) in self.count_partitions(topics)? {
                partitions.extend((0..count?).map(|partition| (Arc::clone(&topic), partition)));
            }
            Ok(partitions)
        })
    }

    /// Returns the metadata of a topic. Waits a moment for a topic that was just created.
    pub(super) fn describe_topic(&self, topic: &str) -> Result<TopicDescription, QueryError> {
        retry_until_known(|| {
            let metadata = self.consumer().fetch_metadata(Some(topic), RESPONSE_TIME_MAX);
            let metadata = metadata.map_err(|error| QueryError::Unavailable(code(&error)))?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let Some(found) = found else { return Err(QueryError::UnknownTopic(topic.into())) };
            if let Some(error) = found.error() {
                let error = KafkaError::MetadataFetch(RDKafkaErrorCode::from(error));
                return Err(QueryError::of(&error, topic));
            }
            let partitions = found.partitions();
            if partitions.is_empty() {
                return Err(QueryError::UnknownTopic(topic.into()));
            }
            let without_leader = partitions.iter().find(|partition| partition.leader() < 0);
            Ok(TopicDescription {
                partitions: partitions.len(),
                without_leader: without_leader.map(MetadataPartition::id),
            })
        })
    }

    /// Returns the offset `at` ([`Offset::Beginning`], [`Offset::End`], or a time in milliseconds as
    /// [`Offset::Offset`]) of each partition, in the order of `partitions`.
    pub(super) fn query_offsets(
        &self,
        partitions: &[TopicPartition],
        at: Offset,
    ) -> Result<Vec<u64>, QueryError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        loop {
            match self.try_query_offsets(partitions, at) {
                Err(QueryError::Unavailable(_)) if begun.elapsed() < RESPONSE_TIME_MAX => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                result => return result,
            }
        }
    }

    /// Returns the ends of those partitions for which the cluster responds at once.
    pub(super) fn query_end_offsets(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Vec<(TopicPartition, u64)> {
        let list = partition_list(
            partitions.iter().map(|(topic, partition)| (&**topic, *partition, Offset::End)),
        );
        let Ok(response) = self.consumer().offsets_for_times(list, ENDS_TIME_MAX) else {
            return Vec::new();
        };
        // The library fills in the list that it was given, in the same order.
        let found = partitions.into_iter().zip(response.elements());
        let found = found.filter_map(|(partition, found)| match (found.error(), found.offset()) {
            (Ok(()), Offset::Offset(offset)) => Some((partition, u64::try_from(offset).ok()?)),
            _ => None,
        });
        found.collect()
    }

    fn try_query_offsets(
        &self,
        partitions: &[TopicPartition],
        at: Offset,
    ) -> Result<Vec<u64>, QueryError> {
        let list =
            partition_list(partitions.iter().map(|(topic, partition)| (&**topic, *partition, at)));
        let first = &partitions[0].0;
        let response = self.consumer().offsets_for_times(list, RESPONSE_TIME_MAX);
        let response = response.map_err(|error| QueryError::of(&error, first))?;
        // The library fills in the list that it was given, in the same order.
        let found = response.elements();
        if found.len() != partitions.len() {
            return Err(QueryError::Unavailable("no response for all partitions".into()));
        }
        let found = partitions.iter().zip(&found);
        found
            .map(|((topic, _), found)| {
                found.error().map_err(|error| QueryError::of(&error, topic))?;
                match found.offset() {
                    Offset::Offset(offset) => Ok(u64::try_from(offset).unwrap_or(0)),
                    // There is no event since that time.
                    Offset::End => Ok(u64::MAX),
                    _ => Err(QueryError::Unavailable("no offset".into())),
                }
            })
            .collect()
    }

    /// Begins to read these partitions at these offsets. The `known` ones were already read from other offsets.
    pub(super) fn assign(
        &self,
        partitions: &[(TopicPartition, u64)],
        known: &[TopicPartition],
    ) -> Result<(), String> {
        self.unassign(known)?;
        if partitions.is_empty() {
            return Ok(());
        }
        let from = |offset: u64| Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        let list = partition_list(
            partitions.iter().map(|((topic, partition), next)| (&**topic, *partition, from(*next))),
        );
        self.consumer().incremental_assign(&list).map_err(|error| error.to_string())
    }

    /// Stops reading these partitions.
    pub(super) fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), String> {
        if partitions.is_empty() {
            return Ok(());
        }
        let list = partition_list(
            partitions.iter().map(|(topic, partition)| (&**topic, *partition, Offset::Invalid)),
        );
        self.consumer().incremental_unassign(&list).map_err(|error| error.to_string())
    }
}

/// Repeats a query until it has a result, within the maximum time for one query.
fn retry_until_known<T>(ask: impl Fn() -> Result<T, QueryError>) -> Result<T, QueryError> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(QueryError::UnknownTopic(_)) if begun.elapsed() < UNKNOWN_TIME_MAX => {}
            // A topic that was just created has no leader yet.
            Err(QueryError::Unavailable(_)) if begun.elapsed() < RESPONSE_TIME_MAX => {}
            result => return result,
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn partition_list<'a>(
    partitions: impl ExactSizeIterator<Item = (&'a str, i32, Offset)>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition, offset) in partitions {
        let mut partition = list.add_partition(topic, partition);
        partition.set_offset(offset).expect("offsets are not negative, and names have no NUL");
    }
    list
}
