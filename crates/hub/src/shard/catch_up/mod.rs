//! Catching up: groups that get older events, from the ring of their trigger or by a side reader, until they have
//! reached the position of the trigger. Then they are live, and the shard merges them with an equal group.
//!
//! A group that catches up never gets more events than it has room for, so no event is dropped: the ring waits, and the
//! side reader is paused. It does not matter when a side reader reaches the trigger's position: it serves a group until
//! the ring covers the group's position in every partition.
//!
//! This folder owns all that concerns the past of a trigger ([`replay`]): its position, its latest events ([`ring`]),
//! the groups that catch up ([`group_progress`]), and the readers beside its stream ([`side_reader`]). It knows neither
//! subscribers of groups nor outlets. Consequences for the rest of the shard are [`CatchUpSignal`]s.
//!
//! - [`resumption`]: subscribers that come with a cursor
//! - [`fall_behind`]: live groups for which events come too fast
//! - [`open_reader`], [`reader_openings`], [`reader_messages`], [`reader_polls`]: the life of a side reader

mod fall_behind;
mod group_progress;
#[cfg(test)]
mod invariants;
mod open_reader;
mod reader_messages;
mod reader_openings;
mod reader_polls;
mod replay;
mod resumption;
mod ring;
mod side_reader;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bindings::{FilteredEvent, Source};
use events::PartitionOffset;

use super::effect::Effect;
use super::group::{Group, OfferedEvent};
use super::pending_subscriber::PendingSubscriber;
use super::trigger_id::TriggerId;
use crate::cursor::{EventCursor, Resume};
use crate::event_spans::{EventSpans, EventTracer};
use crate::stats::{self, HubStats};
use crate::{EndReason, GroupId, HubSettings, LiveOperation, TriggerEvent};
use group_progress::GroupProgress;
use reader_openings::ReaderOpenings;
use reader_polls::ReaderPolls;
use side_reader::{FALLEN_BEHIND, SHARED, is_before};

pub(crate) use group_progress::CatchUpSource;
pub(crate) use reader_messages::ReaderStep;
pub(crate) use replay::Replay;
pub(crate) use ring::RingRoom;

/// The number of events from a side reader or the ring that wait in one group before it gets more. A few are enough,
/// because the resolution of an event takes longer than the handling of the next one in the shard.
const READ_AHEAD: usize = 8;

/// The number of signals for which the queue keeps its memory. Only a trigger with many groups that catch up needs more.
const SIGNALS_KEPT_MAX: usize = 1024;

/// A consequence of catching up for the rest of the shard.
pub(crate) enum CatchUpSignal {
    /// The group may get more events by [`CatchUps::next_event`].
    Continue(GroupId),
    /// The group has got everything that it missed, and becomes live.
    CaughtUp(GroupId),
    /// Events were lost before the next event of the group.
    Gap(GroupId),
    /// The group cannot catch up, and ends.
    End(GroupId, EndReason),
    /// The trigger may be unused.
    Check(TriggerId),
}

/// The result of recording an event of a trigger.
#[derive(Default)]
pub(crate) struct RecordedEvent {
    /// The position of the event. `None` if its trigger has no positions.
    pub(crate) cursor: Option<Arc<EventCursor>>,
    /// True if the live groups must announce a gap: the first events of a partition that has just appeared may have
    /// been lost.
    pub(crate) has_partition_hole: bool,
}

/// The effect of a new operation on a group that catches up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationChange {
    /// The group uses the operation from its next event on.
    Now,
    /// The group moves to the other source of the operation when it has caught up.
    Deferred,
    /// The group ends, since the operation has another source.
    Ends,
}

/// The past of the triggers with sources that can be read again, and the groups that catch up with them.
pub(crate) struct CatchUps {
    settings: HubSettings,
    ring_room: Arc<RingRoom>,
    stats: Arc<HubStats>,
    /// Records the traces of events that are read again, if any are exported.
    tracer: Option<EventTracer>,
    /// Boxed because up to half of the places in a table that doubles are empty.
    replays: HashMap<TriggerId, Box<Replay>, foldhash::fast::RandomState>,
    openings: ReaderOpenings,
    reader_polls: ReaderPolls,
    /// Groups that wait because their subscribers do not keep up. Entries of removed groups are skipped.
    backpressured: Vec<GroupId>,
    signals: VecDeque<CatchUpSignal>,
    effects: Vec<Effect>,
}

