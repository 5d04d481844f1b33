//! The groups of a shard, and the groups that were merged into another one while subscribers still have their ids.

use std::collections::HashMap;
use std::sync::Arc;

use super::group::Group;
use super::group_phase::CatchUp;
use crate::{GroupId, LiveOperation};

type Hasher = foldhash::fast::RandomState;

/// The number of bits in a [`GroupId`] for the groups that one shard ever makes; the bits above are the shard's number.
pub(crate) const GROUP_NUMBER_BITS: u32 = 48;

/// The groups of a shard.
pub(super) struct GroupTable {
    /// Boxed because up to half of the places in a table that doubles are empty.
    groups: HashMap<GroupId, Box<Group>, Hasher>,
    /// Groups that were merged into another one, while subscribers have yet to leave under their ids.
    merged: HashMap<GroupId, MergedGroup, Hasher>,
    next_id: u64,
}

/// A group that was merged into another. Its subscribers still leave by its id.
struct MergedGroup {
    into: GroupId,
    /// The number of subscribers that have yet to leave by its id.
    members: u64,
}

impl GroupTable {
    /// Creates the table of the shard with that number.
    pub(super) fn new(shard: usize) -> Self {
        let next_id = (shard as u64) << GROUP_NUMBER_BITS;
        Self { groups: HashMap::default(), merged: HashMap::default(), next_id }
    }

    /// Returns an id for a new group.
    pub(super) fn new_id(&mut self) -> GroupId {
        self.next_id += 1;
        GroupId(self.next_id - 1)
    }

    pub(super) fn insert(&mut self, group: Group) {
        self.groups.insert(group.id, Box::new(group));
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Option<Box<Group>> {
        self.groups.remove(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn contains(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    pub(super) fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id).map(Box::as_mut)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(Box::as_ref)
    }

    /// Returns all groups, oldest first.
    pub(super) fn ids(&self) -> Vec<GroupId> {
        let mut ids: Vec<_> = self.groups.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the groups that run on a graph before `generation`, with their operations, oldest first.
    pub(super) fn operations_before(&self, generation: u64) -> Vec<(GroupId, Arc<LiveOperation>)> {
        let old = self.values().filter(|it| it.operation.generation < generation);
        let mut old: Vec<_> = old.map(|it| (it.id, Arc::clone(&it.operation))).collect();
        old.sort_unstable_by_key(|(id, _)| id.0);
        old
    }

    /// Returns how a group catches up, if it does.
    pub(super) fn catch_up(&self, id: GroupId) -> Option<&CatchUp> {
        self.get(id)?.phase.catch_up()
    }

    /// Returns how a group catches up, if it does, to change it.
    pub(super) fn catch_up_mut(&mut self, id: GroupId) -> Option<&mut CatchUp> {
        self.get_mut(id)?.phase.catch_up_mut()
    }

    /// Records that the `members` subscribers of the group `from` belong to the group `into` now.
    pub(super) fn record_merge(&mut self, from: GroupId, into: GroupId, members: u64) {
        self.merged.insert(from, MergedGroup { into, members });
    }

    /// Returns the group that a subscriber of `group` belongs to now. Must be called once for each subscriber that
    /// leaves.
    pub(super) fn group_of_leaver(&mut self, mut group: GroupId) -> GroupId {
        while let Some(merged) = self.merged.get_mut(&group) {
            let into = merged.into;
            merged.members -= 1;
            if merged.members == 0 {
                self.merged.remove(&group);
            }
            group = into;
        }
        group
    }

    /// Returns the group that the subscribers of `group` are in now.
    #[cfg(test)]
    pub(super) fn current(&self, mut group: GroupId) -> GroupId {
        while let Some(merged) = self.merged.get(&group) {
            group = merged.into;
        }
        group
    }

    #[cfg(test)]
    pub(super) fn has_no_merged(&self) -> bool {
        self.merged.is_empty()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group.as_ref()))
    }
}

#[cfg(test)]
impl std::ops::Index<&GroupId> for GroupTable {
    type Output = Group;

    fn index(&self, id: &GroupId) -> &Group {
        &self.groups[id]
    }
}
