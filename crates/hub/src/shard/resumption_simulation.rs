//! Simulation of subscribers that resume from their latest cursors, and of a broker that stores its events in
//! partitions. Streams deliver the partitions in any order, live streams lose events, the broker deletes old events,
//! and graphs are replaced. It is random and repeatable like [`super::simulation`], and shares its seeds. It checks
//! that
//!
//! - a subscriber with a cursor gets every event after it, in the order of each partition and once, unless a loss is
//!   announced;
//! - a subscriber with the position of an event and a time gets every event since then; of the partition of the event,
//!   those
//!   after it;
//! - a subscriber without a cursor that wants the current state gets that first, with a cursor like any other;
//! - a subscriber that gets a position has had all of its events up to there, or an announcement of the loss, and gets
//!   none of them again;
//! - a group that cannot keep up misses no event that the broker has, and announces no loss; neither does a group with
//!   an outlet that does not run for a while;
//! - in the end all subscribers have had all events and know their position, and equal groups are one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bindings::Filter;
use events::{Event, PartitionOffset, Position, SourceError, SourceMessage, Start, StreamEnd};

use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply};
use super::simulation::{Random, for_seeds};
use super::{ReaderStep, TriggerId};
use crate::cursor::{Cursors, Resume};
use crate::{GroupId, HubSettings, LiveOperation, Subscriber, Subscription};

const STEPS: u32 = 400;

/// The maximum number of rounds in which everything that can be delivered is delivered, once the disturbances are over.
const ROUNDS_MAX: u32 = 10_000;
const TOPICS: u64 = 2;
const PARTITIONS: usize = 3;
const OUTLETS: u64 = 2;

/// The operation with a filter.
const FILTERED: u64 = 2;

/// The operation that gets the current state first.
const WITH_STATE: u64 = 1;

/// A topic at the broker: offsets count from 1 in each partition.
#[derive(Default)]
struct Topic {
    published: [u64; PARTITIONS],
    forgotten: [u64; PARTITIONS],
    /// The time of each published event.
    times: [Vec<u64>; PARTITIONS],
}

impl Topic {
    fn publish(&mut self, partition: usize, time: u64) {
        self.published[partition] += 1;
        self.times[partition].push(time);
    }

    /// Returns the first offset since that time, of each partition.
    fn since(&self, time: u64) -> [u64; PARTITIONS] {
        let first = |partition: usize| self.times[partition].partition_point(|it| *it < time);
        std::array::from_fn(|partition| first(partition) as u64 + 1)
    }
}

/// A stream, and the next offset that it delivers in each partition.
#[derive(Clone, Copy)]
struct Stream {
    topic: u64,
    next: [u64; PARTITIONS],
}

struct SimulatedSubscriber {
    outlet: usize,
    member: Subscriber,
    topic: u64,
    operation: u64,
    reply: Option<SubscribeReply>,
    subscription: Option<Subscription>,
    /// The position in its cursor.
    after: Option<Position>,
    /// The event in its cursor, if it has a time and no position, and the first offset since that time, of each
    /// partition.
    since: Option<(PartitionOffset, [u64; PARTITIONS])>,
    /// The number of published events when it was added.
    from: [u64; PARTITIONS],
}

impl SimulatedSubscriber {
    /// True if it came without a cursor.
    fn is_new(&self) -> bool {
        self.after.is_none() && self.since.is_none()
    }
}

