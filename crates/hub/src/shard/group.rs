//! One group: its members, and the window of events between source and members.
//!
//! Events go through three places in order: waiting (bounded; the oldest makes room), in flight (bounded;
//! they may be done in any order), released (strictly in order of arrival). What was dropped is
//! counted with the next event that follows, so that received plus announced is all there was.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use execute::{Missed, Payload};
use futures_util::future::{AbortHandle, AbortRegistration};
use indexmap::IndexMap;

use super::{GroupKey, TriggerId};
use crate::stats::{self, HubStats, Seat};
use crate::{EndReason, GroupId, GroupView, Member, Outlet, OutletCommand, Resolve};

/// A subscriber, numbered by its shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SubscriberId(pub(crate) u64);

/// The start of one resolution.
pub(super) struct Start {
    pub(super) ticket: u64,
    pub(super) event: Bytes,
    /// Aborted when nobody wants the result any more.
    pub(super) abort: AbortRegistration,
}

struct Waiting {
    event: Bytes,
    before: Missed,
}

struct InFlight {
    before: Missed,
    state: Progress,
}

enum Progress {
    Resolving(AbortHandle),
    Done(Payload),
}

struct Place {
    /// Address of the outlet, which the entry in `outlets` keeps alive.
    outlet: usize,
    member: Member,
    /// Held for the count.
    _seat: Seat,
}

struct OutletEntry {
    outlet: Arc<dyn Outlet>,
    members: u64,
}

pub(super) struct Group {
    id: GroupId,
    pub(super) trigger: TriggerId,
    pub(super) key: Arc<GroupKey>,
    pub(super) resolve: Arc<dyn Resolve>,
    members: IndexMap<SubscriberId, Place, foldhash::fast::RandomState>,
    outlets: IndexMap<usize, OutletEntry, foldhash::fast::RandomState>,
    waiting: VecDeque<Waiting>,
    in_flight: VecDeque<InFlight>,
    /// Ticket of the first in flight.
    first_ticket: u64,
    /// Missed since the last event that was taken.
    missed: Missed,
    /// Stands in the shard's queue of groups that may start.
    pub(super) is_queued: bool,
}

impl Group {
    pub(super) fn new(
        id: GroupId,
        trigger: TriggerId,
        key: Arc<GroupKey>,
        resolve: Arc<dyn Resolve>,
    ) -> Self {
        Self {
            id,
            trigger,
            key,
            resolve,
            members: IndexMap::default(),
            outlets: IndexMap::default(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            first_ticket: 0,
            missed: Missed::default(),
            is_queued: false,
        }
    }

    /// Adds a member. It gets what is released from now on.
    pub(super) fn join(
        &mut self,
        subscriber: SubscriberId,
        outlet: Arc<dyn Outlet>,
        member: Member,
        seat: Seat,
    ) {
        let address = Arc::as_ptr(&outlet).cast::<()>().addr();
        outlet.send(OutletCommand::Join { group: self.id, member });
        let entry = self.outlets.entry(address).or_insert(OutletEntry { outlet, members: 0 });
        entry.members += 1;
        let place = Place { outlet: address, member, _seat: seat };
        let before = self.members.insert(subscriber, place);
        debug_assert!(before.is_none(), "a shard numbers each subscriber once");
    }

    /// Takes a member out and tells its outlet why. Does nothing if it is not (or no longer) there.
    pub(super) fn leave(&mut self, subscriber: SubscriberId, reason: EndReason) {
        let Some(place) = self.members.swap_remove(&subscriber) else { return };
        let Some(entry) = self.outlets.get_mut(&place.outlet) else {
            debug_assert!(false, "a member's outlet is known while the member is");
            return;
        };
        let end = OutletCommand::End { group: self.id, member: place.member, reason };
        entry.outlet.send(end);
        entry.members -= 1;
        if entry.members == 0 {
            self.outlets.swap_remove(&place.outlet);
        }
    }

    /// Takes everybody out.
    pub(super) fn end(&mut self, reason: &EndReason) {
        while let Some((&subscriber, _)) = self.members.last() {
            self.leave(subscriber, reason.clone());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Puts an event behind those that wait. [`Group::trim`] follows, once what may start has started.
    pub(super) fn offer(&mut self, event: Bytes) {
        let before = std::mem::take(&mut self.missed);
        self.waiting.push_back(Waiting { event, before });
    }

    /// Drops the oldest events beyond `most` and remembers how many. Returns how many.
    pub(super) fn trim(&mut self, most: usize) -> usize {
        let excess = self.waiting.len().saturating_sub(most);
        let mut missed = Missed::default();
        for dropped in self.waiting.drain(..excess) {
            missed = missed.and(dropped.before).and(Missed { lost: 1, gap: false });
        }
        match self.waiting.front_mut() {
            Some(next) => next.before = next.before.and(missed),
            None => self.missed = self.missed.and(missed),
        }
        excess
    }

    /// The source may have lost something here.
    pub(super) fn gap(&mut self) {
        self.missed.gap = true;
    }

    pub(super) fn can_start(&self, window: usize) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < window
    }

    /// Starts the next event if the window has room.
    pub(super) fn start(&mut self, window: usize) -> Option<Start> {
        if !self.can_start(window) {
            return None;
        }
        let Waiting { event, before } = self.waiting.pop_front()?;
        let ticket = self.first_ticket + self.in_flight.len() as u64;
        let (handle, abort) = AbortHandle::new_pair();
        self.in_flight.push_back(InFlight { before, state: Progress::Resolving(handle) });
        Some(Start { ticket, event, abort })
    }

    /// An event is done; releases what is now in order.
    pub(super) fn resolved(&mut self, ticket: u64, payload: Payload, stats: &HubStats) {
        let index = ticket.checked_sub(self.first_ticket).and_then(|it| usize::try_from(it).ok());
        let Some(entry) = index.and_then(|index| self.in_flight.get_mut(index)) else {
            debug_assert!(false, "each ticket is done once");
            return;
        };
        entry.state = Progress::Done(payload);
        while let Some(InFlight { before, state: Progress::Done(payload) }) =
            self.in_flight.pop_front_if(|first| matches!(first.state, Progress::Done(_)))
        {
            self.first_ticket += 1;
            self.deliver(payload, before, stats);
        }
    }

    // hot path: once per group and event, then once per outlet.
    fn deliver(&self, payload: Payload, before: Missed, stats: &HubStats) {
        let payload = payload.with_missed(before);
        for entry in self.outlets.values() {
            let payload = payload.clone();
            entry.outlet.send(OutletCommand::Deliver { group: self.id, payload });
        }
        stats::add(&stats.broadcasts, self.outlets.len());
        stats::add(&stats.deliveries, self.members.len());
    }

    /// How many resolutions run for it.
    pub(super) fn resolving(&self) -> usize {
        let is_resolving = |it: &&InFlight| matches!(it.state, Progress::Resolving(_));
        self.in_flight.iter().filter(is_resolving).count()
    }

    /// Nothing is on its way to the members.
    pub(super) fn is_drained(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn view(&self) -> GroupView {
        GroupView {
            id: self.id,
            generation: self.key.generation,
            operation_id: self.key.operation_id,
            members: self.members.len() as u64,
            outlets: self.outlets.len() as u64,
            in_flight: self.in_flight.len() as u64,
            waiting: self.waiting.len() as u64,
        }
    }
}

impl Drop for Group {
    /// Nobody is left to take what is being resolved.
    fn drop(&mut self) {
        for entry in &self.in_flight {
            if let Progress::Resolving(handle) = &entry.state {
                handle.abort();
            }
        }
    }
}
