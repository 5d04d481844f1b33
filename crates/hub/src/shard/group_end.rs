//! The end of groups.

use super::Shard;
use crate::{EndReason, GroupId};

impl Shard {
    /// Ends a group and sends the reason to all of its subscribers.
    pub(super) fn end_group(&mut self, group_id: GroupId, reason: &EndReason) {
        self.groups.end(group_id, reason);
        self.remove_group(group_id);
    }

    /// Removes a group without subscribers.
    pub(super) fn remove_group(&mut self, group_id: GroupId) {
        self.stop_joining(group_id);
        let Some(group) = self.groups.remove(group_id) else { return };
        self.catch_up.remove_group(&group);
        self.scheduler.release(group.resolving());
        self.scheduler.sweep(self.groups.len(), |id| self.groups.contains(id));
        if let Some(trigger) = self.triggers.get_mut(group.trigger) {
            trigger.remove_group(group_id, &group.operation);
        }
        self.triggers.check_later(group.trigger);
        if let Some(target) = group.phase.moving_to() {
            self.triggers.cancel_move(group_id, target);
        }
    }
}
