//! Checks that a topic exists and that the router may see and read it. The check publishes and creates nothing, and
//! commits no offset.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::acl_probe::{self, ReadAccess};
use super::client::{ConsumerClient, QueryError, TopicDescription};
use super::shared_state::SharedState;
use crate::{TopicUsage, TopicUse, Verdict};

/// The maximum time for all queries about one topic.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Checks one use of a topic by querying the cluster.
pub(super) async fn check_topic(
    common: &Arc<SharedState>,
    client: Arc<ConsumerClient>,
    wanted: &TopicUse,
) -> Verdict {
    let topic: Arc<str> = Arc::from(&*wanted.topic);
    let usage = wanted.usage;
    let common = Arc::clone(common);
    let asking = spawn_blocking(move || match find_problem(&client, &topic) {
        None if usage == TopicUsage::Subscribe => check_read_access(&common, topic),
        // Permission to write can be queried only by the call that also initializes transactions, which the library
        // does not expose.
        None => Verdict::Unknown(
            "the topic exists; Kafka reports permission to write only when an event is published"
                .into(),
        ),
        Some(verdict) => verdict,
    });
    match timeout(TIME_MAX, asking).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Verdict::Unknown("the router is shutting down".into()),
        Err(_) => Verdict::Fails("the cluster did not respond within 10 s".into()),
    }
}

/// Returns the problem of a topic that concerns both uses, or `None` if there is no problem.
fn find_problem(client: &ConsumerClient, topic: &str) -> Option<Verdict> {
    let reason = match client.describe_topic(topic) {
        Ok(TopicDescription { without_leader: None, .. }) => return None,
        Ok(TopicDescription { partitions, without_leader: Some(partition) }) => {
            format!("no broker leads partition {partition} of its {partitions} at present")
        }
        Err(QueryError::UnknownTopic(_)) => format!("there is no topic {topic}"),
        Err(QueryError::Denied(reason)) => {
            format!("the broker does not allow the router to see it (DESCRIBE): {reason}")
        }
        Err(QueryError::Unavailable(reason)) => reason,
    };
    Some(Verdict::Fails(reason))
}

fn check_read_access(common: &SharedState, topic: Arc<str>) -> Verdict {
    let found = acl_probe::probe_topics(&common.settings, common.callbacks(), vec![topic]);
    match found.first().map(|(_, readable)| readable) {
        Some(ReadAccess::Allowed) => Verdict::Works,
        Some(ReadAccess::Denied) => Verdict::Fails(format!("{} (READ)", acl_probe::REFUSAL)),
        Some(ReadAccess::Unknown) | None => Verdict::Unknown(
            "the topic exists; no broker has reported within 3 s whether it may be read".into(),
        ),
    }
}
