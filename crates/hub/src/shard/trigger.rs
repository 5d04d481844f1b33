//! A trigger: one source, and the groups that get its events.

use std::collections::HashMap;
use std::sync::Arc;

use bindings::{FilterIndex, Source};
use indexmap::IndexSet;

use super::group::{CursorKey, Group};
use super::pending_subscriber::PendingSubscriber;
use crate::operation::OperationByKey;
use crate::{EndReason, GroupId, LiveOperation};

type Hasher = foldhash::fast::RandomState;

/// One source and its groups.
pub(super) struct Trigger {
    pub(super) source: Source,
    pub(super) groups: FilterIndex<GroupId>,
    /// The groups that new subscribers join. A few groups are not among them: those that became equal to another one
    /// when a graph was replaced, and those that came from another trigger and still have events of that.
    pub(super) by_key: HashMap<OperationByKey, GroupId, Hasher>,
    /// The groups that have delivered nothing yet. Boxed because many triggers never have any.
    new_groups: Option<Box<NewGroups>>,
    /// The live groups with an equal group in `by_key`: the two are merged when they have delivered the same events.
    pub(super) merge_candidates: IndexSet<GroupId, Hasher>,
    pub(super) events: u64,
    pub(super) phase: TriggerPhase,
}

/// The groups of a trigger that begin with something else than the next event. Equal subscribers join them until they
/// have delivered something.
#[derive(Default)]
struct NewGroups {
    /// The groups that begin with a state that is being resolved.
    for_state: HashMap<OperationByKey, GroupId, Hasher>,
    /// The groups that resume, by operation and cursor.
    by_cursor: HashMap<CursorKey, GroupId, Hasher>,
}

/// The phase of a trigger.
pub(super) enum TriggerPhase {
    /// The stream is being opened for these subscribers and groups.
    Opening(PendingOpen),
    Live,
    /// No event follows; groups end for this reason when they are drained.
    Ending(EndReason),
}

/// The subscribers and groups that wait for a stream.
#[derive(Default)]
pub(super) struct PendingOpen {
    pub(super) pending: Vec<PendingSubscriber>,
    /// Groups of other triggers that move here, and their new operations.
    pub(super) moving: Vec<(GroupId, Arc<LiveOperation>)>,
    /// True if the stream is opened for groups that move here.
    pub(super) is_move: bool,
}

impl PendingOpen {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.moving.is_empty()
    }
}

impl Trigger {
    /// Creates a trigger with a stream that is being opened.
    pub(super) fn new(source: Source, waiting: PendingOpen) -> Self {
        Self {
            source,
            groups: FilterIndex::default(),
            by_key: HashMap::default(),
            new_groups: None,
            merge_candidates: IndexSet::default(),
            events: 0,
            phase: TriggerPhase::Opening(waiting),
        }
    }

    /// True if it has no live group, and no group or subscriber waits for its stream.
    pub(super) fn is_unused(&self) -> bool {
        let waits = matches!(&self.phase, TriggerPhase::Opening(waiting) if !waiting.is_empty());
        self.groups.is_empty() && !waits
    }

