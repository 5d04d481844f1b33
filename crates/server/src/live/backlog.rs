//! What waits for one connection whose socket has not taken it yet. Events are bounded in bytes for the connection
//! and for all of them, and in number for each subscription; what happens at a bound is the configured policy.
//!
//! Answers of queries and ends of operations wait here too, and no policy touches them: a query without its answer is
//! wrong. They are bounded by the operations that a connection may have at a time. So are positions, which wait for
//! operations only of which nothing else does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use execute::{GraphqlError, Missed, Payload};
use hub::EndReason;

use super::queue_total::{QueueShare, QueueTotal};
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
    /// Where it is, though it had no result for that.
    Position {
        /// Operation of the connection.
        operation: u32,
        /// What its client may come again with.
        cursor: Bytes,
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

impl Delivery {
    /// The end of an operation that the hub has ended.
    pub(super) fn end(operation: u32, reason: &EndReason) -> Self {
        match reason {
            EndReason::Complete => Self::Complete { operation },
            EndReason::Error(error) => Self::Failed { operation, errors: vec![(**error).clone()] },
        }
    }

    /// The operation that it is for.
    fn operation(&self) -> u32 {
        match self {
            Self::Next { operation, .. }
            | Self::Position { operation, .. }
            | Self::Complete { operation }
            | Self::Failed { operation, .. } => *operation,
        }
    }
}

/// What a connection takes out.
#[derive(Debug, PartialEq)]
pub(crate) enum NextDelivery {
    /// The next delivery.
    Delivery(Delivery),
    /// Nothing waits.
    Nothing,
    /// The bound was reached and the policy is to disconnect.
    Overflown,
}

/// The configured bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogBounds {
    bytes: usize,
    events: usize,
    policy: OverflowPolicy,
}

