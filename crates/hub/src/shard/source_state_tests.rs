//! Tests of sources of states (live queries), with a scripted shard.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bindings::{Source, StateSource};
use bytes::Bytes;
use events::{EventFuture, EventStream};
use execute::{Payload, Revision};

use super::TriggerId;
use super::scripted_stage::{ScriptedOutlet, Stage, SubscribeReply, member, payload};
use crate::{HubSettings, LiveOperation, Subscriber, Subscription};

/// A source with a name. The stage opens its stream.
struct NamedSource(Box<str>);

impl StateSource for NamedSource {
    fn name(&self) -> &str {
        "live query"
    }

    fn identity(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn topics(&self) -> &[Box<str>] {
        std::slice::from_ref(&self.0)
    }

    fn open(self: Arc<Self>) -> EventFuture<'static, EventStream> {
        Box::pin(std::future::pending())
    }
}

struct Scenario {
    stage: Stage,
    outlet: Arc<ScriptedOutlet>,
    subscriptions: u64,
}

impl Scenario {
    fn new() -> Self {
        Self { stage: Stage::new(HubSettings::default()), outlet: Arc::default(), subscriptions: 0 }
    }

    fn operation(&self, source: &str, generation: u64) -> LiveOperation {
        let source = Source::of_states(Arc::new(NamedSource(source.into())));
        let operation = self.stage.operation("unused", 1, generation);
        Stage::with_state(LiveOperation { source, ..operation })
    }

    fn subscribe(&mut self) -> (Subscriber, SubscribeReply) {
        self.subscriptions += 1;
        let member = member(self.subscriptions);
        let operation = self.operation("query", 0);
        (member, self.stage.subscribe_to(&self.outlet, member, operation))
    }

    /// Adds the first subscriber, with this state.
    fn live(&mut self, state: &'static str) -> (TriggerId, Subscriber, Subscription) {
        let (member, reply) = self.subscribe();
        let trigger = self.stage.open();
        self.resolve_to(0, state);
        (trigger, member, joined(reply))
    }

    /// Completes the resolution at `index` with a state.
    fn resolve_to(&mut self, index: usize, state: &'static str) {
        self.stage.resolutions[index].event = state.into();
        self.stage.resolve(index);
    }

    /// Completes the resolution at `index` with a state, sent as `text` with this number in its sequence.
    fn resolve_to_revision(&mut self, index: usize, number: u64, text: &str, state: &'static str) {
        let revision = Revision { number, state: 0, complete: state.into() };
        let payload = payload(&Bytes::from(text.to_owned()));
        let payload = Payload { revision: Some(Arc::new(revision)), ..payload };
        self.stage.resolve_with(index, payload);
    }

