//! Tests of subscribers with cursors, with a scripted shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bindings::Filter;
use events::{Event, PartitionOffset, Position, SourceError, SourceMessage, Start, StreamEnd};
use execute::ErrorCode;

use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member};
use super::{ReaderStep, TriggerId};
use crate::cursor::{Cursors, Resume};
use crate::{HubSettings, LiveOperation, Subscriber, Subscription};

pub(super) fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
    PartitionOffset { partition, offset, part: 0 }
}

pub(super) fn position(partition_offsets: &[(u32, u64)]) -> Position {
    partition_offsets
        .iter()
        .map(|&(partition, offset)| partition_offset(partition, offset))
        .collect()
}

pub(super) fn after(partition_offsets: &[(u32, u64)]) -> Option<Resume> {
    Some(Resume::After(position(partition_offsets)))
}

pub(super) struct Scenario {
    pub(super) stage: Stage,
    pub(super) outlet: Arc<ScriptedOutlet>,
    pub(super) cursors: Arc<Cursors>,
    subscriptions: u64,
}

impl Scenario {
    pub(super) fn new(ring_events: usize) -> Self {
        Self::with(HubSettings { ring_events, ..HubSettings::default() })
    }

    pub(super) fn with(settings: HubSettings) -> Self {
        let cursors =
            Cursors::new([&b"a key of some length"[..]]).unwrap().with_memory_providers(true);
        let cursors = Arc::new(cursors);
        let stage = Stage::with_cursors(settings, Some(Arc::clone(&cursors)));
        Self { stage, outlet: Arc::default(), cursors, subscriptions: 0 }
    }

    /// Makes a live trigger on `topic` at partition 0, offset `at`, with one subscriber.
    pub(super) fn live(&mut self, at: u64) -> (TriggerId, Subscriber, Subscription) {
        let (comer, reply) = self.subscribe(1, None);
        let trigger = self.stage.open();
        self.stage.message(trigger, SourceMessage::Progress(partition_offset(0, at)));
        (trigger, comer, joined(reply))
    }

    pub(super) fn subscribe(
        &mut self,
        operation: u128,
        resume: Option<Resume>,
    ) -> (Subscriber, SubscribeReply) {
        let operation = self.stage.operation("topic", operation, 0);
        self.subscribe_to(operation, resume)
    }

    pub(super) fn subscribe_to(
        &mut self,
        operation: LiveOperation,
        resume: Option<Resume>,
    ) -> (Subscriber, SubscribeReply) {
        self.subscriptions += 1;
        let member = member(self.subscriptions);
        (member, self.stage.resume(&self.outlet, member, operation, resume))
    }

    pub(super) fn event(offset: u64) -> SourceMessage {
        SourceMessage::Event(
            Event::new("topic", offset.to_string()).at(partition_offset(0, offset)).into(),
        )
    }

    pub(super) fn events(&mut self, trigger: TriggerId, offsets: impl IntoIterator<Item = u64>) {
        for offset in offsets {
            self.stage.message(trigger, Self::event(offset));
        }
    }

    pub(super) fn read(&mut self, trigger: TriggerId, stream_id: u64, offset: u64) -> ReaderStep {
        self.stage.read(trigger, stream_id, Self::event(offset))
    }

    /// Returns the event numbers that a subscriber received, and all other commands as they are.
    pub(super) fn heard(&self, member: Subscriber) -> Vec<String> {
        let number = |payload: String| match payload.strip_prefix("{\"data\":") {
            Some(rest) => {
                assert!(rest.contains("\"cursor\":\""), "{payload}");
                rest.split(',').next().unwrap().to_owned()
            }
            None => payload,
        };
        self.outlet.heard(member).into_iter().skip(1).map(number).collect()
    }

