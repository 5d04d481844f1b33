//! The broker in this process, `memory/…`. It is always available, and the default of the demo and of tests.
//!
//! Topics are plain names without patterns. Each topic keeps a ring of its latest events, so that a stream can start in
//! the past. Events do not survive the process, so the second part of an offset identifies the process.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::event_queue::{EventSender, SendOutcome};
use crate::topic::check_plain_topic;
use crate::{
    Durable, Event, EventFuture, EventStream, Message, PartitionOffset, Provider, ProviderState,
    ProviderStats, PublishError, SourceError, SourceMessage, Start, StreamEnd, StreamRequest,
    TopicUsage, TopicUse, Verdict,
};

/// The maximum size of an event in bytes. It is the default of NATS, so that nothing changes for users who move there.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// The number of senders at which those of dropped streams are removed for the first time; it then doubles.
const SENDERS_BEFORE_PRUNING: usize = 64;

/// Limits of a [`Memory`] provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySettings {
    /// The number of events that the ring of each topic keeps for replay.
    pub ring_events: usize,
    /// The bytes of payload that all rings together keep. The rings of the topics that are silent longest are emptied
    /// first.
    pub ring_bytes: usize,
    /// The number of topics that are known at a time. Beyond it the topic without streams that is silent longest is
    /// forgotten; if all topics have streams, a new topic is refused.
    pub topics_max: usize,
    /// The number of events that wait in one stream.
    pub queue_events: usize,
}

impl Default for MemorySettings {
    /// Returns 128 events per topic and 64 MiB in all: enough to look back in a demo, and small beside the rest of the
    /// process.
    fn default() -> Self {
        Self {
            ring_events: 128,
            ring_bytes: 64 * 1024 * 1024,
            topics_max: 100_000,
            queue_events: 1024,
        }
    }
}

/// A broker in memory.
#[derive(Debug)]
pub struct Memory {
    name: Box<str>,
    settings: MemorySettings,
    stats: ProviderStats,
    /// Distinguishes this process's offsets from those of other processes: the second part of all offsets.
    epoch: u64,
    state: Mutex<MemoryState>,
}

/// The topics and streams of a memory provider.
#[derive(Debug, Default)]
struct MemoryState {
    topics: HashMap<Arc<str>, MemoryTopic>,
    senders: HashMap<u64, EventSender>,
    next_sender: u64,
    next_inbox: u64,
    prune_at: usize,
    /// The payload bytes in all rings.
    ring_bytes: usize,
    /// The number of publications and subscriptions so far. It is the clock for [`MemoryTopic::touched`].
    clock: u64,
    /// The highest offset of any forgotten topic. A topic that is used again continues from here, so that an offset
    /// never identifies two events.
    forgotten: u64,
}

/// A topic with its latest events and its streams.
#[derive(Debug, Default)]
struct MemoryTopic {
    ring: VecDeque<Event>,
    /// The offset of the latest event; 0 before the first.
    latest: u64,
    /// The ids of the senders that listen, each with its number for this partition.
    senders: Vec<(u64, u32)>,
    touched: u64,
}

impl Memory {
    /// Makes the provider `memory/{id}`.
    pub fn new(id: &str, settings: MemorySettings) -> Self {
        Self::with_name(&format!("memory/{id}"), settings)
    }

