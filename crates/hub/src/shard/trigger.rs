//! A trigger: one source, and the groups that its events are for.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;

use super::replay::Replay;
use super::{Joining, TriggerId};
use crate::filter::index::GroupIndex;
use crate::operation::ByKey;
use crate::{EndReason, GroupId, LiveOperation, Source};

/// The triggers of a shard, boxed because up to half of the places in a table that doubles are empty.
pub(super) type Triggers = HashMap<TriggerId, Box<Trigger>, foldhash::fast::RandomState>;

/// Returns the replay state of a trigger, if its source can be read again.
pub(super) fn replay_of(triggers: &mut Triggers, id: TriggerId) -> Option<&mut Replay> {
    triggers.get_mut(&id)?.replay.as_deref_mut()
}

/// See the module.
pub(super) struct Trigger {
    pub(super) source: Source,
    pub(super) groups: GroupIndex,
    /// Those that can be joined: all but a few that became equal to another one when a graph was replaced, or came
    /// from another trigger and still have events of that.
    pub(super) by_key: HashMap<ByKey, GroupId, foldhash::fast::RandomState>,
    /// Groups that begin with a state which is being resolved: equal subscribers get it with them.
    pub(super) fresh: HashMap<ByKey, GroupId, foldhash::fast::RandomState>,
    /// Live groups with an equal group in `by_key`: the two are merged when they have delivered the same events.
    pub(super) twins: IndexSet<GroupId, foldhash::fast::RandomState>,
    pub(super) events: u64,
    pub(super) state: State,
    /// Set if the source can be read again, and payloads carry cursors or groups may fall behind.
    pub(super) replay: Option<Box<Replay>>,
}

/// How far a trigger is.
pub(super) enum State {
    /// These wait for the stream.
    Opening(Waiting),
    Live,
    /// No event follows; groups end for this reason when they are drained.
    Ending(EndReason),
}

/// Who waits for a stream.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) joining: Vec<Joining>,
    /// Groups of other triggers, and what they run on once they are here.
    pub(super) moving: Vec<(GroupId, Arc<LiveOperation>)>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.joining.is_empty() && self.moving.is_empty()
    }
}

impl Trigger {
    pub(super) fn new(source: Source, state: State, replay: Option<Box<Replay>>) -> Self {
        let (groups, by_key) = (GroupIndex::default(), HashMap::default());
        let (fresh, twins) = (HashMap::default(), IndexSet::default());
        Self { source, groups, by_key, fresh, twins, events: 0, state, replay }
    }

    /// Number of the next event.
    pub(super) fn next_number(&self) -> u64 {
        self.events + 1
    }

    /// A group is of this trigger from now on. One that may be joined is found, unless an equal one is there.
    pub(super) fn attach(
        &mut self,
        id: GroupId,
        operation: &Arc<LiveOperation>,
        may_be_joined: bool,
    ) {
        self.groups.insert(id, operation.filter.as_deref());
        if may_be_joined {
            self.by_key.entry(ByKey(Arc::clone(operation))).or_insert(id);
        }
    }

    pub(super) fn is_found(&self, id: GroupId, operation: &LiveOperation) -> bool {
        self.by_key.get(&operation.group) == Some(&id)
    }

    pub(super) fn detach(&mut self, id: GroupId, operation: &LiveOperation) {
        self.groups.remove(id, operation.filter.as_deref());
        self.hide(id, operation);
    }

    /// Nobody gets the state of that group any more.
    pub(super) fn forget_fresh(&mut self, id: GroupId, operation: &LiveOperation) {
        if self.fresh.get(&operation.group) == Some(&id) {
            self.fresh.remove(&operation.group);
        }
    }

    /// Nobody joins that group any more.
    pub(super) fn hide(&mut self, id: GroupId, operation: &LiveOperation) {
        if self.is_found(id, operation) {
            self.by_key.remove(&operation.group);
        }
    }
}
