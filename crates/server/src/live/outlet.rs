//! The outlet of one connection: what the hub has for its subscriptions and the socket has not taken
//! yet. Bounded in bytes and count; what happens at the bound is the configured policy.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use execute::{GraphqlError, Missed, Payload};
use hub::{EndReason, GroupId, Member, Outlet, OutletCommand};
use tokio::sync::Notify;

use crate::config::{OverflowPolicy, Subscriptions};

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
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// What was dropped and not announced yet, by operation.
    missed: HashMap<u32, Missed>,
    dropped: u64,
    overflown: bool,
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

    /// A result that was made for this connection alone.
    pub(crate) fn next(&self, operation: u32, payload: Payload) {
        self.lock().push(self.bounds, operation, payload);
        self.filled.notify_one();
    }

    /// The end of an operation.
    pub(crate) fn end(&self, end: Delivery) {
        self.lock().deliveries.push_back(end);
        self.filled.notify_one();
    }

    /// The oldest delivery.
    pub(crate) fn take(&self) -> Taken {
        let mut queue = self.lock();
        if queue.overflown {
            return Taken::Overflown;
        }
        let Some(delivery) = queue.deliveries.pop_front() else { return Taken::Nothing };
        if let Delivery::Next { payload, .. } = &delivery {
            queue.bytes -= payload.bytes.len();
        }
        Taken::Delivery(delivery)
    }

    /// How many results the policy has dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Nothing runs user code under this lock, so a poisoned one holds a sound queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, bounds: Bounds, operation: u32, payload: Payload) {
        if self.overflown {
            return;
        }
        let size = payload.bytes.len();
        while self.bytes + size > bounds.bytes || self.deliveries.len() >= bounds.events {
            let victim = match bounds.policy {
                OverflowPolicy::Disconnect => None,
                OverflowPolicy::DropOldest | OverflowPolicy::Latest => self.oldest_result(),
            };
            let Some(at) = victim else {
                if bounds.policy == OverflowPolicy::Disconnect {
                    self.overflown = true;
                    self.deliveries.clear();
                    self.bytes = 0;
                    self.dropped += 1;
                    return;
                }
                // Only ends wait, or this payload alone is over the bound: it is let through, since
                // dropping it would starve the subscriber for ever.
                break;
            };
            self.drop_at(at);
        }
        if bounds.policy == OverflowPolicy::Latest {
            while let Some(at) = self.waiting(operation) {
                self.drop_at(at);
            }
        }
        self.bytes += size;
        let missed = self.missed.remove(&operation).unwrap_or_default();
        self.deliveries.push_back(Delivery::Next { operation, payload, missed });
    }

    fn oldest_result(&self) -> Option<usize> {
        self.deliveries.iter().position(|it| matches!(it, Delivery::Next { .. }))
    }

    fn waiting(&self, wanted: u32) -> Option<usize> {
        self.deliveries
            .iter()
            .position(|it| matches!(it, Delivery::Next { operation, .. } if *operation == wanted))
    }

    /// Drops one result; the next one of that operation tells.
    fn drop_at(&mut self, at: usize) {
        if let Some(Delivery::Next { operation, payload, missed }) = self.deliveries.remove(at) {
            self.bytes -= payload.bytes.len();
            self.dropped += 1;
            // What the dropped result would have announced is owed as well.
            let owed = missed.and(payload.missed()).and(Missed { lost: 1, gap: false });
            let later = self.deliveries.iter_mut().skip(at).find_map(|it| match it {
                Delivery::Next { operation: other, missed, .. } if *other == operation => {
                    Some(missed)
                }
                _ => None,
            });
            let debt = later.unwrap_or_else(|| self.missed.entry(operation).or_default());
            *debt = debt.and(owed);
        }
    }
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
                    queue.push(self.bounds, member.operation, payload.clone());
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
                    EndReason::Complete => {
                        queue.deliveries.push_back(Delivery::Complete { operation });
                    }
                    EndReason::Unsubscribed => return,
                    EndReason::Error(error) => {
                        let errors = vec![*error];
                        queue.deliveries.push_back(Delivery::Failed { operation, errors });
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
            outlet.next(0, payload(text));
        }
        assert_eq!(outlet.take(), Taken::Overflown);
        assert_eq!(outlet.take_dropped(), 1);
    }

    #[test]
    fn drop_oldest_keeps_the_newest_and_says_how_many_were_lost() {
        let outlet = outlet(OverflowPolicy::DropOldest, 100, 2);
        for text in ["1", "2", "3", "4"] {
            outlet.next(0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "3", 2), (0, "4", 0)]);
        assert_eq!(outlet.take_dropped(), 2);
    }

    #[test]
    fn a_dropped_result_hands_on_what_it_announced() {
        let outlet = outlet(OverflowPolicy::DropOldest, 1000, 1);
        let announced = Missed { lost: 2, gap: true };
        let first = Payload { bytes: "{}".into(), splice: 1, has_data: true, errors: 0 };
        outlet.next(0, first.with_missed(announced));
        outlet.next(0, payload("2"));
        let Taken::Delivery(Delivery::Next { missed, .. }) = outlet.take() else {
            panic!("nothing was kept")
        };
        assert_eq!(missed, Missed { lost: 3, gap: true });
    }

    #[test]
    fn bytes_are_bounded_too() {
        let outlet = outlet(OverflowPolicy::DropOldest, 2, 100);
        for text in ["1", "2", "3"] {
            outlet.next(0, payload(text));
        }
        assert_eq!(all(&outlet), [(0, "2", 1), (0, "3", 0)]);
    }

    #[test]
    fn latest_keeps_one_result_for_each_operation() {
        let outlet = outlet(OverflowPolicy::Latest, 100, 10);
        for (operation, text) in [(0, "1"), (1, "2"), (0, "3"), (0, "4")] {
            outlet.next(operation, payload(text));
        }
        assert_eq!(all(&outlet), [(1, "2", 0), (0, "4", 2)]);
    }
}
