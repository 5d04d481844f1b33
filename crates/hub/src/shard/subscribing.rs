//! Subscribers that come and go, and the opening of triggers for them.

use std::sync::Arc;

use bindings::Source;
use events::SourceError;

use super::Shard;
use super::client_errors::{shutting_down, source_error};
use super::effect::Effect;
use super::graph_change::replaced;
use super::group::Group;
use super::outlets::OutletPlace;
use super::pending_subscriber::PendingSubscriber;
use super::trigger::{PendingOpen, TriggerPhase};
use super::trigger_id::TriggerId;
use crate::operation::OperationByKey;
use crate::stats;
use crate::{EndReason, GroupId, LiveOperation, Subscriber};

impl Shard {
    /// Adds a subscriber. The reply is sent when the trigger is live, so that no later event is missed.
    pub(crate) fn subscribe(&mut self, pending: PendingSubscriber) {
        if self.is_shut_down {
            return pending.refuse(shutting_down());
        }
        if pending.operation.generation < self.generation {
            return pending.refuse(replaced());
        }
        let source = &pending.operation.source;
        let id = match self.triggers.find(source) {
            Some(id) => id,
            None => {
                // Its operation may share a connection with others.
                source.note_headers();
                self.open(source.clone(), false)
            }
        };
        match self.triggers.get_mut(id).map(|trigger| &mut trigger.phase) {
            Some(TriggerPhase::Opening(waiting)) => waiting.pending.push(pending),
            Some(TriggerPhase::Live) => self.join(id, pending),
            Some(TriggerPhase::Ending(_)) | None => {
                debug_assert!(false, "a trigger that ends is no longer found by its source");
            }
        }
        self.settle();
    }

    /// Makes a trigger and requests its stream, for a new subscriber or for a group that moves there. The caller adds
    /// it.
    pub(super) fn open(&mut self, source: Source, is_move: bool) -> TriggerId {
        let waiting = PendingOpen { is_move, ..PendingOpen::default() };
        let id = self.triggers.insert(source.clone(), waiting);
        let has_cursors = self.positions.are_for(&source);
        // Also without cursors, groups that fall behind read from the broker.
        if has_cursors || (self.settings.catch_up && source.is_stored_by_broker()) {
            self.catch_up.add_trigger(id, source.clone());
        }
        if has_cursors {
            self.positions.add(id);
        }
        self.effects.push(Effect::Open { trigger: id, source, is_move });
        id
    }

    /// Handles the provider's response to [`Effect::Open`]. Returns false if there is no stream, or if it is no longer
    /// wanted.
    pub(crate) fn on_opened(&mut self, id: TriggerId, result: Result<(), SourceError>) -> bool {
        let Some(trigger) = self.triggers.get_mut(id) else { return false };
        let TriggerPhase::Opening(waiting) =
            std::mem::replace(&mut trigger.phase, TriggerPhase::Live)
        else {
            debug_assert!(false, "a trigger is opened once");
            return true;
        };
        match result {
            Ok(()) => {
                for (group, operation) in waiting.moving {
                    self.move_group(group, id, operation);
                }
                for pending in waiting.pending {
                    self.join(id, pending);
                }
            }
            Err(error) => {
                stats::add(&self.stats.refused_provider, waiting.pending.len());
                let error = source_error(&error);
                for pending in waiting.pending {
                    pending.refuse(error.clone());
                }
                let moves_later = !waiting.moving.is_empty() && !waiting.is_move;
                if moves_later && self.is_of_subgraph(id) {
                    // The attempt was made for new subscribers, which learn of a failure at once.
                    self.open_again_for_move(id, waiting.moving);
                    return false;
                }
                self.remove_trigger(id);
                // They cannot get events of the source that their new operation listens to.
                for (group, _) in waiting.moving {
                    self.end_by_reload(group, EndReason::Error(Box::new(error.clone())));
                }
            }
        }
        self.triggers.check_later(id);
        self.settle();
        self.triggers.contains(id)
    }

    fn is_of_subgraph(&self, id: TriggerId) -> bool {
        self.triggers.get(id).is_some_and(|it| it.source.is_of_subgraph())
    }

