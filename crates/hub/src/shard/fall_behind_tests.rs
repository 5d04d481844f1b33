//! Tests of groups that cannot keep up with a source that stores its events, with a scripted shard.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use events::{
    Durable, EventFuture, EventStream, Memory, MemorySettings, Message, Provider, ProviderStats,
    PublishError, SourceError, SourceMessage, Start, StreamEnd, StreamRequest,
};

use super::resumption_tests::{Scenario, after, joined, partition_offset, position};
use super::scripted_stage::{Stage, member};
use super::{ReaderStep, TriggerId};
use crate::{HubSettings, Subscriber, Subscription};

/// Settings with one event in flight and two that may wait.
fn settings(ring_events: usize) -> HubSettings {
    HubSettings { group_in_flight: 1, group_waiting: 2, ring_events, ..HubSettings::default() }
}

fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

impl Scenario {
    /// Makes a live group that was offered the events up to `last` and has resolved none of them.
    fn overrun(settings: HubSettings, last: u64) -> (Self, TriggerId, Subscriber, Subscription) {
        let mut scenario = Self::with(settings);
        let (trigger, member, subscription) = scenario.live(0);
        scenario.events(trigger, 1..=last);
        (scenario, trigger, member, subscription)
    }

    /// Reads and resolves the events from `next` to `last`, as fast as the groups accept them.
    fn read_all(&mut self, trigger: TriggerId, stream_id: u64, mut next: u64, last: u64) {
        for _ in 0..1000 {
            let is_paused = self.stage.readers_paused.contains(&(trigger, stream_id));
            if next <= last
                && !is_paused
                && !self.stage.readers_closed.contains(&(trigger, stream_id))
            {
                self.read(trigger, stream_id, next);
                next += 1;
            } else if !self.stage.resolutions.is_empty() {
                self.stage.resolve(0);
            }
        }
        assert!(self.stage.resolutions.is_empty());
    }

    fn has_announced_a_loss(&self, member: Subscriber) -> bool {
        let heard = self.outlet.heard(member);
        heard.iter().any(|it| it.contains("\"lost\"") || it.contains("\"gap\""))
    }
}

#[test]
fn a_group_that_cannot_keep_up_gets_every_event_from_the_ring() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 20);
    assert_eq!(scenario.count(|it| &it.fell_behind), 1);
    assert_eq!(scenario.count(|it| &it.catching_up), 1);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers(1..=20));
    assert_eq!(scenario.count(|it| &it.catching_up), 0);
    scenario.events(trigger, [21]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers(1..=21));
    assert!(!scenario.has_announced_a_loss(member));
    assert_eq!(scenario.count(|it| &it.dropped_group_behind), 0);
    assert!(scenario.stage.readers_opening.is_empty());
}

#[test]
fn a_group_that_is_further_behind_than_the_ring_reads_from_the_broker() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(2), 20);
    // It holds 1 to 4, and gets more when those are in flight.
    while scenario.stage.readers_opening.is_empty() {
        scenario.stage.resolve(0);
    }
    assert_eq!(scenario.stage.readers_opening[0].2, Start::After(position(&[(0, 4)])));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.read_all(trigger, stream_id, 5, 20);
    assert_eq!(scenario.heard(member), numbers(1..=20));
    assert!(!scenario.has_announced_a_loss(member));
    assert_eq!(scenario.stage.readers_closed, [(trigger, stream_id)]);
}

#[test]
fn a_new_subscriber_gets_live_events_and_its_group_is_merged_with_the_one_that_was_behind() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 10);
    let (new, reply) = scenario.subscribe(1, None);
    let _new = joined(reply);
    assert_eq!(scenario.groups(), 2);
    scenario.events(trigger, [11]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers(1..=11));
    assert_eq!(scenario.heard(new), numbers([11]));
    assert_eq!(scenario.groups(), 1, "the groups are merged again");
}

#[test]
fn deleted_events_are_a_gap_and_the_oldest_stored_event_follows() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(2), 20);
    while scenario.stage.readers_opening.is_empty() {
        scenario.stage.resolve(0);
    }
    scenario.stage.open_reader(Err(SourceError::Gone { provider: "p".into() }));
    assert_eq!(scenario.stage.readers_opening[0].2, Start::All, "the subscription does not end");
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.stage.read(trigger, stream_id, SourceMessage::Progress(partition_offset(0, 8)));
    scenario.read_all(trigger, stream_id, 9, 20);
    assert_eq!(scenario.heard(member), numbers((1..=4).chain(9..=20)));
    let heard = scenario.outlet.heard(member);
    let announced: Vec<_> = heard.iter().filter(|it| it.contains("\"gap\":true")).collect();
    assert_eq!(announced.len(), 1);
    assert!(announced[0].starts_with("{\"data\":9"), "{announced:?}");
    assert_eq!(scenario.count(|it| &it.outrun), 1);
}

