//! The outlet of one connection: what the hub has for its subscriptions and the socket has not taken
//! yet. Events are bounded in bytes for the connection and in number for each subscription; what happens at
//! a bound is the configured policy.
//!
//! Answers of queries and ends of operations wait here too, and no policy touches them: a query without its
//! answer is wrong. They are bounded by the operations that a connection may have at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use execute::{GraphqlError, Missed, Payload};
use hub::{EndReason, GroupId, Member, Outlet, OutletCommand};
use tokio::sync::Notify;

use crate::config::{OverflowPolicy, Subscriptions};

/// Room for so many deliveries stays with an empty queue, so that a steady trickle allocates nothing.
const WAITING_KEPT: usize = 4;

/// Something for one operation of the connection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Delivery {
    /// A result.
    Next {
        /// Operation of the connection.
        operation: u32,
        /// The result.
        payload: Payload,
        /// What the policy dropped before this one, announcements of the dropped ones included.
        missed: Missed,
    },
    /// The last word: all results have been given.
    Complete {
        /// Operation of the connection.
        operation: u32,
    },
    /// The last word: it could not run, or not go on.
    Failed {
        /// Operation of the connection.
        operation: u32,
        /// Why.
        errors: Vec<GraphqlError>,
    },
}

/// What a connection task takes out.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// The next delivery.
    Delivery(Delivery),
    /// Nothing waits.
    Nothing,
    /// The bound was reached and the policy is to disconnect.
    Overflown,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ConnectionOutlet {
    bounds: Bounds,
    queue: Mutex<Queue>,
    /// Wakes the connection's task.
    pub(crate) filled: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    bytes: usize,
    events: usize,
    policy: OverflowPolicy,
}

#[derive(Debug, Default)]
struct Queue {
    members: HashMap<GroupId, Vec<Member>>,
    waiting: VecDeque<Waiting>,
    /// Of all events that wait.
    bytes: usize,
    /// By operation; none without an entry of its own.
    tallies: HashMap<u32, Tally>,
    dropped: u64,
    overflown: bool,
}

#[derive(Debug)]
struct Waiting {
    delivery: Delivery,
    /// The policy decides about events only.
    is_event: bool,
}

/// The events of one operation.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    waiting: usize,
    /// What was dropped and not announced yet.
    missed: Missed,
}

impl ConnectionOutlet {
    /// An empty one.
    pub(crate) fn new(settings: &Subscriptions) -> Self {
        Self {
            bounds: Bounds {
                bytes: settings.queue_bytes,
                events: settings.queue_events as usize,
                policy: settings.policy,
            },
            queue: Mutex::default(),
            filled: Notify::new(),
        }
    }

    /// The answer of a query or mutation. An end follows.
    pub(crate) fn answer(&self, operation: u32, payload: Payload) {
        let delivery = Delivery::Next { operation, payload, missed: Missed::default() };
        self.lock().waiting.push_back(Waiting { delivery, is_event: false });
        self.filled.notify_one();
    }

    /// The end of an operation.
    pub(crate) fn end(&self, end: Delivery) {
        self.lock().end(end);
        self.filled.notify_one();
    }

    /// The oldest delivery.
    pub(crate) fn take(&self) -> Taken {
        let mut queue = self.lock();
        if queue.overflown {
            return Taken::Overflown;
        }
        let Some(taken) = queue.waiting.pop_front() else { return Taken::Nothing };
        queue.left(&taken);
        Taken::Delivery(taken.delivery)
    }

