//! Tests of the current state before the events, with a scripted shard.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use events::{Event, PartitionOffset, Position, SourceMessage, StreamEnd};

use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member};
use super::{ResolutionOutcome, TriggerId};
use crate::cursor::{Cursors, Resume};
use crate::{HubSettings, Subscriber, Subscription};

const STATE: &str = r#"{"data":"state"}"#;

struct Scenario {
    stage: Stage,
    outlet: Arc<ScriptedOutlet>,
    subscriptions: u64,
}

impl Scenario {
    fn new(settings: HubSettings) -> Self {
        Self { stage: Stage::new(settings), outlet: Arc::default(), subscriptions: 0 }
    }

    /// Adds a subscriber that gets the state of `topic` and the following events.
    fn subscribe(&mut self) -> (Subscriber, SubscribeReply) {
        self.subscribe_with(None)
    }

    fn subscribe_with(&mut self, resume: Option<Resume>) -> (Subscriber, SubscribeReply) {
        self.subscriptions += 1;
        let member = member(self.subscriptions);
        let operation = Stage::with_state(self.stage.operation("topic", 1, 0));
        (member, self.stage.resume(&self.outlet, member, operation, resume))
    }

    /// Adds the first subscriber and delivers its state.
    fn live(&mut self) -> (TriggerId, Subscriber, Subscription) {
        let (member, reply) = self.subscribe();
        let trigger = self.stage.open();
        self.stage.resolve_all();
        (trigger, member, joined(reply))
    }

    fn heard(&self, member: Subscriber) -> Vec<String> {
        self.outlet.heard(member).into_iter().skip(1).collect()
    }

    fn groups(&self) -> usize {
        self.stage.shard.groups.len()
    }
}

fn joined(mut reply: SubscribeReply) -> Subscription {
    reply.try_recv().expect("a response").expect("joined")
}

fn data(event: &str) -> String {
    format!("{{\"data\":{event}}}")
}

#[test]
fn the_state_comes_first_and_every_event_since_the_source_was_open_follows() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (one, reply) = scenario.subscribe();
    assert!(
        scenario.stage.resolutions.is_empty(),
        "the source is opened before the state is requested"
    );
    let trigger = scenario.stage.open();
    let _one = joined(reply);
    for event in ["1", "2"] {
        scenario.stage.event(trigger, event);
    }
    // The events are resolved at the same time, and earlier.
    scenario.stage.resolve(2);
    scenario.stage.resolve(1);
    assert!(scenario.heard(one).is_empty());
    scenario.stage.resolve(0);
    assert_eq!(scenario.heard(one), [STATE.into(), data("1"), data("2")]);
    assert_eq!(scenario.stage.stats.states.load(Relaxed), 1);
    assert_eq!(scenario.stage.stats.resolutions.load(Relaxed), 2, "a state is not an event");
}

#[test]
fn concurrent_subscribers_share_one_state_and_later_ones_get_a_newer_one() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (one, first) = scenario.subscribe();
    let (two, second) = scenario.subscribe();
    let trigger = scenario.stage.open();
    let (three, third) = scenario.subscribe();
    assert_eq!(scenario.stage.resolutions.len(), 1);
    scenario.stage.resolve_all();
    let (four, fourth) = scenario.subscribe();
    let _held = [first, second, third, fourth].map(joined);
    assert_eq!(scenario.stage.resolutions.len(), 1, "an earlier state may be older");
    assert_eq!(scenario.stage.stats.states_shared.load(Relaxed), 2);
    scenario.stage.event(trigger, "1");
    scenario.stage.resolve_all();
    for member in [one, two, three, four] {
        assert_eq!(scenario.heard(member), [STATE.into(), data("1")]);
    }
    assert_eq!(scenario.groups(), 1, "the groups are merged in the end");
    scenario.stage.event(trigger, "2");
    assert_eq!(scenario.stage.resolutions.len(), 1, "resolved once for all");
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(four).len(), 3);
}

#[test]
fn a_group_with_undelivered_events_is_not_merged_with_one_that_has_delivered_them() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (trigger, one, _one) = scenario.live();
    scenario.stage.event(trigger, "1");
    let (two, second) = scenario.subscribe();
    let _two = joined(second);
    scenario.stage.event(trigger, "2");
    // Events 1 and 2 of the first group are in flight, and the state and 2 of the second.
    scenario.stage.resolve(1);
    assert_eq!(scenario.heard(two), [STATE]);
    assert_eq!(scenario.groups(), 2);
    scenario.stage.resolve_all();
    assert_eq!(scenario.groups(), 1);
    scenario.stage.event(trigger, "3");
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), [STATE.into(), data("1"), data("2"), data("3")]);
    assert_eq!(scenario.heard(two), [STATE.into(), data("2"), data("3")]);
}

#[test]
fn without_a_state_to_deliver_the_events_begin_at_once() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    let _one = joined(reply);
    scenario.stage.event(trigger, "1");
    scenario.stage.resolve_to_nothing(0);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), [data("1")]);
}

#[test]
fn a_failed_state_is_an_error_payload_and_the_stream_continues() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    let _one = joined(reply);
    let broken = scenario.stage.resolutions.remove(0);
    scenario.stage.shard.on_resolved(broken.group, broken.ticket, ResolutionOutcome::BrokeOff);
    scenario.stage.take_effects();
    scenario.stage.event(trigger, "1");
    scenario.stage.resolve_all();
    let error = r#"{"errors":[{"message":"The current state could not be resolved.","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}"#;
    assert_eq!(scenario.heard(one), [error.into(), data("1")]);
}