    /// Lets time pass for subscribers that wait for others.
    pub(super) fn poll_readers(&mut self, polls: u32) {
        for _ in 0..polls {
            self.stage.shard.poll_readers();
            self.stage.take_effects();
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.stage.shard.groups.len()
    }

    pub(super) fn count(&self, counter: impl Fn(&crate::HubStats) -> &AtomicU64) -> u64 {
        counter(&self.stage.stats).load(Relaxed)
    }
}

pub(super) fn joined(mut reply: SubscribeReply) -> Subscription {
    reply.try_recv().expect("a response").expect("joined")
}

pub(super) fn refused(mut reply: SubscribeReply) -> ErrorCode {
    reply.try_recv().expect("a response").expect_err("refused").code
}

#[test]
fn a_subscriber_within_the_ring_gets_what_it_missed_and_then_joins_its_group() {
    let mut scenario = Scenario::new(10);
    let (trigger, first, _first) = scenario.live(0);
    scenario.events(trigger, 1..=4);
    scenario.stage.resolve_all();
    let (again, reply) = scenario.subscribe(1, after(&[(0, 2)]));
    let _again = joined(reply);
    scenario.stage.resolve_all();
    assert_eq!(scenario.groups(), 1, "the groups are merged again");
    scenario.events(trigger, [5]);
    assert_eq!(scenario.stage.resolutions.len(), 1, "resolved once for both");
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(first), ["1", "2", "3", "4", "5"]);
    assert_eq!(scenario.heard(again), ["3", "4", "5"]);
    assert!(scenario.stage.readers_opening.is_empty());
    assert_eq!(scenario.count(|it| &it.resumed_from_ring), 1);
}

#[test]
fn events_in_flight_are_neither_skipped_nor_repeated() {
    let mut scenario = Scenario::new(10);
    let (trigger, first, _first) = scenario.live(0);
    scenario.events(trigger, 1..=3);
    // The group has delivered 1, and 2 and 3 are in flight. A subscriber comes from another router, where it has had 2.
    scenario.stage.resolve(0);
    let (again, reply) = scenario.subscribe(1, after(&[(0, 2)]));
    let again_handle = joined(reply);
    scenario.events(trigger, [4]);
    while !scenario.stage.resolutions.is_empty() {
        let last = scenario.stage.resolutions.len() - 1;
        scenario.stage.resolve(last);
    }
    scenario.events(trigger, [5]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(first), ["1", "2", "3", "4", "5"]);
    assert_eq!(scenario.heard(again), ["3", "4", "5"]);
    assert_eq!(scenario.groups(), 1);
    scenario.stage.leave(again_handle);
    assert_eq!(scenario.heard(again).last().unwrap(), "end: unsubscribed");
    assert!(
        scenario.stage.shard.groups.has_no_merged(),
        "no subscriber leaves by that id any more"
    );
}

#[test]
fn many_subscribers_from_before_the_ring_share_one_reader_and_one_resolution() {
    let mut scenario = Scenario::new(2);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.stage.resolve_all();
    let storm: Vec<_> = (0..1000).map(|_| scenario.subscribe(1, after(&[(0, 4)]))).collect();
    assert_eq!(scenario.stage.readers_opening.len(), 1);
    assert_eq!(scenario.stage.readers_opening[0].2, Start::After(position(&[(0, 4)])));
    let (of, stream_id, is_wanted) = scenario.stage.open_reader(Ok(()));
    assert!(of == trigger && is_wanted);
    assert_eq!(scenario.groups(), 2);
    let before = scenario.count(|it| &it.resolutions);
    for offset in 5..=6 {
        assert_eq!(scenario.read(trigger, stream_id, offset), ReaderStep::Continue);
    }
    // The ring has all events from 7 on.
    assert_eq!(scenario.read(trigger, stream_id, 7), ReaderStep::Close);
    assert_eq!(scenario.stage.readers_closed, [(trigger, stream_id)]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.count(|it| &it.resolutions) - before, 5);
    assert_eq!(scenario.groups(), 1);
    scenario.events(trigger, [10]);
    scenario.stage.resolve_all();
    let mut handles = Vec::new();
    for (member, reply) in storm {
        assert_eq!(scenario.heard(member), ["5", "6", "7", "8", "9", "10"]);
        handles.push(joined(reply));
    }
    assert_eq!(scenario.count(|it| &it.side_readers), 1);
    for handle in handles {
        scenario.stage.leave(handle);
    }
    assert_eq!(scenario.count(|it| &it.subscribers), 1);
}

