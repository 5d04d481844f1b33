//! Groups that fall behind: events of a source that can be read again come faster than a group's operation is resolved.
//!
//! Such a group is detached from the live events and catches up like one that comes with a cursor (see
//! [`super::catch_up`]): from the ring, else by a side reader at its own pace, so that the broker holds what the group
//! has no room for. It is live again when it has resolved everything, and only then may fall behind again. Between the
//! two lie as many events as may wait in a group, so a group at its limit does not change over with each event.
//!
//! Only events that the broker has deleted are lost: the group continues with the oldest stored event, and announces
//! the loss by `extensions.gap`.
//!
//! The groups of one side reader wait for the slowest of them. A group that makes others wait for a quarter of a second
//! is given another reader, of which a trigger has [`SIDE_READERS_MAX`] at most.

use super::group_phase::{CatchUp, CatchUpSource, GroupPhase};
use super::replay::Replay;
use super::side_reader::{FIRST_SLOW, SIDE_READERS_MAX, earliest};
use super::{Effect, Shard, TriggerId, TriggerPhase};
use crate::cursor::Resume;
use crate::stats;
use crate::{GroupId, LiveOperation};

/// The number of polls, 25 ms apart, at which a reader is found waiting for some of its groups before these are given
/// another reader.
const STALL_POLLS: u32 = 10;

/// The number of polls, 25 ms apart, between two attempts to open a reader for groups that have fallen behind.
const RETRY_POLLS: u32 = 40;

impl Shard {
    /// Detaches the groups that had no room for the latest event of their trigger.
    pub(super) fn detach_groups_behind(&mut self) {
        let mut behind = std::mem::take(&mut self.behind);
        for group in behind.drain(..) {
            self.detach_group(group);
        }
        // The list keeps its room for the next event.
        self.behind = behind;
    }

    /// Turns a live group into one that catches up. It was offered every event up to its trigger's position.
    fn detach_group(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let (id, moving_to) = (group.trigger, group.phase.moving_to());
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let Some(replay) = &mut trigger.replay else { return };
        let source = CatchUpSource::Ring { next: replay.next_number };
        let mut catch_up = CatchUp::new(replay.position.clone(), source);
        catch_up.was_live = true;
        group.phase = GroupPhase::CatchingUp(Box::new(catch_up));
        replay.catching_up.insert(group_id);
        trigger.detach(group_id, &group.operation);
        trigger.merge_candidates.swap_remove(&group_id);
        stats::add(&self.stats.fell_behind, 1);
        stats::add(&self.stats.catching_up, 1);
        if let Some(target) = moving_to {
            self.defer_move(group_id, target);
        }
    }

    /// Keeps a group that waits for another trigger at its own until it has caught up.
    fn defer_move(&mut self, group_id: GroupId, target: TriggerId) {
        let state = self.triggers.get_mut(target).map(|it| &mut it.phase);
        if let Some(TriggerPhase::Opening(waiting)) = state
            && let Some(at) = waiting.moving.iter().position(|(group, _)| *group == group_id)
        {
            let (_, operation) = waiting.moving.swap_remove(at);
            if let Some(catch_up) = self.groups.catch_up_mut(group_id) {
                catch_up.deferred_move = Some(Box::new(LiveOperation::clone(&operation)));
            }
        }
        self.close_if_unused(target);
    }

    /// Opens readers again after their pause.
    pub(super) fn poll_retries(&mut self) {
        for mut retry in self.reader_polls.take_retrying() {
            retry.polls += 1;
            if retry.polls < RETRY_POLLS {
                self.reader_polls.keep_retrying(retry);
                continue;
            }
            let replay = self.triggers.replay_mut(retry.trigger);
            let side = replay.and_then(|it| it.readers.get_mut(retry.reader));
            let Some(side) = side else { continue };
            side.is_retrying = false;
            if side.stream.is_none() && !side.reading.is_empty() {
                self.open_reader(retry.trigger, retry.reader);
            }
        }
    }

    /// Separates the groups of readers that have been stalled for too long.
    pub(super) fn poll_stalled_readers(&mut self) {
        for (trigger, reader) in self.reader_polls.take_stalled() {
            let replay = self.triggers.replay_mut(trigger);
            let Some(side) = replay.and_then(|it| it.readers.get_mut(reader)) else { continue };
            // A reader that is found paused most of the time has the pace of its slowest group, even if it is resumed
            // in between.
            side.stalled = match side.is_stalled() {
                true => side.stalled + 1,
                false => side.stalled.saturating_sub(1),
            };
            if side.stalled == 0 || side.stalled >= STALL_POLLS {
                side.is_watched = false;
                if side.stalled > 0 {
                    self.separate_slow_groups(trigger, reader);
                }
            } else {
                self.reader_polls.keep_stalled(trigger, reader);
            }
        }
    }

    /// Moves the groups of a reader that have no room to another reader, so that the others go on.
    fn separate_slow_groups(&mut self, id: TriggerId, from: usize) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let unused = (FIRST_SLOW..SIDE_READERS_MAX)
            .find(|&index| replay.readers.get(index).is_none_or(|it| it.reading.is_empty()));
        if unused.is_none() && from >= FIRST_SLOW {
            // All readers are taken: the slowest groups share the pace of the slowest.
            return;
        }
        let is_full = |id: &GroupId| self.groups.catch_up(*id).is_some_and(CatchUp::is_full);
        let full: Vec<_> = replay.side(from).reading.iter().copied().filter(is_full).collect();
        let of_full = full.iter().filter_map(|id| self.groups.catch_up(*id));
        let earliest = Resume::After(earliest(of_full.map(|it| &it.position)));
        let serves = |replay: &Replay, index: usize| {
            replay.readers.get(index).is_some_and(|it| it.serves(&earliest))
        };
        let to = unused
            .or_else(|| (FIRST_SLOW..SIDE_READERS_MAX).find(|&index| serves(replay, index)))
            .unwrap_or(SIDE_READERS_MAX - 1);
        for group_id in full {
            replay.side(from).reading.swap_remove(&group_id);
            replay.side(from).full -= 1;
            replay.side(to).reading.insert(group_id);
            if let Some(catch_up) = self.groups.catch_up_mut(group_id) {
                catch_up.source = CatchUpSource::Reader { index: to, is_full: false };
            }
        }
        let is_served = serves(replay, to);
        let resumed = replay.side(from).resume_if_free();
        self.effects
            .extend(resumed.map(|stream_id| Effect::ResumeReader { trigger: id, stream_id }));
        if !is_served {
            self.open_reader(id, to);
        }
    }
}
