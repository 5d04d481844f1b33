//! Resolutions of events and states: the order in which groups start them, and the handling of their results.

use std::sync::Arc;

use events::Mark;
use execute::{ErrorCode, GraphqlError};

use super::group::{ResolutionOutcome, ResolutionWork};
use super::{Effect, Shard};
use crate::cursor::EventCursor;
use crate::{GroupId, stats};

/// The number of groups with held-back results that one poll visits, at about 100 ns each.
const HELD_BACK_POLLED_MAX: usize = 4096;

impl Shard {
    /// Starts one event of a group, or a batch of those that wait. Returns false if there is none, its window is full,
    /// or no permit is left.
    pub(super) fn start(&mut self, group_id: GroupId) -> bool {
        let Some(group) = self.groups.get_mut(&group_id) else { return false };
        let window = self.settings.group_in_flight.max(1);
        if !group.can_start(window) || !self.permits.acquire() {
            return false;
        }
        let resolve = &group.operation.resolve;
        let most = if resolve.takes_batches() { self.settings.batch_events } else { 1 };
        let Some(start) = group.start(window, most) else { return false };
        let events = match &start.work {
            ResolutionWork::Batch(events) => events.len(),
            ResolutionWork::Event(_) | ResolutionWork::State => 1,
        };
        match start.work {
            ResolutionWork::Event(_) => stats::add(&self.stats.resolutions, 1),
            ResolutionWork::Batch(_) => {
                stats::add(&self.stats.resolutions, events);
                stats::add(&self.stats.batches, 1);
                stats::add(&self.stats.batched_events, events);
            }
            ResolutionWork::State => stats::add(&self.stats.states, 1),
        }
        stats::add(&self.stats.resolving, events);
        stats::subtract(&self.stats.waiting, events);
        self.effects.push(Effect::Resolve {
            group: group_id,
            ticket: start.ticket,
            work: start.work,
            resolve: Arc::clone(&group.operation.resolve),
            abort: start.abort,
        });
        true
    }

    /// Queues a group that could start an event if a permit were available.
    pub(super) fn queue_if_ready(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        if !group.is_queued && group.can_start(self.settings.group_in_flight.max(1)) {
            group.is_queued = true;
            self.ready.push_back(group_id);
        }
    }

    /// Starts one event, or batch, of each queued group in turn, while permits are available.
    pub(super) fn start_ready(&mut self) {
        while self.permits.has_available()
            && let Some(group_id) = self.ready.pop_front()
        {
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            group.is_queued = false;
            self.start(group_id);
            self.advance_group(group_id);
            self.queue_if_ready(group_id);
        }
    }

    /// Handles the result of a resolution.
    pub(crate) fn on_resolved(
        &mut self,
        group_id: GroupId,
        ticket: u64,
        outcome: ResolutionOutcome,
    ) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        self.permits.release(1);
        let events = group.events_of(ticket);
        stats::subtract(&self.stats.resolving, events);
        let is_state = group.is_state(ticket);
        let mut others = Vec::new();
        let payload = match outcome {
            ResolutionOutcome::Payload(payload) if events == 1 => Some(payload),
            ResolutionOutcome::Batch(payloads) if events == payloads.len() => {
                let mut payloads = payloads.into_iter();
                let first = payloads.next();
                others = payloads.collect();
                first
            }
            ResolutionOutcome::Nothing => None,
            ResolutionOutcome::Payload(_)
            | ResolutionOutcome::Batch(_)
            | ResolutionOutcome::BrokeOff => {
                stats::add(&self.stats.resolutions_failed, 1);
                let what = if is_state { "current state" } else { "event" };
                let message = format!("The {what} could not be resolved.");
                let error = GraphqlError::new(ErrorCode::InternalServerError, message);
                let payload = execute::request_error(&[error]);
                others = vec![payload.clone(); events.saturating_sub(1)];
                Some(payload)
            }
        };
        if is_state {
            let replay = self.triggers.get(&group.trigger).and_then(|it| it.replay.as_ref());
            let after = group.state_after.take();
            if let Some((replay, after)) = replay.zip(after) {
                let (after, version) = *after;
                let after = replay.with_lanes_since(&after);
                // The state has no mark of its own, so a cursor that cannot hold all lanes is left out.
                if !after.marks().is_empty() {
                    let cursor = EventCursor::new(0, Mark::default(), after, None);
                    group.set_state_cursor(Arc::new(cursor.of_version(version)));
                }
            }
        }
        group.resolved(ticket, payload, others);
        self.release(group_id);
        self.advance_group(group_id);
        self.queue_if_ready(group_id);
        self.end_if_drained(group_id);
    }

    /// Delivers the results of a group that are in order. Results that its outlets do not accept are tried again later.
    fn release(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let released = group.release(&self.outlets, self.cursors.as_deref(), &self.stats);
        if released.is_held_back && !std::mem::replace(&mut group.is_held_back, true) {
            self.held_back.push_back(group_id);
            stats::add(&self.stats.held_back, 1);
        }
        if released.any {
            self.stop_joining_by_cursor(group_id);
        }
    }

    /// Delivers the results that groups have held back, as far as their outlets accept them now.
    pub(super) fn release_held_back(&mut self) {
        for _ in 0..self.held_back.len().min(HELD_BACK_POLLED_MAX) {
            let Some(group_id) = self.held_back.pop_front() else { return };
            // A removed group is skipped.
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            group.is_held_back = false;
            self.release(group_id);
            self.advance_group(group_id);
            self.queue_if_ready(group_id);
            self.end_if_drained(group_id);
        }
    }
}
