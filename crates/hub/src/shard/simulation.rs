//! Everything in random order, from a seed: subscribers come and go, sources open, fail, lose and end,
//! resolutions are done in any order, graphs are replaced. After each step the promises hold:
//!
//! - `Join` first, one `End`, nothing after it ([`ScriptedOutlet`] panics otherwise);
//! - order: what a member hears and what it is told it lost leave no hole and repeat nothing, unless a
//!   gap was announced;
//! - a trigger is open exactly while somebody needs it; nothing leaks.
//!
//! A failing seed is printed; `STARLING_SEED` plays just that one, `STARLING_SEEDS` so many from 0.

use std::collections::HashMap;
use std::sync::Arc;

use events::{SourceError, SourceMessage, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::TriggerId;
use super::scripted::{Answer, ScriptedOutlet, Stage};
use crate::{HubSettings, Member, Subscription};

const SEEDS: u64 = 100;
const STEPS: u32 = 300;
const OUTLETS: u64 = 3;
const TOPICS: u64 = 3;

/// xorshift64*: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

struct Subscriber {
    outlet: usize,
    member: Member,
    topic: u64,
    /// Number of the first event after it joined, by trigger.
    from: Option<u64>,
    answer: Option<Answer>,
    subscription: Option<Subscription>,
    is_refused: bool,
}

struct Simulation {
    random: Random,
    stage: Stage,
    outlets: Vec<Arc<ScriptedOutlet>>,
    subscribers: Vec<Subscriber>,
    /// Triggers whose source lives, with their topic.
    live: Vec<(TriggerId, u64)>,
    /// Which topic a trigger that opens is for.
    topics_of: HashMap<TriggerId, u64>,
    /// Events published so far, by topic; the payload is the number.
    published: HashMap<u64, u64>,
    generation: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let settings = HubSettings {
            resolutions_in_flight: 1 + random.below(12) as usize,
            group_in_flight: 1 + random.below(4) as usize,
            group_waiting: random.below(5) as usize,
            ..HubSettings::default()
        };
        Self {
            random,
            stage: Stage::new(settings),
            outlets: (0..OUTLETS).map(|_| Arc::default()).collect(),
            subscribers: Vec::new(),
            live: Vec::new(),
            topics_of: HashMap::new(),
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
            63..95 => self.resolve(),
            95..97 => self.give_up(),
            97 => self.source_ends(),
            98 => self.reload(),
            _ => self.break_off(),
        }
        self.hear_answers();
        self.stage.hear_of_leaving();
        self.forget_closed();
        self.check();
    }

    fn subscribe(&mut self) {
        let outlet = self.random.below(OUTLETS) as usize;
        let (topic, operation) = (self.random.below(TOPICS), self.random.below(3));
        let member = Member { connection: self.subscribers.len() as u64, operation: 1 };
        // Some are still on their way with the graph that was just replaced.
        let generation = self.generation.saturating_sub(self.random.below(10) / 9);
        let waiting = self.stage.opening.len();
        let answer = self.stage.subscribe(
            &self.outlets[outlet],
            member,
            &topic.to_string(),
            operation.into(),
            generation,
        );
        if self.stage.opening.len() > waiting {
            let trigger = *self.stage.opening.last().unwrap();
            self.topics_of.insert(trigger, topic);
        }
        self.subscribers.push(Subscriber {
            outlet,
            member,
            topic,
            from: None,
            answer: Some(answer),
            subscription: None,
            is_refused: false,
        });
    }

    fn hear_answers(&mut self) {
        for subscriber in &mut self.subscribers {
            let Some(answer) = &mut subscriber.answer else { continue };
            match answer.try_recv() {
                Ok(Ok(subscription)) => {
                    subscriber.subscription = Some(subscription);
                    subscriber.from =
                        Some(self.published.get(&subscriber.topic).copied().unwrap_or(0));
                    subscriber.answer = None;
                }
                Ok(Err(_)) => {
                    subscriber.is_refused = true;
                    subscriber.answer = None;
                }
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => {}
                Err(tokio::sync::oneshot::error::TryRecvError::Closed) => {
                    panic!("every caller gets an answer");
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

    /// A caller who waits goes away.
    fn give_up(&mut self) {
        if let Some(subscriber) = self.subscribers.iter_mut().find(|it| it.answer.is_some()) {
            subscriber.answer = None;
            subscriber.is_refused = true;
        }
    }

    fn open(&mut self) {
        if !self.stage.opening.is_empty() {
            let trigger = self.stage.open();
            self.live.push((trigger, self.topics_of[&trigger]));
        }
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
        let payload = number.to_string();
        for (trigger, _) in self.live.iter().filter(|it| it.1 == topic) {
            self.stage.event(*trigger, &payload);
        }
    }

    fn gap(&mut self) {
        if let Some(&(trigger, topic)) = self.live.first() {
            // Some events never reach us.
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
            self.stage.resolve(index);
        }
    }

    /// A resolution breaks off; its payload is an error.
    fn break_off(&mut self) {
        if !self.stage.resolutions.is_empty() {
            let broken = self.stage.resolutions.remove(0);
            self.stage.shard.resolved(broken.group, broken.ticket, None);
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

    fn reload(&mut self) {
        let error = GraphqlError::new(ErrorCode::GraphReloaded, "reloaded");
        self.stage.shard.end_generation(self.generation, &error);
        self.generation += 1;
        self.stage.take_effects();
    }

    fn forget_closed(&mut self) {
        let closed = &self.stage.closed;
        self.live.retain(|(trigger, _)| !closed.contains(trigger));
    }

    fn check(&self) {
        let shard = &self.stage.shard;
        let running: usize = shard.groups.values().map(super::Group::resolving).sum();
        assert_eq!(running, shard.resolving);
        assert_eq!(running, self.stage.resolutions.len());
        assert!(shard.resolving <= shard.resolutions_max);
        let in_triggers: usize = shard.triggers.values().map(|it| it.groups.len()).sum();
        assert_eq!(in_triggers, shard.groups.len());
        for group in shard.groups.values() {
            assert!(!group.is_empty(), "a group has members");
            let view = group.view();
            assert!(view.waiting <= shard.settings.group_waiting as u64);
            assert!(view.in_flight <= shard.settings.group_in_flight as u64);
            assert!(shard.ready.len() <= 2 * shard.groups.len() + super::STALE_READY_MAX + 1);
            let could_start = group.can_start(shard.settings.group_in_flight);
            assert!(!could_start || group.is_queued, "who waits is in line");
            assert!(
                !could_start || shard.resolving == shard.resolutions_max,
                "nobody waits in vain"
            );
        }
        for (id, trigger) in &shard.triggers {
            let ends = matches!(trigger.state, super::State::Ending(_));
            let found = shard.by_source.get(&trigger.source) == Some(id);
            assert!(ends != found, "who comes finds a source that lives, and no other");
            let drained = |id| shard.groups.get(id).is_some_and(super::Group::is_drained);
            assert!(
                !ends || !trigger.groups.values().any(drained),
                "the last delivery ends a group"
            );
            let waits = matches!(&trigger.state, super::State::Opening(it) if !it.is_empty());
            assert!(waits || !trigger.groups.is_empty(), "a trigger is needed");
        }
        for subscriber in &self.subscribers {
            self.check_heard(subscriber);
        }
    }

    /// No hole and no repetition in what one member heard.
    fn check_heard(&self, subscriber: &Subscriber) {
        let heard = self.outlets[subscriber.outlet].heard(subscriber.member);
        if subscriber.is_refused {
            assert!(heard.is_empty(), "who is refused hears nothing: {heard:?}");
        }
        let mut latest: Option<u64> = None;
        let mut may_skip = false;
        for payload in &heard {
            let (true, Some(rest)) = (payload.starts_with('{'), payload.strip_prefix("{\"data\":"))
            else {
                // An error payload takes the place of an event whose number it does not tell.
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
            let expected = match latest {
                Some(latest) => latest + 1 + lost,
                // Events that were under way when it joined may reach it too.
                None => number.min(subscriber.from.unwrap_or(number) + 1 + lost),
            };
            assert!(
                number == expected || (may_skip && number > expected),
                "expected {expected}: {heard:?}"
            );
            (latest, may_skip) = (Some(number), false);
        }
    }

    /// Everybody leaves, and nothing stays.
    fn finish(mut self) {
        for subscriber in &mut self.subscribers {
            subscriber.answer = None;
            subscriber.subscription = None;
        }
        self.stage.hear_of_leaving();
        while !self.stage.opening.is_empty() {
            self.stage.open();
        }
        let shard = &self.stage.shard;
        assert!(shard.triggers.is_empty() && shard.by_source.is_empty(), "triggers leaked");
        assert!(shard.groups.is_empty(), "groups leaked");
        assert_eq!(shard.resolving, 0);
        let seats = self.stage.stats.subscribers.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(seats, 0, "seats leaked");
        for outlet in &self.outlets {
            assert!(outlet.is_empty(), "members leaked");
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
fn promises_hold_in_any_order_of_things() {
    let number = |name: &str| -> Option<u64> {
        std::env::var(name).ok().map(|text| text.parse().expect("a number"))
    };
    let seeds = match number("STARLING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STARLING_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let played = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            (0..STEPS).for_each(|_| simulation.step());
            simulation.finish();
        });
        assert!(played.is_ok(), "failed: STARLING_SEED={seed}");
    }
}
