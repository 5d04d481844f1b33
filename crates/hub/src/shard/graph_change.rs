//! The move to a new graph: every group gets its operation on the new graph between two events. Its subscribers, their
//! order and the events in flight stay unchanged.
//!
//! If the new operation of a group listens to another source, the group keeps the old operation and source until the
//! new source is open, and then moves. Events that were published on the new topics before that are unknown, so the
//! first event from there announces a gap. A subgraph that cannot be reached at that moment gets more attempts: groups
//! move to the new source after the first one, and end if all attempts fail.

use std::collections::HashMap;
use std::sync::Arc;

use execute::{ErrorCode, GraphqlError};

use super::Shard;
use super::catch_up::OperationChange;
use super::group::Group;
use super::group_phase::GroupPhase;
use super::trigger::TriggerPhase;
use super::trigger_id::TriggerId;
use crate::stats;
use crate::{EndReason, GroupId, LiveOperation, OperationUpdate};

/// Returns the error for a subscriber with an operation of an older graph. The server tries again on the new one.
pub(super) fn replaced() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::GraphReloaded,
        "the graph was replaced while this subscription began; subscribe again",
    )
}

/// Returns the error for a group that catches up when the new graph has another source for it.
fn source_changed() -> GraphqlError {
    let message = "the graph was replaced, and the topics of this subscription with it, before all that it \
         missed was delivered; subscribe again without a cursor";
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}

impl Shard {
    /// Returns the groups that run on a graph before `generation`, oldest first.
    pub(crate) fn operations_before(&self, generation: u64) -> Vec<(GroupId, Arc<LiveOperation>)> {
        self.groups.operations_before(generation)
    }

    /// Returns the operation of a group, or of the one that it was merged into.
    pub(crate) fn operation_of(&self, group: GroupId) -> Option<Arc<LiveOperation>> {
        self.groups.get(self.groups.current(group)).map(|it| Arc::clone(&it.operation))
    }

    /// Moves the shard to the graph `generation`: each group in `renewals` gets its new operation. From now on
    /// subscribers of older graphs are refused. Returns the groups of older graphs that have no renewal.
    pub(crate) fn advance(
        &mut self,
        generation: u64,
        renewals: Vec<OperationUpdate>,
    ) -> Vec<(GroupId, Arc<LiveOperation>)> {
        let generation = self.generation.max(generation);
        self.generation = generation;
        for id in self.triggers.ids() {
            self.refuse_pending(id, |it| it.operation.generation < generation, replaced);
        }
        let renewals: HashMap<_, _> = renewals.into_iter().collect();
        let mut renewals: Vec<_> = renewals.into_iter().collect();
        renewals.sort_unstable_by_key(|(id, _)| id.0);
        for (id, renewed) in renewals {
            match renewed {
                Ok(operation) => self.replace_operation(id, operation),
                Err(error) => self.end_by_reload(id, EndReason::Error(error)),
            }
        }
        self.settle();
        let moves = |group: &Group| match group.phase {
            GroupPhase::Live => false,
            GroupPhase::Moving(_) => true,
            GroupPhase::CatchingUp { .. } => self.catch_up.has_deferred_move(group),
        };
        let mut left = self.groups.operations_before(generation);
        left.retain(|(id, _)| self.groups.get(*id).is_some_and(|it| !moves(it)));
        left
    }

    /// Replaces the operation of a group.
    pub(super) fn replace_operation(&mut self, id: GroupId, mut operation: LiveOperation) {
        let Some(group) = self.groups.get_mut(id) else { return };
        // A graph in between had another source for the group.
        if let Some(target) = group.phase.moving_to() {
            group.phase = GroupPhase::Live;
            self.triggers.cancel_move(id, target);
        }
        let Some(trigger) = self.triggers.get(group.trigger) else { return };
        let has_same_source = operation.source == trigger.source;
        if has_same_source {
            operation.source = trigger.source.clone();
        }
        let change = match group.phase {
            GroupPhase::CatchingUp { .. } => {
                self.catch_up.replace_operation(group, &operation, has_same_source)
            }
            _ => OperationChange::Now,
        };
        match change {
            OperationChange::Deferred => {}
            OperationChange::Ends => {
                self.end_by_reload(id, EndReason::Error(Box::new(source_changed())));
            }
            OperationChange::Now if has_same_source => {
                self.triggers.stop_joining(group);
                let scope = self.positions.scope(&operation);
                let operation = Arc::new(operation);
                if !group.phase.is_catching_up()
                    && let Some(trigger) = self.triggers.get_mut(group.trigger)
                {
                    trigger.replace_operation(group, &operation);
                }
                if let Some(replay) = self.catch_up.replay_mut(group.trigger) {
                    // Its index among the groups has changed, and with it its turn in a round.
                    replay.schedule_position_update();
                }
                group.operation = operation;
                group.change_scope(scope);
                stats::add(&self.stats.spliced, 1);
                // Its source may have ended while the group was about to leave it.
                self.continue_group(id);
            }
            OperationChange::Now => self.begin_move(id, operation),
        }
    }

    /// Begins to move a live group to the other source of its new operation. The group keeps its operation until the
    /// source is open.
    fn begin_move(&mut self, id: GroupId, operation: LiveOperation) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if let Some(trigger) = self.triggers.get_mut(group.trigger) {
            // Later subscribers need the new source at once.
            trigger.stop_joining(group);
            trigger.hide(id, &group.operation);
        }
        let target = match self.triggers.find(&operation.source) {
            Some(target) => target,
            None => self.open(operation.source.clone(), true),
        };
        let operation = Arc::new(operation);
        match self.triggers.get_mut(target).map(|it| &mut it.phase) {
            Some(TriggerPhase::Live) => self.move_group(id, target, operation),
            Some(TriggerPhase::Opening(waiting)) => {
                waiting.moving.push((id, operation));
                if let Some(group) = self.groups.get_mut(id) {
                    group.phase = GroupPhase::Moving(target);
                }
            }
            Some(TriggerPhase::Ending(_)) | None => {
                debug_assert!(false, "a trigger that ends is no longer found by its source");
            }
        }
    }

    /// Moves a live group to another trigger, which is live.
    pub(super) fn move_group(
        &mut self,
        id: GroupId,
        target: TriggerId,
        operation: Arc<LiveOperation>,
    ) {
        let scope = self.positions.scope(&operation);
        let Some(group) = self.groups.get_mut(id) else { return };
        debug_assert!(!group.phase.is_catching_up(), "a move waits for the catch-up");
        // It no longer waits for its target, which is open.
        group.phase = GroupPhase::Live;
        self.triggers.remove_group(group);
        if let Some(trigger) = self.triggers.get_mut(target) {
            // New subscribers must not get events of the old source.
            if operation.source.has_states() {
                // Groups with different revisions become one when these are equal again.
                trigger.attach_candidate(id, &operation);
            } else {
                trigger.attach(id, &operation, group.is_drained());
            }
        }
        group.move_to(target, operation, scope);
        stats::add(&self.stats.spliced, 1);
        stats::add(&self.stats.moved, 1);
    }

    /// Ends a group that has no operation on the new graph.
    pub(super) fn end_by_reload(&mut self, id: GroupId, reason: EndReason) {
        stats::add(&self.stats.ended_by_reload, usize::from(self.groups.contains(id)));
        self.end_group(id, &reason);
    }
}