#[test]
fn a_reader_that_cannot_be_opened_is_tried_again_and_ends_no_subscriber() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(2), 20);
    while scenario.stage.readers_opening.is_empty() {
        scenario.stage.resolve(0);
    }
    for _ in 0..3 {
        let away = SourceError::Unavailable { provider: "p".into(), reason: "away".into() };
        scenario.stage.open_reader(Err(away));
        assert!(scenario.stage.readers_opening.is_empty(), "not at once");
        scenario.poll_readers(40);
        assert_eq!(scenario.stage.readers_opening[0].2, Start::After(position(&[(0, 4)])));
    }
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    scenario.read_all(trigger, stream_id, 5, 20);
    assert_eq!(scenario.heard(member), numbers(1..=20));
}

#[test]
fn a_slow_group_holds_up_others_for_a_moment_only() {
    let (mut scenario, trigger, slow, _subscription) = Scenario::overrun(settings(2), 0);
    let (quick, reply) = scenario.subscribe(2, None);
    let _quick = joined(reply);
    scenario.events(trigger, 1..=40);
    let mine = |scenario: &Scenario, group: usize| {
        let mut groups: Vec<_> = scenario.stage.resolutions.iter().map(|it| it.group).collect();
        groups.sort_unstable_by_key(|id| id.0);
        groups.dedup();
        groups.get(group).copied()
    };
    let (slow_group, quick_group) = (mine(&scenario, 0).unwrap(), mine(&scenario, 1).unwrap());
    // Both are behind the ring and read together; then one of them accepts no more.
    while scenario.stage.readers_opening.is_empty() {
        scenario.stage.resolve(0);
    }
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    for _ in 0..8 {
        scenario.stage.resolve_all();
    }
    let mut next = 5;
    while scenario.read(trigger, stream_id, next) == ReaderStep::Continue {
        next += 1;
        let at = scenario.stage.resolutions.iter().position(|it| it.group == quick_group);
        scenario.stage.resolve(at.unwrap());
    }
    let resolve_quick = |scenario: &mut Scenario| {
        while let Some(at) =
            scenario.stage.resolutions.iter().position(|it| it.group == quick_group)
        {
            scenario.stage.resolve(at);
        }
    };
    resolve_quick(&mut scenario);
    assert!(
        scenario.stage.readers_paused.contains(&(trigger, stream_id)),
        "it waits for the slow one"
    );
    scenario.poll_readers(10);
    assert!(
        !scenario.stage.readers_paused.contains(&(trigger, stream_id)),
        "the other group continues"
    );
    let (of, other, _) = scenario.stage.open_reader(Ok(()));
    assert!(of == trigger && other != stream_id);
    for offset in next + 1..=40 {
        scenario.read(trigger, stream_id, offset);
        resolve_quick(&mut scenario);
    }
    assert_eq!(scenario.heard(quick), numbers(1..=40));
    assert!(scenario.stage.resolutions.iter().all(|it| it.group == slow_group));
    scenario.read_all(trigger, other, next + 1, 40);
    assert_eq!(scenario.heard(slow), numbers(1..=40));
    assert!(!scenario.has_announced_a_loss(slow) && !scenario.has_announced_a_loss(quick));
}

#[test]
fn a_group_that_is_behind_moves_to_another_source_when_it_has_caught_up() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 10);
    let (group, _) = scenario.stage.shard.operations_before(1).remove(0);
    let moved = scenario.stage.operation("other", 1, 1);
    assert!(scenario.stage.advance(1, vec![(group, Ok(moved))]).is_empty());
    assert!(scenario.stage.opening.is_empty(), "it has events of the old topic to resolve");
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers(1..=10));
    let other = scenario.stage.open();
    assert_eq!(scenario.stage.closed, [trigger]);
    scenario.stage.message(other, SourceMessage::Progress(partition_offset(0, 0)));
    scenario.events(other, [77]);
    scenario.stage.resolve_all();
    assert!(scenario.outlet.heard(member).last().unwrap().contains("\"gap\":true"));
}