#[test]
fn a_subscriber_from_before_the_readers_position_makes_it_begin_again_without_repetitions() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.stage.resolve_all();
    let (one, reply) = scenario.subscribe(1, after(&[(0, 4)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    scenario.read(trigger, stream_id, 5);
    let (other, reply) = scenario.subscribe(2, after(&[(0, 2)]));
    assert_eq!(
        scenario.read(trigger, stream_id, 6),
        ReaderStep::Continue,
        "the reader waits for more subscribers"
    );
    scenario.poll_readers(4);
    assert_eq!(
        scenario.read(trigger, stream_id, 7),
        ReaderStep::Close,
        "the old stream is dropped"
    );
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _other = joined(reply);
    for offset in 3..=8 {
        scenario.read(trigger, stream_id, offset);
        scenario.stage.resolve_all();
    }
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), ["5", "6", "7", "8", "9"]);
    assert_eq!(scenario.heard(other), ["3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(scenario.count(|it| &it.side_readers), 2);
}

#[test]
fn groups_with_undelivered_events_of_a_reader_are_not_merged() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.stage.resolve_all();
    // The operation has no other subscriber.
    let (one, first) = scenario.subscribe(2, after(&[(0, 4)]));
    let (other, second) = scenario.subscribe(2, after(&[(0, 6)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _held = [joined(first), joined(second)];
    for offset in 5..=8 {
        scenario.read(trigger, stream_id, offset);
    }
    // Both get live events now, and no event was resolved.
    assert_eq!((scenario.groups(), scenario.stage.resolutions.len()), (3, 5 + 3));
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), ["5", "6", "7", "8", "9"]);
    assert_eq!(scenario.heard(other), ["7", "8", "9"]);
    scenario.events(trigger, [10]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.groups(), 2, "the groups are merged now");
}

#[test]
fn subscribers_that_come_one_by_one_make_two_readers() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.stage.resolve_all();
    let mut storm = vec![scenario.subscribe(1, after(&[(0, 4)]))];
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    // It has read on each time that the next one comes, and has met the trigger in the end.
    for offset in 5..=8 {
        scenario.read(trigger, stream_id, offset);
        scenario.stage.resolve_all();
        storm.push(scenario.subscribe(1, after(&[(0, 4)])));
        scenario.poll_readers(3);
    }
    assert!(
        scenario.stage.readers_opening.is_empty() && scenario.stage.shard.needed_polls().readers
    );
    assert_eq!(
        scenario.stage.readers_closed,
        [(trigger, stream_id)],
        "a reader without groups is closed"
    );
    scenario.poll_readers(1);
    assert!(!scenario.stage.shard.needed_polls().readers);
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    for offset in 5..=8 {
        scenario.read(trigger, stream_id, offset);
    }
    scenario.stage.resolve_all();
    assert_eq!(scenario.count(|it| &it.side_readers), 2);
    for (member, reply) in storm {
        let _handle = joined(reply);
        assert_eq!(scenario.heard(member), ["5", "6", "7", "8", "9"]);
    }
}

#[test]
fn subscribers_wait_for_others_a_second_at_most_and_cancelled_ones_need_no_reader() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    scenario.stage.resolve_all();
    let (_, first) = scenario.subscribe(1, after(&[(0, 4)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(first);
    scenario.read(trigger, stream_id, 5);
    scenario.stage.resolve_all();
    let mut held = Vec::new();
    for _ in 0..39 {
        held.push(scenario.subscribe(1, after(&[(0, 4)])));
        scenario.poll_readers(1);
    }
    assert!(scenario.stage.readers_opening.is_empty());
    scenario.poll_readers(1);
    assert_eq!(scenario.stage.readers_opening.len(), 1, "a second is enough");
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.read(trigger, stream_id, 5);
    scenario.stage.resolve_all();
    // A subscriber is cancelled while it waits.
    drop(scenario.subscribe(3, after(&[(0, 1)])));
    scenario.poll_readers(4);
    assert!(
        scenario.stage.readers_opening.is_empty() && !scenario.stage.shard.needed_polls().readers
    );
}

#[test]
fn a_group_waits_again_for_slow_subscribers_once_they_have_read_something() {
    let settings = HubSettings { group_in_flight: 1, ring_events: 20, ..HubSettings::default() };
    let mut scenario = Scenario::with(settings);
    let (trigger, _, _first) = scenario.live(0);
    for number in 1..=9 {
        scenario.events(trigger, [number]);
        scenario.stage.resolve_all();
    }
    scenario.outlet.turn();
    let (_, reply) = scenario.subscribe(2, after(&[(0, 2)]));
    let _one = joined(reply);
    let replayed = |scenario: &Scenario| scenario.count(|it| &it.replayed);
    // For ten seconds they read nothing; then the group continues without them.
    for _ in 0..2000 {
        assert_eq!(
            (replayed(&scenario), scenario.stage.shard.needed_polls().backpressure),
            (0, true)
        );
        scenario.stage.shard.poll_backpressured();
    }
    scenario.stage.take_effects();
    assert_eq!((replayed(&scenario), scenario.stage.shard.needed_polls().backpressure), (2, false));
    scenario.stage.resolve(0);
    assert_eq!((replayed(&scenario), scenario.stage.shard.needed_polls().backpressure), (3, false));
    // They read some events, and are full again before all are delivered.
    scenario.outlet.turn();
    scenario.stage.resolve(0);
    scenario.outlet.turn();
    scenario.stage.resolve_all();
    assert_eq!((replayed(&scenario), scenario.stage.shard.needed_polls().backpressure), (4, true));
}

#[test]
fn a_reader_is_not_read_while_a_group_has_no_room() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    for offset in 1..=99 {
        scenario.events(trigger, [offset]);
        scenario.stage.resolve_all();
    }
    let (one, reply) = scenario.subscribe(1, after(&[(0, 0)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    let (mut offset, mut at_once) = (0, 0);
    loop {
        (offset, at_once) = (offset + 1, at_once + 1);
        let reading = scenario.read(trigger, stream_id, offset);
        assert!(at_once < 30, "the number of events is bounded");
        if reading == ReaderStep::Pause {
            at_once = 0;
            while scenario.stage.readers_paused.contains(&(trigger, stream_id)) {
                scenario.stage.resolve(0);
            }
        }
        if reading == ReaderStep::Close {
            break;
        }
    }
    scenario.stage.resolve_all();
    let all: Vec<_> = (1..=99).map(|number| number.to_string()).collect();
    assert_eq!(scenario.heard(one), all);
    assert_eq!(scenario.count(|it| &it.dropped_group_behind), 0);
}

#[test]
fn missed_events_wait_for_subscribers_that_do_not_keep_up() {
    for ring_events in [20, 1] {
        let mut scenario = Scenario::new(ring_events);
        let (trigger, _, _first) = scenario.live(0);
        scenario.events(trigger, 1..=9);
        scenario.stage.resolve_all();
        scenario.outlet.turn();
        let (one, reply) = scenario.subscribe(2, after(&[(0, 2)]));
        let mut next = 3;
        let reader = (!scenario.stage.readers_opening.is_empty())
            .then(|| scenario.stage.open_reader(Ok(())));
        let _one = joined(reply);
        if let Some((_, stream_id, _)) = reader {
            assert_eq!(scenario.read(trigger, stream_id, next), ReaderStep::Pause);
            next += 1;
        }
        assert!(scenario.stage.shard.needed_polls().backpressure);
        scenario.outlet.turn();
        scenario.stage.resolve_all();
        scenario.stage.shard.poll_backpressured();
        scenario.stage.take_effects();
        if let Some((_, stream_id, _)) = reader {
            assert!(scenario.stage.readers_paused.is_empty());
            while scenario.read(trigger, stream_id, next) == ReaderStep::Continue {
                next += 1;
            }
        }
        scenario.stage.resolve_all();
        assert_eq!(scenario.heard(one), ["3", "4", "5", "6", "7", "8", "9"], "{ring_events}");
    }
}

#[test]
fn a_group_ahead_of_its_trigger_waits_for_it() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _first) = scenario.live(0);
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(1, 0)));
    let event = |partition, offset: u64| {
        let event = Event::new("topic", (u64::from(partition) * 100 + offset).to_string());
        SourceMessage::Event(event.at(partition_offset(partition, offset)).into())
    };
    scenario.stage.message(trigger, SourceMessage::Gap);
    let (one, reply) = scenario.subscribe(2, after(&[(0, 0), (1, 0)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    // The reader has both partitions before the trigger has either.
    for (partition, offset) in [(0, 1), (1, 1), (0, 2)] {
        scenario.stage.read(trigger, stream_id, event(partition, offset));
    }
    for (partition, offset) in [(1, 1), (0, 1)] {
        scenario.stage.message(trigger, event(partition, offset));
    }
    assert_eq!(scenario.stage.read(trigger, stream_id, event(1, 2)), ReaderStep::Close);
    for (partition, offset) in [(1, 2), (0, 2), (1, 3), (0, 3)] {
        scenario.stage.message(trigger, event(partition, offset));
        scenario.stage.resolve_all();
    }
    assert_eq!(scenario.heard(one), ["1", "101", "2", "102", "103", "3"]);
}

#[test]
fn cursors_that_are_too_old_are_refused_and_others_are_served() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    let (_, old) = scenario.subscribe(1, after(&[(0, 1)]));
    let (_, young) = scenario.subscribe(1, after(&[(0, 5)]));
    let gone = || Err(SourceError::Gone { provider: "memory/default".into() });
    // The second one came while the reader for the first was opened.
    scenario.stage.open_reader(gone());
    assert_eq!(refused(old), ErrorCode::CursorExpired);
    assert_eq!(scenario.stage.readers_opening[0].2, Start::After(position(&[(0, 5)])));
    scenario.stage.open_reader(Ok(()));
    let _young = joined(young);
    assert_eq!(scenario.count(|it| &it.cursors_expired), 1);
}

#[test]
fn an_unavailable_broker_refuses_only_subscribers_that_need_it() {
    let mut scenario = Scenario::new(2);
    let (trigger, first, _first) = scenario.live(0);
    scenario.events(trigger, 1..=4);
    let (_, reply) = scenario.subscribe(1, after(&[(0, 1)]));
    let reason = String::new();
    scenario.stage.open_reader(Err(SourceError::Unavailable { provider: "p".into(), reason }));
    assert_eq!(refused(reply), ErrorCode::ProviderUnavailable);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(first), ["1", "2", "3", "4"]);
}

#[test]
fn a_gap_of_the_reader_is_read_again_and_a_gap_of_the_trigger_needs_the_reader() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=3);
    scenario.stage.message(trigger, SourceMessage::Gap);
    let (one, reply) = scenario.subscribe(1, after(&[(0, 3)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    assert_eq!(scenario.stage.read(trigger, stream_id, SourceMessage::Gap), ReaderStep::Close);
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.read(trigger, stream_id, 4);
    // The live stream missed 4 and 5.
    scenario.events(trigger, [6, 7]);
    scenario.read(trigger, stream_id, 5);
    assert_eq!(scenario.read(trigger, stream_id, 6), ReaderStep::Close);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), ["4", "5", "6", "7"]);
}

#[test]
fn a_partition_that_appears_after_a_gap_may_have_lost_its_first_events() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _first) = scenario.live(0);
    // The stream lost the first event of another partition, which is not known yet.
    scenario.stage.message(trigger, SourceMessage::Gap);
    scenario.events(trigger, [1]);
    scenario.stage.resolve_all();
    let (one, reply) = scenario.subscribe(2, after(&[(0, 1)]));
    let _one = joined(reply);
    assert!(scenario.stage.readers_opening.is_empty(), "the ring serves it");
    for offset in [2, 3] {
        let event = Event::new("topic", (100 + offset).to_string()).at(partition_offset(1, offset));
        scenario.stage.message(trigger, SourceMessage::Event(event.into()));
        scenario.stage.resolve_all();
    }
    let heard = scenario.outlet.heard(one);
    let announced: Vec<_> = heard[1..].iter().map(|it| it.contains("\"gap\":true")).collect();
    assert_eq!(
        (scenario.heard(one), announced),
        (vec!["102".into(), "103".into()], vec![true, false])
    );
}