impl CatchUps {
    pub(crate) fn new(
        settings: HubSettings,
        ring_room: Arc<RingRoom>,
        stats: Arc<HubStats>,
    ) -> Self {
        Self {
            settings,
            ring_room,
            stats,
            tracer: None,
            replays: HashMap::default(),
            openings: ReaderOpenings::default(),
            reader_polls: ReaderPolls::default(),
            backpressured: Vec::new(),
            signals: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// Records the traces of the events that groups get from now on. Nothing else depends on it.
    pub(crate) fn set_tracer(&mut self, tracer: EventTracer) {
        self.tracer = Some(tracer);
    }

    /// Adds a trigger with a source that can be read again.
    pub(crate) fn add_trigger(&mut self, id: TriggerId, source: Source) {
        let replay = Replay::new(source, &self.settings, Arc::clone(&self.ring_room));
        self.replays.insert(id, Box::new(replay));
    }

    /// Removes a trigger, if it is there. It has neither groups that catch up nor subscribers that wait.
    pub(crate) fn remove_trigger(&mut self, id: TriggerId) {
        self.replays.remove(&id);
    }

    /// Returns the past of a trigger, if its source can be read again.
    pub(crate) fn replay(&self, id: TriggerId) -> Option<&Replay> {
        self.replays.get(&id).map(Box::as_ref)
    }

    /// Returns the past of a trigger to send its position, if its source can be read again.
    pub(crate) fn replay_mut(&mut self, id: TriggerId) -> Option<&mut Replay> {
        self.replays.get_mut(&id).map(Box::as_mut)
    }

    /// True if the cursor is at the current position of a trigger.
    pub(crate) fn is_at(&self, id: TriggerId, resume: &Resume) -> bool {
        self.replay(id).is_some_and(|it| it.is_at(resume))
    }

    /// True if no group of the trigger catches up, and no subscriber waits to.
    pub(crate) fn is_idle(&self, id: TriggerId) -> bool {
        self.replay(id).is_none_or(Replay::is_idle)
    }

    /// Returns the groups of a trigger that catch up.
    pub(crate) fn groups(&self, id: TriggerId) -> impl Iterator<Item = GroupId> {
        self.replay(id).into_iter().flat_map(|it| it.catching_up.keys().copied())
    }

    /// True if the stream of a side reader is wanted.
    pub(crate) fn has_reader(&self, id: TriggerId, stream_id: u64) -> bool {
        self.replay(id).is_some_and(|it| it.reader_of(stream_id).is_some())
    }

    /// Takes the next consequence for the rest of the shard.
    pub(crate) fn next_signal(&mut self) -> Option<CatchUpSignal> {
        let signal = self.signals.pop_front();
        if signal.is_none() && self.signals.capacity() > SIGNALS_KEPT_MAX {
            self.signals = VecDeque::new();
        }
        signal
    }

    /// Moves the actions for the task to `effects`.
    pub(crate) fn take_effects(&mut self, effects: &mut Vec<Effect>) {
        effects.append(&mut self.effects);
    }

    /// Records an event of a trigger; event numbers grow. `None` if the event is a repetition: the provider has
    /// reconnected, and began a little earlier.
    pub(crate) fn record_event(
        &mut self,
        id: TriggerId,
        event: &TriggerEvent,
        number: u64,
    ) -> Option<RecordedEvent> {
        let partition_offset = event.event.partition_offset;
        let replay = partition_offset.and_then(|offset| Some((offset, self.replays.get_mut(&id)?)));
        let Some((partition_offset, replay)) = replay else {
            return Some(RecordedEvent::default());
        };
        let published = event.event.published;
        let cursor = replay.record_event(event, number, partition_offset, published)?;
        self.signals.extend(replay.take_ahead().map(CatchUpSignal::Continue));
        Some(RecordedEvent {
            cursor: Some(cursor),
            has_partition_hole: replay.take_partition_hole(),
        })
    }

    /// Records that a partition of a trigger was read up to an offset. Returns true if the live groups must announce a
    /// gap, see [`RecordedEvent::has_partition_hole`].
    pub(crate) fn record_passed(&mut self, id: TriggerId, offset: PartitionOffset) -> bool {
        let Some(replay) = self.replays.get_mut(&id) else { return false };
        replay.record_passed(offset);
        self.signals.extend(replay.take_ahead().map(CatchUpSignal::Continue));
        replay.take_partition_hole()
    }

    /// Returns the next event of a group that gets events from the ring, as far as the group has room. A group that a
    /// side reader serves gets more of it instead. `has_room` is true if the subscribers of the group have read the
    /// events that they got, and `is_over` if no live event follows.
    pub(crate) fn next_event(
        &mut self,
        group: &mut Group,
        has_room: bool,
        is_over: bool,
    ) -> Option<OfferedEvent> {
        let (id, group_id, waiting) = (group.trigger, group.id, group.waiting());
        let replay = self.replays.get_mut(&id)?;
        // Several events wait only where they are resolved as a batch.
        let takes_batches = group.operation.resolve.takes_batches();
        let most = if takes_batches { READ_AHEAD.max(self.settings.batch_events) } else { 1 };
        loop {
            let progress = replay.catching_up.get_mut(&group_id)?;
            let may_get_more = progress.may_get_more(has_room);
            let next = match &mut progress.source {
                CatchUpSource::Ring { next } => *next,
                CatchUpSource::Reader { index, is_full } => {
                    if *is_full && waiting < READ_AHEAD {
                        if may_get_more {
                            *is_full = false;
                            let index = *index;
                            self.effects.extend(replay.decrement_full(id, index));
                        } else {
                            wait_for_subscribers(&mut self.backpressured, group_id, progress);
                        }
                    }
                    return None;
                }
            };
            if waiting >= most {
                return None;
            }
            let progress = replay.catching_up.get(&group_id)?;
            if !replay.ring_covers(&progress.position) {
                self.switch_to_reader(id, group_id);
                return None;
            }
            let Some(entry) = replay.ring.first_from(next) else {
                // A live event could make it drop an event that waits.
                if waiting > 0 {
                    return None;
                }
                if is_over || is_before(&progress.position, &replay.position) {
                    self.signals.push_back(CatchUpSignal::CaughtUp(group_id));
                } else {
                    // The side reader was quicker than the trigger, which has yet to read events that the group
                    // has had.
                    replay.ahead.insert(group_id);
                }
                return None;
            };
            let progress = replay.catching_up.get_mut(&group_id)?;
            if !may_get_more {
                wait_for_subscribers(&mut self.backpressured, group_id, progress);
                return None;
            }
            let number = entry.cursor.number;
            progress.source = CatchUpSource::Ring { next: number + 1 };
            if !progress.position.advance(entry.cursor.partition_offset) {
                group.in_order_from = number + 1;
                continue;
            }
            let filter = group.operation.filter.as_deref();
            let passes = filter.is_none_or(|filter| {
                FilteredEvent::read(&entry.event.event).is_some_and(|event| filter.passes(&event))
            });
            if passes {
                stats::add(&self.stats.replayed, 1);
                let (event, cursor) = (entry.event.clone(), Some(Arc::clone(&entry.cursor)));
                let is_stored = self.settings.catch_up;
                // Each group takes it at a time of its own.
                let tracer = self.tracer.as_ref();
                let spans = tracer.map(|it| EventSpans::begin_catching_up(it, &event));
                return Some(OfferedEvent { event, number, cursor, is_stored, spans });
            }
        }
    }

    /// Hands a group to a side reader, because the ring no longer has the events that the group needs next.
    fn switch_to_reader(&mut self, id: TriggerId, group_id: GroupId) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let Some(progress) = replay.catching_up.get_mut(&group_id) else { return };
        let reader = if progress.was_live { FALLEN_BEHIND } else { SHARED };
        progress.source = CatchUpSource::Reader { index: reader, is_full: false };
        let resume = Resume::After(progress.position.clone());
        let side = replay.side(reader);
        side.reading.insert(group_id);
        if !side.serves(&resume) && !side.is_retrying {
            self.open_reader(id, reader);
        }
    }

    /// True if a group waits for its subscribers. Then [`CatchUps::take_backpressured`] must be called in a moment:
    /// outlets do not report that they have room, since groups rarely wait for them.
    pub(crate) fn has_backpressured(&self) -> bool {
        !self.backpressured.is_empty()
    }

    /// Takes the groups that wait for their subscribers, to poll them.
    pub(crate) fn take_backpressured(&mut self) -> Vec<GroupId> {
        std::mem::take(&mut self.backpressured)
    }

    /// Records whether the subscribers of a group that waited for them have room now. Returns false if the group does
    /// not catch up.
    pub(crate) fn record_poll(&mut self, group: &Group, has_room: bool) -> bool {
        let Some(progress) = self.progress_mut(group.trigger, group.id) else { return false };
        progress.record_poll(has_room);
        true
    }

    /// Removes a group that ends or has caught up. Returns the operation that it moves to then.
    pub(crate) fn remove_group(&mut self, group: &Group) -> Option<Box<LiveOperation>> {
        let replay = self.replays.get_mut(&group.trigger)?;
        let (progress, effect) = replay.remove_group(group.trigger, group.id)?;
        self.effects.extend(effect);
        stats::subtract(&self.stats.catching_up, 1);
        self.signals.push_back(CatchUpSignal::Check(group.trigger));
        progress.deferred_move
    }

    /// Ends a group that cannot catch up.
    fn end_group(&mut self, id: TriggerId, group_id: GroupId, reason: EndReason) {
        let removed = self.replays.get_mut(&id).and_then(|it| it.remove_group(id, group_id));
        if let Some((_, effect)) = removed {
            self.effects.extend(effect);
            stats::subtract(&self.stats.catching_up, 1);
            self.signals.push_back(CatchUpSignal::End(group_id, reason));
        }
    }

    /// Handles a gap in the live events: groups that catch up from the ring read the missing events with a side reader.
    pub(crate) fn on_gap(&mut self, id: TriggerId) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        replay.on_gap();
        let is_on_ring =
            |progress: &GroupProgress| matches!(progress.source, CatchUpSource::Ring { .. });
        let groups = replay.catching_up.iter();
        let on_ring: Vec<_> =
            groups.filter(|(_, it)| is_on_ring(it)).map(|(group, _)| *group).collect();
        for group in on_ring {
            self.switch_to_reader(id, group);
        }
    }

