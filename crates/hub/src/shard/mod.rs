//! One shard: a state machine that owns its triggers and groups. Each call reports an event and returns [`Effect`]s;
//! the shard never waits, has no clock and takes no lock. Tasks, streams and cores belong to [`task`].

mod backpressure;
mod catch_up;
mod client_errors;
mod concurrency_limit;
mod fall_behind;
mod graph_change;
mod group;
mod group_merge;
mod group_phase;
mod group_table;
mod open_reader;
mod outlets;
mod position;
mod reader_messages;
mod reader_polls;
mod replay;
mod resolutions;
mod resumption;
mod ring;
mod scheduler;
mod side_reader;
mod source_messages;
pub(crate) mod task;
mod topology_view;
mod trigger;
mod trigger_table;

#[cfg(test)]
mod fall_behind_tests;
#[cfg(test)]
mod position_tests;
#[cfg(test)]
mod resumption_simulation;
#[cfg(test)]
mod resumption_tests;
#[cfg(test)]
mod scripted_stage;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bindings::Source;
use events::{SourceError, StreamRequest};
use execute::{FetchCacheBudget, GraphqlError};
use futures_util::future::AbortRegistration;
use tokio::sync::oneshot;

pub(crate) use outlets::OutletId;

use crate::cursor::{Cursors, Resume, Scope};
use crate::operation::OperationByKey;
use crate::stats::{self, HubStats, SubscriptionSlot};
use crate::{
    EndReason, GroupId, HubSettings, LiveOperation, Outlet, OutletCommand, Resolve, Subscriber,
    Subscription,
};
use backpressure::Backpressure;
pub(crate) use client_errors::shutting_down;
use client_errors::{refuse, source_error};
pub(crate) use concurrency_limit::ConcurrencyLimit;
use concurrency_limit::ShardPermits;
use group::Group;
pub(crate) use group::{ResolutionOutcome, ResolutionWork};
use group_phase::GroupPhase;
pub(crate) use group_table::GROUP_NUMBER_BITS;
use group_table::GroupTable;
use outlets::Outlets;
use position::PositionUpdates;
pub(crate) use reader_messages::ReaderStep;
use reader_polls::ReaderPolls;
use replay::Replay;
pub(crate) use ring::RingRoom;
use scheduler::Scheduler;
use trigger::{PendingOpen, Trigger, TriggerPhase};
use trigger_table::TriggerTable;

/// The number of a trigger within its shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TriggerId(u64);

/// A subscriber that is not in a group yet.
pub(crate) struct PendingSubscriber {
    pub(crate) operation: LiveOperation,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) member: Subscriber,
    /// The point to resume from. `None`: the subscriber gets the events from now on.
    pub(crate) resume: Option<Resume>,
    pub(crate) slot: SubscriptionSlot,
    pub(crate) reply: oneshot::Sender<Result<Subscription, GraphqlError>>,
}

/// An action that the shard requests from its task.
pub(crate) enum Effect {
    /// Opens a stream at the provider; the task then calls [`Shard::on_opened`].
    Open { trigger: TriggerId, source: Source },
    /// Drops the stream, or the attempt to open it.
    Close { trigger: TriggerId },
    /// Opens a side reader's stream at the provider; the task then calls [`Shard::on_reader_opened`].
    OpenReader { trigger: TriggerId, stream_id: u64, source: Source, wanted: StreamRequest },
    /// Resumes a paused side reader, which has room again.
    ResumeReader { trigger: TriggerId, stream_id: u64 },
    /// Drops the side reader's stream, or the attempt to open it.
    CloseReader { trigger: TriggerId, stream_id: u64 },
    /// Resolves an event, several events, or a state; the task then calls [`Shard::on_resolved`], unless it is aborted.
    Resolve {
        group: GroupId,
        ticket: u64,
        work: ResolutionWork,
        resolve: Arc<dyn Resolve>,
        abort: AbortRegistration,
    },
}

/// The channel by which a subscription reports its end to its shard.
pub(crate) type LeaveSender = task::LeaveSender;

