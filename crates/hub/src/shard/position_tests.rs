//! Tests of positions for subscribers without events, with a scripted shard.

use std::sync::Arc;

use bindings::Filter;
use events::{Event, Position, SourceMessage, StreamEnd};

use super::resumption_tests::{Scenario, joined, partition_offset, position};
use super::scripted_stage::Stage;
use super::{ReaderStep, TriggerId};
use crate::cursor::Resume;
use crate::settings::VISITS_PER_STEP;
use crate::{HubSettings, LiveOperation, Subscriber};

/// A result or position that a subscriber received.
#[derive(Clone, PartialEq, Debug)]
enum Heard {
    /// An event with that number, and the number of lost events before it.
    Event(u64, u64),
    /// The position of that offset.
    At(Position),
    Else(String),
}

use Heard::{At, Else};

fn event(offset: u64) -> SourceMessage {
    let payload = format!("{{\"odd\":{},\"n\":{offset}}}", offset % 2);
    SourceMessage::Event(Event::new("topic", payload).at(partition_offset(0, offset)).into())
}

fn at(offset: u64) -> Heard {
    At(position(&[(0, offset)]))
}

impl Scenario {
    fn publish(&mut self, trigger: TriggerId, offsets: impl IntoIterator<Item = u64>) {
        for offset in offsets {
            self.stage.message(trigger, event(offset));
        }
    }

    /// Returns an operation with a filter for even numbers; each number has a group of its own.
    fn even(&self, operation: u128) -> LiveOperation {
        let filter = Some(Arc::new(Filter::one_of("odd", &[0])));
        LiveOperation { filter, ..self.stage.operation("topic", operation, 0) }
    }

    /// Returns an operation with a filter that no event passes.
    fn nothing(&self, operation: u128) -> LiveOperation {
        let filter = Some(Arc::new(Filter::one_of("odd", &[7])));
        LiveOperation { filter, ..self.stage.operation("topic", operation, 0) }
    }

    /// Runs a whole round of positions.
    fn round(&mut self) {
        while self.stage.shard.send_positions().is_some() {}
        self.stage.take_effects();
    }

    fn resume_of(&self, cursor: &str, operation: &LiveOperation) -> Resume {
        let bound_to = &operation.bound_to;
        let scope = self.cursors.scope("Subscription.field", &operation.source, bound_to);
        self.cursors.decode(cursor, scope).expect("it is ours")
    }

    /// Returns the results and positions that a subscriber received.
    fn hears(&self, member: Subscriber) -> Vec<Heard> {
        let operation = self.stage.operation("topic", 0, 0);
        let hear = |text: String| {
            let between = |begin: &str, end: char| {
                let (_, rest) = text.split_once(begin)?;
                rest.split(end).next().map(str::to_owned)
            };
            let number = |begin: &str| -> Option<u64> {
                between(begin, '}')?.split(',').next()?.parse().ok()
            };
            if text.starts_with("{\"cursor\"") {
                let cursor = between("\"cursor\":\"", '"').unwrap();
                let Resume::After(position) = self.resume_of(&cursor, &operation) else {
                    panic!("{text}")
                };
                return At(position);
            }
            let lost = number("\"lost\":").unwrap_or(0);
            number("\"n\":").map_or_else(|| Else(text.clone()), |it| Heard::Event(it, lost))
        };
        self.outlet.heard(member).into_iter().skip(1).map(hear).collect()
    }
}

#[test]
fn only_subscribers_without_events_get_a_position_and_get_it_once() {
    let mut scenario = Scenario::new(10);
    let (trigger, all, _all) = scenario.live(0);
    let (none, reply) = scenario.subscribe_to(scenario.nothing(2), None);
    let _none = joined(reply);
    scenario.publish(trigger, 1..=4);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(none), [at(4)]);
    assert_eq!(scenario.hears(all), (1..=4).map(|it| Heard::Event(it, 0)).collect::<Vec<_>>());
    scenario.round();
    assert_eq!(scenario.hears(none), [at(4)], "the position is not sent again");
    scenario.publish(trigger, [5]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(none), [at(4), at(5)]);
    assert_eq!(scenario.hears(all).len(), 5);
    assert_eq!(scenario.count(|it| &it.positions), 2);
    assert_eq!(scenario.count(|it| &it.deliveries), 5);
}

#[test]
fn a_position_waits_for_events_in_flight() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let (even, reply) = scenario.subscribe_to(scenario.even(2), None);
    let _even = joined(reply);
    scenario.publish(trigger, 1..=3);
    scenario.round();
    assert_eq!(scenario.hears(even), [], "2 has yet to come");
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0), at(3)], "visited again without an event");
    scenario.publish(trigger, [4]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even)[2..], [Heard::Event(4, 0)], "its cursor has the position");
}

