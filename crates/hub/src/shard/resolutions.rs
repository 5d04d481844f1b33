//! Resolutions of events and states: the order in which groups start them, and the handling of their results.

use std::sync::Arc;

use events::PartitionOffset;
use execute::{ErrorCode, GraphqlError};

use super::Shard;
use super::group::ResolutionOutcome;
use crate::cursor::EventCursor;
use crate::{GroupId, stats};

impl Shard {
    /// Starts one event, or batch, of each queued group in turn, while permits are available.
    pub(super) fn start_ready(&mut self) {
        while let Some(group_id) = self.scheduler.next_ready() {
            let Some(group) = self.groups.get_mut(group_id) else { continue };
            group.is_queued = false;
            self.scheduler.start(group, &mut self.effects);
            self.advance_group(group_id);
            if let Some(group) = self.groups.get_mut(group_id) {
                self.scheduler.queue_if_ready(group);
            }
        }
    }

    /// Handles the result of a resolution.
    pub(crate) fn on_resolved(
        &mut self,
        group_id: GroupId,
        ticket: u64,
        outcome: ResolutionOutcome,
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        self.scheduler.release(1);
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
            let replay = self.triggers.get(group.trigger).and_then(|it| it.replay.as_ref());
            let after = group.state_after.take();
            if let Some((replay, after)) = replay.zip(after) {
                let (after, version) = *after;
                let after = replay.with_lanes_since(&after);
                // The state has no offset of its own, so a cursor that cannot hold all partitions is left out.
                if !after.partition_offsets().is_empty() {
                    let cursor = EventCursor::new(0, PartitionOffset::default(), after, None);
                    group.set_state_cursor(Arc::new(cursor.of_version(version)));
                }
            }
        }
        group.store_result(ticket, payload, others);
        self.release(group_id);
    }

    /// Delivers the results of a group that are in order, and continues with the group. Results that its outlets do not
    /// accept are tried again later.
    fn release(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let released = group.release(&self.outlets, self.cursors.as_deref(), &self.stats);
        if released.is_held_back && self.backpressure.hold_back_results(group) {
            stats::add(&self.stats.held_back, 1);
        }
        if released.any {
            self.triggers.stop_joining(group);
        }
        self.advance_group(group_id);
        if let Some(group) = self.groups.get_mut(group_id) {
            self.scheduler.queue_if_ready(group);
        }
        self.end_if_drained(group_id);
    }

    /// Delivers the results that groups have held back, as far as their outlets accept them now.
    pub(super) fn release_held_back(&mut self) {
        for group_id in self.backpressure.take_held_back() {
            // A removed group is skipped.
            let Some(group) = self.groups.get_mut(group_id) else { continue };
            group.is_held_back = false;
            self.release(group_id);
        }
    }
}