    /// How many results the policy has dropped since the last call; a connection that it gave up counts as one.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Nothing runs user code under this lock, so a poisoned one holds a sound queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn event(&mut self, bounds: Bounds, operation: u32, payload: Payload) {
        if self.overflown {
            return;
        }
        let size = payload.bytes.len();
        while let Some(bound) = self.bound_met(bounds, operation, size) {
            let victim = match bounds.policy {
                OverflowPolicy::Disconnect => return self.overflow(),
                OverflowPolicy::DropOldest | OverflowPolicy::Latest => match bound {
                    Bound::Events => self.oldest_event_of(operation),
                    Bound::Bytes => self.waiting.iter().position(|it| it.is_event),
                },
            };
            let Some(at) = victim else { break };
            self.drop_at(at);
        }
        if bounds.policy == OverflowPolicy::Latest {
            while let Some(at) = self.oldest_event_of(operation) {
                self.drop_at(at);
            }
        }
        self.bytes += size;
        let tally = self.tallies.entry(operation).or_default();
        tally.waiting += 1;
        let missed = std::mem::take(&mut tally.missed);
        let delivery = Delivery::Next { operation, payload, missed };
        self.waiting.push_back(Waiting { delivery, is_event: true });
    }

    /// Which bound one more event of `size` bytes breaks. A single event that is over the bound alone waits
    /// nevertheless, since a subscriber who cannot have it would never have anything.
    fn bound_met(&self, bounds: Bounds, operation: u32, size: usize) -> Option<Bound> {
        if self.tallies.get(&operation).is_some_and(|it| it.waiting >= bounds.events) {
            return Some(Bound::Events);
        }
        (self.bytes > 0 && self.bytes + size > bounds.bytes).then_some(Bound::Bytes)
    }

    /// The connection is given up, and what waits with it.
    fn overflow(&mut self) {
        self.dropped += 1;
        self.overflown = true;
        self.waiting = VecDeque::new();
        self.tallies = HashMap::new();
        self.bytes = 0;
    }

    /// Nothing follows for the operation, so nothing is left that could announce what was dropped.
    fn end(&mut self, end: Delivery) {
        let (Delivery::Next { operation, .. }
        | Delivery::Complete { operation }
        | Delivery::Failed { operation, .. }) = &end;
        self.forget_missed(*operation);
        if !self.overflown {
            self.waiting.push_back(Waiting { delivery: end, is_event: false });
        }
    }

    fn forget_missed(&mut self, operation: u32) {
        if let Some(tally) = self.tallies.get_mut(&operation) {
            tally.missed = Missed::default();
        }
        self.tidy(operation);
    }

    /// Counts out what has been taken from the queue.
    fn left(&mut self, gone: &Waiting) {
        if let Waiting { delivery: Delivery::Next { operation, payload, .. }, is_event: true } =
            gone
        {
            self.bytes -= payload.bytes.len();
            if let Some(tally) = self.tallies.get_mut(operation) {
                tally.waiting -= 1;
            }
            self.tidy(*operation);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > WAITING_KEPT {
            // An idle connection gives back what a burst needed.
            self.waiting = VecDeque::new();
        }
    }

    fn tidy(&mut self, operation: u32) {
        if self.tallies.get(&operation) == Some(&Tally::default()) {
            self.tallies.remove(&operation);
        }
    }

    fn oldest_event_of(&self, wanted: u32) -> Option<usize> {
        self.tallies.get(&wanted).filter(|tally| tally.waiting > 0)?;
        self.waiting.iter().position(|it| match &it.delivery {
            Delivery::Next { operation, .. } => it.is_event && *operation == wanted,
            _ => false,
        })
    }

    /// Drops one event; the next one of that operation tells.
    fn drop_at(&mut self, at: usize) {
        let Some(gone) = self.waiting.remove(at) else { return };
        let Delivery::Next { operation, payload, missed } = &gone.delivery else { return };
        self.dropped += 1;
        // What the dropped event would have announced is owed as well.
        let owed = missed.and(payload.missed()).and(Missed { lost: 1, gap: false });
        let later = self.waiting.iter_mut().skip(at).find_map(|it| match &mut it.delivery {
            Delivery::Next { operation: other, missed, .. } if other == operation => Some(missed),
            _ => None,
        });
        let debt = later.unwrap_or_else(|| &mut self.tallies.entry(*operation).or_default().missed);
        *debt = debt.and(owed);
        self.left(&gone);
    }
}

/// What is full.
#[derive(Clone, Copy)]
enum Bound {
    /// `subscriptions.queue_events`, of one operation.
    Events,
    /// `subscriptions.queue_bytes`, of the connection.
    Bytes,
}

impl Outlet for ConnectionOutlet {
    fn send(&self, command: OutletCommand) {
        let mut queue = self.lock();
        match command {
            OutletCommand::Join { group, member } => {
                queue.members.entry(group).or_default().push(member);
                return;
            }
            OutletCommand::Deliver { group, payload } => {
                let members = queue.members.get(&group).cloned().unwrap_or_default();
                for member in members {
                    queue.event(self.bounds, member.operation, payload.clone());
                }
            }
            OutletCommand::End { group, member, reason } => {
                if let Some(members) = queue.members.get_mut(&group) {
                    members.retain(|it| *it != member);
                    if members.is_empty() {
                        queue.members.remove(&group);
                    }
                }
                let operation = member.operation;
                match reason {
                    EndReason::Complete => queue.end(Delivery::Complete { operation }),
                    EndReason::Unsubscribed => return queue.forget_missed(operation),
                    EndReason::Error(error) => {
                        queue.end(Delivery::Failed { operation, errors: vec![*error] });
                    }
                }
            }
        }
        drop(queue);
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &'static str) -> Payload {
        Payload { bytes: text.into(), splice: 0, has_data: true, errors: 0 }
    }

    fn outlet(policy: OverflowPolicy, bytes: usize, events: u32) -> ConnectionOutlet {
        ConnectionOutlet::new(&Subscriptions {
            queue_bytes: bytes,
            queue_events: events,
            policy,
            ..Subscriptions::default()
        })
    }

    fn all(outlet: &ConnectionOutlet) -> Vec<(u32, &'static str, u64)> {
        std::iter::from_fn(|| match outlet.take() {
            Taken::Delivery(Delivery::Next { operation, payload, missed }) => {
                let text =
                    ["1", "2", "3", "4"].into_iter().find(|it| it.as_bytes() == payload.bytes);
                Some((operation, text.unwrap_or("?"), missed.lost))
            }
            _ => None,
        })
        .collect()
    }