#[test]
fn filtered_events_count_as_read() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _first) = scenario.live(0);
    for offset in 1..=6 {
        let payload = format!("{{\"odd\":{},\"n\":{offset}}}", offset % 2);
        let event = Event::new("topic", payload).at(partition_offset(0, offset));
        scenario.stage.message(trigger, SourceMessage::Event(event.into()));
    }
    scenario.stage.resolve_all();
    let member = member(77);
    let mut operation = scenario.stage.operation("topic", 3, 0);
    operation.filter = Some(Arc::new(Filter::one_of("odd", &[0])));
    let outlet = Arc::clone(&scenario.outlet);
    let _handle = joined(scenario.stage.resume(&outlet, member, operation, after(&[(0, 2)])));
    scenario.stage.resolve_all();
    let heard = outlet.heard(member);
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[1].contains("\"n\":4") && heard[2].contains("\"n\":6"), "{heard:?}");
}

#[test]
fn a_source_that_ends_with_an_error_ends_groups_that_catch_up() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=4);
    let (one, reply) = scenario.subscribe(2, after(&[(0, 1)]));
    scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    let (_, waits) = scenario.subscribe(2, after(&[(0, 0)]));
    let gone = StreamEnd::Gone("topic".into());
    scenario.stage.message(trigger, SourceMessage::End(gone));
    assert_eq!(scenario.heard(one), ["end: SOURCE_GONE"]);
    assert_eq!(refused(waits), ErrorCode::SourceGone);
    scenario.stage.resolve_all();
    assert!(scenario.stage.shard.triggers.is_empty() && scenario.groups() == 0);
}