    /// Makes a provider with that name, which tests use for other kinds.
    pub(crate) fn with_name(name: &str, settings: MemorySettings) -> Self {
        let stats = ProviderStats::default();
        stats.set_state(ProviderState::Connected);
        let state = MemoryState { prune_at: SENDERS_BEFORE_PRUNING, ..MemoryState::default() };
        let epoch = RandomState::new().hash_one(0);
        Self { name: name.into(), settings, stats, epoch, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // No code that can panic runs while the lock is held. Even if it did, the topics would be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe_now(&self, wanted: StreamRequest) -> Result<EventStream, SourceError> {
        let invalid = |topic: &str, reason: &str| SourceError::InvalidTopic {
            provider: self.name.clone(),
            topic: topic.into(),
            reason: reason.into(),
        };
        // Partitions are numbered in the order of topics, so that every request for the same topics gets the same
        // numbers.
        let topics: BTreeSet<Box<str>> = wanted.topics.into_iter().collect();
        for topic in &topics {
            check_plain_topic(topic).map_err(|reason| invalid(topic, reason))?;
        }
        let mut state = self.state();
        state.prune(&self.stats);
        let mut replayed: Vec<Event> = Vec::new();
        let mut passed = Vec::with_capacity(topics.len());
        for (partition, name) in (0..).zip(&topics) {
            let topic = state
                .topic_or_insert(name, &self.settings)
                .ok_or_else(|| invalid(name, "too many topics are in use"))?;
            let first = topic.replay_start(partition, &wanted.start, self.epoch);
            let first = first.ok_or_else(|| SourceError::Gone { provider: self.name.clone() })?;
            let partition_partition_offset =
                |offset| PartitionOffset { partition, offset, part: self.epoch };
            passed
                .push(partition_partition_offset(topic.latest - (topic.ring.len() - first) as u64));
            replayed.extend(topic.ring.iter().skip(first).map(|event| {
                let offset =
                    event.partition_offset.map_or(0, |partition_offset| partition_offset.offset);
                event.clone().at(partition_partition_offset(offset))
            }));
        }
        if wanted.start == Start::Last {
            replayed.sort_by_key(|event| event.published);
            replayed.drain(..replayed.len().saturating_sub(1));
        }
        let id = state.next_sender;
        state.next_sender += 1;
        // Replayed events must fit in addition to the events that the queue holds later.
        let beside = replayed.len() + passed.len();
        let (mut sender, stream) = EventSender::new(self.settings.queue_events + beside);
        sender.set_counts(self.stats.stream_counts(topics.iter().map(|topic| &**topic)));
        passed.into_iter().for_each(|partition_offset| sender.try_send_progress(partition_offset));
        for event in replayed {
            sender.try_send(event);
        }
        state.senders.insert(id, sender);
        for (partition, name) in (0..).zip(&topics) {
            if let Some(topic) = state.topics.get_mut(&**name) {
                topic.senders.push((id, partition));
            }
        }
        ProviderStats::add(&self.stats.streams, 1);
        Ok(stream)
    }

    /// Publishes an event. Returns true if a stream received it.
    fn publish_now(&self, message: Message) -> Result<bool, PublishError> {
        let (topic, template) = (message.topic.clone(), message.schema_topic.clone());
        let refused = |reason: &str| {
            self.stats.record_publication(&topic, template.as_deref(), false);
            PublishError::Refused {
                provider: self.name.clone(),
                topic: topic.clone(),
                reason: reason.into(),
            }
        };
        check_plain_topic(&topic).map_err(refused)?;
        if message.payload.len() > EVENT_BYTES_MAX {
            return Err(refused("it is larger than 1 MiB"));
        }
        let mut state = self.state();
        let heard = state
            .publish(message, self.epoch, &self.settings, &self.stats)
            .ok_or_else(|| refused("too many topics are in use"))?;
        self.stats.record_publication(&topic, template.as_deref(), true);
        Ok(heard)
    }

    /// Publishes a request. The response arrives as the first event of a topic of its own, which the header
    /// [`REPLY_TO`] of the request names.
    async fn request_now(
        &self,
        mut message: Message,
        limit: Duration,
    ) -> Result<Bytes, PublishError> {
        let topic = message.topic.clone();
        let inbox = ReplyInbox::open(self).map_err(|error| PublishError::Refused {
            provider: self.name.clone(),
            topic: topic.clone(),
            reason: error.to_string(),
        })?;
        let ReplyInbox { name, mut stream, .. } = inbox;
        message.headers.push((REPLY_TO.into(), Bytes::copy_from_slice(name.0.as_bytes())));
        if !self.publish_now(message)? {
            return Err(PublishError::NoResponder { provider: self.name.clone(), topic });
        }
        let response = async {
            while let Some(message) = stream.messages.recv().await {
                if let SourceMessage::Event(event) = message {
                    return Some(event.payload.clone());
                }
            }
            None
        };
        tokio::time::timeout(limit, response).await.ok().flatten().ok_or_else(|| {
            let reason = "no response in time".into();
            PublishError::Unavailable { provider: self.name.clone(), reason }
        })
    }
}

/// The header of a request that names the topic for its response.
const REPLY_TO: &str = "reply-to";

/// The stream that receives the response to a request. Dropping it removes its topic.
struct ReplyInbox<'a> {
    name: ReplyTopic<'a>,
    stream: EventStream,
}