#[test]
fn a_group_that_waits_for_another_source_and_falls_behind_moves_later() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 1);
    let (group, _) = scenario.stage.shard.operations_before(1).remove(0);
    let moved = scenario.stage.operation("other", 1, 1);
    scenario.stage.advance(1, vec![(group, Ok(moved))]);
    assert_eq!(scenario.stage.opening.len(), 1);
    scenario.events(trigger, 2..=10);
    assert!(scenario.stage.opening.is_empty());
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers(1..=10));
    let other = scenario.stage.open();
    scenario.events(other, [77]);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member).last().unwrap(), "77");
}

#[test]
fn the_end_of_a_finite_source_comes_after_all_of_its_events() {
    for ring_events in [100, 2] {
        let (mut scenario, trigger, member, _subscription) =
            Scenario::overrun(settings(ring_events), 20);
        let (again, reply) = scenario.subscribe(2, after(&[(0, 15)]));
        scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Complete));
        for _ in 0..3 {
            scenario.stage.resolve_all();
            while !scenario.stage.readers_opening.is_empty() {
                let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
                scenario.read_all(trigger, stream_id, 5, 20);
            }
        }
        let _again = joined(reply);
        let mut expected = numbers(1..=20);
        expected.push("end: complete".into());
        assert_eq!(scenario.heard(member), expected);
        assert_eq!(scenario.heard(again), expected[15..]);
        assert!(scenario.stage.shard.triggers.is_empty() && scenario.groups() == 0);
    }
}

#[test]
fn an_end_with_an_error_comes_after_the_events_that_the_group_holds() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 20);
    scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Gone("topic".into())));
    scenario.stage.resolve_all();
    let mut expected = numbers(1..=4);
    expected.push("end: SOURCE_GONE".into());
    assert_eq!(scenario.heard(member), expected);
}

#[test]
fn the_current_state_and_the_events_behind_it_survive_falling_behind() {
    let mut scenario = Scenario::with(settings(100));
    let operation = Stage::with_state(scenario.stage.operation("topic", 1, 0));
    let (member, reply) = scenario.subscribe_to(operation, None);
    let trigger = scenario.stage.open();
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 0)));
    let _subscription = joined(reply);
    scenario.events(trigger, 1..=10);
    scenario.stage.resolve_all();
    let heard = scenario.heard(member);
    assert_eq!(heard[0], "\"state\"");
    assert_eq!(heard[1..], numbers(1..=10));
}

#[test]
fn a_client_that_reads_little_at_a_time_does_not_hold_up_a_group_that_was_live() {
    let (mut scenario, _, _, _subscription) = Scenario::overrun(settings(100), 40);
    scenario.outlet.turn();
    while !scenario.stage.shard.needed_polls().backpressure {
        scenario.stage.resolve(0);
    }
    let poll_readers = |scenario: &mut Scenario, polls: u32| {
        for _ in 0..polls {
            scenario.stage.shard.poll_backpressured();
            scenario.stage.take_effects();
        }
    };
    let mut taken = 0;
    for _ in 0..4 {
        // A little less than ten seconds, and a moment in which it reads something.
        poll_readers(&mut scenario, 1500);
        scenario.outlet.turn();
        poll_readers(&mut scenario, 1);
        scenario.outlet.turn();
        let before = scenario.count(|it| &it.replayed);
        scenario.stage.resolve_all();
        taken += scenario.count(|it| &it.replayed) - before;
    }
    assert!(!scenario.stage.shard.needed_polls().backpressure && taken > 10, "{taken}");
    assert_eq!(scenario.count(|it| &it.catching_up), 0, "the group is live again");
}

#[test]
fn an_outlet_that_does_not_run_makes_a_live_group_fall_behind_and_loses_nothing() {
    for ring_events in [100, 2] {
        let mut scenario = Scenario::with(settings(ring_events));
        let (trigger, member, _subscription) = scenario.live(0);
        scenario.outlet.starve(true);
        for offset in 1..=20 {
            scenario.events(trigger, [offset]);
            scenario.stage.resolve_all();
        }
        assert_eq!(scenario.heard(member), numbers([]));
        assert_eq!(
            (scenario.count(|it| &it.held_back), scenario.count(|it| &it.fell_behind)),
            (1, 1)
        );
        assert!(scenario.stage.resolutions.is_empty(), "further results would only be held back");
        scenario.outlet.starve(false);
        let poll_readers = |scenario: &mut Scenario| {
            scenario.stage.shard.poll_backpressured();
            scenario.stage.take_effects();
        };
        poll_readers(&mut scenario);
        scenario.stage.resolve_all();
        poll_readers(&mut scenario);
        for _ in 0..scenario.stage.readers_opening.len() {
            let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
            scenario.read_all(trigger, stream_id, 5, 20);
        }
        scenario.events(trigger, [21]);
        scenario.stage.resolve_all();
        assert_eq!(scenario.heard(member), numbers(1..=21));
        assert!(!scenario.has_announced_a_loss(member));
        assert_eq!(scenario.count(|it| &it.catching_up), 0, "the group is live again");
        assert!(!scenario.stage.shard.needed_polls().backpressure);
    }
}

