//! Topics that the router may see but not read. The broker refuses to be asked for their events, and the library
//! says that somewhere this was so, but not where: a consumer that lives for as long as that takes asks for one topic
//! after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::client_callbacks::ClientCallbacks;
use super::settings::KafkaSettings;

/// Topics asked for in one go; then other questions have their turn.
pub(super) const TOPICS_AT_ONCE: usize = 64;

/// How long the answer for one topic may take: the connection is made with the first of them.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// For so long nobody asks again for a topic that could not be read: who subscribes is told at once.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// Topics that are remembered; beyond that those are forgotten that will be first anyway.
const REMEMBERED_MAX: usize = 1024;

/// What subscribers hear.
pub(super) const REFUSAL: &str = "the broker does not let the router read it";

/// What is known of one topic now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadAccess {
    Allowed,
    Denied,
    /// No answer in time.
    Unknown,
}

/// Asks for each of these topics. Blocks.
pub(super) fn probe_topics(
    settings: &KafkaSettings,
    callbacks: ClientCallbacks,
    topics: Vec<Arc<str>>,
) -> Vec<(Arc<str>, ReadAccess)> {
    // It says of a partition that holds nothing more that this is so: the proof that it may be read.
    let config = settings.prober();
    let Ok(consumer) = BaseConsumer::from_config_and_context(&config, callbacks) else {
        return topics.into_iter().map(|topic| (topic, ReadAccess::Unknown)).collect();
    };
    let found = topics.into_iter().map(|topic| {
        let readable = probe_topic(&consumer, &topic);
        (topic, readable)
    });
    found.collect()
}

fn probe_topic(consumer: &BaseConsumer<ClientCallbacks>, topic: &str) -> ReadAccess {
    let mut list = TopicPartitionList::with_capacity(1);
    // Permissions are for topics, and every topic has this partition.
    if list.add_partition_offset(topic, 0, Offset::End).is_err() || consumer.assign(&list).is_err()
    {
        return ReadAccess::Unknown;
    }
    let begun = Instant::now();
    while let Some(left) = ANSWER_TIME_MAX.checked_sub(begun.elapsed()) {
        match consumer.poll(left) {
            Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => return ReadAccess::Allowed,
            Some(Err(KafkaError::MessageConsumption(Code::TopicAuthorizationFailed))) => {
                return ReadAccess::Denied;
            }
            // Whatever else it says has to do with connections.
            Some(Err(_)) | None => {}
        }
    }
    ReadAccess::Unknown
}

/// Topics that could not be read a moment ago.
#[derive(Default)]
pub(super) struct DeniedTopics(Mutex<BTreeMap<Arc<str>, Instant>>);

impl DeniedTopics {
    pub(super) fn insert(&self, topic: &Arc<str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            let oldest =
                known.iter().min_by_key(|(_, at)| **at).map(|(topic, _)| Arc::clone(topic));
            oldest.and_then(|topic| known.remove(&topic));
        }
        known.insert(Arc::clone(topic), Instant::now());
    }

    /// Whether it is one of them.
    pub(super) fn contains(&self, topic: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, at| at.elapsed() < REMEMBERED_FOR);
        known.contains_key(topic)
    }
}