#[test]
fn a_loss_is_announced_before_a_position_beyond_it() {
    let settings = HubSettings {
        group_in_flight: 1,
        group_waiting: 0,
        catch_up: false,
        ..HubSettings::default()
    };
    let mut scenario = Scenario::with(settings);
    let (trigger, _, _all) = scenario.live(0);
    let (even, reply) = scenario.subscribe_to(scenario.even(2), None);
    let _even = joined(reply);
    scenario.publish(trigger, [2, 4]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0)], "4 was dropped, and nobody knows");
    scenario.publish(trigger, [6]);
    scenario.stage.resolve_all();
    scenario.publish(trigger, [7]);
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0), Heard::Event(6, 1), at(7)]);
    // The source may have lost events.
    scenario.stage.message(trigger, SourceMessage::Gap);
    scenario.publish(trigger, [9]);
    scenario.round();
    assert_eq!(scenario.hears(even).len(), 3);
    scenario.publish(trigger, [10, 11]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even)[3..], [Heard::Event(10, 0), at(11)]);
}

#[test]
fn an_outlet_with_losses_drops_positions_that_would_hide_them() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let (even, reply) = scenario.subscribe_to(scenario.even(2), None);
    let _even = joined(reply);
    scenario.outlet.turn();
    scenario.publish(trigger, [2, 3]);
    scenario.stage.resolve_all();
    scenario.outlet.turn();
    scenario.round();
    assert_eq!(scenario.hears(even), []);
    scenario.publish(trigger, [4, 5]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(4, 1), at(5)]);
}

#[test]
fn a_new_subscriber_gets_a_cursor_before_its_first_event() {
    let mut scenario = Scenario::new(10);
    let (_, first, _first) = scenario.live(7);
    scenario.round();
    assert_eq!(scenario.hears(first), [at(7)]);
    let (second, reply) = scenario.subscribe_to(scenario.stage.operation("topic", 1, 0), None);
    let _second = joined(reply);
    assert_eq!(scenario.groups(), 1);
    scenario.round();
    scenario.round();
    assert_eq!(scenario.hears(second), [at(7)]);
}

#[test]
fn a_subscriber_that_resumes_from_a_position_needs_no_reader() {
    let mut scenario = Scenario::new(2);
    let (trigger, _, _all) = scenario.live(0);
    let (none, reply) = scenario.subscribe_to(scenario.nothing(2), None);
    let gone = joined(reply);
    // The ring holds two events.
    scenario.publish(trigger, 1..=9);
    scenario.stage.resolve_all();
    scenario.round();
    let heard = scenario.outlet.heard(none);
    let cursor = heard[1].split('"').nth(3).unwrap().to_owned();
    scenario.stage.leave(gone);
    scenario.publish(trigger, [10]);
    scenario.stage.resolve_all();
    let (again, resume) = (scenario.nothing(2), scenario.resume_of(&cursor, &scenario.nothing(2)));
    let (again, reply) = scenario.subscribe_to(again, Some(resume));
    let _again = joined(reply);
    assert!(scenario.stage.readers_opening.is_empty());
    assert_eq!(
        (scenario.count(|it| &it.resumed_from_ring), scenario.count(|it| &it.replayed)),
        (1, 0)
    );
    scenario.round();
    scenario.round();
    assert_eq!(scenario.hears(again), [at(10)]);
    // A subscriber at the trigger's position gets no position.
    let (operation, resume) = (scenario.nothing(3), Resume::After(position(&[(0, 10)])));
    let (same, reply) = scenario.subscribe_to(operation, Some(resume));
    let _same = joined(reply);
    scenario.round();
    assert_eq!(scenario.hears(same), []);
}

#[test]
fn a_subscriber_can_resume_from_a_partition_position_without_an_event() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let (none, reply) = scenario.subscribe_to(scenario.nothing(2), None);
    let _none = joined(reply);
    scenario.publish(trigger, [3]);
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 8)));
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(none), [at(8)]);
    scenario.publish(trigger, [12]);
    scenario.stage.resolve_all();
    let operation = scenario.stage.operation("topic", 3, 0);
    let (again, reply) = scenario.subscribe_to(operation, Some(Resume::After(position(&[(0, 8)]))));
    let _again = joined(reply);
    scenario.stage.resolve_all();
    assert!(scenario.stage.readers_opening.is_empty(), "the ring serves it");
    assert_eq!(scenario.hears(again), [Heard::Event(12, 0)]);
}

#[test]
fn a_group_that_catches_up_gets_its_position_with_its_events() {
    let mut scenario = Scenario::new(1);
    let (trigger, _, _all) = scenario.live(0);
    scenario.publish(trigger, 1..=5);
    scenario.stage.resolve_all();
    let (even, reply) =
        scenario.subscribe_to(scenario.even(2), Some(Resume::After(position(&[(0, 1)]))));
    let (_, stream_id, _) = scenario.stage.open_reader(Ok(()));
    let _even = joined(reply);
    assert_eq!(scenario.stage.read(trigger, stream_id, event(2)), ReaderStep::Continue);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0)]);
    for offset in [3, 4] {
        scenario.stage.read(trigger, stream_id, event(offset));
    }
    scenario.round();
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0), Heard::Event(4, 0), at(5)]);
}