/// The topic for a response. It is forgotten when this value is dropped.
struct ReplyTopic<'a>(Box<str>, &'a Memory);

impl<'a> ReplyInbox<'a> {
    fn open(memory: &'a Memory) -> Result<Self, SourceError> {
        let name: Box<str> = {
            let mut state = memory.state();
            state.next_inbox += 1;
            format!("_INBOX.{:x}.{}", memory.epoch, state.next_inbox).into()
        };
        let name = ReplyTopic(name, memory);
        let stream = memory.subscribe_now(StreamRequest::new(vec![name.0.clone()]))?;
        Ok(Self { name, stream })
    }
}

impl Drop for ReplyTopic<'_> {
    fn drop(&mut self) {
        self.1.state().forget_topic(&self.0);
    }
}

impl MemoryTopic {
    /// Returns the index of the first event in the ring to replay, or `None` if events after the position are gone.
    fn replay_start(&self, partition: u32, start: &Start, epoch: u64) -> Option<usize> {
        let oldest = self.latest + 1 - self.ring.len() as u64;
        let at = |offset: u64| {
            usize::try_from(offset.saturating_sub(oldest))
                .unwrap_or(usize::MAX)
                .min(self.ring.len())
        };
        Some(match start {
            Start::New => self.ring.len(),
            Start::All => 0,
            Start::Last | Start::LastPerTopic => self.ring.len().saturating_sub(1),
            Start::Since(time) => {
                self.ring.partition_point(|event| event.published.is_some_and(|it| it < *time))
            }
            Start::At(offset) => at(*offset),
            Start::After(position) => match position.partition(partition) {
                None => 0,
                Some(partition_offset)
                    if partition_offset.part != epoch || partition_offset.offset + 1 < oldest =>
                {
                    return None;
                }
                Some(partition_offset) => at(partition_offset.offset + 1),
            },
        })
    }
}

impl MemoryState {
    /// Returns the topic of that name and creates it if needed. Returns `None` if there are too many topics.
    fn topic_or_insert(
        &mut self,
        name: &str,
        settings: &MemorySettings,
    ) -> Option<&mut MemoryTopic> {
        self.clock += 1;
        if !self.topics.contains_key(name) {
            if self.topics.len() >= settings.topics_max && !self.forget_silent_topics() {
                return None;
            }
            let topic = MemoryTopic { latest: self.forgotten, ..MemoryTopic::default() };
            self.topics.insert(name.into(), topic);
        }
        let topic = self.topics.get_mut(name)?;
        topic.touched = self.clock;
        Some(topic)
    }

    /// Forgets an eighth of all topics without streams (at least one), those that are silent longest first. Forgetting
    /// them one by one would cost a scan over all topics for every new one. Returns false if there is none.
    fn forget_silent_topics(&mut self) -> bool {
        let senders = &self.senders;
        let mut silent: Vec<(u64, Arc<str>)> = self
            .topics
            .iter()
            .filter(|(_, topic)| {
                !topic.senders.iter().any(|(sender, _)| senders.contains_key(sender))
            })
            .map(|(name, topic)| (topic.touched, Arc::clone(name)))
            .collect();
        silent.sort_unstable();
        silent.truncate((silent.len() / 8).max(1));
        for (_, name) in &silent {
            if let Some(topic) = self.topics.remove(name) {
                self.ring_bytes -=
                    topic.ring.iter().map(|event| event.payload.len()).sum::<usize>();
                self.forgotten = self.forgotten.max(topic.latest);
            }
        }
        !silent.is_empty()
    }