/// The state of one shard. Each part owns its own maps; the methods of the shard move groups between the parts.
pub(crate) struct Shard {
    settings: HubSettings,
    stats: Arc<HubStats>,
    /// The memory for shared responses of the whole hub.
    memo_room: Arc<FetchCacheBudget>,
    ring_room: Arc<RingRoom>,
    cursors: Option<Arc<Cursors>>,
    leave_sender: LeaveSender,
    triggers: TriggerTable,
    groups: GroupTable,
    /// Groups with more waiting events than allowed, found while an event is offered to all groups.
    behind: Vec<GroupId>,
    backpressure: Backpressure,
    reader_polls: ReaderPolls,
    positions: PositionUpdates,
    outlets: Outlets,
    scheduler: Scheduler,
    is_shut_down: bool,
    /// The generation that serves, or is about to: subscribers of an older one are refused.
    generation: u64,
    effects: Vec<Effect>,
}

/// The graph name in cursors. One process serves one graph; another name would make its cursors foreign to the others.
pub(crate) const GRAPH: &str = "default";

/// The state that all shards share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) stats: Arc<HubStats>,
    pub(crate) memo_room: Arc<FetchCacheBudget>,
    pub(crate) ring_room: Arc<RingRoom>,
    pub(crate) permits: Arc<ConcurrencyLimit>,
    /// The signer of cursors. `None` if payloads have no cursors.
    pub(crate) cursors: Option<Arc<Cursors>>,
}

impl Shard {
    pub(crate) fn new(
        number: usize,
        settings: HubSettings,
        shared: Shared,
        leave_sender: LeaveSender,
    ) -> Self {
        let Shared { stats, memo_room, ring_room, permits, cursors } = shared;
        let permits = ShardPermits::new(permits);
        let scheduler = Scheduler::new(&settings, permits, Arc::clone(&stats));
        Self {
            settings,
            stats,
            memo_room,
            ring_room,
            cursors,
            behind: Vec::new(),
            backpressure: Backpressure::default(),
            reader_polls: ReaderPolls::default(),
            positions: PositionUpdates::default(),
            leave_sender,
            triggers: TriggerTable::default(),
            groups: GroupTable::new(number),
            outlets: Outlets::default(),
            scheduler,
            is_shut_down: false,
            generation: 0,
            effects: Vec::new(),
        }
    }