    /// Handles the end of a trigger's source for the groups that catch up. If it ended with an error, they and the
    /// subscribers that wait for a side reader get the error.
    pub(crate) fn on_source_ended(&mut self, id: TriggerId, reason: &EndReason) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let EndReason::Error(error) = reason else {
            // They get the events that they missed, and then end like live groups.
            self.signals.extend(replay.take_ahead().map(CatchUpSignal::Continue));
            return;
        };
        for pending in replay.take_waiting(|_| true) {
            pending.refuse((**error).clone());
        }
        let all: Vec<_> =
            replay.catching_up.iter().map(|(group, it)| (*group, it.was_live)).collect();
        for (group, was_live) in all {
            if was_live {
                // Like a live group, it delivers the events that it holds. Then it ends, or moves to another source.
                self.signals.push_back(CatchUpSignal::CaughtUp(group));
            } else {
                self.end_group(id, group, reason.clone());
            }
        }
    }

    /// Replaces the operation of a group that catches up, for a new graph.
    pub(crate) fn replace_operation(
        &mut self,
        group: &Group,
        operation: &LiveOperation,
        has_same_source: bool,
    ) -> OperationChange {
        let Some(progress) = self.progress_mut(group.trigger, group.id) else {
            debug_assert!(false, "the group catches up");
            return OperationChange::Now;
        };
        // A graph between the two may have wanted a move.
        progress.deferred_move = None;
        if has_same_source {
            OperationChange::Now
        } else if progress.was_live {
            // First it gets all events of the source that it leaves.
            progress.deferred_move = Some(Box::new(operation.clone()));
            OperationChange::Deferred
        } else {
            OperationChange::Ends
        }
    }

    /// True if the group moves to another trigger when it has caught up.
    pub(crate) fn has_deferred_move(&self, group: &Group) -> bool {
        let progress = self.replay(group.trigger).and_then(|it| it.catching_up.get(&group.id));
        progress.is_some_and(|it| it.deferred_move.is_some())
    }

    /// Takes the subscribers that wait for a side reader, as far as `is_wanted` selects them.
    pub(crate) fn take_waiting(
        &mut self,
        id: TriggerId,
        is_wanted: impl Fn(&PendingSubscriber) -> bool,
    ) -> Vec<PendingSubscriber> {
        self.replays.get_mut(&id).map(|it| it.take_waiting(is_wanted)).unwrap_or_default()
    }

    fn progress_mut(&mut self, id: TriggerId, group: GroupId) -> Option<&mut GroupProgress> {
        self.replays.get_mut(&id)?.catching_up.get_mut(&group).map(Box::as_mut)
    }
}

/// Makes a group wait until its subscribers have read more of the events that they got.
fn wait_for_subscribers(
    backpressured: &mut Vec<GroupId>,
    group: GroupId,
    progress: &mut GroupProgress,
) {
    if !std::mem::replace(&mut progress.is_backpressured, true) {
        backpressured.push(group);
    }
}
