//! One shard: a state machine that owns its triggers and groups. Each call reports an event and returns [`Effect`]s;
//! the shard never waits, has no clock and takes no lock of its own. Tasks, streams and cores belong to [`task`], which
//! also passes the times for the traces of events. Only the traces of events that are read again begin in the shard,
//! with a time of their own that decides nothing.
//!
//! The shard is a composition of parts that do not know each other. Each owns its maps:
//!
//! - [`TriggerTable`]: triggers, by id and by source, and the live groups of each
//! - [`GroupTable`]: groups, their subscribers and outlets
//! - [`Scheduler`]: the groups that may start a resolution
//! - [`CatchUps`]: the past of triggers, the groups that catch up with it, and side readers
//! - [`PositionUpdates`]: cursors, and the rounds that send positions
//!
//! The methods of [`Shard`] pass inputs to the parts, and results of one part to another. Those with more than a few
//! lines are in files of their own: [`subscribing`], [`source_messages`], [`reader_inputs`], [`resolutions`],
//! [`group_end`] and [`graph_change`].

mod catch_up;
mod client_errors;
mod concurrency_limit;
mod effect;
mod graph_change;
mod group;
mod group_end;
mod group_merge;
mod group_phase;
mod group_table;
mod leave_sender;
mod local_resolutions;
mod outlets;
mod pending_subscriber;
mod position;
mod reader_inputs;
mod resolution;
mod resolutions;
mod scheduler;
pub(crate) mod shard_input;
mod source_messages;
mod subscribing;
pub(crate) mod task;
mod topology_view;
mod trigger;
mod trigger_id;
mod trigger_table;

#[cfg(test)]
mod catch_up_trace_tests;
#[cfg(test)]
mod fall_behind_tests;
#[cfg(test)]
mod position_tests;
#[cfg(test)]
mod resumption_pace_tests;
#[cfg(test)]
mod resumption_simulation;
#[cfg(test)]
mod resumption_tests;
#[cfg(test)]
mod scripted_stage;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod source_state_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod subgraph_source_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use execute::FetchCacheBudget;

use crate::cursor::Cursors;
use crate::event_spans::EventTracer;
use crate::settings::VISITS_PER_STEP;
use crate::stats::{HubStats, TriggerView};
use crate::{EndReason, HubSettings};
use catch_up::{CatchUpSignal, CatchUps};
pub(crate) use catch_up::{ReaderStep, RingRoom};
pub(crate) use client_errors::shutting_down;
pub(crate) use concurrency_limit::ConcurrencyLimit;
use concurrency_limit::ShardPermits;
pub(crate) use effect::Effect;
pub(crate) use group_table::GROUP_NUMBER_BITS;
use group_table::GroupTable;
pub(crate) use leave_sender::LeaveSender;
pub(crate) use outlets::OutletPlace;
pub(crate) use pending_subscriber::PendingSubscriber;
use position::PositionUpdates;
pub(crate) use resolution::{ResolutionOutcome, ResolutionWork};
use scheduler::Scheduler;
use trigger::{Trigger, TriggerPhase};
pub(crate) use trigger_id::TriggerId;
use trigger_table::TriggerTable;

/// The state of one shard.
pub(crate) struct Shard {
    settings: HubSettings,
    stats: Arc<HubStats>,
    triggers: TriggerTable,
    groups: GroupTable,
    scheduler: Scheduler,
    catch_up: CatchUps,
    positions: PositionUpdates,
    is_shut_down: bool,
    /// The generation that serves, or is about to: subscribers of an older one are refused.
    generation: u64,
    /// The time of the current input. `None` while events have no traces.
    time: Option<Instant>,
    effects: Vec<Effect>,
}

/// The state that all shards share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) stats: Arc<HubStats>,
    /// The memory for shared responses.
    pub(crate) memo_room: Arc<FetchCacheBudget>,
    pub(crate) ring_room: Arc<RingRoom>,
    pub(crate) permits: Arc<ConcurrencyLimit>,
    /// The signer of cursors. `None` if payloads have no cursors.
    pub(crate) cursors: Option<Arc<Cursors>>,
}

/// The calls that the shard needs in a moment, since it has no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeededPolls {
    /// True if there are positions that cursors carry: [`Shard::send_positions`].
    pub(crate) positions: bool,
    /// True if subscribers wait for others to come, or side readers are stalled or could not be opened:
    /// [`Shard::poll_readers`].
    pub(crate) readers: bool,
    /// True if groups wait for their subscribers or outlets: [`Shard::poll_backpressured`].
    pub(crate) backpressure: bool,
}

impl Shard {
    pub(crate) fn new(
        number: usize,
        settings: HubSettings,
        shared: Shared,
        leave_sender: LeaveSender,
    ) -> Self {
        let Shared { stats, memo_room, ring_room, permits, cursors } = shared;
        let permits = ShardPermits::new(&permits);
        Self {
            settings,
            triggers: TriggerTable::new(number, memo_room, Arc::clone(&stats)),
            groups: GroupTable::new(number, leave_sender, Arc::clone(&stats)),
            scheduler: Scheduler::new(&settings, permits, Arc::clone(&stats)),
            catch_up: CatchUps::new(settings, ring_room, Arc::clone(&stats)),
            positions: PositionUpdates::new(cursors),
            stats,
            is_shut_down: false,
            generation: 0,
            time: None,
            effects: Vec::new(),
        }
    }