#[test]
fn with_too_many_partitions_a_cursor_resumes_by_time_and_its_own_partition_repeats_nothing() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=4);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let (one, reply) = scenario
        .subscribe(2, Some(Resume::Since { partition_offset: partition_offset(0, 2), time }));
    assert_eq!(scenario.stage.readers_opening[0].2, Start::Since(time));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    for offset in 1..=3 {
        scenario.read(trigger, stream_id, offset);
    }
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), ["3", "4"]);
}

#[test]
fn without_replay_payloads_have_no_cursor_and_cursors_are_refused() {
    let mut stage = Stage::new(HubSettings::default());
    let outlet = Arc::new(ScriptedOutlet::default());
    let reply = stage.subscribe(&outlet, member(1), "topic", 1, 0);
    let trigger = stage.open();
    let _first = joined(reply);
    stage.message(trigger, Scenario::event(1));
    stage.resolve_all();
    assert_eq!(outlet.heard(member(1)), ["join", "{\"data\":1}"]);
    let operation = stage.operation("topic", 1, 0);
    let reply = stage.resume(&outlet, member(2), operation, after(&[(0, 1)]));
    assert_eq!(refused(reply), ErrorCode::CursorExpired);
}

#[test]
fn a_partition_that_is_silent_since_a_gap_is_read_for_subscribers_without_its_events() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _first) = scenario.live(0);
    let event = |partition, offset: u64| {
        let event = Event::new("topic", (u64::from(partition) * 100 + offset).to_string());
        SourceMessage::Event(event.at(partition_offset(partition, offset)).into())
    };
    scenario.stage.message(trigger, event(1, 1));
    scenario.stage.message(trigger, SourceMessage::Gap);
    scenario.events(trigger, [1]);
    scenario.stage.resolve_all();
    // The cursor of a stream that delivered the first partition before the second.
    let (one, reply) = scenario.subscribe(2, after(&[(0, 1)]));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _one = joined(reply);
    assert_eq!(scenario.stage.read(trigger, stream_id, event(1, 1)), ReaderStep::Continue);
    scenario.stage.message(trigger, event(1, 2));
    assert_eq!(scenario.stage.read(trigger, stream_id, event(1, 2)), ReaderStep::Close);
    scenario.stage.message(trigger, event(1, 3));
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), ["101", "102", "103"]);
}

