//! The backlog of one connection: deliveries that its socket has not taken yet. Events are limited in bytes per
//! connection and for all connections, and in number per subscription. At a limit the configured policy applies.
//!
//! A result of a sequence of patches cannot be dropped alone: the next one changes it. Where one would be dropped, the
//! policy is to disconnect; the client connects again and begins with a complete result.
//!
//! Responses of queries and ends of operations wait here too, exempt from the policy: a query without its response is
//! wrong. Their number is limited by the operations that a connection may have at a time. Positions are exempt as well:
//! an operation has at most one, and only while it has no event in the backlog.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use config::{OverflowPolicy, Subscriptions};
use execute::{GraphqlError, Missed, Payload};
use hub::EndReason;

use super::queue_total::{QueueShare, QueueTotal};
use crate::end_reasons::SOURCE_COMPLETED;

/// The capacity that an empty queue keeps, so that a steady trickle of deliveries allocates nothing.
const WAITING_KEPT: usize = 4;

/// A delivery for one operation of the connection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Delivery {
    /// A result.
    Next {
        /// The operation of the connection.
        operation: u32,
        /// The result.
        payload: Payload,
        /// The events that the policy dropped before this one, including the losses that they would have announced.
        missed: Missed,
    },
    /// The position of an operation that had no result for the latest events.
    Position {
        /// The operation of the connection.
        operation: u32,
        /// The cursor with which the client can resume.
        cursor: Bytes,
    },
    /// The end of an operation after all its results.
    Complete {
        /// The operation of the connection.
        operation: u32,
    },
    /// The end of an operation that could not run, or not continue.
    Failed {
        /// The operation of the connection.
        operation: u32,
        /// The reason.
        errors: Vec<GraphqlError>,
    },
}

impl Delivery {
    /// Returns the end of an operation that the hub has ended.
    pub(super) fn end(operation: u32, reason: &EndReason) -> Self {
        match reason {
            EndReason::Complete => Self::Complete { operation },
            EndReason::Error(error) => Self::Failed { operation, errors: vec![(**error).clone()] },
        }
    }

    /// Returns the reason of an end in a word.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Failed { errors, .. } => errors.first().map_or("failed", |it| it.code.as_str()),
            Self::Next { .. } | Self::Position { .. } | Self::Complete { .. } => SOURCE_COMPLETED,
        }
    }

    /// Returns the operation that the delivery belongs to.
    pub(super) fn operation(&self) -> u32 {
        match self {
            Self::Next { operation, .. }
            | Self::Position { operation, .. }
            | Self::Complete { operation }
            | Self::Failed { operation, .. } => *operation,
        }
    }
}

/// The outcome of asking for the next delivery.
#[derive(Debug, PartialEq)]
pub(crate) enum NextDelivery {
    /// The next delivery.
    Delivery(Delivery),
    /// The backlog is empty.
    Nothing,
    /// A limit was reached and the policy is to disconnect.
    Overflown,
}

/// The configured limits and policy.
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

/// The deliveries that wait for one connection, see the module.
#[derive(Debug)]
pub(super) struct Backlog {
    share: Arc<QueueShare>,
    waiting: VecDeque<QueuedDelivery>,
    /// The bytes of all waiting events.
    bytes: usize,
    /// The tallies by operation. Empty ones are removed.
    tallies: HashMap<u32, OperationTally>,
    dropped: u64,
    overflown: bool,
}

#[derive(Debug)]
struct QueuedDelivery {
    delivery: Delivery,
    /// True for events, to which the policy applies.
    is_event: bool,
}

/// The waiting events of one operation.
#[derive(Debug, Default, PartialEq)]
struct OperationTally {
    waiting: usize,
    /// The losses that no delivery announces yet.
    missed: Missed,
    /// True while a position waits.
    has_position: bool,
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

impl Backlog {
    /// Makes an empty backlog.
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

    /// Appends the response of a query or mutation. The caller appends the end of the operation next.
    pub(super) fn push_response(&mut self, operation: u32, payload: Payload) {
        let delivery = Delivery::Next { operation, payload, missed: Missed::default() };
        self.waiting.push_back(QueuedDelivery { delivery, is_event: false });
    }

    /// Removes and returns the oldest delivery.
    pub(super) fn pop(&mut self) -> NextDelivery {
        if self.overflown {
            return NextDelivery::Overflown;
        }
        let Some(taken) = self.waiting.pop_front() else { return NextDelivery::Nothing };
        self.count_out(&taken);
        NextDelivery::Delivery(taken.delivery)
    }

    /// True if a limit was reached and the policy is to disconnect. This is known also while nothing can be taken
    /// because the socket is full.
    pub(super) fn is_overflown(&self) -> bool {
        self.overflown
    }

    /// True if nothing waits and no loss is unannounced.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.tallies.is_empty() && !self.overflown
    }

