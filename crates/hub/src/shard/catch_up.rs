//! Groups that catch up. They get older events, from the ring or by a side reader, until they have reached the position
//! of their trigger. Then they are live, and are merged with an equal group (see [`super::group_merge`]).
//!
//! A group that catches up never gets more events than it has room for, so no event is dropped: the ring waits, and the
//! side reader is paused. It does not matter when a side reader reaches the trigger's position: it serves a group until
//! the ring covers the group's position in every partition.

use std::sync::Arc;

use bindings::FilteredEvent;
use execute::{ErrorCode, GraphqlError};

use super::client_errors::refuse;
use super::group::{Group, OfferedEvent};
use super::group_phase::{CatchUp, CatchUpSource};
use super::outlets::Outlets;
use super::side_reader::{FALLEN_BEHIND, SHARED, is_before};
use super::{Shard, TriggerId, TriggerPhase};
use crate::cursor::Resume;
use crate::stats;
use crate::{EndReason, GroupId, LiveOperation};

/// The number of events from a side reader or the ring that wait in one group before it gets more. A few are enough,
/// because the resolution of an event takes longer than the handling of the next one in the shard.
pub(super) const READ_AHEAD: usize = 8;

/// The number of polls in a row, with the interval of [`super::task`] between them, at which subscribers of a group may
/// have no room. Then the group gets more events, and the policy for slow clients acts: one client that reads nothing
/// must not delay those that missed the same events. The polls amount to ten seconds, since a slow network needs some
/// to take what may wait for a client.
const FULL_POLLS_MAX: u32 = 2000;

fn source_changed() -> GraphqlError {
    let message = "the graph was replaced, and the topics of this subscription with it, before all that it \
         missed was delivered; subscribe again without a cursor";
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}

impl Group {
    /// True if its subscribers have read the events that they got, or had enough time for it.
    pub(super) fn has_room_for_more(&mut self, outlets: &Outlets) -> bool {
        let Some(catch_up) = self.phase.catch_up_mut() else { return true };
        let has_room = outlets.have_room(self.id, &self.members);
        if has_room {
            catch_up.record_room();
        }
        has_room || catch_up.full_polls >= FULL_POLLS_MAX
    }
}

impl Shard {
    /// Delivers events of the ring to a group that catches up, as far as it has room. After the last of them the group
    /// is live.
    pub(super) fn feed_from_ring(&mut self, group_id: GroupId) {
        loop {
            let Some(group) = self.groups.get_mut(group_id) else { return };
            let has_room_for_more = group.has_room_for_more(&self.outlets);
            // Several events wait only where they are resolved as a batch.
            let takes_batches = group.operation.resolve.takes_batches();
            let batch = READ_AHEAD.max(self.settings.batch_events);
            let Some(CatchUp { position, source: CatchUpSource::Ring { next }, .. }) =
                group.phase.catch_up_mut()
            else {
                return;
            };
            if group.waiting.len() >= if takes_batches { batch } else { 1 } {
                return;
            }
            let has_all = group.waiting.is_empty();
            let trigger_id = group.trigger;
            let Some(trigger) = self.triggers.get_mut(trigger_id) else { return };
            let is_over = matches!(trigger.phase, TriggerPhase::Ending(_));
            let Some(replay) = &mut trigger.replay else { return };
            if !replay.ring_covers(position) {
                return self.switch_to_reader(group_id);
            }
            let Some(entry) = replay.ring.first_from(*next) else {
                // A live event could make it drop an event that waits.
                if !has_all {
                    return;
                }
                if is_over || is_before(position, &replay.position) {
                    return self.go_live(group_id);
                }
                // The side reader was quicker than the trigger, which has yet to read events that the group has had.
                replay.ahead.insert(group_id);
                return;
            };
            if !has_room_for_more {
                return self.backpressure.wait_for_subscribers(group);
            }
            *next = entry.cursor.number + 1;
            if !position.advance(entry.cursor.partition_offset) {
                group.in_order_from = *next;
                continue;
            }
            let filter = group.operation.filter.as_deref();
            let passes = filter.is_none_or(|filter| {
                FilteredEvent::read(&entry.event.event).is_some_and(|event| filter.passes(&event))
            });
            if passes {
                let (event, cursor) = (entry.event.clone(), Some(Arc::clone(&entry.cursor)));
                let number = entry.cursor.number;
                group.offer(OfferedEvent {
                    event,
                    number,
                    cursor,
                    is_stored: self.settings.catch_up,
                });
                stats::add(&self.stats.replayed, 1);
                stats::add(&self.stats.waiting, 1);
                self.scheduler.start_all(group, &mut self.effects);
            }
        }
    }