    fn publish(
        &mut self,
        message: Message,
        epoch: u64,
        settings: &MemorySettings,
        stats: &ProviderStats,
    ) -> Option<bool> {
        let bytes = message.payload.len();
        let name = &*message.topic;
        self.topic_or_insert(name, settings)?;
        if self.ring_bytes + bytes > settings.ring_bytes {
            self.empty_oldest_rings(
                (settings.ring_bytes - settings.ring_bytes / 8).saturating_sub(bytes),
            );
        }
        let keep = settings.ring_events > 0 && self.ring_bytes + bytes <= settings.ring_bytes;

        let (name, mut topic) = self.topics.remove_entry(name)?;
        topic.latest += 1;
        let event = Event {
            partition_offset: Some(PartitionOffset {
                partition: 0,
                offset: topic.latest,
                part: epoch,
            }),
            key: message.key,
            headers: (!message.headers.is_empty()).then(|| Arc::new(message.headers)),
            published: Some(SystemTime::now()),
            ..Event::new(Arc::clone(&name), message.payload)
        };
        let mut heard = false;
        let senders = &mut self.senders;
        topic.senders.retain(|(id, partition)| {
            let Some(sender) = senders.get_mut(id) else { return false };
            let partition_offset = event.partition_offset.map(|partition_offset| PartitionOffset {
                partition: *partition,
                ..partition_offset
            });
            match sender.try_send(Event { partition_offset, ..event.clone() }) {
                SendOutcome::Queued => heard = true,
                SendOutcome::Dropped { starts_gap } => {
                    ProviderStats::add(&stats.dropped, 1);
                    ProviderStats::add(&stats.gaps, starts_gap.into());
                }
                SendOutcome::Closed => {
                    senders.remove(id);
                    ProviderStats::subtract(&stats.streams, 1);
                    return false;
                }
            }
            true
        });
        if heard {
            ProviderStats::add(&stats.received, 1);
        }
        if keep {
            if topic.ring.len() == settings.ring_events
                && let Some(oldest) = topic.ring.pop_front()
            {
                self.ring_bytes -= oldest.payload.len();
            }
            self.ring_bytes += bytes;
            topic.ring.push_back(event);
        } else {
            // A ring has no holes, so without its latest event it must be empty.
            self.ring_bytes -= topic.ring.drain(..).map(|event| event.payload.len()).sum::<usize>();
        }
        self.topics.insert(name, topic);
        Some(heard)
    }

    /// Ends the streams of a topic. Returns their number.
    fn complete_topic(&mut self, name: &str, stats: &ProviderStats) -> usize {
        let Some(topic) = self.topics.get_mut(name) else { return 0 };
        let mut ended = 0;
        for (id, _) in topic.senders.drain(..) {
            let Some(sender) = self.senders.remove(&id) else { continue };
            ProviderStats::subtract(&stats.streams, 1);
            if !sender.is_closed() {
                ended += 1;
                sender.end(StreamEnd::Complete);
            }
        }
        ended
    }

    /// Forgets a topic that receives no more events.
    fn forget_topic(&mut self, name: &str) {
        if let Some(topic) = self.topics.remove(name) {
            self.ring_bytes -= topic.ring.iter().map(|event| event.payload.len()).sum::<usize>();
            self.forgotten = self.forgotten.max(topic.latest);
        }
    }

    /// Empties the rings of the topics that are silent longest until all rings together hold at most `target` bytes.
    /// Callers leave an eighth to spare, so that a full store does not sort its topics for each event.
    fn empty_oldest_rings(&mut self, target: usize) {
        let mut by_age: Vec<_> =
            self.topics.values_mut().filter(|topic| !topic.ring.is_empty()).collect();
        by_age.sort_unstable_by_key(|topic| topic.touched);
        for topic in by_age {
            if self.ring_bytes <= target {
                break;
            }
            self.ring_bytes -= topic.ring.drain(..).map(|event| event.payload.len()).sum::<usize>();
        }
    }

    /// Removes the senders of dropped streams, so that repeated subscriptions to silent topics do not accumulate.
    fn prune(&mut self, stats: &ProviderStats) {
        if self.senders.len() < self.prune_at {
            return;
        }
        let before = self.senders.len();
        self.senders.retain(|_, sender| !sender.is_closed());
        ProviderStats::subtract(&stats.streams, (before - self.senders.len()) as u64);
        let senders = &self.senders;
        for topic in self.topics.values_mut() {
            topic.senders.retain(|(id, _)| senders.contains_key(id));
        }
        self.prune_at = (self.senders.len() * 2).max(SENDERS_BEFORE_PRUNING);
    }
}

