//! A probe for topics that the router may see but not read. The broker refuses to fetch their events, and the library
//! reports the refusal without naming the topic. A short-lived consumer therefore probes one topic after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::client_callbacks::ClientCallbacks;
use crate::kafka_settings::KafkaSettings;

/// The number of topics that are probed at once. Other queries then get their turn.
pub(super) const TOPICS_AT_ONCE: usize = 64;

/// The maximum time for the response for one topic. The first one includes making the connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// The time for which a topic that could not be read is not probed again. Subscribers get the refusal at once.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// The maximum number of topics that are remembered. Beyond it the oldest are forgotten, which would expire first
/// anyway.
const REMEMBERED_MAX: usize = 1024;

/// The reason that subscribers get.
pub(super) const REFUSAL: &str = "the broker does not allow the router to read it";

/// The result of probing one topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadAccess {
    Allowed,
    Denied,
    /// There was no response in time.
    Unknown,
}

/// Probes each of these topics. Blocks.
pub(super) fn probe_topics(
    settings: &KafkaSettings,
    callbacks: ClientCallbacks,
    topics: Vec<Arc<str>>,
) -> Vec<(Arc<str>, ReadAccess)> {
    // This consumer reports the end of a partition, which proves that the partition may be read.
    let config = settings.prober_config();
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
    // Permissions apply to topics, and every topic has this partition.
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
            // Other errors concern connections.
            Some(Err(_)) | None => {}
        }
    }
    ReadAccess::Unknown
}

/// Topics that could not be read a moment ago.
#[derive(Default)]
pub(super) struct DeniedTopics(Mutex<BTreeMap<Arc<str>, Instant>>);

impl DeniedTopics {
    /// Remembers that the topic could not be read. If there are too many topics, forgets the oldest.
    pub(super) fn insert(&self, topic: &Arc<str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            let oldest =
                known.iter().min_by_key(|(_, at)| **at).map(|(topic, _)| Arc::clone(topic));
            oldest.and_then(|topic| known.remove(&topic));
        }
        known.insert(Arc::clone(topic), Instant::now());
    }

    /// True if the topic could not be read a moment ago.
    pub(super) fn contains(&self, topic: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, at| at.elapsed() < REMEMBERED_FOR);
        known.contains_key(topic)
    }
}