    /// True if no event follows.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, TriggerPhase::Ending(_))
    }

    /// Takes the subscribers that wait for the stream, as far as `is_wanted` selects them.
    pub(super) fn take_pending(
        &mut self,
        is_wanted: impl Fn(&PendingSubscriber) -> bool,
    ) -> Vec<PendingSubscriber> {
        let TriggerPhase::Opening(waiting) = &mut self.phase else { return Vec::new() };
        waiting.pending.extract_if(.., |it| is_wanted(it)).collect()
    }

    /// Takes the operation that a group waits for this trigger with, if the group moves here.
    pub(super) fn take_move(&mut self, id: GroupId) -> Option<Arc<LiveOperation>> {
        let TriggerPhase::Opening(waiting) = &mut self.phase else { return None };
        let at = waiting.moving.iter().position(|(group, _)| *group == id)?;
        Some(waiting.moving.swap_remove(at).1)
    }

    /// Returns the number of the next event.
    pub(super) fn next_number(&self) -> u64 {
        self.events + 1
    }

    /// Adds a group to the trigger. A group that may be joined is found by its key, unless an equal one is there.
    pub(super) fn attach(
        &mut self,
        id: GroupId,
        operation: &Arc<LiveOperation>,
        may_be_joined: bool,
    ) {
        self.groups.insert(id, operation.filter.as_deref());
        if may_be_joined {
            self.by_key.entry(OperationByKey(Arc::clone(operation))).or_insert(id);
        }
    }

    /// Adds a group that is joined for its state, or has just become live. It is merged with the equal group that new
    /// subscribers join, if there is one.
    pub(super) fn attach_candidate(&mut self, id: GroupId, operation: &Arc<LiveOperation>) {
        self.attach(id, operation, true);
        if !self.is_found(id, operation) {
            self.merge_candidates.insert(id);
        }
    }

    /// Returns the group that subscribers with that operation join, if there is one.
    pub(super) fn joinable(&self, operation: &LiveOperation) -> Option<GroupId> {
        let has_state = operation.resolve.has_state();
        let joinable = if has_state { &self.new_groups.as_ref()?.for_state } else { &self.by_key };
        joinable.get(&operation.group).copied()
    }

    /// Returns the group that subscribers with that operation and cursor join, if there is one.
    pub(super) fn joinable_by_cursor(&self, key: &CursorKey) -> Option<GroupId> {
        self.new_groups.as_ref()?.by_cursor.get(key).copied()
    }

    /// Makes subscribers with the same operation and cursor join a new group, until it has got an event.
    pub(super) fn attach_resumed(&mut self, group: &mut Group, key: CursorKey) {
        let new_groups = self.new_groups.get_or_insert_default();
        new_groups.by_cursor.insert(key.clone(), group.id);
        group.cursor_key = Some(Box::new(key));
    }

    /// Adds a new group that begins with a state. Equal subscribers join it and get the state too.
    pub(super) fn attach_for_state(&mut self, id: GroupId, operation: &Arc<LiveOperation>) {
        self.attach_candidate(id, operation);
        let new_groups = self.new_groups.get_or_insert_default();
        new_groups.for_state.insert(OperationByKey(Arc::clone(operation)), id);
    }

    /// Stops subscribers from joining a group by its cursor or for its state: it has delivered something, or its
    /// operation was replaced.
    pub(super) fn stop_joining(&mut self, group: &mut Group) {
        let Some(NewGroups { for_state, by_cursor }) = self.new_groups.as_deref_mut() else {
            return;
        };
        if for_state.get(&group.operation.group) == Some(&group.id) {
            for_state.remove(&group.operation.group);
        }
        if let Some(key) = group.cursor_key.take()
            && by_cursor.get(&*key) == Some(&group.id)
        {
            by_cursor.remove(&*key);
        }
    }

    /// Returns the groups that are joined for their state.
    #[cfg(test)]
    pub(super) fn groups_for_state(&self) -> impl Iterator<Item = &GroupId> {
        self.new_groups.iter().flat_map(|it| it.for_state.values())
    }

    /// Returns the group that an equal group is merged into: the one that new subscribers join, or itself.
    pub(super) fn merge_target(&mut self, id: GroupId, operation: &Arc<LiveOperation>) -> GroupId {
        *self.by_key.entry(OperationByKey(Arc::clone(operation))).or_insert(id)
    }

    /// True if new subscribers join that group.
    pub(super) fn is_found(&self, id: GroupId, operation: &LiveOperation) -> bool {
        self.by_key.get(&operation.group) == Some(&id)
    }

    /// Replaces the operation of a live group. Subscribers join it as before, or if it has no event of the old
    /// operation left.
    pub(super) fn replace_operation(&mut self, group: &Group, operation: &Arc<LiveOperation>) {
        let may_be_joined = self.is_found(group.id, &group.operation) || group.is_drained();
        self.detach(group.id, &group.operation);
        self.attach(group.id, operation, may_be_joined);
    }

    /// Returns the equal groups to merge after an event of a group has ended: the group itself if it waits for that,
    /// else those that wait for it.
    pub(super) fn groups_to_merge(
        &self,
        id: GroupId,
        is_equal: impl Fn(GroupId) -> bool,
    ) -> Vec<GroupId> {
        if self.merge_candidates.contains(&id) {
            return vec![id];
        }
        self.merge_candidates.iter().copied().filter(|candidate| is_equal(*candidate)).collect()
    }

    /// Removes a group, which may be live, from everything by which the trigger knows it.
    pub(super) fn remove_group(&mut self, group: &mut Group) {
        self.stop_joining(group);
        self.detach(group.id, &group.operation);
        self.merge_candidates.swap_remove(&group.id);
    }

    /// Removes a group from those that get live events.
    pub(super) fn detach(&mut self, id: GroupId, operation: &LiveOperation) {
        self.groups.remove(id, operation.filter.as_deref());
        self.hide(id, operation);
    }

    /// Stops subscribers from joining that group.
    pub(super) fn hide(&mut self, id: GroupId, operation: &LiveOperation) {
        if self.is_found(id, operation) {
            self.by_key.remove(&operation.group);
        }
    }
}
