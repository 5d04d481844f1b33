//! Merging of equal groups. A group that has caught up, or that began with a state of its own, becomes one with the
//! equal group that new subscribers join, as soon as both have delivered the same events and have none left to deliver.

use std::sync::Arc;

use super::Shard;
use crate::operation::OperationByKey;
use crate::{GroupId, OutletCommand, stats};

impl Shard {
    /// Merges a group into the equal group that new subscribers join, if both have delivered the same events and have
    /// none left to deliver.
    pub(super) fn merge(&mut self, from: GroupId) {
        let Some(group) = self.groups.get(from) else { return };
        let Some(trigger) = self.triggers.get_mut(group.trigger) else { return };
        let into =
            *trigger.by_key.entry(OperationByKey(Arc::clone(&group.operation))).or_insert(from);
        if into == from {
            trigger.merge_candidates.swap_remove(&from);
            return;
        }
        let next = trigger.next_number();
        let Some(other) = self.groups.get(into) else { return };
        let same_graph = group.operation.generation == other.operation.generation;
        let stays = group.phase.moving_to().is_some() || other.phase.moving_to().is_some();
        // A group that a side reader brought ahead of the trigger would get those events again in the other group.
        let next_undelivered = group.next_undelivered(next).filter(|next_undelivered| {
            *next_undelivered >= group.in_order_from.max(other.in_order_from)
        });
        if stays
            || !same_graph
            || next_undelivered.is_none()
            || next_undelivered != other.next_undelivered(next)
        {
            return;
        }
        let Some(group) = self.groups.get_mut(from) else { return };
        let members = group.take_members();
        let mut count = 0;
        for (outlet, of_outlet) in members.by_outlet() {
            self.outlets.send(outlet, OutletCommand::Merge { from, into });
            count += of_outlet;
        }
        let sent_version = group.sent_version;
        if let Some(other) = self.groups.get_mut(into) {
            other.add_members(&members);
            if sent_version < other.sent_version {
                other.sent_version = sent_version;
                if let Some(replay) = &mut trigger.replay {
                    replay.schedule_position_update();
                }
            }
        }
        self.groups.record_merge(from, into, count);
        stats::add(&self.stats.merged, 1);
        self.remove_group(from);
    }
}