    fn event(outlet: &ConnectionOutlet, operation: u32, payload: Payload) {
        outlet.lock().event(outlet.bounds, operation, payload);
    }

    #[test]
    fn a_group_delivers_to_each_of_its_members_until_they_leave() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 10);
        let group = GroupId(1);
        let member = |operation| Member { connection: 0, operation };
        for operation in [7, 8] {
            outlet.send(OutletCommand::Join { group, member: member(operation) });
        }
        outlet.send(OutletCommand::Deliver { group, payload: payload("1") });
        let reason = EndReason::Unsubscribed;
        outlet.send(OutletCommand::End { group, member: member(7), reason });
        outlet.send(OutletCommand::Deliver { group, payload: payload("2") });
        assert_eq!(all(&outlet), [(7, "1", 0), (8, "1", 0), (8, "2", 0)]);
    }

    #[test]
    fn disconnect_gives_up_at_the_bound() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 2);
        for text in ["1", "2", "3"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(outlet.take(), Taken::Overflown);
        assert_eq!(outlet.take_dropped(), 1);
    }

    #[test]
    fn drop_oldest_keeps_the_newest_and_says_how_many_were_lost() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 2);
        for text in ["1", "2", "3", "4"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "3", 2), (0, "4", 0)]);
        assert_eq!(outlet.take_dropped(), 2);
    }

    #[test]
    fn a_dropped_result_hands_on_what_it_announced() {
        let outlet = outlet(OverflowPolicy::DropOldest, 1000, 1);
        let announced = Missed { lost: 2, gap: true };
        let first = Payload { bytes: "{}".into(), splice: 1, has_data: true, errors: 0 };
        event(&outlet, 0, first.with_missed(announced));
        event(&outlet, 0, payload("2"));
        let Taken::Delivery(Delivery::Next { missed, .. }) = outlet.take() else {
            panic!("nothing was kept")
        };
        assert_eq!(missed, Missed { lost: 3, gap: true });
    }

    #[test]
    fn bytes_are_bounded_too() {
        let outlet = outlet(OverflowPolicy::DropOldest, 2, 100);
        for text in ["1", "2", "3"] {
            event(&outlet, 0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "2", 1), (0, "3", 0)]);
    }

    #[test]
    fn latest_keeps_one_result_for_each_operation() {
        let outlet = outlet(OverflowPolicy::Latest, 100, 10);
        for (operation, text) in [(0, "1"), (1, "2"), (0, "3"), (0, "4")] {
            event(&outlet, operation, payload(text));
        }
        assert_eq!(all(&outlet), [(1, "2", 0), (0, "4", 2)]);
    }

    #[test]
    fn many_subscriptions_of_one_connection_do_not_fill_the_queues_of_each_other() {
        let outlet = outlet(OverflowPolicy::Disconnect, 100, 2);
        let group = GroupId(1);
        for operation in 0..10 {
            outlet.send(OutletCommand::Join { group, member: Member { connection: 0, operation } });
        }
        outlet.send(OutletCommand::Deliver { group, payload: payload("1") });
        outlet.send(OutletCommand::Deliver { group, payload: payload("2") });
        assert_eq!(all(&outlet).len(), 20);
    }

    #[test]
    fn an_event_over_the_bound_alone_waits_nevertheless() {
        for policy in [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest] {
            let outlet = outlet(policy, 3, 10);
            event(&outlet, 0, payload("a large one"));
            assert_eq!(all(&outlet), [(0, "?", 0)], "{policy:?}");
        }
    }

    #[test]
    fn answers_of_queries_are_never_dropped_and_crowd_nobody_out() {
        for policy in
            [OverflowPolicy::Disconnect, OverflowPolicy::DropOldest, OverflowPolicy::Latest]
        {
            let outlet = outlet(policy, 2, 1);
            for operation in 0..3 {
                outlet.answer(operation, payload("a large one"));
                outlet.end(Delivery::Complete { operation });
            }
            event(&outlet, 7, payload("1"));
            let mut taken = std::iter::from_fn(|| match outlet.take() {
                Taken::Delivery(delivery) => Some(delivery),
                _ => None,
            });
            assert_eq!(taken.by_ref().count(), 7, "{policy:?}");
        }
    }

    #[test]
    fn nothing_is_remembered_of_an_operation_that_has_ended() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 1);
        let (group, member) = (GroupId(1), Member { connection: 0, operation: 3 });
        outlet.send(OutletCommand::Join { group, member });
        for text in ["1", "2"] {
            outlet.send(OutletCommand::Deliver { group, payload: payload(text) });
        }
        outlet.send(OutletCommand::End { group, member, reason: EndReason::Unsubscribed });
        assert_eq!(all(&outlet), [(3, "2", 1)]);
        let queue = outlet.lock();
        assert!(queue.tallies.is_empty() && queue.members.is_empty() && queue.bytes == 0);
    }
}
