//! Simulation of a shard in random order, from a seed: subscribers come and go, sources open, fail, lose events and
//! end, resolutions end in any order, outlets are full, and graphs are replaced: operations stay, move to other topics
//! or are no longer valid. After each step these guarantees hold:
//!
//! - `Join` comes first, then everything else, then one end ([`ScriptedOutlet`] panics otherwise);
//! - order: the events that a subscriber gets and its announced losses leave no hole among the events that its filter
//!   passes, and repeat nothing, unless a gap was announced; a change of topic announces one;
//! - some events are resolved in batches, which makes no difference;
//! - a subscriber that wants the current state gets it before all events, once, and loses no event by it;
//! - a reload ends operations that are no longer valid, and nothing else;
//! - a trigger is open exactly while it is needed; nothing leaks.
//!
//! Subscribers with cursors are simulated in [`super::resumption_simulation`].
//!
//! A failing seed is printed; `STARLING_SEED` runs one seed, `STARLING_SEEDS` that many from 0.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bindings::Filter;
use events::{SourceError, SourceMessage, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::scripted_stage::{STATE, ScriptedOutlet, Stage, SubscribeReply};
use super::{ResolutionOutcome, TriggerId};
use crate::{GroupId, HubSettings, LiveOperation, Subscriber, Subscription};

const SEEDS: u64 = 100;
const STEPS: u32 = 300;
const OUTLETS: u64 = 3;
const TOPICS: u64 = 3;

/// The operation with a filter.
const FILTERED: u128 = 3;

/// The operation that resolves events one by one.
const UNBATCHED: u128 = 0;

/// The operation that gets the current state first.
const WITH_STATE: u128 = 2;

const STATE_PAYLOAD: &str = r#"{"data":"state""#;

/// The first event number of a topic is this times the topic.
const TOPIC: u64 = 1_000_000;

/// Random numbers that are the same on every machine for a seed.
pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}

struct SimulatedSubscriber {
    outlet: usize,
    member: Subscriber,
    topic: u64,
    /// The number of the last event before it was added.
    from: Option<u64>,
    reply: Option<SubscribeReply>,
    subscription: Option<Subscription>,
    is_refused: bool,
    /// True if it has a filter for even numbers.
    is_filtered: bool,
    /// True if its operation was not valid on a later graph.
    may_be_reloaded: bool,
    /// True if its operation may listen to another topic on a later graph.
    may_have_moved: bool,
}