#[test]
fn merged_groups_get_the_position_that_one_of_them_lacks() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let (one, reply) = scenario.subscribe_to(scenario.nothing(2), None);
    let _one = joined(reply);
    scenario.publish(trigger, 1..=3);
    scenario.stage.resolve_all();
    scenario.round();
    let resume = Resume::After(position(&[(0, 1)]));
    let (two, reply) = scenario.subscribe_to(scenario.nothing(2), Some(resume));
    let _two = joined(reply);
    assert_eq!(scenario.groups(), 2, "all, and these two");
    scenario.round();
    assert_eq!((scenario.hears(one), scenario.hears(two)), (vec![at(3), at(3)], vec![at(3)]));
}

#[test]
fn cursors_of_another_scope_are_followed_by_new_ones() {
    let mut scenario = Scenario::new(10);
    let (trigger, first, _first) = scenario.live(0);
    scenario.publish(trigger, [1]);
    scenario.stage.resolve_all();
    scenario.round();
    assert_eq!(scenario.hears(first), [Heard::Event(1, 0)]);
    let renewed =
        LiveOperation { bound_to: b"sub"[..].into(), ..scenario.stage.operation("topic", 1, 1) };
    let (group, _) = scenario.stage.shard.operations_before(1).remove(0);
    scenario.stage.advance(1, vec![(group, Ok(renewed.clone()))]);
    scenario.round();
    let heard = scenario.outlet.heard(first);
    assert_eq!(heard.len(), 3, "{heard:?}");
    let cursor = heard[2].split('"').nth(3).unwrap();
    assert_eq!(scenario.resume_of(cursor, &renewed), Resume::After(position(&[(0, 1)])));
}

#[test]
fn a_group_that_moves_to_another_source_announces_a_gap_before_a_position() {
    let mut scenario = Scenario::new(10);
    let (trigger, first, _first) = scenario.live(0);
    scenario.publish(trigger, [1]);
    scenario.stage.resolve_all();
    let (group, _) = scenario.stage.shard.operations_before(1).remove(0);
    let elsewhere = scenario.stage.operation("elsewhere", 1, 1);
    scenario.stage.advance(1, vec![(group, Ok(elsewhere))]);
    scenario.publish(trigger, [2]);
    scenario.stage.resolve_all();
    scenario.round();
    let target = scenario.stage.open();
    scenario.stage.message(target, SourceMessage::Progress(partition_offset(0, 40)));
    scenario.round();
    let heard = scenario.hears(first);
    assert_eq!(heard, [Heard::Event(1, 0), Heard::Event(2, 0)], "the gap is not announced yet");
}

#[test]
fn a_source_that_ended_sends_no_position() {
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let (even, reply) = scenario.subscribe_to(scenario.even(2), None);
    let _even = joined(reply);
    scenario.publish(trigger, [2, 3]);
    scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
    scenario.round();
    scenario.stage.resolve_all();
    scenario.round();
    let end = Else("end: PROVIDER_UNAVAILABLE".into());
    assert_eq!(scenario.hears(even), [Heard::Event(2, 0), end]);
    assert!(!scenario.stage.shard.needed_polls().positions, "its trigger is removed");
}

#[test]
fn without_cursors_no_positions_are_sent() {
    let mut stage = Stage::new(HubSettings::default());
    let outlet = Arc::default();
    let reply = stage.subscribe(&outlet, super::scripted_stage::member(1), "topic", 1, 0);
    let trigger = stage.open();
    let _held = joined(reply);
    stage.message(trigger, event(1));
    stage.resolve_all();
    assert!(!stage.shard.needed_polls().positions && stage.shard.send_positions().is_none());
    assert_eq!(outlet.heard(super::scripted_stage::member(1)).len(), 2);
}

#[test]
fn a_round_visits_every_group_in_small_steps_while_others_leave() {
    const GROUPS: u128 = 2000;
    let mut scenario = Scenario::new(10);
    let (trigger, _, _all) = scenario.live(0);
    let subscriptions: Vec<_> = (0..GROUPS)
        .map(|number| {
            let operation = match number % 3 {
                0 => scenario.stage.operation("topic", 10 + number, 0),
                _ => scenario.nothing(10 + number),
            };
            let (member, reply) = scenario.subscribe_to(operation, None);
            (member, joined(reply))
        })
        .collect();
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 1)));
    let (mut staying, mut steps, mut expected_steps) = (Vec::new(), 0, 0);
    let mut subscriptions = subscriptions.into_iter();
    while let Some(expected) = scenario.stage.shard.send_positions() {
        steps += 1;
        expected_steps = expected;
        assert!(scenario.count(|it| &it.positions) <= steps * VISITS_PER_STEP as u64);
        // Groups from all over the list are removed.
        for (number, (member, subscription)) in subscriptions.by_ref().take(100).enumerate() {
            match number % 2 {
                0 => scenario.stage.leave(subscription),
                _ => staying.push((member, subscription)),
            }
        }
    }
    staying.extend(subscriptions);
    assert!(steps as usize >= GROUPS as usize / VISITS_PER_STEP, "{steps}");
    assert!(expected_steps >= GROUPS as usize / 2 / VISITS_PER_STEP);
    assert!(staying.iter().all(|(member, _)| scenario.hears(*member) == [at(1)]));
    // A round without a new position visits the trigger alone.
    assert!(scenario.stage.shard.send_positions().is_none());
}
