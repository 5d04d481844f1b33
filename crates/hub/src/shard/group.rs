//! One group: its members, and the window of events between source and members.
//!
//! Events go through three places in order: waiting (bounded; the oldest makes room), in flight (bounded;
//! they may be done in any order), released (strictly in order of arrival). What was dropped is
//! counted with the next event that follows, so that received plus announced is all there was.

use std::collections::VecDeque;
use std::sync::Arc;

use execute::{Missed, Payload};
use futures_util::future::{AbortHandle, AbortRegistration};

use super::TriggerId;
use super::outlets::{Members, OutletId, Outlets};
use crate::stats::{self, HubStats};
use crate::{EndReason, GroupId, GroupView, LiveOperation, OutletCommand, TriggerEvent};

/// The start of one resolution.
pub(super) struct Start {
    pub(super) ticket: u64,
    pub(super) event: TriggerEvent,
    /// Aborted when nobody wants the result any more.
    pub(super) abort: AbortRegistration,
}

struct Waiting {
    event: TriggerEvent,
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

pub(super) struct Group {
    id: GroupId,
    pub(super) trigger: TriggerId,
    /// The trigger that it waits for, to move there once it is open.
    pub(super) moving_to: Option<TriggerId>,
    /// How events are resolved from now on.
    pub(super) operation: Arc<LiveOperation>,
    members: Members,
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
    pub(super) fn new(id: GroupId, trigger: TriggerId, operation: Arc<LiveOperation>) -> Self {
        Self {
            id,
            trigger,
            moving_to: None,
            operation,
            members: Members::default(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            first_ticket: 0,
            missed: Missed::default(),
            is_queued: false,
        }
    }

    /// Counts a member more. It gets what is released from now on.
    pub(super) fn join(&mut self, outlet: OutletId) {
        self.members.add(outlet);
    }

    /// Counts a member fewer. False: there is none behind that outlet.
    pub(super) fn leave(&mut self, outlet: OutletId) -> bool {
        self.members.remove(outlet)
    }

    /// Takes everybody out and tells each outlet why. Returns how many went.
    pub(super) fn end(&mut self, reason: &EndReason, outlets: &mut Outlets) -> u64 {
        let members = std::mem::take(&mut self.members);
        let mut ended = 0;
        for (outlet, count) in members.by_outlet() {
            let end = OutletCommand::End { group: self.id, reason: reason.clone() };
            outlets.send(outlet, end);
            outlets.leave(outlet, count);
            ended += count;
        }
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Puts an event behind those that wait. [`Group::trim`] follows, once what may start has started.
    pub(super) fn offer(&mut self, event: TriggerEvent) {
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
    pub(super) fn resolved(
        &mut self,
        ticket: u64,
        payload: Payload,
        outlets: &Outlets,
        stats: &HubStats,
    ) {
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
            self.deliver(payload, before, outlets, stats);
        }
    }

    // hot path: once per group and event, then once per outlet.
    fn deliver(&self, payload: Payload, before: Missed, outlets: &Outlets, stats: &HubStats) {
        let payload = payload.with_missed(before);
        let mut members = 0;
        for (outlet, count) in self.members.by_outlet() {
            let payload = payload.clone();
            outlets.send(outlet, OutletCommand::Deliver { group: self.id, payload });
            members += count;
        }
        stats::add(&stats.broadcasts, self.members.by_outlet().len());
        stats::add(&stats.deliveries, members as usize);
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

    /// How many events wait behind those in flight.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn view(&self) -> GroupView {
        GroupView {
            id: self.id,
            generation: self.operation.generation,
            operation_id: self.operation.group.operation_id,
            filtered: self.operation.filter.is_some(),
            members: self.members.count(),
            outlets: self.members.by_outlet().len() as u64,
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
