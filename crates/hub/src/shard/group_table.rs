//! The groups of a shard with their subscribers and outlets, and the groups that were merged into another one while
//! subscribers still have their ids.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bindings::FilteredEvent;
use bytes::Bytes;

use super::group::{Group, OfferedEvent};
use super::leave_sender::LeaveSender;
use super::outlets::{OutletPlace, Outlets};
use super::pending_subscriber::PendingSubscriber;
use crate::cursor::Cursors;
use crate::stats::{self, HubStats};
use crate::{EndReason, GroupId, LiveOperation, OutletCommand, Subscriber, Subscription};

type Hasher = foldhash::fast::RandomState;

/// The number of bits in a [`GroupId`] for the groups that one shard ever makes; the bits above are the shard's number.
pub(crate) const GROUP_NUMBER_BITS: u32 = 48;

/// The maximum number of groups with held-back results that one poll visits, at about 100 ns each.
const HELD_BACK_POLLED_MAX: usize = 4096;

/// The groups of a shard, and the outlets of their subscribers.
pub(super) struct GroupTable {
    /// Boxed because up to half of the places in a table that doubles are empty.
    groups: HashMap<GroupId, Box<Group>, Hasher>,
    /// Groups that were merged into another one, while subscribers have yet to leave under their ids.
    merged: HashMap<GroupId, MergedGroup, Hasher>,
    next_id: u64,
    outlets: Outlets,
    /// Groups with results of stored events that an outlet does not accept at present, in the order of the next polls.
    /// Outlets do not report that they have room, since groups rarely wait for them. Entries of removed groups are
    /// skipped.
    held_back: VecDeque<GroupId>,
    /// Groups with more waiting events than allowed, found while an event is offered to all groups.
    behind: Vec<GroupId>,
    leave_sender: LeaveSender,
    stats: Arc<HubStats>,
}

/// A group that was merged into another. Its subscribers still leave by its id.
struct MergedGroup {
    into: GroupId,
    /// The number of subscribers that have yet to leave by its id.
    members: u64,
}

impl GroupTable {
    /// Creates the table of the shard with that number. Subscribers report their ends to `leave_sender`.
    pub(super) fn new(shard: usize, leave_sender: LeaveSender, stats: Arc<HubStats>) -> Self {
        Self {
            groups: HashMap::default(),
            merged: HashMap::default(),
            next_id: (shard as u64) << GROUP_NUMBER_BITS,
            outlets: Outlets::default(),
            held_back: VecDeque::new(),
            behind: Vec::new(),
            leave_sender,
            stats,
        }
    }

    /// Returns an id for a new group.
    pub(super) fn new_id(&mut self) -> GroupId {
        self.next_id += 1;
        GroupId(self.next_id - 1)
    }

    pub(super) fn insert(&mut self, group: Group) {
        stats::add(&self.stats.groups, 1);
        stats::add(&self.stats.waiting, group.waiting());
        self.groups.insert(group.id, Box::new(group));
    }

    /// Removes a group, which has no subscribers.
    pub(super) fn remove(&mut self, id: GroupId) -> Option<Box<Group>> {
        let group = self.groups.remove(&id)?;
        debug_assert!(group.is_empty(), "subscribers get their end before their group is removed");
        let resolving = group.events_resolving();
        stats::subtract(&self.stats.resolving, resolving);
        stats::subtract(&self.stats.waiting, group.waiting());
        stats::add(&self.stats.dropped_group_left, resolving);
        stats::subtract(&self.stats.groups, 1);
        Some(group)
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

    /// Adds a subscriber to a group. Returns false if the caller is gone and the group has no subscribers.
    pub(super) fn add_subscriber(&mut self, id: GroupId, pending: PendingSubscriber) -> bool {
        let Some(group) = self.groups.get_mut(&id) else { return true };
        let PendingSubscriber { outlet, member, transport, slot, reply, .. } = pending;
        if reply.is_closed() {
            // The caller is gone.
            return !group.is_empty();
        }
        let outlet = OutletPlace::new(self.outlets.add_subscriber(outlet), transport);
        slot.release_to_group();
        group.add_subscriber(outlet);
        self.outlets.send(outlet.id(), OutletCommand::Join { group: id, member });
        // After the command, so that what the caller sends to the outlet comes later. If it has gone in this moment,
        // the handle reports that the subscriber leaves.
        let _ = reply.send(Ok(Subscription::new(id, outlet, member, self.leave_sender.clone())));
        true
    }

    /// Removes a subscriber. Returns its group if that has no subscribers now. A subscriber of a removed group is
    /// ignored.
    pub(super) fn remove_subscriber(
        &mut self,
        id: GroupId,
        outlet: OutletPlace,
        member: Subscriber,
    ) -> Option<GroupId> {
        let id = self.group_of_leaver(id);
        let group = self.groups.get_mut(&id)?;
        if !group.remove_subscriber(outlet) {
            debug_assert!(false, "a subscriber leaves once");
            return None;
        }
        self.outlets.send(outlet.id(), OutletCommand::Leave { group: id, member });
        self.outlets.remove_subscribers(outlet.id(), 1);
        stats::subtract(&self.stats.subscribers, 1);
        group.is_empty().then_some(id)
    }

    /// Sends the reason for the end of a group to all of its subscribers, and removes them.
    pub(super) fn end(&mut self, id: GroupId, reason: &EndReason) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let ended = group.end(reason, &mut self.outlets);
        stats::subtract(&self.stats.subscribers, ended as usize);
    }

