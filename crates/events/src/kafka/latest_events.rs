//! The latest event of each partition, read by a short-lived consumer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rdkafka::Offset;
use rdkafka::message::Message as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use super::client::{ConsumerClient, TopicPartition};
use super::consumer_loop::make_event;
use super::start_offsets::StartOffsets;
use crate::{Event, PartitionOffset};

/// The maximum time for reading them.
const TIME_MAX: Duration = Duration::from_secs(3);

/// The time without another message, after the first, after which there are no more.
const SILENCE: Duration = Duration::from_millis(300);

/// The number of offsets before the end at which reading begins. The last message may be followed by markers of
/// transactions, which are not messages.
const OFFSETS_BACK: u64 = 8;

/// The reason that is reported if the runtime ends during a query.
const ENDING: &str = "the router is shutting down";

/// Returns the latest event of each partition that has one, with its offset. The error contains the library's words.
pub(super) async fn read_latest(
    shared: Arc<ConsumerClient>,
    client: Arc<ConsumerClient>,
    opening: &StartOffsets,
) -> Result<Vec<Event>, String> {
    let partitions: Vec<_> = opening.starts.iter().map(|start| start.partition.clone()).collect();
    let firsts = spawn_blocking(move || shared.query_offsets(&partitions, Offset::Beginning)).await;
    let firsts = firsts.map_err(|_| ENDING)?.map_err(|unanswered| format!("{unanswered:?}"))?;
    let filled = opening.starts.iter().zip(firsts).filter(|(start, first)| *first < start.end);
    let from = |first: u64, end: u64| end.saturating_sub(OFFSETS_BACK).max(first);
    let (filled, partitions): (Vec<_>, Vec<_>) = filled
        .map(|(start, first)| (start, (start.partition.clone(), from(first, start.end))))
        .unzip();
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let assigned = Arc::clone(&client);
    spawn_blocking(move || assigned.assign(&partitions, &[])).await.map_err(|_| ENDING)??;

    let mut latest: Vec<Option<Event>> = vec![None; filled.len()];
    let mut left = filled.len();
    let deadline = Instant::now() + TIME_MAX;
    let mut until = deadline;
    let mut messages = client.consumer().stream();
    while left > 0 {
        let Ok(Some(message)) = timeout_at(until.into(), messages.next()).await else { break };
        // Messages that cannot be read (any more) are ignored.
        let Ok(message) = message else { continue };
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        let of_it = |partition: &TopicPartition| {
            *partition.0 == *message.topic() && partition.1 == message.partition()
        };
        let Some(index) = filled.iter().position(|start| of_it(&start.partition)) else { continue };
        let start = filled[index];
        if offset >= start.end {
            continue;
        }
        if let Some(event) = make_event(&message) {
            latest[index] =
                Some(event.at(PartitionOffset { partition: start.number, offset, part: 0 }));
        }
        if offset + 1 == start.end {
            left -= 1;
        }
        until = deadline.min(Instant::now() + SILENCE);
    }
    Ok(latest.into_iter().flatten().collect())
}
