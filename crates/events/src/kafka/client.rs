//! One consumer of the library, and the questions to the cluster that go through it. All of them block and
//! run where blocking is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataPartition;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::context::Context;

/// How long one question may take.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// How long the question for the ends of partitions may take that are only counted: others wait behind it, and it
/// comes again.
const ENDS_TIME_MAX: Duration = Duration::from_secs(1);

/// A topic without a leader, or just created, is asked for again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How long a topic may be unknown before it is taken not to exist: brokers learn of a new one one by one.
const UNKNOWN_TIME_MAX: Duration = Duration::from_millis(500);

/// From this many topics on, asking for all that the cluster has costs less than one question for each.
const TOPICS_ASKED_SINGLY_MAX: usize = 8;

/// Asked for when only an answer counts: a topic that most clusters have, and that asking does not create.
const ANY_TOPIC: &str = "__consumer_offsets";

/// A partition of a topic.
pub(super) type Place = (Arc<str>, i32);

/// How many partitions each topic has; an error where that topic cannot be asked for.
pub(super) type PartitionCounts = Vec<(Arc<str>, Result<i32, Unanswered>)>;

/// The consumer. Closing one waits for its threads, so it happens on a thread of its own.
pub(super) struct Client(Option<StreamConsumer<Context>>);

impl Drop for Client {
    fn drop(&mut self) {
        let consumer = self.0.take();
        std::thread::spawn(move || drop(consumer));
    }
}

/// What the cluster shows of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) partitions: usize,
    /// The first partition that no broker leads.
    pub(super) without_leader: Option<i32>,
}

/// Why a question has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Ask again later.
    Away(String),
    /// There is no such topic.
    NoTopic(Arc<str>),
    /// We may not ask.
    Refused(String),
}

impl Unanswered {
    fn of(error: &KafkaError, topic: &str) -> Self {
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition,
            ) => Self::NoTopic(topic.into()),
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic,
            ) => Self::Refused(format!("{topic}: {}", code(error))),
            _ => Self::Away(code(error)),
        }
    }
}

