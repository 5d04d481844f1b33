//! Results of resolutions, and the next step of a group when one of its events has ended.

use std::sync::Arc;

use events::PartitionOffset;
use execute::{ErrorCode, GraphqlError, Payload};

use super::Shard;
use super::group_phase::GroupPhase;
use super::resolution::ResolutionOutcome;
use super::trigger::TriggerPhase;
use crate::cursor::EventCursor;
use crate::{GroupId, stats};

impl Shard {
    /// Handles the result of a resolution.
    pub(crate) fn on_resolved(
        &mut self,
        group_id: GroupId,
        ticket: u64,
        outcome: ResolutionOutcome,
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        self.scheduler.release(1, group.yielding_of(ticket));
        let events = group.events_of(ticket);
        stats::subtract(&self.stats.resolving, events);
        let is_state = group.is_state(ticket);
        let (payload, others) = outcome.into_payloads(events).unwrap_or_else(|| {
            stats::add(&self.stats.resolutions_failed, 1);
            let payload = failed_payload(is_state);
            let others = vec![payload.clone(); events.saturating_sub(1)];
            (Some(payload), others)
        });
        if is_state
            && let Some(after) = group.state_after.take()
            && let Some(replay) = self.catch_up.replay(group.trigger)
        {
            let (after, version) = *after;
            let after = replay.with_partitions_since(&after);
            // The state has no offset of its own, so a cursor that cannot hold all partitions is left out.
            if !after.partition_offsets().is_empty() {
                let cursor = EventCursor::new(0, PartitionOffset::default(), after, None);
                group.set_state_cursor(Arc::new(cursor.of_version(version)));
            }
        }
        group.store_result(ticket, payload, others);
        self.release(group_id);
        self.settle();
    }

    /// Delivers the results of a group that are in order, and continues with the group.
    pub(super) fn release(&mut self, group_id: GroupId) {
        if let Some(group) = self.groups.release(group_id, self.positions.cursors(), self.time) {
            self.triggers.stop_joining(group);
        }
        self.continue_group(group_id);
    }

    /// Continues with a group after one of its events has ended: a group that catches up gets more if it has room, a
    /// live group is merged with an equal one if both are at the same event, and it ends after the last delivery of a
    /// source that ended.
    pub(super) fn continue_group(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get(group_id) else { return };
        let Some(trigger) = self.triggers.get(group.trigger) else { return };
        if group.phase.is_catching_up() {
            let (has_room, is_over) = (self.groups.have_room(group_id), trigger.is_ending());
            while let Some(group) = self.groups.get_mut(group_id)
                && let Some(offered) = self.catch_up.next_event(group, has_room, is_over)
            {
                if let Some(group) = self.groups.offer(group_id, offered) {
                    self.scheduler.start_all(group, &mut self.effects);
                }
            }
        } else if !trigger.merge_candidates.is_empty() {
            let key = &group.operation.group;
            let is_equal =
                |id| self.groups.get(id).is_some_and(|other| other.operation.group == *key);
            for candidate in trigger.groups_to_merge(group_id, is_equal) {
                self.merge(candidate);
            }
        }
        let Some(group) = self.groups.get_mut(group_id) else { return };
        self.scheduler.queue_if_ready(group);
        // A group that waits for another source continues there, and a group that catches up has more to deliver.
        if group.is_drained()
            && group.phase == GroupPhase::Live
            && let Some(trigger) = self.triggers.get(group.trigger)
            && let TriggerPhase::Ending(reason) = &trigger.phase
        {
            let reason = reason.clone();
            self.end_group(group_id, &reason);
        }
    }
}

/// Returns the payload in place of an event or state without a result.
fn failed_payload(is_state: bool) -> Payload {
    let what = if is_state { "current state" } else { "event" };
    let message = format!("The {what} could not be resolved.");
    execute::request_error(&[GraphqlError::new(ErrorCode::InternalServerError, message)])
}
