//! A trigger: one source, and the groups that get its events.

use std::collections::HashMap;
use std::sync::Arc;

use bindings::{FilterIndex, Source};
use indexmap::IndexSet;

use super::PendingSubscriber;
use super::replay::Replay;
use crate::operation::OperationByKey;
use crate::{EndReason, GroupId, LiveOperation};

/// One source and its groups.
pub(super) struct Trigger {
    pub(super) source: Source,
    pub(super) groups: FilterIndex<GroupId>,
    /// The groups that new subscribers join. A few groups are not among them: those that became equal to another one
    /// when a graph was replaced, and those that came from another trigger and still have events of that.
    pub(super) by_key: HashMap<OperationByKey, GroupId, foldhash::fast::RandomState>,
    /// The groups that begin with a state that is being resolved: equal subscribers join them and get the state too.
    pub(super) joinable_for_state: HashMap<OperationByKey, GroupId, foldhash::fast::RandomState>,
    /// The live groups with an equal group in `by_key`: the two are merged when they have delivered the same events.
    pub(super) merge_candidates: IndexSet<GroupId, foldhash::fast::RandomState>,
    pub(super) events: u64,
    pub(super) phase: TriggerPhase,
    /// Set if the source can be read again, and payloads carry cursors or groups may fall behind.
    pub(super) replay: Option<Box<Replay>>,
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
}

impl PendingOpen {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.moving.is_empty()
    }
}

impl Trigger {
    pub(super) fn new(source: Source, phase: TriggerPhase, replay: Option<Box<Replay>>) -> Self {
        let (groups, by_key) = (FilterIndex::default(), HashMap::default());
        let (joinable_for_state, merge_candidates) = (HashMap::default(), IndexSet::default());
        Self {
            source,
            groups,
            by_key,
            joinable_for_state,
            merge_candidates,
            events: 0,
            phase,
            replay,
        }
    }

    /// True if it has no group, and no group or subscriber waits for it.
    pub(super) fn is_unused(&self) -> bool {
        let waits = matches!(&self.phase, TriggerPhase::Opening(waiting) if !waiting.is_empty());
        let is_idle = self.replay.as_ref().is_none_or(|it| it.is_idle());
        self.groups.is_empty() && !waits && is_idle
    }

    /// Takes the subscribers that wait for the trigger or a side reader, as far as `is_wanted` selects them.
    pub(super) fn take_pending(
        &mut self,
        is_wanted: impl Fn(&PendingSubscriber) -> bool,
    ) -> Vec<PendingSubscriber> {
        let mut taken = Vec::new();
        if let TriggerPhase::Opening(waiting) = &mut self.phase {
            taken.extend(waiting.pending.extract_if(.., |it| is_wanted(it)));
        }
        let readers = self.replay.iter_mut().flat_map(|it| &mut it.readers);
        for side in readers {
            taken.extend(side.waiting.extract_if(.., |it| is_wanted(it)));
        }
        taken
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

    pub(super) fn is_found(&self, id: GroupId, operation: &LiveOperation) -> bool {
        self.by_key.get(&operation.group) == Some(&id)
    }

    pub(super) fn detach(&mut self, id: GroupId, operation: &LiveOperation) {
        self.groups.remove(id, operation.filter.as_deref());
        self.hide(id, operation);
    }

    /// Stops equal subscribers from joining that group for its state.
    pub(super) fn remove_joinable_for_state(&mut self, id: GroupId, operation: &LiveOperation) {
        if self.joinable_for_state.get(&operation.group) == Some(&id) {
            self.joinable_for_state.remove(&operation.group);
        }
    }

    /// Stops subscribers from joining that group.
    pub(super) fn hide(&mut self, id: GroupId, operation: &LiveOperation) {
        if self.is_found(id, operation) {
            self.by_key.remove(&operation.group);
        }
    }
}