    /// Takes the actions to perform now. Must be called after each call of any other method.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        // Any of the calls may have ended a resolution or a whole group.
        self.start_ready();
        std::mem::take(&mut self.effects)
    }

    /// Adds a subscriber. The reply is sent when the trigger is live, so that no later event is missed.
    pub(crate) fn subscribe(&mut self, pending: PendingSubscriber) {
        if self.is_shut_down {
            return refuse(pending, shutting_down());
        }
        if pending.operation.generation < self.generation {
            return refuse(pending, graph_change::replaced());
        }
        let source = &pending.operation.source;
        if let Some(id) = self.triggers.find(source) {
            match self.triggers.get_mut(id).map(|trigger| &mut trigger.phase) {
                Some(TriggerPhase::Opening(waiting)) => waiting.pending.push(pending),
                Some(TriggerPhase::Live) => self.add_to_trigger(id, pending),
                Some(TriggerPhase::Ending(_)) | None => {
                    debug_assert!(false, "a trigger that ends is no longer found by its source");
                }
            }
            return;
        }
        let source = source.clone();
        self.open(source, PendingOpen { pending: vec![pending], moving: Vec::new() });
    }

    /// Makes a trigger and requests its stream.
    fn open(&mut self, source: Source, waiting: PendingOpen) -> TriggerId {
        let has_cursors = self.cursors.as_ref().is_some_and(|it| it.are_for(&source));
        // Also without cursors, groups that fall behind read from the broker.
        let has_replay = has_cursors || (self.settings.catch_up && source.is_stored_by_broker());
        let replay =
            has_replay.then(|| Box::new(Replay::new(&self.settings, Arc::clone(&self.ring_room))));
        let trigger = Trigger::new(source.clone(), TriggerPhase::Opening(waiting), replay);
        let id = self.triggers.insert(trigger);
        if has_cursors {
            self.positions.add(id);
        }
        self.effects.push(Effect::Open { trigger: id, source });
        stats::add(&self.stats.triggers, 1);
        id
    }

    /// Handles the provider's response to [`Effect::Open`]. Returns false if the stream is no longer wanted.
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
                    self.add_to_trigger(id, pending);
                }
                self.close_if_unused(id);
                self.triggers.contains(id)
            }
            Err(error) => {
                tracing::warn!(%error, "a subscription could not be opened");
                stats::add(&self.stats.refused_provider, waiting.pending.len());
                let error = source_error(&error);
                for pending in waiting.pending {
                    refuse(pending, error.clone());
                }
                self.remove_trigger(id);
                for (group, _) in waiting.moving {
                    self.fail_move(group, &error);
                }
                false
            }
        }
    }

    /// Adds a subscriber to a group of a live trigger, for the events from now on.
    fn add_live_subscriber(&mut self, id: TriggerId, mut pending: PendingSubscriber) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let has_state = pending.operation.resolve.has_state();
        let joinable = if has_state { &trigger.joinable_for_state } else { &trigger.by_key };
        if let Some(&known) = joinable.get(&pending.operation.group) {
            stats::add(&self.stats.states_shared, usize::from(has_state));
            self.add_subscriber(known, pending);
            return self.schedule_position_update(known);
        }
        if pending.reply.is_closed() {
            return;
        }
        // Each subscriber has its own copy of the rendered topics; the trigger's copy is shared instead.
        pending.operation.source = trigger.source.clone();
        let operation = Arc::new(pending.operation.clone());
        let (group_id, scope) = (self.groups.new_id(), self.scope(&operation));
        if let Some(trigger) = self.triggers.get_mut(id) {
            trigger.attach(group_id, &operation, true);
            let mut group = Group::new(group_id, id, Arc::clone(&operation), scope);
            if has_state {
                if !trigger.is_found(group_id, &operation) {
                    trigger.merge_candidates.insert(group_id);
                }
                trigger.joinable_for_state.insert(OperationByKey(operation), group_id);
                let replay = trigger.replay.as_ref();
                let after = replay.map(|replay| (replay.position.clone(), replay.version));
                let (after, version) = after.unwrap_or_default();
                let is_stored = replay.is_some() && self.settings.catch_up;
                group.offer_state(after, version, is_stored);
                stats::add(&self.stats.waiting, 1);
            }
            self.groups.insert(group);
            stats::add(&self.stats.groups, 1);
            self.add_subscriber(group_id, pending);
            self.schedule_position_update(group_id);
            if has_state && let Some(group) = self.groups.get_mut(group_id) {
                self.scheduler.start_all(group, &mut self.effects);
            }
        }
    }

    /// Returns the scope of the cursors in payloads of that operation. `None` if its payloads have no cursors.
    fn scope(&self, operation: &LiveOperation) -> Option<Scope> {
        let cursors = self.cursors.as_ref()?;
        let source = &operation.source;
        cursors
            .are_for(source)
            .then(|| Scope::new(GRAPH, &operation.field, source, &operation.bound_to))
    }

    /// Adds a subscriber to a group. If the caller is gone and the group is empty, the group is removed.
    fn add_subscriber(&mut self, group_id: GroupId, pending: PendingSubscriber) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let PendingSubscriber { outlet, member, slot, reply, .. } = pending;
        let outlet = self.outlets.add_subscriber(outlet);
        let handle = Subscription::new(group_id, outlet, member, self.leave_sender.clone());
        if let Err(reply) = reply.send(Ok(handle)) {
            // The caller is gone, so no subscriber is added. The handle must not report a leave.
            if let Ok(handle) = reply {
                handle.forget();
            }
            self.outlets.remove_subscribers(outlet, 1);
            if group.is_empty() {
                self.remove_group(group_id);
            }
            return;
        }
        slot.release_to_group();
        group.add_subscriber(outlet);
        self.outlets.send(outlet, OutletCommand::Join { group: group_id, member });
    }

    /// Removes a subscriber. A subscriber of a removed group is ignored.
    pub(crate) fn remove_subscriber(
        &mut self,
        group_id: GroupId,
        outlet: OutletId,
        member: Subscriber,
    ) {
        let group_id = self.groups.group_of_leaver(group_id);
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if !group.remove_subscriber(outlet) {
            debug_assert!(false, "a subscriber leaves once");
            return;
        }
        self.outlets.send(outlet, OutletCommand::Leave { group: group_id, member });
        self.outlets.remove_subscribers(outlet, 1);
        stats::subtract(&self.stats.subscribers, 1);
        if group.is_empty() {
            self.remove_group(group_id);
        }
    }

    /// Ends everything; later subscribers are refused.
    pub(crate) fn shut_down(&mut self) {
        self.is_shut_down = true;
        for trigger in self.triggers.values_mut() {
            for pending in trigger.take_pending(|_| true) {
                refuse(pending, shutting_down());
            }
        }
        for id in self.groups.ids() {
            self.end_group(id, &EndReason::Error(Box::new(shutting_down())));
        }
        for id in self.triggers.ids() {
            self.close_if_unused(id);
        }
        debug_assert!(
            self.triggers.is_empty() && self.groups.is_empty() && self.scheduler.resolutions() == 0
        );
    }

    /// True if subscribers of that group have yet to learn of a loss, with the next event.
    #[cfg(test)]
    fn has_unannounced_loss(&self, group: GroupId) -> bool {
        self.groups.get(self.groups.current(group)).is_some_and(Group::has_unannounced_loss)
    }

    /// Ends a group after the last delivery of a source that ended.
    fn end_if_drained(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(trigger) = self.triggers.get(group.trigger) else { return };
        let TriggerPhase::Ending(reason) = &trigger.phase else { return };
        // A group that waits for another source continues there, and a group that catches up has more to deliver.
        if group.is_drained() && matches!(group.phase, GroupPhase::Live) {
            let reason = reason.clone();
            self.end_group(group_id, &reason);
        }
    }

    /// Ends a group and sends the reason to all of its subscribers.
    fn end_group(&mut self, group_id: GroupId, reason: &EndReason) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let ended = group.end(reason, &mut self.outlets);
        stats::subtract(&self.stats.subscribers, ended as usize);
        self.remove_group(group_id);
    }

    fn remove_group(&mut self, group_id: GroupId) {
        self.stop_catch_up(group_id);
        let Some(group) = self.groups.remove(group_id) else { return };
        debug_assert!(group.is_empty(), "subscribers get their end before their group is removed");
        self.scheduler.release(group.resolving());
        let resolving = group.events_resolving();
        stats::subtract(&self.stats.resolving, resolving);
        stats::subtract(&self.stats.waiting, group.waiting());
        stats::add(&self.stats.dropped_group_left, resolving);
        stats::subtract(&self.stats.groups, 1);
        self.scheduler.sweep(&self.groups);
        if let Some(trigger) = self.triggers.get_mut(group.trigger) {
            trigger.detach(group_id, &group.operation);
        }
        self.close_if_unused(group.trigger);
        if let Some(target) = group.phase.moving_to() {
            self.cancel_move(group_id, target);
        }
    }

    /// Removes a trigger without groups, and its stream; a trigger that is opening stays while subscribers or groups
    /// wait for it.
    fn close_if_unused(&mut self, id: TriggerId) {
        if self.triggers.get(id).is_some_and(Trigger::is_unused) {
            self.close_reader_if_unused(id);
            self.remove_trigger(id);
            self.effects.push(Effect::Close { trigger: id });
        }
    }

    fn remove_trigger(&mut self, id: TriggerId) {
        if self.triggers.remove(id) {
            self.positions.remove(id);
            stats::subtract(&self.stats.triggers, 1);
        }
    }
}
