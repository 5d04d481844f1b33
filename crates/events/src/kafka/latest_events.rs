//! The latest event of each partition, read by a consumer that lives for as long as that takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rdkafka::Offset;
use rdkafka::message::Message as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use super::client::{Client, Place};
use super::opening::Opening;
use super::reading::event;
use crate::{Event, Mark};

/// How long reading them may take.
const TIME_MAX: Duration = Duration::from_secs(3);

/// Without another message for so long, after the first has come, there are no more.
const SILENCE: Duration = Duration::from_millis(300);

/// How far back it is looked: behind the last message may stand markers of transactions, which are none.
const LOOKED_BACK: u64 = 8;

const ENDING: &str = "the router is ending";

/// The latest event of each lane that has one, with its mark. `Err`: the library's words.
pub(super) async fn of_lanes(
    shared: Arc<Client>,
    client: Arc<Client>,
    opening: &Opening,
) -> Result<Vec<Event>, String> {
    let places: Vec<_> = opening.lanes.iter().map(|lane| lane.place.clone()).collect();
    let firsts = spawn_blocking(move || shared.offsets(&places, Offset::Beginning)).await;
    let firsts = firsts.map_err(|_| ENDING)?.map_err(|unanswered| format!("{unanswered:?}"))?;
    let filled = opening.lanes.iter().zip(firsts).filter(|(lane, first)| *first < lane.end);
    let from = |first: u64, end: u64| end.saturating_sub(LOOKED_BACK).max(first);
    let (filled, places): (Vec<_>, Vec<_>) =
        filled.map(|(lane, first)| (lane, (lane.place.clone(), from(first, lane.end)))).unzip();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let assigned = Arc::clone(&client);
    spawn_blocking(move || assigned.assign(&places, &[])).await.map_err(|_| ENDING)??;

    let mut latest: Vec<Option<Event>> = vec![None; filled.len()];
    let mut left = filled.len();
    let deadline = Instant::now() + TIME_MAX;
    let mut until = deadline;
    let mut messages = client.consumer().stream();
    while left > 0 {
        let Ok(Some(message)) = timeout_at(until.into(), messages.next()).await else { break };
        // What cannot be read (any more) is none that there is.
        let Ok(message) = message else { continue };
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        let of_it = |place: &Place| *place.0 == *message.topic() && place.1 == message.partition();
        let Some(index) = filled.iter().position(|lane| of_it(&lane.place)) else { continue };
        let lane = filled[index];
        if offset >= lane.end {
            continue;
        }
        if let Some(event) = event(&message) {
            latest[index] = Some(event.at(Mark { lane: lane.number, offset, part: 0 }));
        }
        if offset + 1 == lane.end {
            left -= 1;
        }
        until = deadline.min(Instant::now() + SILENCE);
    }
    Ok(latest.into_iter().flatten().collect())
}
