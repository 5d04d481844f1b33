//! Where a new stream begins in each of its lanes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rdkafka::Offset;

use super::board::{PARTITIONS_MAX, lane};
use super::client::{Client, Place, Unanswered};
use super::reading::milliseconds;
use crate::{Event, Mark, Position, Start};

/// A stream's lanes and where they begin.
pub(super) struct Opening {
    /// In order; their places are their numbers in lanes.
    pub(super) topics: Arc<[Arc<str>]>,
    pub(super) lanes: Vec<Lane>,
}

/// One partition.
pub(super) struct Lane {
    pub(super) number: u32,
    pub(super) place: Place,
    /// What the stream gets first; at the latest `end`.
    pub(super) next: u64,
    /// What is published next.
    pub(super) end: u64,
}

/// Why a stream cannot be opened.
pub(super) enum Unopened {
    Unanswered(Unanswered),
    /// What follows the position is not there any more, or never was.
    Gone,
    /// More partitions than lanes can tell apart.
    TooMany,
}

impl From<Unanswered> for Unopened {
    fn from(unanswered: Unanswered) -> Self {
        Self::Unanswered(unanswered)
    }
}

impl Opening {
    /// Asks the cluster. Blocks. What is published after this has returned comes after `next` of its lane.
    pub(super) fn ask(
        client: &Client,
        topics: &BTreeSet<Box<str>>,
        start: &Start,
    ) -> Result<Self, Unopened> {
        let topics: Arc<[Arc<str>]> = topics.iter().map(|topic| Arc::from(&**topic)).collect();
        let places = client.places(&topics)?;
        let mut numbers = Vec::with_capacity(places.len());
        for (topic, partition) in &places {
            let number = topics.binary_search(topic).ok().and_then(|it| u16::try_from(it).ok());
            let partition = u16::try_from(*partition).ok();
            let (Some(number), Some(partition)) = (number, partition) else {
                return Err(Unopened::TooMany);
            };
            numbers.push(lane(number, partition));
        }
        let next = first_offsets(client, &places, &numbers, start)?;
        // Asked last for those that start in the past, and once for those that start now.
        let ends = match start {
            Start::New | Start::Last | Start::LastPerTopic => next.clone(),
            _ => client.offsets(&places, Offset::End)?,
        };
        let lanes = places.into_iter().zip(numbers).zip(next).zip(ends);
        let lanes = lanes.map(|(((place, number), next), end)| Lane {
            number,
            place,
            next: next.min(end),
            end,
        });
        let lanes: Vec<_> = lanes.collect();
        if let Start::After(position) = start {
            let numbers: BTreeSet<u32> = lanes.iter().map(|lane| lane.number).collect();
            let all_there = position.marks().iter().all(|mark| numbers.contains(&mark.lane));
            let within = |lane: &Lane| after(position, lane.number) <= lane.end;
            if !all_there || !lanes.iter().all(within) {
                return Err(Unopened::Gone);
            }
        }
        Ok(Self { topics, lanes })
    }

    /// How far each lane was read before the first event, of which some are in `latest`; nothing of a lane that
    /// begins with its first.
    pub(super) fn passed(&self, latest: &[Event]) -> Vec<Mark> {
        let latest: Position = latest.iter().filter_map(|event| event.mark).collect();
        let before = |lane: &Lane| {
            let first = latest.lane(lane.number).map_or(lane.next, |mark| mark.offset);
            Some(Mark { lane: lane.number, offset: first.checked_sub(1)?, part: 0 })
        };
        self.lanes.iter().filter_map(before).collect()
    }

    /// As a listener keeps it.
    pub(super) fn next(&self) -> BTreeMap<u32, u64> {
        self.lanes.iter().map(|lane| (lane.number, lane.next)).collect()
    }

    /// How many events it is behind, at most.
    pub(super) fn behind(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lane.end - lane.next))
    }

    /// The same for each topic.
    pub(super) fn behind_by_topic(&self) -> BTreeMap<&str, u64> {
        let mut topics: BTreeMap<&str, u64> = BTreeMap::new();
        for Lane { place: (topic, _), next, end, .. } in &self.lanes {
            let behind = topics.entry(topic).or_default();
            *behind = behind.saturating_add(end - next);
        }
        topics
    }
}

/// The offset after what was read of a lane.
fn after(position: &Position, lane: u32) -> u64 {
    position.lane(lane).map_or(0, |mark| mark.offset.saturating_add(1))
}

fn first_offsets(
    client: &Client,
    places: &[Place],
    numbers: &[u32],
    start: &Start,
) -> Result<Vec<u64>, Unopened> {
    let firsts = || client.offsets(places, Offset::Beginning);
    Ok(match start {
        Start::New | Start::Last | Start::LastPerTopic => client.offsets(places, Offset::End)?,
        Start::All => firsts()?,
        // The latest offset where there is nothing since: cut down to the end by who asks.
        Start::Since(time) => client.offsets(places, Offset::Offset(milliseconds(*time)))?,
        Start::At(offset) => firsts()?.into_iter().map(|first| first.max(*offset)).collect(),
        Start::After(position) => {
            let next = numbers.iter().map(|number| after(position, *number));
            let next: Vec<u64> = next.collect();
            if next.iter().zip(firsts()?).any(|(next, first)| *next < first) {
                return Err(Unopened::Gone);
            }
            next
        }
    })
}

const _: () = assert!(PARTITIONS_MAX == 1 << u16::BITS);
