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
        let Some(mut group) = self.groups.remove(group_id) else { return };
        self.catch_up.remove_group(&group);
        self.triggers.remove_group(&mut group);
        self.scheduler.release(group.resolving(), group.resolving_of_kinds());
    }
}