impl Provider for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn subscribe(
        &self,
        wanted: StreamRequest,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move { self.subscribe_now(wanted) })
    }

    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        let result = self.publish_now(message).map(drop);
        Box::pin(std::future::ready(result))
    }

    fn request(
        &self,
        message: Message,
        timeout: Duration,
    ) -> EventFuture<'_, Result<Bytes, PublishError>> {
        Box::pin(self.request_now(message, timeout))
    }

    fn replays(&self, _durable: Option<&Durable>) -> bool {
        true
    }

    fn complete(&self, topic: &str) -> Result<usize, &'static str> {
        Ok(self.state().complete_topic(topic, &self.stats))
    }

    /// Always succeeds, because no other process could refuse.
    fn check(&self, _: TopicUse) -> EventFuture<'_, Verdict> {
        Box::pin(std::future::ready(Verdict::Works))
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn stats(&self) -> &ProviderStats {
        &self.stats
    }

    fn check_topic(&self, topic: &str, _usage: TopicUsage) -> Result<(), &'static str> {
        check_plain_topic(topic)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (_, sender) in self.state().senders.drain() {
            sender.end(StreamEnd::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    #[tokio::test]
    async fn a_completed_topic_ends_its_streams_behind_their_events_and_can_be_used_again() {
        let memory = Memory::new("default", MemorySettings::default());
        let publish = |event: &'static str| memory.publish(Message::new("a", event));
        let mut stream = memory.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap();
        let other = memory.subscribe(StreamRequest::new(vec!["b".into()])).await.unwrap();
        publish("1").await.unwrap();
        assert_eq!((memory.complete("a"), memory.complete("ghost")), (Ok(1), Ok(0)));
        publish("2").await.unwrap();
        let mut heard = Vec::new();
        while let Some(message) = stream.messages.recv().await {
            heard.push(message);
        }
        assert!(matches!(heard[1], SourceMessage::Event(_)), "{heard:?}");
        assert_eq!(heard[2..], [SourceMessage::End(StreamEnd::Complete)]);
        let mut again = memory.subscribe(StreamRequest::new(vec!["a".into()])).await.unwrap();
        publish("3").await.unwrap();
        assert!(matches!(again.messages.recv().await, Some(SourceMessage::Progress(_))));
        assert!(matches!(again.messages.recv().await, Some(SourceMessage::Event(_))));
        assert!(!other.messages.is_closed());
        assert_eq!(memory.stats().streams.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    fn memory(settings: MemorySettings) -> Memory {
        Memory::new("default", settings)
    }

    fn try_subscribe(
        memory: &Memory,
        topics: &[&str],
        start: Start,
    ) -> Result<EventStream, SourceError> {
        let topics = topics.iter().map(|&topic| topic.into()).collect();
        memory.subscribe_now(StreamRequest::new(topics).with_start(start))
    }

    fn subscribe(memory: &Memory, topics: &[&str], start: Start) -> EventStream {
        try_subscribe(memory, topics, start).unwrap()
    }

    /// Starts after the events with these offsets, one for each partition.
    fn after(memory: &Memory, offsets: &[u64]) -> Start {
        let partition_offsets = (0..).zip(offsets);
        let partition_offset =
            |(partition, &offset)| PartitionOffset { partition, offset, part: memory.epoch };
        Start::After(partition_offsets.map(partition_offset).collect())
    }

    fn publish(memory: &Memory, topic: &str, payload: &'static str) {
        memory.publish_now(Message::new(topic, payload)).unwrap();
    }

    /// Returns the events received so far, as `topic#offset payload`.
    fn heard(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.messages.try_recv().ok())
            .filter_map(|message| match message {
                SourceMessage::Event(event) => Some(format!(
                    "{}#{} {}",
                    event.topic,
                    event.partition_offset.unwrap().offset,
                    String::from_utf8_lossy(&event.payload)
                )),
                SourceMessage::Progress(_) => None,
                SourceMessage::Gap => Some("gap".into()),
                SourceMessage::End(end) => Some(end.to_string()),
            })
            .collect()
    }

    #[test]
    fn events_are_numbered_per_topic_and_reach_every_stream_of_it() {
        let memory = memory(MemorySettings::default());
        let mut both = subscribe(&memory, &["a", "b"], Start::New);
        let mut only_b = subscribe(&memory, &["b"], Start::New);
        publish(&memory, "a", "1");
        publish(&memory, "b", "2");
        publish(&memory, "a", "3");
        publish(&memory, "c", "nobody");
        assert_eq!(heard(&mut both), ["a#1 1", "b#1 2", "a#2 3"]);
        assert_eq!(heard(&mut only_b), ["b#1 2"]);
        assert_eq!(memory.stats.published.load(std::sync::atomic::Ordering::Relaxed), 4);
        assert_eq!(memory.stats.received.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    #[test]
    fn a_topic_named_twice_delivers_each_event_once() {
        let memory = memory(MemorySettings::default());
        let mut stream = subscribe(&memory, &["a", "a"], Start::New);
        publish(&memory, "a", "1");
        assert_eq!(heard(&mut stream), ["a#1 1"]);
    }

    #[test]
    fn a_stream_after_a_number_replays_from_the_ring() {
        let memory = memory(MemorySettings { ring_events: 3, ..MemorySettings::default() });
        for payload in ["1", "2", "3", "4"] {
            publish(&memory, "a", payload);
        }
        let replayed = |start| heard(&mut subscribe(&memory, &["a"], start));
        assert_eq!(replayed(after(&memory, &[2])), ["a#3 3", "a#4 4"]);
        assert_eq!(replayed(after(&memory, &[1])), ["a#2 2", "a#3 3", "a#4 4"]);
        assert_eq!(replayed(Start::All), ["a#2 2", "a#3 3", "a#4 4"]);
        assert_eq!(replayed(Start::At(3)), ["a#3 3", "a#4 4"]);
        assert_eq!(replayed(Start::Last), ["a#4 4"]);
        let gone = SourceError::Gone { provider: "memory/default".into() };
        assert_eq!(try_subscribe(&memory, &["a"], after(&memory, &[0])).unwrap_err(), gone);
        let partition_offset = PartitionOffset { partition: 0, offset: 3, part: memory.epoch ^ 1 };
        let of_another_process = Start::After([partition_offset].into_iter().collect());
        assert_eq!(try_subscribe(&memory, &["a"], of_another_process).unwrap_err(), gone);
        let mut latest = subscribe(&memory, &["a"], after(&memory, &[4]));
        assert_eq!(heard(&mut latest), Vec::<String>::new());
        publish(&memory, "a", "5");
        assert_eq!(heard(&mut latest), ["a#5 5"]);
    }

    #[test]
    fn another_stream_continues_at_the_position_after_all_messages() {
        let memory = memory(MemorySettings::default());
        publish(&memory, "b", "1");
        publish(&memory, "c", "1");
        let mut stream = subscribe(&memory, &["c", "a", "b"], Start::LastPerTopic);
        publish(&memory, "a", "1");
        let mut position = Position::default();
        while let Ok(message) = stream.messages.try_recv() {
            match message {
                SourceMessage::Progress(partition_offset) => position.advance(partition_offset),
                SourceMessage::Event(event) => position.advance(event.partition_offset.unwrap()),
                other => panic!("{other:?}"),
            };
        }
        publish(&memory, "b", "2");
        publish(&memory, "a", "2");
        let mut next = subscribe(&memory, &["a", "b", "c"], Start::After(position));
        assert_eq!(heard(&mut next), ["a#2 2", "b#2 2"]);
    }

    #[test]
    fn a_slow_stream_drops_events_and_receives_a_gap_while_another_gets_all() {
        let memory = memory(MemorySettings { queue_events: 1, ..MemorySettings::default() });
        let mut slow = subscribe(&memory, &["a"], Start::New);
        let mut quick = subscribe(&memory, &["a"], Start::New);
        let mut all = Vec::new();
        for payload in ["1", "2", "3", "4"] {
            publish(&memory, "a", payload);
            all.extend(heard(&mut quick));
        }
        assert_eq!(all, ["a#1 1", "a#2 2", "a#3 3", "a#4 4"]);
        let first = heard(&mut slow);
        publish(&memory, "a", "5");
        let then = heard(&mut slow);
        assert_eq!((first, then), (vec!["a#1 1".into()], vec!["gap".into(), "a#5 5".into()]));
    }

    #[test]
    fn beyond_the_bound_the_longest_silent_topic_is_forgotten_and_never_reuses_numbers() {
        let memory = memory(MemorySettings { topics_max: 2, ..MemorySettings::default() });
        publish(&memory, "old", "1");
        publish(&memory, "old", "2");
        publish(&memory, "new", "1");
        publish(&memory, "third", "1");
        try_subscribe(&memory, &["old"], after(&memory, &[1])).unwrap_err();
        let mut old = subscribe(&memory, &["old"], Start::New);
        publish(&memory, "old", "3");
        assert_eq!(heard(&mut old), ["old#3 3"]);
    }

    #[test]
    fn topics_that_are_listened_to_are_not_forgotten() {
        let memory = memory(MemorySettings { topics_max: 1, ..MemorySettings::default() });
        let stream = subscribe(&memory, &["a"], Start::New);
        assert_eq!(
            memory.publish_now(Message::new("b", "")).unwrap_err().to_string(),
            r#"provider memory/default refused the event for topic "b": too many topics are in use"#
        );
        assert_eq!(
            try_subscribe(&memory, &["b"], Start::New).unwrap_err().to_string(),
            r#"provider memory/default does not accept topic "b": too many topics are in use"#
        );
        drop(stream);
        publish(&memory, "a", "the publisher notices that no stream listens");
        publish(&memory, "b", "1");
    }

    #[test]
    fn rings_together_stay_within_their_bytes() {
        let memory = memory(MemorySettings { ring_bytes: 10, ..MemorySettings::default() });
        publish(&memory, "a", "1234");
        publish(&memory, "b", "1234");
        publish(&memory, "c", "1234");
        assert_eq!(memory.state().ring_bytes, 8);
        try_subscribe(&memory, &["a"], after(&memory, &[0])).unwrap_err();
        let mut b = subscribe(&memory, &["b"], after(&memory, &[0]));
        assert_eq!(heard(&mut b), ["b#1 1234"]);
        publish(&memory, "b", "larger than all rings");
        try_subscribe(&memory, &["b"], after(&memory, &[1])).unwrap_err();
        assert_eq!(memory.state().ring_bytes, 0);
    }

    #[test]
    fn streams_dropped_on_silent_topics_do_not_accumulate() {
        let memory = memory(MemorySettings::default());
        for _ in 0..10 * SENDERS_BEFORE_PRUNING {
            drop(subscribe(&memory, &["silent"], Start::New));
        }
        assert!(memory.state().senders.len() <= SENDERS_BEFORE_PRUNING);
        assert!(memory.state().topics["silent"].senders.len() <= SENDERS_BEFORE_PRUNING);
    }

    #[test]
    fn closing_the_provider_ends_its_streams() {
        let memory = memory(MemorySettings::default());
        let mut stream = subscribe(&memory, &["a"], Start::New);
        drop(memory);
        assert_eq!(heard(&mut stream), ["the provider was closed"]);
    }

    #[test]
    fn topics_and_payloads_have_bounds() {
        let memory = memory(MemorySettings::default());
        let reason = |topic: &str, payload: Vec<u8>| {
            memory.publish_now(Message::new(topic, payload)).unwrap_err().to_string()
        };
        assert!(reason("", vec![]).ends_with("it is empty"));
        assert!(reason("a\nb", vec![]).ends_with("it contains a control character"));
        assert!(reason(&"a".repeat(2000), vec![]).ends_with("it is longer than 1024 bytes"));
        let large = vec![b' '; EVENT_BYTES_MAX + 1];
        assert!(reason("a", large).ends_with("it is larger than 1 MiB"));
    }

    #[tokio::test]
    async fn a_request_gets_the_first_response_and_leaves_no_topic_behind() {
        let memory = Arc::new(memory(MemorySettings::default()));
        let ask = |topic: &str| {
            let message = Message::new(topic, "question");
            memory.request(message, Duration::from_secs(10))
        };
        let nobody =
            PublishError::NoResponder { provider: "memory/default".into(), topic: "a".into() };
        assert_eq!(ask("a").await, Err(nobody));

        let mut stream = subscribe(&memory, &["a"], Start::New);
        let responder = async {
            let event = loop {
                if let Some(SourceMessage::Event(event)) = stream.messages.recv().await {
                    break event;
                }
            };
            let headers = event.headers.clone().unwrap();
            let inbox = std::str::from_utf8(&headers[0].1).unwrap().to_owned();
            publish(&memory, &inbox, "response");
            publish(&memory, &inbox, "another");
            event.payload.clone()
        };
        let (response, asked) = tokio::join!(ask("a"), responder);
        assert_eq!((response, asked), (Ok("response".into()), "question".into()));
        let topics: Vec<_> = memory.state().topics.keys().cloned().collect();
        assert_eq!(topics, [Arc::<str>::from("a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_ends_in_time() {
        let memory = memory(MemorySettings::default());
        let _stream = subscribe(&memory, &["a"], Start::New);
        let response = memory.request(Message::new("a", ""), Duration::from_secs(2)).await;
        let reason = "no response in time".into();
        assert_eq!(
            response,
            Err(PublishError::Unavailable { provider: "memory/default".into(), reason })
        );
    }
}
