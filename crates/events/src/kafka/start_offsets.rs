//! The offsets at which a new stream begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rdkafka::Offset;

use super::client::{ConsumerClient, QueryError, TopicPartition};
use super::consumer_loop::milliseconds;
use super::dispatch::{PARTITIONS_MAX, partition_number};
use crate::{Event, PartitionOffset, Position, Start};

/// The partitions of a new stream and the offsets at which they begin.
pub(super) struct StartOffsets {
    /// The topics in order. The index of a topic is part of its partition numbers.
    pub(super) topics: Arc<[Arc<str>]>,
    pub(super) starts: Vec<PartitionStart>,
}

/// The beginning of a stream in one partition.
pub(super) struct PartitionStart {
    pub(super) number: u32,
    pub(super) partition: TopicPartition,
    /// The offset of the first event that the stream gets; at most `end`.
    pub(super) next: u64,
    /// The offset of the next event that is published.
    pub(super) end: u64,
}

/// The reason why a stream cannot be opened.
pub(super) enum StartOffsetsError {
    Query(QueryError),
    /// The events behind the position do not exist any more, or never did.
    Gone,
    /// There are more topics or partitions than partition numbers can represent.
    TooManyPartitions,
}

impl From<QueryError> for StartOffsetsError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl StartOffsets {
    /// Queries the cluster. Blocks. Events that are published after this has returned come after `next` of their
    /// partition.
    pub(super) fn resolve(
        client: &ConsumerClient,
        topics: &BTreeSet<Box<str>>,
        start: &Start,
    ) -> Result<Self, StartOffsetsError> {
        let topics: Arc<[Arc<str>]> = topics.iter().map(|topic| Arc::from(&**topic)).collect();
        let partitions = client.list_partitions(&topics)?;
        let mut numbers = Vec::with_capacity(partitions.len());
        for (topic, partition) in &partitions {
            let number = topics.binary_search(topic).ok().and_then(|it| u16::try_from(it).ok());
            let partition = u16::try_from(*partition).ok();
            let (Some(number), Some(partition)) = (number, partition) else {
                return Err(StartOffsetsError::TooManyPartitions);
            };
            numbers.push(partition_number(number, partition));
        }
        let next = first_offsets(client, &partitions, &numbers, start)?;
        // The ends are queried last for streams that start in the past. Streams that start now need only one query.
        let ends = match start {
            Start::New | Start::Last | Start::LastPerTopic => next.clone(),
            _ => client.query_offsets(&partitions, Offset::End)?,
        };
        let starts = partitions.into_iter().zip(numbers).zip(next).zip(ends);
        let starts = starts.map(|(((partition, number), next), end)| PartitionStart {
            number,
            partition,
            next: next.min(end),
            end,
        });
        let starts: Vec<_> = starts.collect();
        if let Start::After(position) = start {
            let numbers: BTreeSet<u32> = starts.iter().map(|start| start.number).collect();
            let is_complete = position
                .partition_offsets()
                .iter()
                .all(|partition_offset| numbers.contains(&partition_offset.partition));
            let within = |start: &PartitionStart| next_after(position, start.number) <= start.end;
            if !is_complete || !starts.iter().all(within) {
                return Err(StartOffsetsError::Gone);
            }
        }
        Ok(Self { topics, starts })
    }

    /// Returns the offset up to which each partition counts as read before the first event, some of which are in
    /// `latest`. A partition that begins with its first event has none.
    pub(super) fn read_up_to(&self, latest: &[Event]) -> Vec<PartitionOffset> {
        let latest: Position = latest.iter().filter_map(|event| event.partition_offset).collect();
        let before = |start: &PartitionStart| {
            let first = latest
                .partition(start.number)
                .map_or(start.next, |partition_offset| partition_offset.offset);
            Some(PartitionOffset {
                partition: start.number,
                offset: first.checked_sub(1)?,
                part: 0,
            })
        };
        self.starts.iter().filter_map(before).collect()
    }

    /// Returns the next offset of each partition, in the form that a listener keeps.
    pub(super) fn next_offsets(&self) -> BTreeMap<u32, u64> {
        self.starts.iter().map(|start| (start.number, start.next)).collect()
    }

    /// Returns the maximum number of events that the stream is behind.
    pub(super) fn events_behind(&self) -> u64 {
        self.starts.iter().fold(0, |sum, start| sum.saturating_add(start.end - start.next))
    }

    /// Returns the maximum number of events that the stream is behind in each topic.
    pub(super) fn events_behind_by_topic(&self) -> BTreeMap<&str, u64> {
        let mut topics: BTreeMap<&str, u64> = BTreeMap::new();
        for PartitionStart { partition: (topic, _), next, end, .. } in &self.starts {
            let behind = topics.entry(topic).or_default();
            *behind = behind.saturating_add(end - next);
        }
        topics
    }
}

/// Returns the offset after the position in a partition.
fn next_after(position: &Position, number: u32) -> u64 {
    position
        .partition(number)
        .map_or(0, |partition_offset| partition_offset.offset.saturating_add(1))
}

fn first_offsets(
    client: &ConsumerClient,
    partitions: &[TopicPartition],
    numbers: &[u32],
    start: &Start,
) -> Result<Vec<u64>, StartOffsetsError> {
    let firsts = || client.query_offsets(partitions, Offset::Beginning);
    Ok(match start {
        Start::New | Start::Last | Start::LastPerTopic => {
            client.query_offsets(partitions, Offset::End)?
        }
        Start::All => firsts()?,
        // This is the largest offset if there is no event since that time. The caller limits it to the end.
        Start::Since(time) => {
            client.query_offsets(partitions, Offset::Offset(milliseconds(*time)))?
        }
        Start::At(offset) => firsts()?.into_iter().map(|first| first.max(*offset)).collect(),
        Start::After(position) => {
            let next = numbers.iter().map(|number| next_after(position, *number));
            let next: Vec<u64> = next.collect();
            if next.iter().zip(firsts()?).any(|(next, first)| *next < first) {
                return Err(StartOffsetsError::Gone);
            }
            next
        }
    })
}

const _: () = assert!(PARTITIONS_MAX == 1 << u16::BITS);