/// What the broker or the library says, in its words.
pub(super) fn code(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

impl Client {
    /// Must be called inside a Tokio runtime.
    pub(super) fn new(config: &ClientConfig, context: Context) -> Result<Self, String> {
        let consumer = StreamConsumer::from_config_and_context(config, context);
        consumer.map(|consumer| Self(Some(consumer))).map_err(|error| error.to_string())
    }

    pub(super) fn consumer(&self) -> &StreamConsumer<Context> {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// Whether a broker answers.
    pub(super) fn ping(&self) -> bool {
        self.consumer().fetch_metadata(Some(ANY_TOPIC), ANSWER_TIME_MAX).is_ok()
    }

    /// How many partitions each topic has; an error where that topic cannot be asked for.
    pub(super) fn partitions(&self, topics: &[Arc<str>]) -> Result<PartitionCounts, Unanswered> {
        let mut known: BTreeMap<String, Result<i32, RDKafkaErrorCode>> = BTreeMap::new();
        let mut ask = |topic: Option<&str>| {
            let metadata = self.consumer().fetch_metadata(topic, ANSWER_TIME_MAX);
            let metadata = metadata.map_err(|error| Unanswered::Away(code(&error)))?;
            known.extend(metadata.topics().iter().map(|topic| {
                let count = i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX);
                let error = topic.error().map(RDKafkaErrorCode::from);
                (topic.name().to_owned(), error.map_or(Ok(count), Err))
            }));
            Ok(())
        };
        if topics.len() <= TOPICS_ASKED_SINGLY_MAX {
            topics.iter().try_for_each(|topic| ask(Some(&**topic)))?;
        } else {
            ask(None)?;
        }
        let answer = topics.iter().map(|topic| {
            let count = match known.get(&**topic) {
                // A topic that is being created or deleted may have none yet, or any more.
                Some(Ok(0)) | None => Err(Unanswered::NoTopic(Arc::clone(topic))),
                Some(Ok(count)) => Ok(*count),
                Some(Err(error)) => Err(Unanswered::of(&KafkaError::MetadataFetch(*error), topic)),
            };
            (Arc::clone(topic), count)
        });
        Ok(answer.collect())
    }

    /// All partitions of the topics, which must exist. Waits a moment for one that was just created.
    pub(super) fn places(&self, topics: &[Arc<str>]) -> Result<Vec<Place>, Unanswered> {
        patiently(|| {
            let mut places = Vec::new();
            for (topic, count) in self.partitions(topics)? {
                places.extend((0..count?).map(|partition| (Arc::clone(&topic), partition)));
            }
            Ok(places)
        })
    }

    /// What may be seen of a topic. Waits a moment for one that was just created.
    pub(super) fn describe(&self, topic: &str) -> Result<Described, Unanswered> {
        patiently(|| {
            let metadata = self.consumer().fetch_metadata(Some(topic), ANSWER_TIME_MAX);
            let metadata = metadata.map_err(|error| Unanswered::Away(code(&error)))?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let Some(found) = found else { return Err(Unanswered::NoTopic(topic.into())) };
            if let Some(error) = found.error() {
                let error = KafkaError::MetadataFetch(RDKafkaErrorCode::from(error));
                return Err(Unanswered::of(&error, topic));
            }
            let partitions = found.partitions();
            if partitions.is_empty() {
                return Err(Unanswered::NoTopic(topic.into()));
            }
            let without_leader = partitions.iter().find(|partition| partition.leader() < 0);
            Ok(Described {
                partitions: partitions.len(),
                without_leader: without_leader.map(MetadataPartition::id),
            })
        })
    }

    /// The offset that each partition has `at` ([`Offset::Beginning`], [`Offset::End`], or a time in
    /// milliseconds as [`Offset::Offset`]), in the order of `places`.
    pub(super) fn offsets(&self, places: &[Place], at: Offset) -> Result<Vec<u64>, Unanswered> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        loop {
            match self.offsets_now(places, at) {
                Err(Unanswered::Away(_)) if begun.elapsed() < ANSWER_TIME_MAX => {
                    std::thread::sleep(AGAIN_AFTER);
                }
                result => return result,
            }
        }
    }

    /// Where these partitions end now, those that the cluster tells of at once.
    pub(super) fn ends(&self, places: Vec<Place>) -> Vec<(Place, u64)> {
        let list =
            list(places.iter().map(|(topic, partition)| (&**topic, *partition, Offset::End)));
        let Ok(answer) = self.consumer().offsets_for_times(list, ENDS_TIME_MAX) else {
            return Vec::new();
        };
        // The library fills in the list that it was given, in its order.
        let found = places.into_iter().zip(answer.elements());
        let found = found.filter_map(|(place, found)| match (found.error(), found.offset()) {
            (Ok(()), Offset::Offset(offset)) => Some((place, u64::try_from(offset).ok()?)),
            _ => None,
        });
        found.collect()
    }

    fn offsets_now(&self, places: &[Place], at: Offset) -> Result<Vec<u64>, Unanswered> {
        let list = list(places.iter().map(|(topic, partition)| (&**topic, *partition, at)));
        let first = &places[0].0;
        let answer = self.consumer().offsets_for_times(list, ANSWER_TIME_MAX);
        let answer = answer.map_err(|error| Unanswered::of(&error, first))?;
        // The library fills in the list that it was given, in its order.
        let found = answer.elements();
        if found.len() != places.len() {
            return Err(Unanswered::Away("no answer for all partitions".into()));
        }
        let found = places.iter().zip(&found);
        found
            .map(|((topic, _), found)| {
                found.error().map_err(|error| Unanswered::of(&error, topic))?;
                match found.offset() {
                    Offset::Offset(offset) => Ok(u64::try_from(offset).unwrap_or(0)),
                    // Nothing since that time.
                    Offset::End => Ok(u64::MAX),
                    _ => Err(Unanswered::Away("no offset".into())),
                }
            })
            .collect()
    }

    /// Reads these from there on; those that are `known` were read before, from elsewhere.
    pub(super) fn assign(&self, places: &[(Place, u64)], known: &[Place]) -> Result<(), String> {
        self.unassign(known)?;
        if places.is_empty() {
            return Ok(());
        }
        let from = |offset: u64| Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        let list = list(
            places.iter().map(|((topic, partition), next)| (&**topic, *partition, from(*next))),
        );
        self.consumer().incremental_assign(&list).map_err(|error| error.to_string())
    }

    /// Reads these no more.
    pub(super) fn unassign(&self, places: &[Place]) -> Result<(), String> {
        if places.is_empty() {
            return Ok(());
        }
        let list =
            list(places.iter().map(|(topic, partition)| (&**topic, *partition, Offset::Invalid)));
        self.consumer().incremental_unassign(&list).map_err(|error| error.to_string())
    }
}

/// Asks until there is an answer, for as long as one may take.
fn patiently<T>(ask: impl Fn() -> Result<T, Unanswered>) -> Result<T, Unanswered> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(Unanswered::NoTopic(_)) if begun.elapsed() < UNKNOWN_TIME_MAX => {}
            // A topic that has just been created has no leader yet.
            Err(Unanswered::Away(_)) if begun.elapsed() < ANSWER_TIME_MAX => {}
            result => return result,
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

fn list<'a>(places: impl ExactSizeIterator<Item = (&'a str, i32, Offset)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition, offset) in places {
        let mut place = list.add_partition(topic, partition);
        place.set_offset(offset).expect("offsets are not negative, and names have no NUL");
    }
    list
}
