//! The dispatcher of one consumer: which streams read which topics, and how far each partition was read. It does no I/O
//! and never waits; calls to the library come out as [`AssignmentChange`]s.
//!
//! Each listener has an offset of its own in each partition and skips events before it. Reading a part of a partition
//! twice is therefore harmless, and a listener can join a consumer at any offset.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use super::client::TopicPartition;
use super::partition_progress::PartitionProgress;
use crate::event_queue::{EventSender, SendOutcome};
use crate::{Event, PartitionOffset, ProviderStats, StreamEnd};

/// The maximum number of partitions of a topic: the lower half of a partition number.
pub(super) const PARTITIONS_MAX: usize = 1 << 16;

/// Returns the number of a partition within a stream: the index of its topic in the stream's sorted topics, and the
/// number of the partition within the topic.
pub(super) fn partition_number(topic: u16, partition: u16) -> u32 {
    (u32::from(topic) << 16) | u32::from(partition)
}

/// The sending end of one stream, with its offsets.
pub(super) struct Listener {
    /// The id, which is unique among all streams of the provider.
    pub(super) id: u64,
    pub(super) sender: EventSender,
    /// The topics in order. The index of a topic is part of its partition numbers.
    pub(super) topics: Arc<[Arc<str>]>,
    /// The next offset of each partition. A missing partition begins with its first event.
    pub(super) next: BTreeMap<u32, u64>,
    /// Counts the stream as open.
    pub(super) _counted: Counted,
}

/// Counts an open stream until it is dropped.
pub(super) struct Counted(Arc<ProviderStats>);

impl Counted {
    pub(super) fn new(stats: &Arc<ProviderStats>) -> Self {
        ProviderStats::add(&stats.streams, 1);
        Self(Arc::clone(stats))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ProviderStats::subtract(&self.0.streams, 1);
    }
}

/// The result of offering an event to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OfferOutcome {
    Queued,
    /// The event is not for this stream: it has received the event before, or was dropped.
    Skipped,
    /// The queue is full, so the event remains the next one of the stream.
    Full,
}

impl Listener {
    fn offer(&mut self, topic: u16, partition: u16, offset: u64, event: &Event) -> OfferOutcome {
        let number = partition_number(topic, partition);
        let next = self.next.entry(number).or_insert(0);
        // A dropped stream is removed when its end is noticed.
        if offset < *next || self.sender.is_closed() {
            return OfferOutcome::Skipped;
        }
        if self.sender.capacity() == 0 {
            return OfferOutcome::Full;
        }
        match self.sender.try_send(event.clone().at(PartitionOffset {
            partition: number,
            offset,
            part: 0,
        })) {
            SendOutcome::Queued => {
                *next = offset + 1;
                OfferOutcome::Queued
            }
            SendOutcome::Dropped { .. } => OfferOutcome::Full,
            SendOutcome::Closed => OfferOutcome::Skipped,
        }
    }

    /// Advances past an offset that has no event.
    fn skip(&mut self, topic: u16, partition: u16, offset: u64) {
        let number = partition_number(topic, partition);
        let next = self.next.entry(number).or_insert(0);
        if offset >= *next {
            *next = offset + 1;
            self.sender.try_send_progress(PartitionOffset { partition: number, offset, part: 0 });
        }
    }

    /// Returns the number of partitions of that topic that the stream knows.
    fn partition_count(&self, topic: u16) -> usize {
        let mut numbers =
            self.next.range(partition_number(topic, 0)..=partition_number(topic, u16::MAX));
        numbers.next_back().map_or(0, |(number, _)| (*number & 0xffff) as usize + 1)
    }
}

/// A call to the library.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AssignmentChange {
    pub(super) partition: TopicPartition,
    /// The offset to begin at.
    pub(super) from: u64,
    /// True if the partition is already read from another offset.
    pub(super) known: bool,
}

/// The result of dispatching a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DispatchOutcome {
    /// The listeners that had no room for the event.
    pub(super) full: Vec<u64>,
    /// True if some stream has received the event now.
    pub(super) is_taken: bool,
}

/// A topic with its partitions and listeners.
struct DispatchedTopic {
    /// The partitions in order.
    partitions: Vec<PartitionProgress>,
    /// The listeners, each with the topic's index among its topics.
    listeners: Vec<(u64, u16)>,
}