struct Simulation {
    random: Random,
    stage: Stage,
    outlets: Vec<Arc<ScriptedOutlet>>,
    subscribers: Vec<SimulatedSubscriber>,
    /// The triggers with a live source, and their topics.
    live: Vec<(TriggerId, u64)>,
    /// The number of published events by topic; the payload is the number.
    published: HashMap<u64, u64>,
    generation: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let settings = HubSettings {
            resolutions_in_flight: 1 + random.below(12) as usize,
            group_in_flight: 1 + random.below(4) as usize,
            batch_events: random.below(5) as usize,
            group_waiting: random.below(5) as usize,
            ..HubSettings::default()
        };
        Self {
            random,
            stage: Stage::new(settings),
            outlets: (0..OUTLETS).map(|_| Arc::default()).collect(),
            subscribers: Vec::new(),
            live: Vec::new(),
            published: HashMap::new(),
            generation: 1,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..15 => self.subscribe(),
            15..25 => self.leave(),
            25..32 => self.open(),
            32..34 => self.fail_to_open(),
            34..60 => self.event(),
            60..63 => self.gap(),
            63..92 => self.resolve(),
            92..94 => self.cancel_subscribe(),
            94..96 => self.toggle_outlet(),
            96 => self.source_ends(),
            97..99 => self.reload(),
            _ => self.fail_resolution(),
        }
        self.receive_replies();
        self.stage.process_leaves();
        self.forget_closed();
        self.check();
    }

    fn subscribe(&mut self) {
        let outlet = self.random.below(OUTLETS) as usize;
        let (topic, operation) = (self.random.below(TOPICS), self.random.below(4));
        let member = Subscriber { connection: self.subscribers.len() as u64, operation: 1 };
        // Some still arrive with the graph that was just replaced.
        let generation = self.generation.saturating_sub(self.random.below(10) / 9);
        let wanted = self.operation(&topic.to_string(), operation.into(), generation);
        let reply = self.stage.subscribe_to(&self.outlets[outlet], member, wanted);
        self.subscribers.push(SimulatedSubscriber {
            outlet,
            member,
            topic,
            from: None,
            reply: Some(reply),
            subscription: None,
            is_refused: false,
            is_filtered: u128::from(operation) == FILTERED,
            may_be_reloaded: false,
            may_have_moved: false,
        });
    }

    fn operation(&self, topic: &str, id: u128, generation: u64) -> LiveOperation {
        let mut operation = self.stage.operation(topic, id, generation);
        operation.filter = (id == FILTERED).then(|| Arc::new(Filter::one_of("odd", &[0])));
        if id == WITH_STATE {
            operation = Stage::with_state(operation);
        }
        if id == UNBATCHED { operation } else { Stage::with_batches(operation) }
    }

    fn receive_replies(&mut self) {
        for subscriber in &mut self.subscribers {
            let Some(reply) = &mut subscriber.reply else { continue };
            match reply.try_recv() {
                Ok(Ok(subscription)) => {
                    subscriber.subscription = Some(subscription);
                    subscriber.from =
                        Some(self.published.get(&subscriber.topic).copied().unwrap_or(0));
                    subscriber.reply = None;
                }
                Ok(Err(_)) => {
                    subscriber.is_refused = true;
                    subscriber.reply = None;
                }
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => {}
                Err(tokio::sync::oneshot::error::TryRecvError::Closed) => {
                    panic!("every caller gets a reply");
                }
            }
        }
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

    /// Drops the request of a caller that waits.
    fn cancel_subscribe(&mut self) {
        if let Some(subscriber) = self.subscribers.iter_mut().find(|it| it.reply.is_some()) {
            subscriber.reply = None;
            subscriber.is_refused = true;
        }
    }

    fn open(&mut self) {
        if !self.stage.opening.is_empty() {
            let topic = self.topic_of(self.stage.opening[0]);
            let trigger = self.stage.open();
            self.live.push((trigger, topic));
        }
    }

    fn topic_of(&self, trigger: TriggerId) -> u64 {
        self.stage.shard.triggers[&trigger].source.topics()[0].parse().unwrap()
    }

    fn toggle_outlet(&mut self) {
        self.outlets[self.random.below(OUTLETS) as usize].turn();
    }

    fn fail_to_open(&mut self) {
        if !self.stage.opening.is_empty() {
            let reason = String::new();
            self.stage.refuse_to_open(SourceError::Unavailable { provider: "p".into(), reason });
        }
    }

    fn event(&mut self) {
        let topic = self.random.below(TOPICS);
        let number = self.published.entry(topic).or_default();
        *number += 1;
        let (odd, number) = (*number % 2, topic * TOPIC + *number);
        let payload = format!("{{\"odd\":{odd},\"number\":{number}}}");
        for (trigger, _) in self.live.iter().filter(|it| it.1 == topic) {
            self.stage.event(*trigger, &payload);
        }
    }

    fn gap(&mut self) {
        if let Some(&(trigger, topic)) = self.live.first() {
            // Some events never reach the shard.
            *self.published.entry(topic).or_default() += self.random.below(3);
            for (trigger, _) in self.live.iter().filter(|it| it.1 == topic && it.0 != trigger) {
                self.stage.message(*trigger, SourceMessage::Gap);
            }
            self.stage.message(trigger, SourceMessage::Gap);
        }
    }

    fn resolve(&mut self) {
        if !self.stage.resolutions.is_empty() {
            let index = self.random.below(self.stage.resolutions.len() as u64) as usize;
            let is_state = self.stage.resolutions[index].event == STATE;
            if is_state && self.random.below(4) == 0 {
                self.stage.resolve_to_nothing(index);
            } else {
                self.stage.resolve(index);
            }
        }
    }

    /// Fails a resolution; its payload is an error.
    fn fail_resolution(&mut self) {
        if !self.stage.resolutions.is_empty() {
            let broken = self.stage.resolutions.remove(0);
            self.stage.shard.on_resolved(broken.group, broken.ticket, ResolutionOutcome::BrokeOff);
            self.stage.take_effects();
        }
    }

    fn source_ends(&mut self) {
        if !self.live.is_empty() {
            let index = self.random.below(self.live.len() as u64) as usize;
            let (trigger, _) = self.live.swap_remove(index);
            self.stage.message(trigger, SourceMessage::End(StreamEnd::Closed));
        }
    }

    /// Replaces the graph. Most operations stay valid, some move to another topic, some end; some have no renewal in
    /// time and get it later.
    fn reload(&mut self) {
        self.generation += 1;
        let mut old = self.stage.shard.operations_before(self.generation);
        // A subscriber may come or leave between the query for operations and the update.
        if self.random.below(2) == 0 {
            self.subscribe();
        }
        while !old.is_empty() {
            self.receive_replies();
            let mut renewals = Vec::new();
            let mut skipped = 0;
            for (group, operation) in old {
                let id = operation.group.operation_id;
                let topic = operation.source.topics()[0].to_string();
                let renewed = match self.random.below(8) {
                    0 => {
                        skipped += 1;
                        continue;
                    }
                    1 => {
                        self.members_of(group).for_each(|it| it.may_be_reloaded = true);
                        let reason = GraphqlError::new(ErrorCode::GraphReloaded, "not valid");
                        Err(Box::new(reason))
                    }
                    2 => {
                        self.members_of(group).for_each(|it| it.may_have_moved = true);
                        let topic = self.random.below(TOPICS).to_string();
                        Ok(self.operation(&topic, id, self.generation))
                    }
                    // Operations that were different may become equal.
                    3 if id != FILTERED => Ok(self.operation(&topic, id / 2, self.generation)),
                    _ => Ok(self.operation(&topic, id, self.generation)),
                };
                renewals.push((group, renewed));
            }
            old = self.stage.advance(self.generation, renewals);
            assert!(old.len() <= skipped + 1, "only skipped groups are left");
        }
    }

    fn members_of(&mut self, group: GroupId) -> impl Iterator<Item = &mut SimulatedSubscriber> {
        let shard = &self.stage.shard;
        let is_in = move |it: &Subscription| shard.groups.current(it.group()) == group;
        let subscribers = self.subscribers.iter_mut();
        subscribers.filter(move |it| it.subscription.as_ref().is_some_and(is_in))
    }

    fn forget_closed(&mut self) {
        let closed = &self.stage.closed;
        self.live.retain(|(trigger, _)| !closed.contains(trigger));
    }

    fn check(&self) {
        let shard = &self.stage.shard;
        let running: usize = shard.groups.values().map(super::group::Group::resolving).sum();
        assert_eq!(running, shard.scheduler.resolutions());
        assert_eq!(running, self.stage.resolutions.len());
        let events: usize = self.stage.resolutions.iter().map(|it| 1 + it.others.len()).sum();
        let counted = self.stage.stats.resolving.load(Relaxed);
        assert_eq!(events as u64, counted);
        assert!(shard.scheduler.resolutions() <= shard.settings.resolutions_in_flight);
        let in_triggers: usize =
            shard.triggers.iter().map(|(_, it)| it).map(|it| it.groups.len()).sum();
        assert_eq!(in_triggers, shard.groups.len());
        for (id, group) in shard.groups.iter() {
            assert!(!group.is_empty(), "a group has subscribers");
            assert!(shard.triggers[&group.trigger].groups.contains(id));
            if let Some(target) = group.phase.moving_to() {
                let super::TriggerPhase::Opening(waiting) = &shard.triggers[&target].phase else {
                    panic!("a group that waits for a source moves when it is open")
                };
                assert_eq!(waiting.moving.iter().filter(|(it, _)| *it == id).count(), 1);
            }
            let view = group.view();
            let state = u64::from(group.state_after.is_some());
            assert!(view.waiting <= shard.settings.group_waiting as u64 + state);
            let most = shard.settings.group_in_flight;
            assert!(group.resolving() <= most);
            assert!(view.in_flight <= (most * shard.settings.batch_events.max(1)) as u64);
            assert!(
                shard.scheduler.queued()
                    <= 2 * shard.groups.len() + super::scheduler::STALE_READY_MAX
            );
            let could_start = group.can_start(shard.settings.group_in_flight);
            assert!(
                !could_start || group.queue_place.is_some(),
                "a group that can start is queued"
            );
            assert!(
                !could_start || !shard.scheduler.has_permit_for(group),
                "no group waits while a permit is free"
            );
        }
        for (id, trigger) in shard.triggers.iter() {
            let ends = matches!(trigger.phase, super::TriggerPhase::Ending(_));
            for (key, group) in &trigger.by_key {
                assert!(
                    trigger.groups.contains(*group),
                    "a group that is found belongs to the trigger"
                );
                assert_eq!(shard.groups[group].operation.group, key.0.group);
            }
            let has_state = |id: &GroupId| shard.groups[id].state_after.is_some();
            assert!(
                trigger.groups_for_state().all(has_state),
                "only groups with an undelivered state are joined for it"
            );
            assert!(trigger.merge_candidates.iter().all(|it| trigger.groups.contains(*it)));
            let found = shard.triggers.find(&trigger.source) == Some(id);
            assert!(ends != found, "only a trigger with a live source is found");
            let drained = |id: GroupId| {
                shard
                    .groups
                    .get(id)
                    .is_some_and(|it| it.is_drained() && it.phase.moving_to().is_none())
            };
            assert!(!ends || !trigger.groups.iter().any(drained), "the last delivery ends a group");
            let waits =
                matches!(&trigger.phase, super::TriggerPhase::Opening(it) if !it.is_empty());
            assert!(waits || !trigger.groups.is_empty(), "a trigger is needed");
        }
        for subscriber in &self.subscribers {
            self.check_heard(subscriber);
        }
    }

    /// Checks that a subscriber received no hole and no repetition.
    fn check_heard(&self, subscriber: &SimulatedSubscriber) {
        let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
        if let Some(end) = heard.iter().find(|it| *it == "end: GRAPH_RELOADED") {
            assert!(subscriber.may_be_reloaded, "{end} of a valid operation: {heard:?}");
        }
        if subscriber.is_refused {
            assert!(heard.is_empty(), "a refused subscriber receives nothing: {heard:?}");
        }
        let states = heard.iter().enumerate().filter(|(_, it)| it.starts_with(STATE_PAYLOAD));
        let states: Vec<_> = states.map(|(at, _)| at).collect();
        assert!(states.is_empty() || states == [1], "a state comes first and once: {heard:?}");
        let mut latest: Option<(u64, u64)> = None;
        let mut may_skip = false;
        for payload in &heard {
            let Some((_, rest)) = payload.split_once("\"number\":") else {
                // An error payload replaces an event, and does not show its number.
                may_skip |= payload.starts_with("{\"errors\"");
                continue;
            };
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let number: u64 = digits.parse().unwrap();
            let lost = payload.split_once("\"lost\":").map_or(0, |(_, rest)| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().unwrap()
            });
            may_skip |= payload.contains("\"gap\":true");
            let (topic, number) = (number / TOPIC, number % TOPIC);
            // A filtered subscriber gets every second event.
            let count = |number: u64| if subscriber.is_filtered { number / 2 } else { number };
            assert!(!subscriber.is_filtered || number.is_multiple_of(2), "filtered: {heard:?}");
            let number = count(number);
            let expected = match latest {
                Some((before, latest)) if before == topic => latest + 1 + lost,
                // Events that were in flight when it was added may reach it too.
                None if topic == subscriber.topic => {
                    number.min(subscriber.from.map_or(number, count) + 1 + lost)
                }
                _ => {
                    assert!(may_skip, "a change of topic is a gap: {heard:?}");
                    number
                }
            };
            // Some lost events may be of another topic, which it has left again.
            let least = match latest {
                Some((_, latest)) if subscriber.may_have_moved => latest + 1,
                _ => expected,
            };
            assert!(
                number == expected || (may_skip && number >= least),
                "expected {expected}: {heard:?}"
            );
            (latest, may_skip) = (Some((topic, number)), false);
        }
    }

    /// Removes all subscribers and checks that nothing is left.
    fn finish(mut self) {
        for subscriber in &mut self.subscribers {
            subscriber.reply = None;
            subscriber.subscription = None;
        }
        self.stage.process_leaves();
        while !self.stage.opening.is_empty() {
            self.stage.open();
        }
        let shard = &self.stage.shard;
        assert!(shard.triggers.is_empty() && shard.triggers.has_no_source(), "triggers leaked");
        assert!(shard.groups.is_empty(), "groups leaked");
        assert!(shard.groups.has_no_outlets(), "outlets leaked");
        assert_eq!(shard.scheduler.resolutions(), 0);
        for gauge in [&self.stage.stats.waiting, &self.stage.stats.resolving] {
            assert_eq!(gauge.load(Relaxed), 0, "counters leaked");
        }
        let stats = &self.stage.stats;
        let slots = stats.subscribers.load(Relaxed) + stats.joining.load(Relaxed);
        assert_eq!(slots, 0, "slots leaked");
        for outlet in &self.outlets {
            assert!(outlet.is_empty(), "subscribers leaked");
        }
        for subscriber in &self.subscribers {
            let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
            let ends = heard.iter().filter(|it| it.starts_with("end")).count();
            let joins = heard.iter().filter(|it| *it == "join").count();
            assert_eq!(ends, joins, "{heard:?}");
            assert!(ends == 0 || heard.last().unwrap().starts_with("end"), "{heard:?}");
        }
    }
}

#[test]
fn guarantees_hold_in_any_order_of_events() {
    let batches = AtomicU64::new(0);
    for_seeds(|seed| {
        let mut simulation = Simulation::new(seed);
        (0..STEPS).for_each(|_| simulation.step());
        batches.fetch_add(simulation.stage.stats.batches.load(Relaxed), Relaxed);
        simulation.finish();
    });
    let is_one = std::env::var_os("STARLING_SEED").is_some();
    assert!(is_one || batches.into_inner() > 0, "some events were resolved together");
}

/// Runs all requested seeds, and reports one that fails.
pub(super) fn for_seeds(play: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name: &str| -> Option<u64> {
        std::env::var(name).ok().map(|text| text.parse().expect("a number"))
    };
    let seeds = match number("STARLING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STARLING_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        assert!(played.is_ok(), "failed: STARLING_SEED={seed}");
    }
}
