//! The groups that wait for their subscribers or outlets. Outlets do not report that they have room, since groups
//! rarely wait for them, so the task polls these groups.

use std::collections::VecDeque;

use super::group::Group;
use crate::GroupId;

/// The maximum number of groups with held-back results that one poll visits, at about 100 ns each.
const HELD_BACK_POLLED_MAX: usize = 4096;

/// The groups of a shard that wait for their subscribers or outlets. Entries of removed groups are skipped.
#[derive(Default)]
pub(super) struct Backpressure {
    /// Groups that catch up and wait because their subscribers do not keep up.
    catching_up: Vec<GroupId>,
    /// Groups with results of stored events that an outlet does not accept at present, in the order of the next polls.
    held_back: VecDeque<GroupId>,
}

impl Backpressure {
    /// True if no group waits. Otherwise the groups must be polled in a moment.
    pub(super) fn is_empty(&self) -> bool {
        self.catching_up.is_empty() && self.held_back.is_empty()
    }

    /// Makes a group that catches up wait until its subscribers have read more of the events that they got.
    pub(super) fn wait_for_subscribers(&mut self, group: &mut Group) {
        if let Some(catch_up) = group.phase.catch_up_mut()
            && !std::mem::replace(&mut catch_up.is_backpressured, true)
        {
            self.catching_up.push(group.id);
        }
    }

    /// Makes a group wait until its outlets accept its results. Returns false if it waits already.
    pub(super) fn hold_back_results(&mut self, group: &mut Group) -> bool {
        let is_new = !std::mem::replace(&mut group.is_held_back, true);
        if is_new {
            self.held_back.push_back(group.id);
        }
        is_new
    }

    /// Takes all groups that wait for their subscribers.
    pub(super) fn take_catching_up(&mut self) -> Vec<GroupId> {
        std::mem::take(&mut self.catching_up)
    }

    /// Takes the groups with held-back results that one poll visits.
    pub(super) fn take_held_back(&mut self) -> Vec<GroupId> {
        let count = self.held_back.len().min(HELD_BACK_POLLED_MAX);
        self.held_back.drain(..count).collect()
    }

    #[cfg(test)]
    pub(super) fn is_polled_for_results(&self, group: GroupId) -> bool {
        self.held_back.contains(&group)
    }
}