/// Dispatches the messages of one consumer to its listeners.
#[derive(Default)]
pub(super) struct Dispatcher {
    topics: HashMap<Arc<str>, DispatchedTopic>,
    listeners: HashMap<u64, Listener>,
}

impl Dispatcher {
    /// Returns all topics that have listeners.
    pub(super) fn topics(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    /// Returns all partitions, each with the offset that is read next.
    pub(super) fn partitions(&self) -> Vec<(TopicPartition, u64)> {
        let mut found = Vec::new();
        for (name, topic) in &self.topics {
            let partitions = (0..).zip(&topic.partitions);
            found.extend(partitions.map(|(number, it)| ((Arc::clone(name), number), it.next)));
        }
        found
    }

    /// Returns the listener with that id.
    pub(super) fn listener(&self, id: u64) -> Option<&Listener> {
        self.listeners.get(&id)
    }

    /// Adds a listener. Partitions are read again if the new listener begins before the offset that is read next.
    pub(super) fn add(&mut self, listener: Listener) -> Vec<AssignmentChange> {
        let mut changes = Vec::new();
        for (number, name) in (0u16..).zip(listener.topics.iter()) {
            let topic = self.topics.entry(Arc::clone(name)).or_insert_with(|| DispatchedTopic {
                partitions: Vec::new(),
                listeners: Vec::new(),
            });
            let count = listener.partition_count(number).max(topic.partitions.len());
            for at in 0..count.min(PARTITIONS_MAX) {
                // The cast is lossless because of the limit in the line above.
                let id = partition_number(number, at as u16);
                let mut from = listener.next.get(&id).copied().unwrap_or(0);
                let partition = (Arc::clone(name), at as i32);
                match topic.partitions.get_mut(at) {
                    Some(progress) if progress.next <= from => continue,
                    Some(progress) => {
                        progress.next = from;
                        changes.push(AssignmentChange { partition, from, known: true });
                    }
                    None => {
                        // The current listeners have not seen this partition yet, and need all of it.
                        from = if topic.listeners.is_empty() { from } else { 0 };
                        topic.partitions.push(PartitionProgress::new(from));
                        changes.push(AssignmentChange { partition, from, known: false });
                    }
                }
            }
            topic.listeners.push((listener.id, number));
        }
        self.listeners.insert(listener.id, listener);
        changes
    }

    /// Removes a listener. Also returns the partitions that no other listener uses.
    pub(super) fn remove(&mut self, id: u64) -> Option<(Listener, Vec<TopicPartition>)> {
        let listener = self.listeners.remove(&id)?;
        let mut unwanted = Vec::new();
        for name in listener.topics.iter() {
            let Some(topic) = self.topics.get_mut(name) else { continue };
            topic.listeners.retain(|(other, _)| *other != id);
            if topic.listeners.is_empty() {
                let count = self.topics.remove(name).map_or(0, |topic| topic.partitions.len());
                unwanted.extend((0..).take(count).map(|at| (Arc::clone(name), at)));
            }
        }
        Some((listener, unwanted))
    }

    /// Notes that the topic has that many partitions. New ones are read from their start.
    pub(super) fn add_partitions(&mut self, name: &Arc<str>, count: i32) -> Vec<AssignmentChange> {
        let Some(topic) = self.topics.get_mut(name) else { return Vec::new() };
        let count = usize::try_from(count).unwrap_or(0).min(PARTITIONS_MAX);
        let mut changes = Vec::new();
        for partition in (0..).take(count).skip(topic.partitions.len()) {
            topic.partitions.push(PartitionProgress::new(0));
            let partition = (Arc::clone(name), partition);
            changes.push(AssignmentChange { partition, from: 0, known: false });
        }
        changes
    }

    /// Ends all streams that have the topic. Returns the partitions that no other listener uses.
    pub(super) fn end_topic(&mut self, name: &str, reason: &StreamEnd) -> Vec<TopicPartition> {
        let listeners = self.topics.get(name).map(|topic| topic.listeners.clone());
        let mut unwanted = Vec::new();
        for (id, _) in listeners.unwrap_or_default() {
            if let Some((listener, found)) = self.remove(id) {
                listener.sender.end(reason.clone());
                unwanted.extend(found);
            }
        }
        unwanted
    }

    /// Announces to all streams that events may be missing here. Returns the number of streams for which this is a new
    /// gap.
    pub(super) fn announce_gap(&mut self) -> u64 {
        self.listeners.values_mut().map(|listener| u64::from(listener.sender.announce_gap())).sum()
    }

    /// Ends all streams for that reason.
    pub(super) fn end(&mut self, reason: &StreamEnd) {
        self.topics.clear();
        for (_, listener) in self.listeners.drain() {
            listener.sender.end(reason.clone());
        }
    }

    /// True if the event has not been dispatched yet. Otherwise it was fetched before the partition was begun at
    /// another offset.
    pub(super) fn is_next(&self, topic: &str, partition: i32, offset: u64) -> bool {
        let read = self.topics.get(topic).and_then(|topic| {
            let partition = usize::try_from(partition).ok()?;
            topic.partitions.get(partition)
        });
        read.is_some_and(|partition| offset >= partition.next)
    }

    /// Delivers an event to all listeners of its topic. `None` advances them past an offset that has no event.
    // hot path: once per event; its budget is the number of streams that listen to the topic.
    pub(super) fn deliver(
        &mut self,
        topic: &str,
        partition: i32,
        offset: u64,
        event: Option<&Event>,
    ) -> DispatchOutcome {
        let mut delivered = DispatchOutcome::default();
        let Some(topic) = self.topics.get_mut(topic) else { return delivered };
        let Ok(partition) = u16::try_from(partition) else { return delivered };
        let Some(read) = topic.partitions.get_mut(usize::from(partition)) else { return delivered };
        if offset < read.next {
            // The event was fetched before the partition was begun at another offset.
            return delivered;
        }
        read.next = offset + 1;
        read.read = event.and_then(|event| event.published).or(read.read);
        for &(id, number) in &topic.listeners {
            let Some(listener) = self.listeners.get_mut(&id) else { continue };
            let Some(event) = event else {
                listener.skip(number, partition, offset);
                continue;
            };
            match listener.offer(number, partition, offset, event) {
                OfferOutcome::Full => delivered.full.push(id),
                OfferOutcome::Queued => delivered.is_taken = true,
                OfferOutcome::Skipped => {}
            }
        }
        delivered
    }

    /// Offers an event again to a listener that had no room for it. Returns false if it still has none.
    pub(super) fn redeliver(
        &mut self,
        id: u64,
        partition: i32,
        offset: u64,
        event: &Event,
    ) -> bool {
        let Some(listener) = self.listeners.get_mut(&id) else { return true };
        let number = listener.topics.iter().position(|topic| *topic == event.topic);
        let number = number.and_then(|number| u16::try_from(number).ok());
        let (Some(number), Ok(partition)) = (number, u16::try_from(partition)) else { return true };
        match listener.offer(number, partition, offset, event) {
            OfferOutcome::Queued | OfferOutcome::Skipped => true,
            OfferOutcome::Full => false,
        }
    }

    /// Continues a partition at `offset`, because the next one does not exist. Announces a gap to the streams that miss
    /// something, and returns their number.
    pub(super) fn skip_to(&mut self, (name, partition): &TopicPartition, offset: u64) -> u64 {
        let Some(topic) = self.topics.get_mut(name) else { return 0 };
        let Ok(partition) = u16::try_from(*partition) else { return 0 };
        let Some(jumping) = topic.partitions.get_mut(usize::from(partition)) else { return 0 };
        jumping.next = offset;
        let mut gaps = 0;
        for &(id, number) in &topic.listeners {
            let Some(listener) = self.listeners.get_mut(&id) else { continue };
            let next = listener.next.entry(partition_number(number, partition)).or_insert(0);
            if *next != offset {
                *next = offset;
                listener.sender.announce_gap();
                gaps += 1;
            }
        }
        gaps
    }
}

/// The lag of streams.
impl Dispatcher {
    /// Sets the end of a partition; see [`PartitionProgress::set_end`].
    pub(super) fn set_end(
        &mut self,
        (name, partition): &TopicPartition,
        offset: u64,
        is_idle: bool,
    ) {
        let partition = usize::try_from(*partition).ok();
        let topic = self.topics.get_mut(name);
        if let Some((topic, partition)) = topic.zip(partition)
            && let Some(partition) = topic.partitions.get_mut(partition)
        {
            partition.set_end(offset, is_idle);
        }
    }