    /// The number and the state that the subscribers of each resolution have.
    fn known(&self) -> Vec<(u64, &[u8])> {
        let known = self.stage.resolutions.iter().flat_map(|it| &it.known);
        known.map(|it| (it.number, &it.complete[..])).collect()
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

fn data(states: &[&str]) -> Vec<String> {
    states.iter().map(|state| format!("{{\"data\":{state}}}")).collect()
}

#[test]
fn an_equal_state_is_not_delivered_again() {
    let mut scenario = Scenario::new();
    let (trigger, one, _held) = scenario.live("1");
    for state in ["1", "2", "2", "1"] {
        scenario.stage.event(trigger, "");
        scenario.resolve_to(0, state);
    }
    assert_eq!(scenario.heard(one), data(&["1", "2", "1"]));
    assert_eq!(scenario.stage.stats.states.load(Relaxed), 1);
    assert_eq!(scenario.stage.stats.resolutions.load(Relaxed), 4);
}

#[test]
fn states_are_read_one_after_the_other_and_those_in_between_are_no_loss() {
    let mut scenario = Scenario::new();
    let (trigger, one, _held) = scenario.live("0");
    for _ in 0..200 {
        scenario.stage.event(trigger, "");
        assert_eq!(scenario.stage.resolutions.len(), 1, "a later state must not overtake");
    }
    scenario.resolve_to(0, "200");
    while !scenario.stage.resolutions.is_empty() {
        scenario.resolve_to(0, "200");
    }
    assert_eq!(scenario.heard(one), data(&["0", "200"]));
}

#[test]
fn a_later_subscriber_gets_the_state_and_joins_the_others_once_they_have_the_same() {
    let mut scenario = Scenario::new();
    let (trigger, one, _one) = scenario.live("1");
    let (two, reply) = scenario.subscribe();
    scenario.resolve_to(0, "1");
    let _two = joined(reply);
    assert_eq!((scenario.heard(two), scenario.groups()), (data(&["1"]), 1));
    // The state of the third is newer than the event that the others wait for.
    let (three, reply) = scenario.subscribe();
    scenario.resolve_to(0, "2");
    let _three = joined(reply);
    assert_eq!(scenario.groups(), 2, "the others have another state");
    scenario.stage.event(trigger, "");
    scenario.resolve_to(0, "2");
    scenario.resolve_to(0, "2");
    for (member, states) in [(one, &["1", "2"][..]), (two, &["1", "2"]), (three, &["2"])] {
        assert_eq!(scenario.heard(member), data(states));
    }
    assert_eq!(scenario.groups(), 1);
    scenario.stage.event(trigger, "");
    assert_eq!(scenario.stage.resolutions.len(), 1, "one for all");
}

#[test]
fn a_reload_moves_the_subscribers_to_the_new_source_and_sends_only_what_differs() {
    let mut scenario = Scenario::new();
    let (old, one, _held) = scenario.live("1");
    let groups = scenario.stage.shard.operations_before(1);
    let renewed = scenario.operation("query of the next graph", 1);
    scenario.stage.advance(1, vec![(groups[0].0, Ok(renewed))]);
    let new = scenario.stage.open();
    assert_eq!(scenario.stage.closed, [old]);
    scenario.stage.event(new, "");
    scenario.resolve_to(0, "1");
    assert_eq!(scenario.heard(one), data(&["1"]));
    scenario.stage.event(new, "");
    scenario.resolve_to(0, "3");
    assert_eq!(scenario.heard(one), data(&["1", "3"]), "without a gap");
}

/// Two groups with the same state: one has its second revision, a later one its first.
fn apart() -> (Scenario, TriggerId, [Subscriber; 2], [Subscription; 2]) {
    let mut scenario = Scenario::new();
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    assert_eq!(scenario.known(), []);
    scenario.resolve_to_revision(0, 1, "1", "1");
    let held = joined(reply);
    scenario.stage.event(trigger, "");
    assert_eq!(scenario.known(), [(1, &b"1"[..])]);
    scenario.resolve_to_revision(0, 2, "12", "2");
    let (two, reply) = scenario.subscribe();
    assert_eq!(scenario.known(), []);
    scenario.resolve_to_revision(0, 1, "2", "2");
    (scenario, trigger, [one, two], [held, joined(reply)])
}

#[test]
fn groups_with_different_revisions_are_one_when_both_got_a_complete_state() {
    let (mut scenario, trigger, [one, two], _held) = apart();
    assert_eq!(scenario.groups(), 2, "a patch for one is none for the other");
    let (three, reply) = scenario.subscribe();
    scenario.resolve_to_revision(0, 1, "2", "2");
    let _three = joined(reply);
    assert_eq!(scenario.groups(), 2, "the third has what the second has");
    scenario.stage.event(trigger, "");
    assert_eq!(scenario.known(), [(2, &b"2"[..]), (1, &b"2"[..])]);
    scenario.resolve_to_revision(0, 3, "23", "3");
    scenario.resolve_to_revision(0, 2, "23", "3");
    assert_eq!(scenario.groups(), 2);
    scenario.stage.event(trigger, "");
    scenario.resolve_to_revision(0, 1, "4", "4");
    assert_eq!(scenario.groups(), 2);
    scenario.resolve_to_revision(0, 1, "4", "4");
    assert_eq!(scenario.groups(), 1);
    assert_eq!(scenario.heard(one), data(&["1", "12", "23", "4"]));
    for member in [two, three] {
        assert_eq!(scenario.heard(member), data(&["2", "23", "4"]));
    }
}

#[test]
fn groups_with_different_revisions_can_become_one_after_a_reload() {
    let (mut scenario, _, [one, two], _held) = apart();
    let groups = scenario.stage.shard.operations_before(1);
    let renewed = |(id, _): &(_, _)| (*id, Ok(scenario.operation("query of the next graph", 1)));
    let renewed = groups.iter().map(renewed).collect();
    scenario.stage.advance(1, renewed);
    let new = scenario.stage.open();
    scenario.stage.event(new, "");
    assert_eq!(scenario.known().len(), 2, "they have the states of the old graph");
    scenario.resolve_to_revision(0, 3, "23", "3");
    scenario.resolve_to_revision(0, 2, "23", "3");
    assert_eq!(scenario.groups(), 2);
    scenario.stage.event(new, "");
    scenario.resolve_to_revision(0, 1, "4", "4");
    scenario.resolve_to_revision(0, 1, "4", "4");
    assert_eq!(scenario.groups(), 1);
    assert_eq!(scenario.heard(one), data(&["1", "12", "23", "4"]));
    assert_eq!(scenario.heard(two), data(&["2", "23", "4"]));
}

#[test]
fn a_patch_waits_for_an_outlet_that_would_drop_it() {
    let mut scenario = Scenario::new();
    let (one, reply) = scenario.subscribe();
    let trigger = scenario.stage.open();
    scenario.resolve_to_revision(0, 1, "1", "1");
    let _held = joined(reply);
    scenario.outlet.starve(true);
    scenario.stage.event(trigger, "");
    scenario.resolve_to_revision(0, 2, "12", "2");
    scenario.stage.event(trigger, "");
    assert!(scenario.stage.resolutions.is_empty(), "the next one needs what was delivered");
    scenario.outlet.starve(false);
    scenario.stage.shard.poll_backpressured();
    scenario.stage.take_effects();
    assert_eq!(scenario.known(), [(2, &b"2"[..])]);
    scenario.resolve_to_revision(0, 3, "23", "3");
    assert_eq!(scenario.heard(one), data(&["1", "12", "23"]));
}