    /// Sets the time of the next inputs, for the traces of events. Nothing else depends on it.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.time = Some(now);
    }

    /// Records the traces of events that are read again, from now on. Those of other events begin in the task.
    pub(crate) fn set_tracer(&mut self, tracer: EventTracer) {
        self.catch_up.set_tracer(tracer);
    }

    /// Takes the actions to perform now. Must be called after each call of any other method.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        // Any of the calls may have ended a resolution or a whole group. Queued groups start one event, or batch, in
        // turn, while permits are available.
        while let Some(entry) = self.scheduler.next_ready() {
            let Some(group) = self.groups.get_mut(entry.group) else { continue };
            if !group.has_place(entry) {
                continue;
            }
            group.queue_place = None;
            self.scheduler.start(group, &mut self.effects);
            self.continue_group(entry.group);
            self.settle();
        }
        // A reader that is not needed after all leaves its place to another one.
        while self.catch_up.open_waiting_readers() {
            self.settle();
        }
        self.scheduler.sweep(self.groups.len(), |entry| {
            self.groups.get(entry.group).is_none_or(|group| !group.has_place(entry))
        });
        self.catch_up.take_effects(&mut self.effects);
        std::mem::take(&mut self.effects)
    }

    /// Passes the signals of groups that catch up to the other parts, and closes what is no longer needed. Each input
    /// ends with it.
    fn settle(&mut self) {
        loop {
            while let Some(signal) = self.catch_up.next_signal() {
                match signal {
                    CatchUpSignal::Continue(group) => self.continue_group(group),
                    CatchUpSignal::CaughtUp(group) => self.make_live(group),
                    CatchUpSignal::Gap(group) => self.groups.record_gaps([group]),
                    CatchUpSignal::End(group, reason) => self.end_group(group, &reason),
                    CatchUpSignal::Check(trigger) => self.triggers.check_later(trigger),
                }
            }
            let Some(id) = self.triggers.next_to_check() else { return };
            self.catch_up.close_unused_readers(id);
            let is_unused = self.triggers.get(id).is_some_and(Trigger::is_unused);
            if is_unused && self.catch_up.is_idle(id) {
                self.remove_trigger(id);
                self.effects.push(Effect::Close { trigger: id });
            }
        }
    }

    /// Removes a trigger without groups.
    fn remove_trigger(&mut self, id: TriggerId) {
        self.positions.remove(id);
        self.catch_up.remove_trigger(id);
        self.triggers.remove(id);
    }

    /// Returns the calls that the shard needs in a moment.
    pub(crate) fn needed_polls(&self) -> NeededPolls {
        NeededPolls {
            positions: self.positions.triggers() > 0,
            readers: self.catch_up.has_readers_to_poll(),
            backpressure: self.catch_up.has_backpressured() || self.groups.has_held_back(),
        }
    }

    /// Continues a round of positions, or begins one. Returns the approximate number of calls in a round, or `None`
    /// when the round is over.
    pub(crate) fn send_positions(&mut self) -> Option<usize> {
        for _ in 0..VISITS_PER_STEP {
            let group = self.positions.walk().and_then(|(id, walk)| {
                let trigger = self.triggers.get(id)?;
                trigger.groups.walk(walk)
            });
            if let Some(id) = group {
                if let Some(group) = self.groups.get_mut(id)
                    && let Some(replay) = self.catch_up.replay_mut(group.trigger)
                    && let Some(cursor) = self.positions.cursor_for(group, replay)
                {
                    self.groups.send_position(id, &cursor);
                }
                continue;
            }
            let id = self.positions.next_trigger()?;
            let trigger = self.triggers.get(id).filter(|it| matches!(it.phase, TriggerPhase::Live));
            let replay = self.catch_up.replay_mut(id);
            if let Some((trigger, replay)) = trigger.zip(replay)
                && replay.take_position_update()
            {
                self.positions.start_walk(id, trigger.groups.all());
            }
        }
        Some((self.positions.triggers() + self.groups.len()) / VISITS_PER_STEP + 1)
    }

    /// Ends everything; later subscribers are refused.
    pub(crate) fn shut_down(&mut self) {
        self.is_shut_down = true;
        for id in self.triggers.ids() {
            self.refuse_pending(id, |_| true, shutting_down);
        }
        for id in self.groups.ids() {
            self.end_group(id, &EndReason::Error(Box::new(shutting_down())));
        }
        self.settle();
        debug_assert!(
            self.triggers.is_empty() && self.groups.is_empty() && self.scheduler.resolutions() == 0
        );
    }

    /// Returns the live topology, see [`topology_view`].
    pub(crate) fn topology(&self) -> Vec<TriggerView> {
        let groups_of = |id, trigger: &Trigger| {
            let groups = trigger.groups.iter().chain(self.catch_up.groups(id));
            groups.filter_map(|id| self.groups.get(id)).map(group::Group::view).collect()
        };
        topology_view::view(&self.triggers, groups_of)
    }
}
