//! Whether a topic is there, and whether the router may see and read it. Nothing is published and nothing created;
//! no offset is committed.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::client::{Client, Described, Unanswered};
use super::common::Common;
use super::readable::{self, Readable};
use crate::{TopicUsage, TopicUse, Verdict};

/// For all that is asked about one topic.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Asks the cluster.
pub(super) async fn topic(common: &Arc<Common>, client: Arc<Client>, wanted: &TopicUse) -> Verdict {
    let topic: Arc<str> = Arc::from(&*wanted.topic);
    let usage = wanted.usage;
    let common = Arc::clone(common);
    let asking = spawn_blocking(move || match seen(&client, &topic) {
        None if usage == TopicUsage::Subscribe => read(&common, topic),
        // It can be asked only by the call that also makes transactions, which the library keeps to itself.
        None => Verdict::Unknown(
            "the topic is there; whether the user may write to it, Kafka tells only who publishes"
                .into(),
        ),
        Some(verdict) => verdict,
    });
    match timeout(TIME_MAX, asking).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Verdict::Unknown("the router is ending".into()),
        Err(_) => Verdict::Fails("the cluster did not answer within 10 s".into()),
    }
}

/// What is wrong with it for everybody who wants it; none: nothing.
fn seen(client: &Client, topic: &str) -> Option<Verdict> {
    let reason = match client.describe(topic) {
        Ok(Described { without_leader: None, .. }) => return None,
        Ok(Described { partitions, without_leader: Some(partition) }) => {
            format!("no broker leads partition {partition} of its {partitions} at present")
        }
        Err(Unanswered::NoTopic(_)) => format!("there is no topic {topic}"),
        Err(Unanswered::Refused(reason)) => {
            format!("the broker does not let the router see it (DESCRIBE): {reason}")
        }
        Err(Unanswered::Away(reason)) => reason,
    };
    Some(Verdict::Fails(reason))
}

fn read(common: &Common, topic: Arc<str>) -> Verdict {
    let found = readable::ask(&common.settings, common.context(), vec![topic]);
    match found.first().map(|(_, readable)| readable) {
        Some(Readable::Yes) => Verdict::Works,
        Some(Readable::No) => Verdict::Fails(format!("{} (READ)", readable::REFUSAL)),
        Some(Readable::Unknown) | None => Verdict::Unknown(
            "the topic is there; whether it may be read, no broker has said in 3 s".into(),
        ),
    }
}