/// Returns partition and offset of a received event.
fn event_in(heard: &str) -> Option<(usize, u64)> {
    let (_, rest) = heard.split_once("\"partition\":")?;
    let (partition, rest) = rest.split_once(",\"offset\":").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((partition.parse().unwrap(), digits.parse().unwrap()))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

struct Simulation {
    random: Random,
    stage: Stage,
    cursors: Arc<Cursors>,
    /// The positions of all cursors that were decoded.
    decoded: RefCell<HashMap<String, Position>>,
    outlets: Vec<Arc<ScriptedOutlet>>,
    subscribers: Vec<SimulatedSubscriber>,
    topics: [Topic; TOPICS as usize],
    /// The time, which advances with each published event.
    time: u64,
    live: HashMap<TriggerId, Stream>,
    readers: HashMap<(TriggerId, u64), Stream>,
    generation: u64,
    /// True if a side reader has waited to be opened.
    readers_waited: bool,
    /// True if events may be lost.
    is_rough: bool,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_rough = random.below(2) == 0;
        let is_tight = random.below(2) == 0;
        let settings = HubSettings {
            resolutions_in_flight: 1 + random.below(12) as usize,
            group_in_flight: 1 + random.below(4) as usize,
            batch_events: random.below(5) as usize,
            group_waiting: if is_tight { random.below(6) as usize } else { 100_000 },
            catch_up: !is_rough || random.below(2) == 0,
            ring_events: random.below(12) as usize,
            readers_opening_max: 1 + random.below(3) as usize,
            ..HubSettings::default()
        };
        let cursors =
            Cursors::new([&b"a key of some length"[..]]).unwrap().with_memory_providers(true);
        let cursors = Arc::new(cursors);
        Self {
            random,
            stage: Stage::with_cursors(settings, Some(Arc::clone(&cursors))),
            cursors,
            decoded: RefCell::default(),
            outlets: (0..OUTLETS).map(|_| Arc::default()).collect(),
            subscribers: Vec::new(),
            topics: Default::default(),
            time: 0,
            live: HashMap::new(),
            readers: HashMap::new(),
            generation: 1,
            readers_waited: false,
            is_rough,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..6 => self.subscribe(),
            6..20 => self.resume_subscriber(),
            20..28 => self.leave(),
            28..34 => self.open(),
            34..42 => self.open_reader(),
            42..52 => self.publish(),
            52..64 => self.deliver(),
            64..76 => self.read(),
            76..87 => self.resolve(),
            87..89 => self.pass_time(),
            90..94 => self.step_positions(),
            94 => self.lose(),
            95 => self.lose_or_end(),
            96 => self.delete_old_events(),
            97 => self.cancel_subscribe(),
            89 | 98 => self.disturb_outlet(),
            _ => self.reload(),
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.receive_replies();
        self.stage.process_leaves();
        let (closed, readers) = (&self.stage.closed, &self.stage.readers_closed);
        self.live.retain(|trigger, _| !closed.contains(trigger));
        self.readers.retain(|of, _| !readers.contains(of));
        self.readers_waited |= self.stage.stats.readers_waiting.load(Relaxed) > 0;
        self.check();
    }

    fn operation(&self, topic: u64, operation: u64) -> LiveOperation {
        let mut wanted =
            self.stage.operation(&topic.to_string(), operation.into(), self.generation);
        let is_filtered = operation == FILTERED;
        wanted.filter = is_filtered.then(|| Arc::new(Filter::one_of("odd", &[0])));
        if operation == WITH_STATE {
            wanted = Stage::with_state(wanted);
        }
        // Some are resolved in batches, which must make no difference.
        if operation == 0 { wanted } else { Stage::with_batches(wanted) }
    }

    fn add_subscriber(&mut self, topic: u64, operation: u64, resume: Option<Resume>) {
        let outlet = self.random.below(OUTLETS) as usize;
        let member = Subscriber { connection: self.subscribers.len() as u64, operation: 1 };
        let wanted = self.operation(topic, operation);
        let after = match &resume {
            Some(Resume::After(position)) => Some(position.clone()),
            _ => None,
        };
        let since = match &resume {
            Some(Resume::Since { partition_offset, time }) => {
                Some((*partition_offset, self.topics[topic as usize].since(seconds(*time))))
            }
            _ => None,
        };
        let reply = self.stage.resume(&self.outlets[outlet], member, wanted, resume);
        let (reply, subscription, from) = (Some(reply), None, [0; PARTITIONS]);
        self.subscribers.push(SimulatedSubscriber {
            outlet,
            member,
            topic,
            operation,
            reply,
            subscription,
            after,
            since,
            from,
        });
    }

    fn subscribe(&mut self) {
        let (topic, operation) = (self.random.below(TOPICS), self.random.below(3));
        self.add_subscriber(topic, operation, None);
    }

    /// Runs one step of a position round.
    fn step_positions(&mut self) {
        self.stage.shard.send_positions();
        self.stage.take_effects();
    }

    /// Returns the position in a received cursor, with or without a payload.
    fn position_in(&self, subscriber: &SimulatedSubscriber, heard: &str) -> Option<Position> {
        let cursor = heard.split_once("\"cursor\":\"")?.1.split('"').next()?;
        let decode = || {
            let source = self.operation(subscriber.topic, subscriber.operation).source;
            let scope = self.cursors.scope("Subscription.field", &source, &[]);
            match self.cursors.decode(cursor, scope).expect("this test signed it") {
                Resume::After(position) => position,
                Resume::Since { .. } => panic!("cursors of few partitions have positions"),
            }
        };
        let mut decoded = self.decoded.borrow_mut();
        Some(decoded.entry(cursor.to_owned()).or_insert_with(decode).clone())
    }

    /// Subscribes with any cursor that a subscriber has received, whether it is still there or not.
    fn resume_subscriber(&mut self) {
        if self.subscribers.is_empty() {
            return;
        }
        let index = self.random.below(self.subscribers.len() as u64) as usize;
        let subscriber = &self.subscribers[index];
        let (topic, operation) = (subscriber.topic, subscriber.operation);
        let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
        let cursors: Vec<_> = heard.iter().filter(|it| it.contains("\"cursor\":\"")).collect();
        let Some(back) = cursors.len().checked_sub(1) else { return };
        // Mostly the last cursor, since clients resume from that.
        let back = if self.random.below(3) == 0 { self.random.below(back as u64 + 1) } else { 0 };
        let chosen = cursors[cursors.len() - 1 - back as usize];
        let position = self.position_in(&self.subscribers[index], chosen);
        if let Some((partition, offset)) = event_in(chosen)
            && self.random.below(6) == 0
        {
            // As if there were more partitions than a cursor holds. Other partitions had not delivered all events when
            // it was published.
            let published = self.topics[topic as usize].times[partition][offset as usize - 1];
            let time = published.saturating_sub(self.random.below(6));
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time);
            let since =
                Resume::Since { partition_offset: Self::partition_offset(partition, offset), time };
            return self.add_subscriber(topic, operation, Some(since));
        }
        self.add_subscriber(topic, operation, position.map(Resume::After));
    }

    fn leave(&mut self) {
        let live: Vec<_> = (0..self.subscribers.len())
            .filter(|&index| self.subscribers[index].subscription.is_some())
            .collect();
        if !live.is_empty() {
            let index = live[self.random.below(live.len() as u64) as usize];
            let subscription = self.subscribers[index].subscription.take().unwrap();
            self.stage.leave(subscription);
        }
    }

    fn cancel_subscribe(&mut self) {
        if let Some(subscriber) = self.subscribers.iter_mut().find(|it| it.reply.is_some()) {
            subscriber.reply = None;
        }
    }

    fn receive_replies(&mut self) {
        for subscriber in &mut self.subscribers {
            let Some(reply) = &mut subscriber.reply else { continue };
            match reply.try_recv() {
                Ok(reply) => {
                    subscriber.subscription = reply.ok();
                    subscriber.from = self.topics[subscriber.topic as usize].published;
                    subscriber.reply = None;
                }
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => {}
                Err(error) => panic!("every caller gets a reply: {error}"),
            }
        }
    }

    /// Lets time pass for subscribers that wait for others, and for groups that wait for their subscribers.
    fn pass_time(&mut self) {
        for _ in 0..self.random.below(60) {
            self.stage.shard.poll_readers();
            self.stage.take_effects();
            self.poll_backpressured();
        }
    }

    fn poll_backpressured(&mut self) {
        if self.stage.shard.needed_polls().backpressure {
            self.stage.shard.poll_backpressured();
            self.stage.take_effects();
        }
    }

    /// Stops or resumes the thread of an outlet, and fills its sockets or gives them room.
    fn disturb_outlet(&mut self) {
        let outlet = Arc::clone(&self.outlets[self.random.below(OUTLETS) as usize]);
        if !self.stage.shard.settings.catch_up {
            // Results are dropped then, which other simulations cover.
            return;
        }
        outlet.starve(self.random.below(2) == 0);
        outlet.set_room(self.random.below(2) == 0);
    }

    fn topic_of(&self, trigger: TriggerId) -> u64 {
        self.stage.shard.triggers[&trigger].source.topics()[0].parse().unwrap()
    }

    fn partition_offset(partition: usize, offset: u64) -> PartitionOffset {
        PartitionOffset { partition: partition as u32, offset, part: 0 }
    }

    /// Returns the offsets of the partitions with events when a stream begins.
    fn baseline(&self, stream: &Stream) -> Vec<SourceMessage> {
        let published = self.topics[stream.topic as usize].published;
        let holds = (0..PARTITIONS).filter(|&partition| published[partition] > 0);
        holds
            .map(|partition| {
                SourceMessage::Progress(Self::partition_offset(
                    partition,
                    stream.next[partition] - 1,
                ))
            })
            .collect()
    }

    fn open(&mut self) {
        if self.stage.opening.is_empty() {
            return;
        }
        let topic = self.topic_of(self.stage.opening[0]);
        let trigger = self.stage.open();
        let next = self.topics[topic as usize].published.map(|it| it + 1);
        let stream = Stream { topic, next };
        for passed in self.baseline(&stream) {
            self.stage.message(trigger, passed);
        }
        self.live.insert(trigger, stream);
    }

    fn open_reader(&mut self) {
        let Some((trigger, stream_id, start)) = self.stage.readers_opening.first().cloned() else {
            return;
        };
        let topic = self.topic_of(trigger);
        let forgotten = self.topics[topic as usize].forgotten;
        let next: [u64; PARTITIONS] = match start {
            Start::After(position) => {
                let read = |partition: usize| {
                    position
                        .partition(partition as u32)
                        .map_or(0, |partition_offset| partition_offset.offset)
                };
                std::array::from_fn(|partition| read(partition) + 1)
            }
            Start::Since(time) => {
                let next = self.topics[topic as usize].since(seconds(time));
                std::array::from_fn(|partition| next[partition].max(forgotten[partition] + 1))
            }
            Start::All => forgotten.map(|it| it + 1),
            other => panic!("a reader has a start in the past: {other:?}"),
        };
        let is_for_behind = self.stage.shard.catch_up.serves_groups_behind(trigger, stream_id);
        if is_for_behind && self.random.below(4) == 0 {
            let reason = String::new();
            let away = SourceError::Unavailable { provider: "p".into(), reason };
            self.stage.open_reader(Err(away));
            return;
        }
        if (0..PARTITIONS).any(|partition| next[partition] <= forgotten[partition]) {
            let gone = SourceError::Gone { provider: "p".into() };
            self.stage.open_reader(Err(gone));
            return;
        }
        let (trigger, stream_id, is_wanted) = self.stage.open_reader(Ok(()));
        if !is_wanted {
            return;
        }
        let stream = Stream { topic, next };
        self.readers.insert((trigger, stream_id), stream);
        for passed in self.baseline(&stream) {
            if self.stage.read(trigger, stream_id, passed) == ReaderStep::Close {
                self.readers.remove(&(trigger, stream_id));
                return;
            }
        }
    }

    fn publish(&mut self) {
        let topic = self.random.below(TOPICS) as usize;
        let partition = self.random.below(PARTITIONS as u64) as usize;
        self.time += 1;
        self.topics[topic].publish(partition, self.time);
    }

    /// Returns the next message of a stream, from any of its partitions.
    fn next(topics: &[Topic], random: &mut Random, stream: &mut Stream) -> Option<SourceMessage> {
        let topic = &topics[stream.topic as usize];
        let has_more: Vec<_> = (0..PARTITIONS)
            .filter(|&partition| stream.next[partition] <= topic.published[partition])
            .collect();
        let partition = *has_more.get(random.below(has_more.len().max(1) as u64) as usize)?;
        if stream.next[partition] <= topic.forgotten[partition] {
            stream.next[partition] = topic.forgotten[partition] + 1;
            return Some(SourceMessage::Gap);
        }
        let offset = stream.next[partition];
        stream.next[partition] += 1;
        let odd = offset % 2;
        let payload = format!("{{\"odd\":{odd},\"partition\":{partition},\"offset\":{offset}}}");
        Some(SourceMessage::Event(
            Event::new("t", payload).at(Self::partition_offset(partition, offset)).into(),
        ))
    }

    fn deliver(&mut self) {
        let mut triggers: Vec<_> = self.live.keys().copied().collect();
        triggers.sort_unstable_by_key(|it| it.0);
        for trigger in triggers {
            let Some(stream) = self.live.get_mut(&trigger) else { continue };
            if let Some(message) = Self::next(&self.topics, &mut self.random, stream) {
                self.stage.message(trigger, message);
            }
        }
    }

    fn read(&mut self) {
        let mut readers: Vec<_> = self.readers.keys().copied().collect();
        readers.sort_unstable_by_key(|it| (it.0.0, it.1));
        for of in readers {
            let Some(stream) = self.readers.get_mut(&of) else { continue };
            if self.stage.readers_paused.contains(&of) {
                continue;
            }
            if let Some(message) = Self::next(&self.topics, &mut self.random, stream)
                && self.stage.read(of.0, of.1, message) == ReaderStep::Close
            {
                self.readers.remove(&of);
            }
        }
    }

    fn resolve(&mut self) {
        if !self.stage.resolutions.is_empty() {
            let index = self.random.below(self.stage.resolutions.len() as u64) as usize;
            self.stage.resolve(index);
        }
    }

    /// Makes a live stream skip some events, and announce that.
    fn lose(&mut self) {
        if !self.is_rough {
            return;
        }
        let mut triggers: Vec<_> = self.live.keys().copied().collect();
        triggers.sort_unstable_by_key(|it| it.0);
        if let Some(stream) = triggers.first().and_then(|it| self.live.get_mut(it)) {
            let partition = self.random.below(PARTITIONS as u64) as usize;
            let published = self.topics[stream.topic as usize].published[partition];
            stream.next[partition] =
                (stream.next[partition] + self.random.below(3)).min(published + 1);
            self.stage.message(triggers[0], SourceMessage::Gap);
        }
    }

    /// Makes a live stream lose events or end.
    fn lose_or_end(&mut self) {
        if !self.is_rough || self.random.below(4) > 0 {
            return self.lose();
        }
        let first = self.live.keys().copied().min_by_key(|it| it.0);
        if let Some(trigger) = first {
            self.live.remove(&trigger);
            self.stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
        }
    }

    /// Makes the broker drop old events.
    fn delete_old_events(&mut self) {
        if self.is_rough {
            let topic = &mut self.topics[self.random.below(TOPICS) as usize];
            let partition = self.random.below(PARTITIONS as u64) as usize;
            let most = topic.published[partition] - topic.forgotten[partition];
            topic.forgotten[partition] += self.random.below(most + 1);
        }
    }

    fn reload(&mut self) {
        self.generation += 1;
        let old = self.stage.shard.operations_before(self.generation);
        let renew = |(group, operation): &(_, Arc<LiveOperation>)| {
            let topic = operation.source.topics()[0].parse().unwrap();
            let id = u64::try_from(operation.group.operation_id).unwrap();
            (*group, Ok(self.operation(topic, id)))
        };
        let renewals = old.iter().map(renew).collect();
        assert!(self.stage.advance(self.generation, renewals).is_empty());
    }

    fn check(&self) {
        let shard = &self.stage.shard;
        let running: usize = shard.groups.values().map(super::group::Group::resolving).sum();
        assert_eq!(
            (running, running),
            (shard.scheduler.resolutions(), self.stage.resolutions.len())
        );
        let mut in_triggers = 0;
        for (id, trigger) in shard.triggers.iter() {
            let catching_up: Vec<_> = shard.catch_up.groups(id).collect();
            in_triggers += trigger.groups.len() + catching_up.len();
            assert!(trigger.merge_candidates.iter().all(|it| trigger.groups.contains(*it)));
            let phase = |id: &GroupId| shard.groups[id].phase;
            assert!(catching_up.iter().all(|id| phase(id).is_catching_up()));
            assert!(trigger.groups.iter().all(|id| !phase(&id).is_catching_up()));
            shard.catch_up.check_invariants(id);
        }
        shard.catch_up.check_openings();
        assert_eq!(in_triggers, shard.groups.len());
        let is_stuck = |it: &super::group::Group| it.has_result() && !it.is_held_back;
        assert!(!shard.groups.values().any(is_stuck), "every result has left or will");
        let held_back = shard.groups.values().filter(|it| it.is_held_back);
        assert!(held_back.into_iter().all(|it| shard.groups.is_polled_for_results(it.id)));
        let could_start = |it: &super::group::Group| {
            it.can_start(shard.settings.group_in_flight) && shard.scheduler.has_permit_for(it)
        };
        assert!(!shard.groups.values().any(could_start), "no group waits while a permit is free");
        assert!(shard.groups.values().all(|group| !group.is_empty()), "a group has subscribers");
        for subscriber in &self.subscribers {
            self.check_heard(subscriber);
        }
    }

    /// Checks for holes and repetitions. Returns the latest offset in each partition, and whether a loss was announced.
    fn check_heard(&self, subscriber: &SimulatedSubscriber) -> ([u64; PARTITIONS], bool) {
        let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
        let after = |partition: usize| match (&subscriber.after, &subscriber.since) {
            (Some(position), _) => Some(
                position
                    .partition(partition as u32)
                    .map_or(0, |partition_offset| partition_offset.offset),
            ),
            // Events of other partitions may be repeated.
            (None, Some((partition_offset, _))) => {
                (partition_offset.partition == partition as u32).then_some(partition_offset.offset)
            }
            (None, None) => None,
        };
        // The first event is no later than this one, unless the broker has dropped it.
        let forgotten = &self.topics[subscriber.topic as usize].forgotten;
        let since = |partition: usize| {
            let (_, since) = subscriber.since.as_ref()?;
            Some(since[partition].max(forgotten[partition] + 1))
        };
        let mut latest: [Option<u64>; PARTITIONS] = std::array::from_fn(after);
        // The latest position that it was sent.
        let mut told = [0; PARTITIONS];
        let mut has_lost = false;
        let is_filtered = subscriber.operation == FILTERED;
        let states: Vec<_> =
            (0..heard.len()).filter(|&at| heard[at].starts_with(r#"{"data":"state""#)).collect();
        let may_have_state = subscriber.operation == WITH_STATE && subscriber.is_new();
        assert!(states.is_empty() || (may_have_state && states == [1]), "{heard:?}");
        let follows = |before: u64| if is_filtered { before / 2 * 2 + 2 } else { before + 1 };
        for payload in &heard {
            if payload.starts_with("{\"cursor\"") {
                let position = self.position_in(subscriber, payload).unwrap();
                for partition_offset in position.partition_offsets() {
                    let partition = partition_offset.partition as usize;
                    // Events from before its subscription are not for it.
                    let had = latest[partition].or(since(partition).map(|first| first - 1));
                    let had = had.unwrap_or(subscriber.from[partition]);
                    assert!(
                        has_lost || partition_offset.offset < follows(had),
                        "partition {partition}: position {} after {had}: {heard:?}",
                        partition_offset.offset
                    );
                    told[partition] = told[partition].max(partition_offset.offset);
                }
                continue;
            }
            let Some((partition, offset)) = event_in(payload) else { continue };
            has_lost |= payload.contains("\"lost\":") || payload.contains("\"gap\":true");
            assert!(!is_filtered || offset.is_multiple_of(2), "filtered: {heard:?}");
            assert!(
                offset > told[partition],
                "partition {partition}: {offset} after {}: {heard:?}",
                told[partition]
            );
            if let Some(before) = latest[partition] {
                let expected = follows(before.max(told[partition]));
                assert!(
                    offset == expected || (has_lost && offset > expected),
                    "partition {partition}: expected {expected} after {:?}: {heard:?}",
                    subscriber.after
                );
            } else if let Some(first) = since(partition) {
                let first = if is_filtered { follows(first - 1) } else { first };
                assert!(
                    has_lost || offset <= first,
                    "partition {partition}: expected {first} of {:?}: {heard:?}",
                    subscriber.since
                );
            }
            latest[partition] = Some(offset);
        }
        assert!(self.is_rough || !has_lost, "nothing is lost that the broker has: {heard:?}");
        (latest.map(Option::unwrap_or_default), has_lost)
    }

    /// Ends the disturbances and runs until nothing changes.
    fn come_to_rest(&mut self) {
        for outlet in &self.outlets {
            outlet.starve(false);
            outlet.set_room(true);
        }
        for _ in 0..ROUNDS_MAX {
            let before = (self.stage.resolutions.len(), self.heard_in_all());
            for _ in 0..PARTITIONS {
                self.open();
                self.open_reader();
                self.deliver();
                self.read();
                self.pass_time();
            }
            self.stage.resolve_all();
            self.poll_backpressured();
            self.settle();
            let is_over = self.stage.opening.is_empty()
                && !self.stage.shard.needed_polls().readers
                && !self.stage.shard.needed_polls().backpressure
                && self.stage.readers_opening.is_empty()
                && self.live.values().all(|it| {
                    let published = self.topics[it.topic as usize].published;
                    (0..PARTITIONS).all(|partition| it.next[partition] > published[partition])
                })
                && self.readers.values().all(|it| {
                    let published = self.topics[it.topic as usize].published;
                    (0..PARTITIONS).all(|partition| it.next[partition] > published[partition])
                });
            if is_over && before == (self.stage.resolutions.len(), self.heard_in_all()) {
                return;
            }
        }
        panic!("the simulation does not come to rest");
    }

    fn heard_in_all(&self) -> usize {
        let heard = |it: &SimulatedSubscriber| self.outlets[it.outlet].heard(it.member).len();
        self.subscribers.iter().map(heard).sum()
    }

    fn finish(mut self) {
        self.come_to_rest();
        // One more event in each partition, so that readers of quiet partitions meet their triggers.
        for topic in &mut self.topics {
            for partition in (0..PARTITIONS).flat_map(|partition| [partition, partition]) {
                self.time += 1;
                topic.publish(partition, self.time);
            }
        }
        self.come_to_rest();
        while self.stage.shard.send_positions().is_some() {}
        self.settle();
        for subscriber in &self.subscribers {
            if subscriber.subscription.is_none() {
                continue;
            }
            let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
            if heard.last().is_some_and(|it| it.starts_with("end: ")) {
                assert!(self.is_rough, "nothing ends: {heard:?}");
                continue;
            }
            let (latest, has_lost) = self.check_heard(subscriber);
            let has_state = heard.get(1).is_some_and(|it| it.starts_with(r#"{"data":"state""#));
            let wants_state = subscriber.operation == WITH_STATE && subscriber.is_new();
            assert_eq!(has_state, wants_state, "{heard:?}");
            // The last loss is announced with the next event, which has not come yet.
            let group = subscriber.subscription.as_ref().map(Subscription::group).unwrap();
            self.check_told(subscriber, group, &heard);
            let has_lost = has_lost || self.stage.shard.groups.has_unannounced_loss(group);
            for (partition, published) in
                self.topics[subscriber.topic as usize].published.into_iter().enumerate()
            {
                let is_filtered = subscriber.operation == FILTERED;
                let last = if is_filtered { published / 2 * 2 } else { published };
                assert!(
                    latest[partition] == last || has_lost || last <= subscriber.from[partition],
                    "partition {partition} up to {last}: {heard:?}"
                );
            }
        }
        let shard = &self.stage.shard;
        for (id, trigger) in shard.triggers.iter() {
            if !self.is_rough {
                assert!(shard.catch_up.is_idle(id), "all groups have caught up");
                assert!(!shard.catch_up.has_open_reader(id), "no group needs a reader");
                assert!(trigger.merge_candidates.is_empty(), "equal groups are merged");
            }
        }
        self.leave_all();
    }

    /// Checks that a subscriber would not read events for others again.
    fn check_told(&self, subscriber: &SimulatedSubscriber, group: GroupId, heard: &[String]) {
        let shard = &self.stage.shard;
        let group = &shard.groups[&shard.groups.current(group)];
        let replay = shard.catch_up.replay(group.trigger).unwrap();
        if !group.phase.is_catching_up()
            && !group.has_unannounced_loss()
            && !replay.position.partition_offsets().is_empty()
        {
            let last = heard.iter().rev().find_map(|it| self.position_in(subscriber, it));
            let last = last.or_else(|| subscriber.after.clone());
            assert_eq!(last.as_ref(), Some(&replay.position), "{heard:?}");
        }
    }

    /// Removes all subscribers and checks that nothing is left.
    fn leave_all(mut self) {
        for subscriber in &mut self.subscribers {
            subscriber.reply = None;
            subscriber.subscription = None;
        }
        self.stage.process_leaves();
        while !self.stage.opening.is_empty() || !self.stage.readers_opening.is_empty() {
            self.open();
            self.open_reader();
        }
        let shard = &self.stage.shard;
        assert!(shard.triggers.is_empty() && shard.groups.is_empty(), "something leaked");
        assert!(shard.groups.has_no_outlets() && shard.groups.has_no_merged(), "something leaked");
        assert_eq!((shard.scheduler.resolutions(), shard.catch_up.ring_bytes()), (0, 0));
        let stats = &self.stage.stats;
        for gauge in [
            &stats.waiting,
            &stats.resolving,
            &stats.subscribers,
            &stats.joining,
            &stats.groups,
            &stats.catching_up,
            &stats.readers_waiting,
        ] {
            assert_eq!(gauge.load(Relaxed), 0, "counters leaked");
        }
        assert!(self.outlets.iter().all(|outlet| outlet.is_empty()), "subscribers leaked");
    }
}

#[test]
fn a_subscriber_that_resumes_gets_every_event_once_and_in_order() {
    let [fell_behind, separated, held_back, waited] = [const { AtomicU64::new(0) }; 4];
    for_seeds(|seed| {
        let mut simulation = Simulation::new(seed);
        (0..STEPS).for_each(|_| simulation.step());
        let stats = &simulation.stage.stats;
        fell_behind.fetch_add(stats.fell_behind.load(Relaxed), Relaxed);
        held_back.fetch_add(stats.held_back.load(Relaxed), Relaxed);
        let shard = &simulation.stage.shard;
        let has_separated = shard.triggers.iter().any(|(id, _)| shard.catch_up.has_separated(id));
        separated.fetch_add(has_separated.into(), Relaxed);
        waited.fetch_add(simulation.readers_waited.into(), Relaxed);
        simulation.finish();
    });
    let is_one = std::env::var_os("STARLING_SEED").is_some();
    assert!(is_one || fell_behind.into_inner() > 0, "some groups fell behind");
    assert!(is_one || separated.into_inner() > 0, "some groups got readers of their own");
    assert!(is_one || held_back.into_inner() > 0, "some outlets did not run");
    assert!(is_one || waited.into_inner() > 0, "some readers waited for others to be open");
}