    /// Requests the stream of a trigger again, for groups that move there.
    fn open_again_for_move(&mut self, id: TriggerId, moving: Vec<(GroupId, Arc<LiveOperation>)>) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        trigger.phase =
            TriggerPhase::Opening(PendingOpen { pending: Vec::new(), moving, is_move: true });
        let source = trigger.source.clone();
        self.effects.push(Effect::Open { trigger: id, source, is_move: true });
    }

    /// Adds a subscriber to a live trigger: to a group of live events, or to one that catches up if the subscriber
    /// comes with a cursor.
    pub(super) fn join(&mut self, id: TriggerId, mut pending: PendingSubscriber) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        // The source has the same operation at its subgraph, and perhaps a newer token.
        pending.operation.source.note_headers();
        // Each subscriber has its own copy of the rendered topics; the trigger's copy is shared instead.
        pending.operation.source = trigger.source.clone();
        let Some(resume) = pending.resume.clone() else {
            return self.join_live(id, pending);
        };
        if pending.reply.is_closed() {
            return;
        }
        let operation = Arc::new(pending.operation.clone());
        let key = (OperationByKey(Arc::clone(&operation)), resume);
        if let Some(group) = trigger.joinable_by_cursor(&key) {
            stats::add(&self.stats.resumed_shared, 1);
            // The group may have got a later position than this subscriber has.
            let has_position = self.catch_up.is_at(id, &key.1);
            return self.add_subscriber(group, pending, has_position);
        }
        match self.catch_up.find_start(id, &key.1) {
            Err(error) => pending.refuse(error),
            Ok(None) => self.catch_up.wait_for_reader(id, pending),
            Ok(Some(source)) => {
                let scope = self.positions.scope(&operation);
                let mut group = Group::new(self.groups.new_id(), id, operation, scope);
                let group_id = group.id;
                self.catch_up.add_resumed_group(&mut group, key.1.clone(), source);
                trigger.attach_resumed(&mut group, key);
                self.groups.insert(group);
                self.add_subscriber(group_id, pending, true);
                self.continue_group(group_id);
            }
        }
    }

    /// Adds a subscriber to a group of a live trigger, for the events from now on.
    fn join_live(&mut self, id: TriggerId, mut pending: PendingSubscriber) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let has_state = pending.operation.resolve.has_state();
        let group_id = match trigger.joinable(&pending.operation) {
            Some(known) => {
                stats::add(&self.stats.states_shared, usize::from(has_state));
                known
            }
            None if pending.reply.is_closed() => return,
            None => {
                let operation = Arc::new(pending.operation.clone());
                let scope = self.positions.scope(&operation);
                let mut group = Group::new(self.groups.new_id(), id, Arc::clone(&operation), scope);
                let group_id = group.id;
                if has_state {
                    trigger.attach_for_state(group_id, &operation);
                    let replay = self.catch_up.replay(id);
                    let after = replay.map(|replay| (replay.position.clone(), replay.version));
                    let (after, version) = after.unwrap_or_default();
                    let is_stored = replay.is_some() && self.settings.catch_up;
                    group.offer_state(after, version, is_stored, pending.spans.take());
                } else {
                    trigger.attach(group_id, &operation, true);
                }
                self.groups.insert(group);
                group_id
            }
        };
        self.add_subscriber(group_id, pending, false);
        if has_state && let Some(group) = self.groups.get_mut(group_id) {
            self.scheduler.start_all(group, &mut self.effects);
        }
    }

    /// Adds a subscriber to a group. If the caller is gone and the group is empty, the group is removed. `has_position`
    /// is true if the subscriber has the latest cursor of the group.
    fn add_subscriber(&mut self, id: GroupId, pending: PendingSubscriber, has_position: bool) {
        if !self.groups.add_subscriber(id, pending) {
            return self.remove_group(id);
        }
        if !has_position && let Some(group) = self.groups.get_mut(id) {
            group.sent_version = 0;
            if let Some(replay) = self.catch_up.replay_mut(group.trigger) {
                replay.schedule_position_update();
            }
        }
    }

    /// Removes a subscriber. A subscriber of a removed group is ignored.
    pub(crate) fn remove_subscriber(
        &mut self,
        group: GroupId,
        outlet: OutletPlace,
        member: Subscriber,
    ) {
        if let Some(emptied) = self.groups.remove_subscriber(group, outlet, member) {
            self.remove_group(emptied);
            self.settle();
        }
    }

    /// Refuses subscribers that wait for a trigger or a side reader of it, as far as `is_refused` selects them.
    pub(super) fn refuse_pending(
        &mut self,
        id: TriggerId,
        is_refused: impl Fn(&PendingSubscriber) -> bool,
        error: fn() -> execute::GraphqlError,
    ) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let mut refused = trigger.take_pending(&is_refused);
        refused.append(&mut self.catch_up.take_waiting(id, is_refused));
        if !refused.is_empty() {
            self.triggers.check_later(id);
        }
        for pending in refused {
            pending.refuse(error());
        }
    }
}
