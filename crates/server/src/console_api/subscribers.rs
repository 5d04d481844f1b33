//! The JSON of single subscribers: those of a group, and the history of one that an operator watches.

use hub::{GroupId, Hub};
use live::live_server::LiveServer;
use live::watches::{
    HistoryEntry, HistoryReading, HistoryStep, SubscriberView, WatchReading, WatchRefused,
};
use serde_json::{Value, json};

use super::overview::compact;
use crate::subscriptions_page::shown_topics;

/// Returns the JSON of `api/subscribers`: the group with this number, and some of its subscribers. `None` if there is
/// no such group. The topics have values of clients if `shows_values` is true.
pub(super) async fn describe_group(
    hub: &Hub,
    live: &LiveServer,
    number: &str,
    shows_values: bool,
) -> Option<Value> {
    let group = GroupId(number.parse().ok()?);
    let operation = hub.operation_of(group).await?;
    let list = live.subscribers_of(group).await;
    Some(json!({
        "group": number,
        "operationName": operation.resolve.operation_name(),
        "operationId": format!("{:032x}", operation.group.operation_id),
        "field": &*operation.field,
        "provider": operation.source.name(),
        "topics": shown_topics(&operation.source, shows_values),
        "filtered": operation.filter.is_some(),
        "generation": operation.generation,
        "count": list.count,
        "subscribers": list.subscribers.iter().map(subscriber).collect::<Vec<_>>(),
    }))
}

/// Returns the JSON of `api/subscriber`: the history of a watched subscriber; `None` if it is not watched.
pub(super) fn describe_watched(live: &LiveServer, id: &str) -> Option<Value> {
    Some(watched(&live.read_watched(id.parse().ok()?)?))
}

/// Begins to watch a subscriber. Returns the JSON of its history.
///
/// # Errors
/// The reason why it cannot be watched.
pub(super) async fn watch(live: &LiveServer, id: &str) -> Result<Value, WatchRefused> {
    let id = id.parse().map_err(|_| WatchRefused::NotFound)?;
    Ok(watched(&live.watch(id).await?))
}

fn subscriber(view: &SubscriberView) -> Value {
    json!({
        "id": view.id.to_string(),
        "transport": view.transport,
        "seconds": view.age.as_secs(),
        "waiting": view.waiting,
    })
}

fn watched(reading: &WatchReading) -> Value {
    let HistoryReading { age, entries, left_out, totals, waiting, behind_for } = &reading.history;
    json!({
        "id": reading.id.to_string(),
        "transport": reading.transport,
        "seconds": reading.age.as_secs(),
        "watchedSeconds": compact(age.as_secs_f64()),
        "waiting": waiting,
        "behindSeconds": behind_for.map(|it| compact(it.as_secs_f64())),
        "totals": {
            "delivered": totals.delivered,
            "bytes": totals.bytes,
            "queued": totals.queued,
            "dropped": totals.dropped,
            "lost": totals.lost,
            "gaps": totals.gaps,
            "longestWait": compact(totals.longest_wait.as_secs_f64()),
            "behind": compact(totals.behind.as_secs_f64()),
        },
        "entries": entries.iter().map(entry).collect::<Vec<_>>(),
        "entriesLeftOut": left_out,
    })
}

fn entry(entry: &HistoryEntry) -> Value {
    let (step, reason) = match entry.step {
        HistoryStep::Delivered => ("delivered", None),
        HistoryStep::Queued => ("queued", None),
        HistoryStep::Dropped => ("dropped", None),
        HistoryStep::CaughtUp => ("caughtUp", None),
        HistoryStep::Ended(reason) => ("ended", Some(reason)),
    };
    json!({
        // Entries have this time as a part of their identity, so it is not rounded.
        "atMicros": u64::try_from(entry.at.as_micros()).unwrap_or(u64::MAX),
        "step": step,
        "reason": reason,
        "count": entry.count,
        "bytes": entry.bytes,
        "lost": entry.lost,
        "gap": entry.has_gap,
        "waited": compact(entry.waited.as_secs_f64()),
        "waiting": entry.waiting,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use live::watches::{HistoryTotals, SubscriberId};

    use super::*;

    #[test]
    fn a_history_is_shown_with_its_entries_and_sums() {
        let one = |step, millis| HistoryEntry {
            at: Duration::from_millis(millis),
            step,
            count: 2,
            bytes: 30,
            lost: 1,
            has_gap: false,
            waited: Duration::from_millis(250),
            waiting: 3,
        };
        let history = HistoryReading {
            age: Duration::from_secs(9),
            entries: vec![
                one(HistoryStep::Delivered, 5),
                one(HistoryStep::Ended("SLOW_SUBSCRIBER"), 6),
            ],
            left_out: 4,
            totals: HistoryTotals { delivered: 2, lost: 1, ..HistoryTotals::default() },
            waiting: 3,
            behind_for: Some(Duration::from_millis(1_500)),
        };
        let id = SubscriberId::Stream { stream: 7, operation: 0 };
        let age = Duration::from_secs(60);
        let json = watched(&WatchReading { id, transport: "sse", age, history });
        assert_eq!((&json["id"], &json["seconds"]), (&json!("s7-0"), &json!(60)));
        assert_eq!((&json["waiting"], &json["behindSeconds"]), (&json!(3), &json!(1.5)));
        assert_eq!((&json["totals"]["lost"], &json["entriesLeftOut"]), (&json!(1), &json!(4)));
        let expected = json!({
            "atMicros": 6_000, "step": "ended", "reason": "SLOW_SUBSCRIBER", "count": 2, "bytes": 30, "lost": 1,
            "gap": false, "waited": 0.25, "waiting": 3,
        });
        assert_eq!(json["entries"][1], expected);
        assert_eq!(json["entries"][0]["step"], "delivered");
    }
}