#[test]
fn events_that_do_not_fit_behind_a_slow_state_are_announced_and_the_state_stays() {
    let settings = HubSettings {
        group_in_flight: 1,
        group_waiting: 2,
        resolutions_in_flight: 1,
        ..HubSettings::default()
    };
    let mut scenario = Scenario::new(settings);
    let (trigger, _, first) = scenario.live();
    // The only permit is taken, so the state of the other group waits too.
    scenario.stage.event(trigger, "0");
    let operation = Stage::with_state(scenario.stage.operation("topic", 2, 0));
    let two = member(100);
    let _two = joined(scenario.stage.resume(&scenario.outlet, two, operation, None));
    for event in ["1", "2", "3", "4", "5"] {
        scenario.stage.event(trigger, event);
    }
    scenario.stage.resolve_all();
    let expected = [STATE.into(), r#"{"data":4,"extensions":{"lost":3}}"#.into(), data("5")];
    assert_eq!(scenario.heard(two), expected);
    drop(first);
}

#[test]
fn the_states_of_new_subscribers_leave_half_of_the_permits_to_events() {
    let settings =
        HubSettings { resolutions_in_flight: 4, group_in_flight: 1, ..HubSettings::default() };
    let mut scenario = Scenario::new(settings);
    let (trigger, one, _first) = scenario.live();
    let new = || (2..7).map(member);
    let mut subscriptions = Vec::new();
    for (operation, member) in (2..).zip(new()) {
        let operation = Stage::with_state(scenario.stage.operation("topic", operation, 0));
        let reply = scenario.stage.resume(&scenario.outlet, member, operation, None);
        subscriptions.push(joined(reply));
    }
    assert_eq!(scenario.stage.resolutions.len(), 2);
    scenario.stage.event(trigger, "1");
    scenario.stage.resolve(2);
    assert_eq!(scenario.heard(one), [STATE.into(), data("1")]);
    scenario.stage.resolve_all();
    for member in new() {
        assert_eq!(scenario.heard(member), [STATE.into(), data("1")]);
    }
}

#[test]
fn a_source_that_ends_meanwhile_ends_the_subscription_after_the_state() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    let _one = joined(reply);
    scenario.stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(one), [STATE, "end: PROVIDER_UNAVAILABLE"]);
    assert!(scenario.stage.shard.groups.is_empty() && scenario.stage.shard.triggers.is_empty());
}

#[test]
fn the_state_of_subscribers_that_have_left_is_not_shared() {
    let mut scenario = Scenario::new(HubSettings::default());
    let (_, reply) = scenario.subscribe();
    scenario.stage.open();
    scenario.stage.leave(joined(reply));
    assert!(scenario.stage.resolutions.is_empty() && scenario.stage.shard.groups.is_empty());
    let (two, reply) = scenario.subscribe();
    scenario.stage.open();
    let _two = joined(reply);
    scenario.stage.resolve_all();
    assert_eq!(scenario.heard(two), [STATE]);
}

fn partition_offset(partition: u32, offset: u64) -> PartitionOffset {
    PartitionOffset { partition, offset, part: 0 }
}

#[test]
fn the_state_has_the_position_before_it_and_a_subscriber_with_that_cursor_gets_no_state() {
    let cursors = Cursors::new([&b"a key of some length"[..]]).unwrap().with_memory_providers(true);
    let cursors = Arc::new(cursors);
    let stage = Stage::with_cursors(HubSettings::default(), Some(Arc::clone(&cursors)));
    let mut scenario = Scenario { stage, outlet: Arc::default(), subscriptions: 0 };
    let event = |partition: u32, offset: u64| {
        let payload = format!("\"{partition}.{offset}\"");
        SourceMessage::Event(
            Event::new("topic", payload).at(partition_offset(partition, offset)).into(),
        )
    };
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    let _one = joined(reply);
    // The offsets of the partitions come after the state was requested; the second partition is empty.
    scenario.stage.message(trigger, SourceMessage::Progress(partition_offset(0, 7)));
    scenario.stage.message(trigger, event(0, 8));
    scenario.stage.message(trigger, event(1, 1));
    scenario.stage.resolve_all();
    let heard = scenario.heard(one);
    let source = scenario.stage.operation("topic", 1, 0).source;
    let scope = cursors.scope("Subscription.field", &source, &[]);
    let cursor = |payload: &str| {
        let (_, rest) = payload.split_once("\"cursor\":\"").expect("a cursor");
        cursors.decode(rest.split('"').next().unwrap(), scope).expect("it is ours")
    };
    assert!(heard[0].starts_with(r#"{"data":"state","#), "{heard:?}");
    let before: Position = [partition_offset(0, 7), partition_offset(1, 0)].into_iter().collect();
    assert_eq!(cursor(&heard[0]), Resume::After(before));

    let (two, reply) = scenario.subscribe_with(Some(cursor(&heard[0])));
    let _two = joined(reply);
    scenario.stage.resolve_all();
    let numbers = |heard: Vec<String>| -> Vec<String> {
        heard.iter().map(|it| it.split(',').next().unwrap().to_owned()).collect()
    };
    assert_eq!(numbers(scenario.heard(two)), [r#"{"data":"0.8""#, r#"{"data":"1.1""#]);
    assert_eq!(scenario.groups(), 1);

    // A later subscriber has the position of its own time.
    let (three, reply) = scenario.subscribe();
    let _three = joined(reply);
    scenario.stage.message(trigger, event(0, 9));
    scenario.stage.resolve_all();
    let now: Position = [partition_offset(0, 8), partition_offset(1, 1)].into_iter().collect();
    assert_eq!(cursor(&scenario.heard(three)[0]), Resume::After(now));
    assert_eq!(numbers(scenario.heard(three)), [r#"{"data":"state""#, r#"{"data":"0.9""#]);
}