#[test]
fn a_reader_that_begins_at_a_time_does_not_serve_groups_that_fall_out_of_the_ring() {
    let mut scenario = Scenario::new(2);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=2);
    // Its subscribers read nothing for now.
    scenario.outlet.turn();
    let (slow, reply) = scenario.subscribe(2, after(&[(0, 0)]));
    let _slow = joined(reply);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let (_, other) = scenario
        .subscribe(3, Some(Resume::Since { partition_offset: partition_offset(0, 2), time }));
    scenario.events(trigger, 3..=5);
    scenario.stage.shard.poll_backpressured();
    scenario.stage.take_effects();
    let (_, _, is_wanted) = scenario.stage.open_reader(Ok(()));
    assert!(!is_wanted, "events from before that time are unknown");
    assert_eq!(refused(other), ErrorCode::Overloaded);
    assert_eq!(scenario.stage.readers_opening[0].2, Start::After(position(&[(0, 0)])));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.outlet.turn();
    for offset in 1..=3 {
        scenario.read(trigger, stream_id, offset);
    }
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(slow), ["1", "2", "3", "4", "5"]);
}

#[test]
fn permits_of_groups_that_end_are_available_at_once() {
    let mut scenario =
        Scenario::with(HubSettings { resolutions_in_flight: 1, ..HubSettings::default() });
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=2);
    scenario.stage.resolve_all();
    let (one, reply) = scenario.subscribe(2, after(&[(0, 0)]));
    let _one = joined(reply);
    let (other, reply) = scenario.subscribe_to(scenario.stage.operation("other", 1, 0), None);
    let others = scenario.stage.open();
    let _other = joined(reply);
    scenario.stage.message(others, SourceMessage::Progress(partition_offset(0, 0)));
    scenario.events(others, [1]);
    assert_eq!(scenario.stage.resolutions.len(), 1, "it waits for the only permit");
    scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
    assert_eq!(scenario.heard(one), ["end: PROVIDER_UNAVAILABLE"]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(other), ["1"]);
}