    /// Hands a group to a side reader, because the ring no longer has the events that the group needs next.
    fn switch_to_reader(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(catch_up) = group.phase.catch_up_mut() else { return };
        let reader = if catch_up.was_live { FALLEN_BEHIND } else { SHARED };
        catch_up.source = CatchUpSource::Reader { index: reader, is_full: false };
        let id = group.trigger;
        let resume = Resume::After(catch_up.position.clone());
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(reader);
        side.reading.insert(group_id);
        if !side.serves(&resume) && !side.is_retrying {
            self.open_reader(id, reader);
        }
    }

    /// Feeds the groups that were ahead of the trigger, which has been read further.
    pub(super) fn feed_groups_ahead(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        for group in std::mem::take(&mut replay.ahead) {
            self.feed_from_ring(group);
        }
    }

    /// Makes a group live, after it has got everything that it missed.
    fn go_live(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let catch_up = group.phase.take_catch_up();
        stats::subtract(&self.stats.catching_up, usize::from(catch_up.is_some()));
        self.make_live(group_id, catch_up.and_then(|it| it.deferred_move));
    }

    /// Makes a group live that no longer catches up. A move that was deferred until then follows.
    fn make_live(&mut self, group_id: GroupId, deferred_move: Option<Box<LiveOperation>>) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(trigger) = self.triggers.get_mut(group.trigger) else { return };
        trigger.attach(group_id, &group.operation, true);
        if !trigger.is_found(group_id, &group.operation) {
            trigger.merge_candidates.insert(group_id);
        }
        if let Some(replay) = &mut trigger.replay {
            replay.catching_up.swap_remove(&group_id);
            replay.schedule_position_update();
        }
        if let Some(operation) = deferred_move {
            return self.replace_operation(group_id, *operation);
        }
        self.merge(group_id);
        self.end_if_drained(group_id);
    }

    /// Continues with a group after one of its events has ended: a group that catches up gets more if it has room, and
    /// a live group is merged with an equal one if both are at the same event.
    pub(super) fn advance_group(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let has_room_for_more = group.has_room_for_more(&self.outlets);
        match group.phase.catch_up_mut() {
            Some(CatchUp { source: CatchUpSource::Ring { .. }, .. }) => {
                return self.feed_from_ring(group_id);
            }
            Some(CatchUp { source: CatchUpSource::Reader { index, is_full }, .. }) => {
                if *is_full && group.waiting.len() < READ_AHEAD {
                    if !has_room_for_more {
                        return self.backpressure.wait_for_subscribers(group);
                    }
                    *is_full = false;
                    let (id, reader) = (group.trigger, *index);
                    if let Some(replay) = self.triggers.replay_mut(id) {
                        self.effects.extend(replay.decrement_full(id, reader));
                    }
                }
                return;
            }
            None => {}
        }
        let Some(group) = self.groups.get(group_id) else { return };
        let Some(trigger) = self.triggers.get(group.trigger) else { return };
        if trigger.merge_candidates.is_empty() {
            return;
        }
        if trigger.merge_candidates.contains(&group_id) {
            return self.merge(group_id);
        }
        let key = &group.operation.group;
        let is_candidate =
            |id: &GroupId| self.groups.get(*id).is_some_and(|it| it.operation.group == *key);
        let merge_candidates: Vec<_> =
            trigger.merge_candidates.iter().copied().filter(is_candidate).collect();
        for candidate in merge_candidates {
            self.merge(candidate);
        }
    }

    /// True if a group waits for its subscribers. Then [`Shard::poll_backpressured`] must be called in a moment:
    /// outlets do not report that they have room, since groups rarely wait for them.
    pub(crate) fn has_backpressured(&self) -> bool {
        !self.backpressure.is_empty()
    }

    /// Continues with groups that waited for their subscribers, if these have room again.
    pub(crate) fn poll_backpressured(&mut self) {
        self.release_held_back();
        for group_id in self.backpressure.take_catching_up() {
            let Some(group) = self.groups.get_mut(group_id) else { continue };
            let has_room = self.outlets.have_room(group_id, &group.members);
            if let Some(catch_up) = group.phase.catch_up_mut() {
                catch_up.is_backpressured = false;
                if has_room {
                    catch_up.record_room();
                } else {
                    catch_up.full_polls += 1;
                }
                self.advance_group(group_id);
            }
        }
    }

    /// Removes a group that ends, or moves to another trigger, from everything that makes it catch up. Returns how it
    /// did.
    pub(super) fn stop_catch_up(&mut self, group_id: GroupId) -> Option<Box<CatchUp>> {
        let group = self.groups.get_mut(group_id)?;
        let id = group.trigger;
        let (catch_up, key) = (group.phase.take_catch_up(), group.catch_up_key.take());
        let trigger = self.triggers.get_mut(id)?;
        trigger.merge_candidates.swap_remove(&group_id);
        trigger.remove_joinable_for_state(group_id, &group.operation);
        let replay = trigger.replay.as_mut()?;
        replay.remove_catch_up_key(group_id, key.as_deref());
        replay.catching_up.swap_remove(&group_id);
        replay.ahead.swap_remove(&group_id);
        if let Some(catch_up) = &catch_up {
            stats::subtract(&self.stats.catching_up, 1);
            if let CatchUpSource::Reader { index, is_full } = catch_up.source {
                replay.side(index).reading.swap_remove(&group_id);
                if is_full {
                    self.effects.extend(replay.decrement_full(id, index));
                }
            }
        }
        self.close_reader_if_unused(id);
        catch_up
    }

    /// Handles a gap in the live events: groups that catch up from the ring read the missing events with a side reader.
    pub(super) fn gap_for_catch_up_groups(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        replay.on_gap();
        let is_on_ring = |id: &GroupId| {
            self.groups
                .catch_up(*id)
                .is_some_and(|it| matches!(it.source, CatchUpSource::Ring { .. }))
        };
        let on_ring: Vec<_> = replay.catching_up.iter().copied().filter(is_on_ring).collect();
        for group in on_ring {
            self.switch_to_reader(group);
        }
    }

    /// Handles the end of a trigger's source for the groups that catch up. If it ended with an error, they and the
    /// subscribers that wait for a side reader get the error.
    pub(super) fn end_catch_up_groups(&mut self, id: TriggerId) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let TriggerPhase::Ending(reason) = &trigger.phase else { return };
        let reason = reason.clone();
        let Some(replay) = &mut trigger.replay else { return };
        let EndReason::Error(error) = &reason else {
            // They get the events that they missed, and then end like live groups.
            for group in std::mem::take(&mut replay.ahead) {
                self.feed_from_ring(group);
            }
            return;
        };
        for pending in replay.take_waiting() {
            refuse(pending, (**error).clone());
        }
        let all: Vec<_> = replay.catching_up.iter().copied().collect();
        for group_id in all {
            if self.groups.catch_up(group_id).is_some_and(|it| it.was_live) {
                // Like a live group, it delivers the events that it holds. Then it ends, or moves to another source.
                let catch_up = self.stop_catch_up(group_id);
                self.make_live(group_id, catch_up.and_then(|it| it.deferred_move));
            } else {
                self.end_group(group_id, &reason);
            }
        }
        self.close_reader_if_unused(id);
    }

    /// Replaces the operation of a group that catches up, for a new graph. False if the group does not catch up.
    pub(super) fn replace_operation_of_catch_up(
        &mut self,
        group_id: GroupId,
        operation: &LiveOperation,
    ) -> bool {
        let scope = self.scope(operation);
        let Some(group) = self.groups.get_mut(group_id) else { return false };
        let Some(catch_up) = group.phase.catch_up_mut() else { return false };
        let was_live = catch_up.was_live;
        let Some(trigger) = self.triggers.get(group.trigger) else { return false };
        // A graph between the two may have wanted a move.
        catch_up.deferred_move = None;
        if trigger.source == operation.source {
            let source = trigger.source.clone();
            group.operation = Arc::new(LiveOperation { source, ..operation.clone() });
            group.change_scope(scope);
            stats::add(&self.stats.spliced, 1);
            self.triggers.stop_joining(group);
        } else if was_live {
            // First it gets all events of the source that it leaves.
            catch_up.deferred_move = Some(Box::new(operation.clone()));
        } else {
            stats::add(&self.stats.ended_by_reload, 1);
            self.end_group(group_id, &EndReason::Error(Box::new(source_changed())));
        }
        true
    }
}