    /// Reports the lag of each stream in each of its topics, as far as it is known. Returns the partitions in which
    /// some stream is behind.
    pub(super) fn report_lag(&self) -> Vec<TopicPartition> {
        let mut behind = Vec::new();
        for (name, topic) in &self.topics {
            let mut slow = vec![false; topic.partitions.len()];
            for &(id, number) in &topic.listeners {
                if let Some(listener) = self.listeners.get(&id) {
                    topic.report_lag(name, listener, number, &mut slow);
                }
            }
            let slow = (0..).zip(slow).filter(|(_, is_slow)| *is_slow);
            behind.extend(slow.map(|(partition, _)| (Arc::clone(name), partition)));
        }
        behind
    }
}

impl DispatchedTopic {
    /// Reports the lag of one listener, and marks the partitions in `slow` in which it is behind.
    fn report_lag(&self, name: &str, listener: &Listener, number: u16, slow: &mut [bool]) {
        let (mut events, mut read) = (0u64, None::<SystemTime>);
        for ((at, partition), slow) in (0u16..=u16::MAX).zip(&self.partitions).zip(slow) {
            let next = listener.next.get(&partition_number(number, at)).copied().unwrap_or(0);
            // The lag that was reported before is kept until the ends of all partitions are known.
            let Some(behind) = partition.events_behind(next) else { return };
            if behind > 0 {
                *slow = true;
                events = events.saturating_add(behind);
                read = match (read, partition.read) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
        }
        listener.sender.counts().set_topic_lag(name, Some(events), read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventStream, SourceMessage};

    fn listener(id: u64, topics: &[&str], next: &[(u32, u64)]) -> (Listener, EventStream) {
        let (sender, stream) = EventSender::new(3);
        let topics = topics.iter().map(|&topic| topic.into()).collect::<Vec<Arc<str>>>();
        let counted = Counted::new(&Arc::new(ProviderStats::default()));
        let next = next.iter().copied().collect();
        (Listener { id, sender, topics: topics.into(), next, _counted: counted }, stream)
    }

    fn shown(changes: &[AssignmentChange]) -> Vec<String> {
        let show = |change: &AssignmentChange| {
            let AssignmentChange { partition: (topic, partition), from, known } = change;
            format!("{topic}/{partition}@{from}{}", if *known { " again" } else { "" })
        };
        changes.iter().map(show).collect()
    }

    fn got(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .map(|message| match message {
                SourceMessage::Event(event) => {
                    let partition_offset = event.partition_offset.unwrap();
                    format!("{}:{}", partition_offset.partition, partition_offset.offset)
                }
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn deliver(
        dispatcher: &mut Dispatcher,
        topic: &str,
        partition: i32,
        offsets: std::ops::Range<u64>,
    ) {
        for offset in offsets {
            let event = Event::new(topic, "");
            let delivered = dispatcher.deliver(topic, partition, offset, Some(&event));
            assert!(delivered.full.is_empty());
        }
    }

    #[test]
    fn a_listener_that_starts_further_back_causes_a_second_read_and_no_listener_gets_an_event_twice()
     {
        let mut dispatcher = Dispatcher::default();
        let (first, mut first_stream) = listener(1, &["a"], &[(0, 10), (1, 5)]);
        assert_eq!(shown(&dispatcher.add(first)), ["a/0@10", "a/1@5"]);
        deliver(&mut dispatcher, "a", 0, 10..12);
        let (second, mut second_stream) = listener(2, &["a"], &[(0, 11), (1, 5)]);
        assert_eq!(shown(&dispatcher.add(second)), ["a/0@11 again"]);
        deliver(&mut dispatcher, "a", 0, 11..13);
        assert_eq!(got(&mut first_stream), ["0:10", "0:11", "0:12"]);
        assert_eq!(got(&mut second_stream), ["0:11", "0:12"]);
        let (third, mut third_stream) = listener(3, &["a"], &[(0, 20), (1, 5)]);
        assert!(dispatcher.add(third).is_empty());
        deliver(&mut dispatcher, "a", 0, 13..14);
        assert!(got(&mut third_stream).is_empty());
    }

    #[test]
    fn a_topic_is_read_as_long_as_it_has_a_listener() {
        let mut dispatcher = Dispatcher::default();
        let (first, _first) = listener(1, &["a", "b"], &[(0, 0), (1 << 16, 0)]);
        let (second, _second) = listener(2, &["b"], &[(0, 0)]);
        assert_eq!(shown(&dispatcher.add(first)), ["a/0@0", "b/0@0"]);
        assert!(dispatcher.add(second).is_empty());
        let (_, unwanted) = dispatcher.remove(1).unwrap();
        assert_eq!(unwanted, [("a".into(), 0)]);
        let (_, unwanted) = dispatcher.remove(2).unwrap();
        assert_eq!(unwanted, [("b".into(), 0)]);
        assert!(dispatcher.remove(2).is_none());
        assert!(dispatcher.partitions().is_empty());
    }

    #[test]
    fn a_new_partition_is_read_from_its_start_however_it_is_noticed() {
        let mut dispatcher = Dispatcher::default();
        let (first, mut first_stream) = listener(1, &["a"], &[(0, 10)]);
        dispatcher.add(first);
        assert_eq!(shown(&dispatcher.add_partitions(&"a".into(), 2)), ["a/1@0"]);
        assert!(dispatcher.add_partitions(&"a".into(), 2).is_empty());
        let (second, mut second_stream) = listener(2, &["a"], &[(0, 10), (1, 0), (2, 7)]);
        assert_eq!(shown(&dispatcher.add(second)), ["a/2@0"]);
        deliver(&mut dispatcher, "a", 2, 6..8);
        assert_eq!(got(&mut first_stream), ["2:6", "2:7"]);
        assert_eq!(got(&mut second_stream), ["2:7"]);
        deliver(&mut dispatcher, "a", 2, 5..8);
        assert!(got(&mut first_stream).is_empty());
    }

    #[test]
    fn an_event_that_finds_no_room_remains_the_next_one() {
        let mut dispatcher = Dispatcher::default();
        let (first, mut stream) = listener(1, &["a"], &[(0, 0)]);
        dispatcher.add(first);
        deliver(&mut dispatcher, "a", 0, 0..3);
        let event = Event::new("a", "");
        let nobody = DispatchOutcome { full: vec![1], is_taken: false };
        assert_eq!(dispatcher.deliver("a", 0, 3, Some(&event)), nobody);
        assert!(!dispatcher.redeliver(1, 0, 3, &event));
        assert_eq!(dispatcher.listener(1).unwrap().next[&0], 3);
        assert_eq!(got(&mut stream), ["0:0", "0:1", "0:2"]);
        assert!(dispatcher.redeliver(1, 0, 3, &event));
        assert_eq!(got(&mut stream), ["0:3"]);
    }

    #[test]
    fn skipping_offsets_is_a_gap_for_listeners_that_miss_events() {
        let mut dispatcher = Dispatcher::default();
        let (first, mut first_stream) = listener(1, &["a"], &[(0, 3)]);
        let (second, mut second_stream) = listener(2, &["a"], &[(0, 9)]);
        dispatcher.add(first);
        dispatcher.add(second);
        assert_eq!(dispatcher.skip_to(&("a".into(), 0), 9), 1);
        assert_eq!(dispatcher.partitions(), [(("a".into(), 0), 9)]);
        deliver(&mut dispatcher, "a", 0, 9..10);
        assert_eq!(got(&mut first_stream), ["Gap", "0:9"]);
        assert_eq!(got(&mut second_stream), ["0:9"]);
        assert_eq!([dispatcher.announce_gap(), dispatcher.announce_gap()], [2, 0]);
        for stream in [&mut first_stream, &mut second_stream] {
            assert_eq!(got(stream), ["Gap"]);
        }
    }

    #[test]
    fn a_deleted_topic_ends_all_its_streams() {
        let mut dispatcher = Dispatcher::default();
        let (first, mut first_stream) = listener(1, &["a", "b"], &[(0, 3), (1 << 16, 0)]);
        let (second, mut second_stream) = listener(2, &["b"], &[(0, 9)]);
        dispatcher.add(first);
        dispatcher.add(second);
        let gone = StreamEnd::Gone("a".into());
        assert_eq!(dispatcher.end_topic("a", &gone), [("a".into(), 0)]);
        assert_eq!(got(&mut first_stream), [r#"End(Gone("a"))"#]);
        assert!(got(&mut second_stream).is_empty());
        assert_eq!(dispatcher.topics(), [Arc::<str>::from("b")]);
    }
}