#[test]
fn a_group_that_has_moved_is_merged_with_subscribers_that_resume_at_its_new_source() {
    let mut scenario = Scenario::new(10);
    let (_, _, _first) = scenario.live(0);
    let (group, _) = scenario.stage.shard.operations_before(1).remove(0);
    // As if streams of the source that it leaves had interleaved their partitions.
    scenario.stage.shard.groups.get_mut(group).unwrap().in_order_from = 100;
    let moved = scenario.stage.operation("other", 1, 1);
    scenario.stage.advance(1, vec![(group, Ok(moved.clone()))]);
    let trigger = scenario.stage.open();
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 0)));
    scenario.events(trigger, [1]);
    scenario.stage.resolve_all();
    let (again, reply) = scenario.subscribe_to(moved, after(&[(0, 0)]));
    let _again = joined(reply);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(again), ["1"]);
    assert_eq!(scenario.groups(), 1);
}

#[test]
fn a_cursor_of_a_deleted_event_is_refused() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _first) = scenario.live(0);
    scenario.events(trigger, 1..=9);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let since =
        |offset| Some(Resume::Since { partition_offset: partition_offset(0, offset), time });
    let (old, reply) = scenario.subscribe(2, since(2));
    let (young, other) = scenario.subscribe(2, since(4));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _all = [joined(reply), joined(other)];
    // The first event since that time is the fifth.
    scenario.stage.read(trigger, stream_id, SourceMessage::Progress(partition_offset(0, 4)));
    assert_eq!(scenario.heard(old), ["end: CURSOR_EXPIRED"]);
    for offset in 5..=8 {
        scenario.read(trigger, stream_id, offset);
    }
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(young), ["5", "6", "7", "8", "9"]);
    assert_eq!(scenario.count(|it| &it.cursors_expired), 1);
}