impl BacklogBounds {
    pub(super) fn new(settings: &Subscriptions) -> Self {
        Self {
            bytes: settings.queue_bytes,
            events: settings.queue_events as usize,
            policy: settings.policy,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Backlog {
    share: Arc<QueueShare>,
    waiting: VecDeque<QueuedDelivery>,
    /// Of all events that wait.
    bytes: usize,
    /// By operation; none without an entry of its own.
    tallies: HashMap<u32, OperationTally>,
    dropped: u64,
    overflown: bool,
}

#[derive(Debug)]
struct QueuedDelivery {
    delivery: Delivery,
    /// The policy decides about events only.
    is_event: bool,
}

/// The events of one operation.
#[derive(Debug, Default, PartialEq)]
struct OperationTally {
    waiting: usize,
    /// What was dropped and not announced yet.
    missed: Missed,
    /// It waits to be told where it is.
    has_position: bool,
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

impl Backlog {
    /// Nothing waits.
    pub(super) fn new(total: Arc<QueueTotal>) -> Self {
        Self {
            share: QueueShare::new(total),
            waiting: VecDeque::new(),
            bytes: 0,
            tallies: HashMap::new(),
            dropped: 0,
            overflown: false,
        }
    }

    /// The answer of a query or mutation. An end follows.
    pub(super) fn push_response(&mut self, operation: u32, payload: Payload) {
        let delivery = Delivery::Next { operation, payload, missed: Missed::default() };
        self.waiting.push_back(QueuedDelivery { delivery, is_event: false });
    }

    /// The oldest delivery.
    pub(super) fn pop(&mut self) -> NextDelivery {
        if self.overflown {
            return NextDelivery::Overflown;
        }
        let Some(taken) = self.waiting.pop_front() else { return NextDelivery::Nothing };
        self.count_out(&taken);
        NextDelivery::Delivery(taken.delivery)
    }

    /// Has the bound been reached, and is the policy to disconnect? Known also while nothing can be taken,
    /// because the socket is full.
    pub(super) fn is_overflown(&self) -> bool {
        self.overflown
    }

    /// Does nothing wait, and is nothing unannounced to anyone?
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.tallies.is_empty() && !self.overflown
    }

    /// How many results the policy has dropped since the last call; a connection that it gave up counts as one.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// A result of a subscription.
    pub(super) fn push_event(&mut self, bounds: BacklogBounds, operation: u32, payload: Payload) {
        self.shed(bounds);
        if self.overflown {
            return;
        }
        let size = payload.bytes.len();
        if bounds.policy == OverflowPolicy::Latest {
            while let Some(at) = self.oldest_event_of(operation) {
                self.drop_at(at);
            }
        }
        while let Some(bound) = self.exceeded_bound(bounds, operation, size) {
            let victim = match bounds.policy {
                OverflowPolicy::Disconnect => return self.overflow(),
                OverflowPolicy::DropOldest | OverflowPolicy::Latest => match bound {
                    Bound::Events => self.oldest_event_of(operation),
                    Bound::Bytes => self.oldest_event(),
                },
            };
            let Some(at) = victim else { break };
            self.drop_at(at);
        }
        while !self.share.take(size) {
            match (bounds.policy, self.oldest_event()) {
                (OverflowPolicy::Disconnect, _) => return self.overflow(),
                // Others have it all: the next event tells that this one was lost.
                (_, None) => return self.record_dropped(operation, &payload),
                (_, Some(at)) => self.drop_at(at),
            }
        }
        self.bytes += size;
        let tally = self.tallies.entry(operation).or_default();
        tally.waiting += 1;
        let missed = std::mem::take(&mut tally.missed);
        let delivery = Delivery::Next { operation, payload, missed };
        self.waiting.push_back(QueuedDelivery { delivery, is_event: true });
    }

    /// Calls `wake` from now on, on any thread, when [`Backlog::shed`] is to be called.
    pub(super) fn on_shed(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.share.on_shed(wake);
    }

    /// Makes room for other connections if this one holds the most.
    pub(super) fn shed(&mut self, bounds: BacklogBounds) {
        let mut to_shed = self.share.take_to_shed();
        while to_shed > 0 && !self.overflown {
            // The events that waited at the time of the request may have removed.
            let Some(at) = self.oldest_event() else { return };
            if bounds.policy == OverflowPolicy::Disconnect {
                return self.overflow();
            }
            let before = self.bytes;
            self.drop_at(at);
            to_shed = to_shed.saturating_sub((before - self.bytes).max(1));
        }
    }

    /// Where an operation is. One that has yet to get an event, or to hear what it lost, is not told: its client would
    /// go on behind that. Nor is one that has not taken the last position, so that no more than one waits for it.
    pub(super) fn push_position(&mut self, operation: u32, cursor: Bytes) {
        if !self.overflown && !self.has_news_of(operation) {
            let tally = OperationTally { has_position: true, ..OperationTally::default() };
            self.tallies.insert(operation, tally);
            let delivery = Delivery::Position { operation, cursor };
            self.waiting.push_back(QueuedDelivery { delivery, is_event: false });
        }
    }

    /// Does an event of that operation wait, or has its client yet to hear what it lost? What others are unannounced is
    /// nothing to it.
    pub(super) fn has_news_of(&self, operation: u32) -> bool {
        self.tallies.contains_key(&operation)
    }

    /// Which bound one more event of `size` bytes breaks. A single event that is over the bound alone waits
    /// nevertheless, since a subscriber who cannot have it would never have anything.
    fn exceeded_bound(&self, bounds: BacklogBounds, operation: u32, size: usize) -> Option<Bound> {
        if self.tallies.get(&operation).is_some_and(|it| it.waiting >= bounds.events) {
            return Some(Bound::Events);
        }
        (self.bytes > 0 && self.bytes + size > bounds.bytes).then_some(Bound::Bytes)
    }

    /// True if no bound is reached that another event of the operation would break.
    pub(super) fn accepts_event(&self, bounds: BacklogBounds, operation: u32) -> bool {
        let waiting = self.tallies.get(&operation).map_or(0, |it| it.waiting);
        waiting < bounds.events && self.bytes < bounds.bytes
    }

    /// May an operation be given more of what it missed? Not beyond half of what may wait: more is on its way.
    pub(super) fn has_room(&self, bounds: BacklogBounds, operation: u32) -> bool {
        let waiting = self.tallies.get(&operation).map_or(0, |it| it.waiting);
        2 * waiting < bounds.events && 2 * self.bytes < bounds.bytes
    }

    /// The connection is given up, and what waits with it.
    pub(super) fn overflow(&mut self) {
        self.dropped += 1;
        self.overflown = true;
        self.waiting = VecDeque::new();
        self.tallies = HashMap::new();
        self.share.give_back(std::mem::take(&mut self.bytes));
    }

    /// An event does not even wait.
    fn record_dropped(&mut self, operation: u32, payload: &Payload) {
        self.dropped += 1;
        let missed = &mut self.tallies.entry(operation).or_default().missed;
        *missed = missed.and(payload.missed()).and(Missed { lost: 1, gap: false });
    }

    /// The operation has lost something that never came here. Its next event tells.
    pub(super) fn record_loss(&mut self, operation: u32, lost: Missed) {
        if !self.overflown {
            let missed = &mut self.tallies.entry(operation).or_default().missed;
            *missed = missed.and(lost);
        }
    }

    /// The end of an operation. Nothing follows for it, so nothing is left that could announce what was dropped.
    pub(super) fn push_end(&mut self, end: Delivery) {
        self.clear_missed(end.operation());
        if !self.overflown {
            self.waiting.push_back(QueuedDelivery { delivery: end, is_event: false });
        }
    }

    /// Drops what waits for an operation that its client has completed: nothing of it is sent any more.
    pub(super) fn drop_deliveries_of(&mut self, operation: u32) {
        let is_of = |delivery: &Delivery| delivery.operation() == operation;
        if self.waiting.iter().any(|it| is_of(&it.delivery)) {
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let (removed, kept): (VecDeque<_>, _) = waiting.partition(|it| is_of(&it.delivery));
            self.waiting = kept;
            removed.iter().for_each(|it| self.count_out(it));
        }
        self.tallies.remove(&operation);
    }

    /// Nobody has to be told any more what the operation missed.
    pub(super) fn clear_missed(&mut self, operation: u32) {
        if let Some(tally) = self.tallies.get_mut(&operation) {
            tally.missed = Missed::default();
        }
        self.remove_empty_tally(operation);
    }

    /// Counts out what has been taken from the queue.
    fn count_out(&mut self, removed: &QueuedDelivery) {
        if let QueuedDelivery {
            delivery: Delivery::Next { operation, payload, .. },
            is_event: true,
        } = removed
        {
            self.bytes -= payload.bytes.len();
            self.share.give_back(payload.bytes.len());
            if let Some(tally) = self.tallies.get_mut(operation) {
                tally.waiting -= 1;
            }
            self.remove_empty_tally(*operation);
        }
        if let Delivery::Position { operation, .. } = &removed.delivery {
            if let Some(tally) = self.tallies.get_mut(operation) {
                tally.has_position = false;
            }
            self.remove_empty_tally(*operation);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > WAITING_KEPT {
            // An idle connection gives back what a burst needed.
            self.waiting = VecDeque::new();
        }
    }

    fn remove_empty_tally(&mut self, operation: u32) {
        if self.tallies.get(&operation) == Some(&OperationTally::default()) {
            self.tallies.remove(&operation);
        }
    }

    fn oldest_event(&self) -> Option<usize> {
        self.waiting.iter().position(|it| it.is_event)
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
        let Some(removed) = self.waiting.remove(at) else { return };
        let Delivery::Next { operation, payload, missed } = &removed.delivery else { return };
        self.dropped += 1;
        // What the dropped event would have announced is unannounced as well.
        let unannounced = missed.and(payload.missed()).and(Missed { lost: 1, gap: false });
        let later = self.waiting.iter_mut().skip(at).find_map(|it| match &mut it.delivery {
            Delivery::Next { operation: other, missed, .. } if other == operation => Some(missed),
            _ => None,
        });
        let announcement =
            later.unwrap_or_else(|| &mut self.tallies.entry(*operation).or_default().missed);
        *announcement = announcement.and(unannounced);
        self.count_out(&removed);
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