#[test]
fn an_outlet_that_has_room_for_one_result_at_a_time_gets_them_in_order() {
    let (mut scenario, _, member, _subscription) = Scenario::overrun(settings(100), 6);
    for offset in 1..=6 {
        scenario.outlet.starve(true);
        scenario.stage.resolve(0);
        assert_eq!(scenario.heard(member), numbers(1..offset));
        scenario.outlet.starve(false);
        scenario.stage.shard.poll_backpressured();
        scenario.stage.take_effects();
        assert_eq!(scenario.heard(member), numbers(1..=offset));
    }
}

#[test]
fn the_end_of_a_source_comes_after_the_results_that_an_outlet_did_not_accept() {
    let (mut scenario, trigger, member, _subscription) = Scenario::overrun(settings(100), 1);
    scenario.outlet.starve(true);
    scenario.stage.resolve_all();
    scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Complete));
    assert_eq!(scenario.heard(member), numbers([]));
    scenario.outlet.starve(false);
    scenario.stage.shard.poll_backpressured();
    scenario.stage.take_effects();
    assert_eq!(scenario.heard(member), ["1", "end: complete"]);
    assert!(scenario.stage.shard.triggers.is_empty() && scenario.groups() == 0);
}

#[test]
fn a_client_that_leaves_while_its_results_are_held_back_leaves_nothing_behind() {
    let (mut scenario, _, _, subscription) = Scenario::overrun(settings(100), 6);
    scenario.outlet.starve(true);
    scenario.stage.resolve(0);
    assert!(scenario.stage.shard.needed_polls().backpressure);
    scenario.stage.leave(subscription);
    scenario.stage.shard.poll_backpressured();
    scenario.stage.take_effects();
    assert!(!scenario.stage.shard.needed_polls().backpressure && scenario.groups() == 0);
    assert!(scenario.stage.shard.triggers.is_empty());
}

#[test]
fn the_policy_latest_also_drops_stored_events() {
    let settings = HubSettings { catch_up: false, ..settings(100) };
    let (mut scenario, _, member, _subscription) = Scenario::overrun(settings, 20);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(member), numbers([1, 19, 20]));
    assert!(scenario.has_announced_a_loss(member));
    assert_eq!(scenario.count(|it| &it.fell_behind), 0);
}

/// A broker that stores its events outside of this process.
struct Broker(Memory);

impl Provider for Broker {
    fn name(&self) -> &str {
        "broker/default"
    }

    fn subscribe(
        &self,
        wanted: StreamRequest,
    ) -> EventFuture<'_, Result<EventStream, SourceError>> {
        self.0.subscribe(wanted)
    }

    fn publish(&self, message: Message) -> EventFuture<'_, Result<(), PublishError>> {
        self.0.publish(message)
    }

    fn replays(&self, _: Option<&Durable>) -> bool {
        true
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn stats(&self) -> &ProviderStats {
        self.0.stats()
    }
}

#[test]
fn without_cursors_a_trigger_keeps_stored_events_only_to_catch_up() {
    for catch_up in [true, false] {
        let mut stage = Stage::new(HubSettings { catch_up, ..settings(100) });
        stage.provider = Arc::new(Broker(Memory::new("default", MemorySettings::default())));
        let outlet = Arc::default();
        let reply = stage.subscribe(&outlet, member(1), "topic", 1, 0);
        let trigger = stage.open();
        let _subscription = joined(reply);
        assert_eq!(stage.shard.catch_up.replay(trigger).is_some(), catch_up);
        (1..=20).for_each(|offset| stage.message(trigger, Scenario::event(offset)));
        stage.resolve_all();
        assert_eq!(stage.stats.fell_behind.load(Relaxed), u64::from(catch_up));
        assert_eq!(stage.stats.dropped_group_behind.load(Relaxed), if catch_up { 0 } else { 17 });
    }
}