    /// Moves the subscribers of a group to another one. They still leave by the id of the group that they were in.
    /// Returns true if the other group had a later cursor than the moved subscribers have.
    pub(super) fn merge(&mut self, from: GroupId, into: GroupId) -> bool {
        let Some(group) = self.groups.get_mut(&from) else { return false };
        let (members, sent_version) = (group.take_members(), group.sent_version);
        let mut count = 0;
        for (outlet, of_outlet) in members.by_outlet() {
            self.outlets.send(outlet, OutletCommand::Merge { from, into });
            count += of_outlet;
        }
        self.merged.insert(from, MergedGroup { into, members: count });
        stats::add(&self.stats.merged, 1);
        let Some(other) = self.groups.get_mut(&into) else { return false };
        other.add_members(&members);
        let is_later = sent_version < other.sent_version;
        other.sent_version = sent_version.min(other.sent_version);
        is_later
    }

    /// True if all subscribers of a group have room for more, see [`crate::Outlet::has_room`].
    pub(super) fn have_room(&self, id: GroupId) -> bool {
        self.get(id).is_some_and(|group| self.outlets.have_room(id, &group.members))
    }

    /// Removes the groups with a filter that an event does not pass.
    pub(super) fn retain_passing(&self, groups: &mut Vec<GroupId>, event: &FilteredEvent) {
        stats::add(&self.stats.filters_evaluated, groups.len());
        groups.retain(|id| {
            let filter = self.get(*id).and_then(|it| it.operation.filter.as_ref());
            filter.is_none_or(|filter| filter.passes(event))
        });
    }

    /// Appends an event to those that wait in a group. Returns the group to start it.
    pub(super) fn offer(&mut self, id: GroupId, offered: OfferedEvent) -> Option<&mut Group> {
        let group = self.groups.get_mut(&id)?;
        group.offer(offered);
        stats::add(&self.stats.waiting, 1);
        Some(group)
    }

    /// Handles that more events wait in a group than allowed: a group that may catch up falls behind, and any other
    /// drops the oldest event.
    pub(super) fn bound_waiting(&mut self, id: GroupId, most: usize, may_catch_up: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if may_catch_up {
            if group.is_behind(most) {
                self.behind.push(id);
            }
            return;
        }
        let dropped = group.drop_oldest(most);
        stats::add(&self.stats.dropped_group_behind, dropped);
        stats::subtract(&self.stats.waiting, dropped);
    }

    /// Takes a group that has fallen behind.
    pub(super) fn next_behind(&mut self) -> Option<GroupId> {
        self.behind.pop()
    }

    /// Delivers the results of a group that are in order. Results that its outlets do not accept are tried again later.
    /// `time` is that of the delivery, if events have traces. Returns the group if at least one event has left it.
    pub(super) fn release(
        &mut self,
        id: GroupId,
        cursors: Option<&Cursors>,
        time: Option<Instant>,
    ) -> Option<&mut Group> {
        let group = self.groups.get_mut(&id)?;
        let released = group.release(&self.outlets, cursors, &self.stats, time);
        if released.is_held_back && !std::mem::replace(&mut group.is_held_back, true) {
            self.held_back.push_back(id);
            stats::add(&self.stats.held_back, 1);
        }
        released.any.then_some(group)
    }

    /// True if a group has held-back results. Then [`GroupTable::take_held_back`] must be called in a moment.
    pub(super) fn has_held_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Takes the groups with held-back results that one poll visits. [`GroupTable::release`] must be called for each.
    pub(super) fn take_held_back(&mut self) -> Vec<GroupId> {
        let count = self.held_back.len().min(HELD_BACK_POLLED_MAX);
        let taken: Vec<_> = self.held_back.drain(..count).collect();
        for id in &taken {
            if let Some(group) = self.groups.get_mut(id) {
                group.is_held_back = false;
            }
        }
        taken
    }

    /// Makes groups announce a gap with their next event.
    pub(super) fn record_gaps(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        for id in groups {
            if let Some(group) = self.groups.get_mut(&id) {
                group.record_gap();
            }
        }
    }

    /// Sends a position to all subscribers of a group.
    pub(super) fn send_position(&self, id: GroupId, cursor: &Bytes) {
        if let Some(group) = self.get(id) {
            group.send_position(cursor, &self.outlets, &self.stats);
        }
    }

    /// Returns the group that a subscriber of `group` belongs to now. Must be called once for each subscriber that
    /// leaves.
    fn group_of_leaver(&mut self, mut group: GroupId) -> GroupId {
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
    pub(super) fn current(&self, mut group: GroupId) -> GroupId {
        while let Some(merged) = self.merged.get(&group) {
            group = merged.into;
        }
        group
    }

    /// True if the subscribers of a group, or of the one that it was merged into, have yet to learn of a loss.
    #[cfg(test)]
    pub(super) fn has_unannounced_loss(&self, group: GroupId) -> bool {
        self.get(self.current(group)).is_some_and(Group::has_unannounced_loss)
    }

    #[cfg(test)]
    pub(super) fn has_no_outlets(&self) -> bool {
        self.outlets.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_polled_for_results(&self, group: GroupId) -> bool {
        self.held_back.contains(&group)
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
