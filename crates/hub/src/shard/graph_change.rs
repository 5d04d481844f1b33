//! The move to a new graph: every group gets its operation on the new graph between two events. Its subscribers, their
//! order and the events in flight stay unchanged.
//!
//! If the new operation of a group listens to another source, the group keeps the old operation and source until the
//! new source is open, and then moves. Events that were published on the new topics before that are unknown, so the
//! first event from there announces a gap.

use std::collections::HashMap;
use std::sync::Arc;

use execute::{ErrorCode, GraphqlError};

use super::client_errors::refuse;
use super::group_phase::GroupPhase;
use super::{PendingOpen, Shard, TriggerId, TriggerPhase};
use crate::stats;
use crate::{EndReason, GroupId, LiveOperation, OperationUpdate};

/// Returns the error for a subscriber with an operation of an older graph. The server tries again on the new one.
pub(super) fn replaced() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::GraphReloaded,
        "the graph was replaced while this subscription began; subscribe again",
    )
}

impl Shard {
    /// Returns the groups that run on a graph before `generation`, oldest first.
    pub(crate) fn operations_before(&self, generation: u64) -> Vec<(GroupId, Arc<LiveOperation>)> {
        self.groups.operations_before(generation)
    }

    /// Moves the shard to the graph `generation`: each group in `renewals` gets its new operation. From now on
    /// subscribers of older graphs are refused. Returns the groups of older graphs that have no renewal.
    pub(crate) fn advance(
        &mut self,
        generation: u64,
        renewals: Vec<OperationUpdate>,
    ) -> Vec<(GroupId, Arc<LiveOperation>)> {
        self.generation = self.generation.max(generation);
        for id in self.triggers.ids() {
            self.refuse_subscribers_of_older_graphs(id);
        }
        let renewals: HashMap<_, _> = renewals.into_iter().collect();
        let mut renewals: Vec<_> = renewals.into_iter().collect();
        renewals.sort_unstable_by_key(|(id, _)| id.0);
        for (id, renewed) in renewals {
            match renewed {
                Ok(operation) => self.replace_operation(id, operation),
                Err(error) => {
                    if self.groups.contains(id) {
                        stats::add(&self.stats.ended_by_reload, 1);
                        self.end_group(id, &EndReason::Error(error));
                    }
                }
            }
        }
        let mut left = self.operations_before(self.generation);
        let moves =
            |it: &super::Group| it.phase.moving_to().is_some() || it.phase.has_deferred_move();
        left.retain(|(id, _)| self.groups.get(*id).is_some_and(|it| !moves(it)));
        left
    }

    fn refuse_subscribers_of_older_graphs(&mut self, id: TriggerId) {
        let generation = self.generation;
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        for pending in trigger.take_pending(|it| it.operation.generation < generation) {
            refuse(pending, replaced());
        }
        self.close_reader_if_unused(id);
        self.close_if_unused(id);
    }

    /// Replaces the operation of a group.
    pub(super) fn replace_operation(&mut self, id: GroupId, mut operation: LiveOperation) {
        if self.replace_operation_of_catch_up(id, &operation) {
            return;
        }
        let scope = self.scope(&operation);
        let Some(group) = self.groups.get_mut(id) else { return };
        self.triggers.stop_joining(group);
        // A graph in between had another source for the group.
        if let Some(target) = group.phase.take_moving_to() {
            self.cancel_move(id, target);
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(trigger) = self.triggers.get_mut(group.trigger) else { return };
        if operation.source == trigger.source {
            operation.source = trigger.source.clone();
            let operation = Arc::new(operation);
            let may_be_joined = trigger.is_found(id, &group.operation) || group.is_drained();
            trigger.detach(id, &group.operation);
            trigger.attach(id, &operation, may_be_joined);
            group.operation = operation;
            group.change_scope(scope);
            if let Some(replay) = &mut trigger.replay {
                // Its index among the groups has changed.
                replay.schedule_position_update();
            }
            stats::add(&self.stats.spliced, 1);
            // Its source may have ended while the group was about to leave it.
            return self.end_if_drained(id);
        }
        // Later subscribers need the new source at once.
        trigger.hide(id, &group.operation);
        let operation = Arc::new(operation);
        let known = self.triggers.find(&operation.source);
        let target = match known.and_then(|it| Some((it, &mut self.triggers.get_mut(it)?.phase))) {
            Some((target, TriggerPhase::Live)) => return self.move_group(id, target, operation),
            Some((target, TriggerPhase::Opening(waiting))) => {
                waiting.moving.push((id, operation));
                target
            }
            // A trigger that ends is not found by its source.
            Some((_, TriggerPhase::Ending(_))) | None => {
                let source = operation.source.clone();
                let moving = vec![(id, operation)];
                self.open(source, PendingOpen { pending: Vec::new(), moving })
            }
        };
        if let Some(group) = self.groups.get_mut(id) {
            group.phase = GroupPhase::Moving(target);
        }
    }

    /// Moves a group to another trigger, which is live.
    pub(super) fn move_group(
        &mut self,
        id: GroupId,
        target: TriggerId,
        operation: Arc<LiveOperation>,
    ) {
        self.stop_catch_up(id);
        let scope = self.scope(&operation);
        let Some(group) = self.groups.get_mut(id) else { return };
        let left = std::mem::replace(&mut group.trigger, target);
        if let Some(trigger) = self.triggers.get_mut(left) {
            trigger.detach(id, &group.operation);
        }
        if let Some(trigger) = self.triggers.get_mut(target) {
            // New subscribers must not get events of the old source.
            trigger.attach(id, &operation, group.is_drained());
        }
        group.operation = operation;
        group.scope = scope;
        group.phase = GroupPhase::Live;
        // The number counts events of the trigger that the group left.
        group.in_order_from = 0;
        group.record_gap();
        // Its subscribers have cursors of the trigger that the group left.
        group.sent_version = 0;
        stats::add(&self.stats.spliced, 1);
        stats::add(&self.stats.moved, 1);
        self.close_if_unused(left);
    }

    /// Ends a group because the source that it was to move to could not be opened.
    pub(super) fn fail_move(&mut self, id: GroupId, error: &GraphqlError) {
        let Some(group) = self.groups.get_mut(id) else { return };
        group.phase = GroupPhase::Live;
        stats::add(&self.stats.ended_by_reload, 1);
        self.end_group(id, &EndReason::Error(Box::new(error.clone())));
    }

    /// Cancels the move of a group that waits for that trigger.
    pub(super) fn cancel_move(&mut self, id: GroupId, target: TriggerId) {
        let Some(trigger) = self.triggers.get_mut(target) else { return };
        if let TriggerPhase::Opening(waiting) = &mut trigger.phase {
            waiting.moving.retain(|(group, _)| *group != id);
        }
        self.close_if_unused(target);
    }
}