    /// Returns the number of results that the policy has dropped since the last call. A connection that it closed
    /// counts as one.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Appends a result of a subscription, and applies the policy at a limit.
    pub(super) fn push_event(&mut self, bounds: BacklogBounds, operation: u32, payload: Payload) {
        self.shed(bounds);
        if self.overflown {
            return;
        }
        let size = payload.bytes.len();
        if bounds.policy == OverflowPolicy::Latest && payload.revision.is_none() {
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
        while !self.overflown && !self.share.take(size) {
            match (bounds.policy, self.oldest_event()) {
                (OverflowPolicy::Disconnect, _) => return self.overflow(),
                // Other connections hold all the memory: the next event announces that this one was lost.
                (_, None) => return self.record_dropped(operation, &payload),
                (_, Some(at)) => self.drop_at(at),
            }
        }
        // A result that could not be dropped was in the way.
        if self.overflown {
            return;
        }
        self.bytes += size;
        let tally = self.tallies.entry(operation).or_default();
        tally.waiting += 1;
        let missed = std::mem::take(&mut tally.missed);
        let delivery = Delivery::Next { operation, payload, missed };
        self.waiting.push_back(QueuedDelivery { delivery, is_event: true });
    }

    /// Sets a callback that is called, on any thread, when [`Backlog::shed`] must be called.
    pub(super) fn on_shed(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.share.on_shed(wake);
    }

    /// Drops events to make room for other connections if this one holds the most.
    pub(super) fn shed(&mut self, bounds: BacklogBounds) {
        let mut to_shed = self.share.take_to_shed();
        while to_shed > 0 && !self.overflown {
            // The events that waited at the time of the request may be gone.
            let Some(at) = self.oldest_event() else { return };
            if bounds.policy == OverflowPolicy::Disconnect {
                return self.overflow();
            }
            let before = self.bytes;
            self.drop_at(at);
            to_shed = to_shed.saturating_sub((before - self.bytes).max(1));
        }
    }

    /// Appends the position of an operation. A position is skipped if an event or an unannounced loss of the operation
    /// waits, since the client would resume behind it, and if another position waits, so that at most one does.
    pub(super) fn push_position(&mut self, operation: u32, cursor: Bytes) {
        if !self.overflown && !self.has_news_of(operation) {
            let tally = OperationTally { has_position: true, ..OperationTally::default() };
            self.tallies.insert(operation, tally);
            let delivery = Delivery::Position { operation, cursor };
            self.waiting.push_back(QueuedDelivery { delivery, is_event: false });
        }
    }

    /// True if an event, a position or an unannounced loss of the operation waits.
    pub(super) fn has_news_of(&self, operation: u32) -> bool {
        self.tallies.contains_key(&operation)
    }

    /// Returns the number of waiting events of the operation.
    pub(super) fn waiting_of(&self, operation: u32) -> usize {
        self.tallies.get(&operation).map_or(0, |it| it.waiting)
    }

    /// Returns the limit that one more event of `size` bytes exceeds. A single event that exceeds the limit alone is
    /// accepted, since its subscriber would never get it otherwise.
    fn exceeded_bound(&self, bounds: BacklogBounds, operation: u32, size: usize) -> Option<Bound> {
        if self.tallies.get(&operation).is_some_and(|it| it.waiting >= bounds.events) {
            return Some(Bound::Events);
        }
        (self.bytes > 0 && self.bytes + size > bounds.bytes).then_some(Bound::Bytes)
    }

    /// True if one more event of the operation exceeds no limit that is reached already.
    pub(super) fn accepts_event(&self, bounds: BacklogBounds, operation: u32) -> bool {
        self.waiting_of(operation) < bounds.events && self.bytes < bounds.bytes
    }

    /// True if the operation may get more of the events that it missed: up to half of each limit, since live events are
    /// on their way.
    pub(super) fn has_room(&self, bounds: BacklogBounds, operation: u32) -> bool {
        2 * self.waiting_of(operation) < bounds.events && 2 * self.bytes < bounds.bytes
    }

    /// Gives up the connection and drops its backlog.
    pub(super) fn overflow(&mut self) {
        self.dropped += 1;
        self.overflown = true;
        self.waiting = VecDeque::new();
        self.tallies = HashMap::new();
        self.share.give_back(std::mem::take(&mut self.bytes));
    }

    /// Drops an event that cannot wait, and records it as lost.
    fn record_dropped(&mut self, operation: u32, payload: &Payload) {
        if payload.revision.is_some() {
            return self.overflow();
        }
        self.dropped += 1;
        let missed = &mut self.tallies.entry(operation).or_default().missed;
        *missed = missed.and(payload.missed()).and(Missed { lost: 1, gap: false });
    }

    /// Records events of the operation that were lost elsewhere. The next event announces them.
    pub(super) fn record_loss(&mut self, operation: u32, lost: Missed) {
        if !self.overflown {
            let missed = &mut self.tallies.entry(operation).or_default().missed;
            *missed = missed.and(lost);
        }
    }

    /// Appends the end of an operation. No delivery follows that could announce losses, so they are forgotten.
    pub(super) fn push_end(&mut self, end: Delivery) {
        self.clear_missed(end.operation());
        if !self.overflown {
            self.waiting.push_back(QueuedDelivery { delivery: end, is_event: false });
        }
    }

    /// Drops the deliveries of an operation that its client has completed.
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

    /// Forgets the unannounced losses of the operation.
    pub(super) fn clear_missed(&mut self, operation: u32) {
        if let Some(tally) = self.tallies.get_mut(&operation) {
            tally.missed = Missed::default();
        }
        self.remove_empty_tally(operation);
    }

    /// Counts a delivery out that was removed from the queue.
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
            // An idle connection frees the memory of a burst.
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

    /// Drops one event. The next event of its operation announces the loss. Gives up the connection if the next event
    /// is of no use without this one.
    fn drop_at(&mut self, at: usize) {
        let Some(removed) = self.waiting.remove(at) else { return };
        if matches!(&removed.delivery, Delivery::Next { payload, .. } if payload.revision.is_some())
        {
            return self.overflow();
        }
        let Delivery::Next { operation, payload, missed } = &removed.delivery else { return };
        self.dropped += 1;
        // Losses that the dropped event would have announced must be announced as well.
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

/// A limit of the backlog.
#[derive(Clone, Copy)]
enum Bound {
    /// `subscriptions.queue_events`, of one operation.
    Events,
    /// `subscriptions.queue_bytes`, of the connection.
    Bytes,
}
