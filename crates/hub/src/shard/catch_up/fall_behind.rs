//! Groups that fall behind: events of a source that can be read again come faster than a group's operation is resolved.
//!
//! Such a group is detached from the live events and catches up like one that comes with a cursor (see
//! [`super`]): from the ring, else by a side reader at its own pace, so that the broker holds what the group
//! has no room for. It is live again when it has resolved everything, and only then may fall behind again. Between the
//! two lie as many events as may wait in a group, so a group at its limit does not change over with each event.
//!
//! Only events that the broker has deleted are lost: the group continues with the oldest stored event, and announces
//! the loss by `extensions.gap`.
//!
//! The groups of one side reader wait for the slowest of them. A group that makes others wait for a quarter of a second
//! is given another reader, of which a trigger has [`SIDE_READERS_MAX`] at most.

use super::CatchUps;
use super::group_progress::{CatchUpSource, GroupProgress};
use super::replay::Replay;
use super::side_reader::{FIRST_SLOW, SIDE_READERS_MAX, earliest};
use crate::cursor::Resume;
use crate::shard::effect::Effect;
use crate::shard::trigger_id::TriggerId;
use crate::{GroupId, LiveOperation, stats};

/// The number of polls, 25 ms apart, at which a reader is found waiting for some of its groups before these are given
/// another reader.
const STALL_POLLS: u32 = 10;

/// The number of polls, 25 ms apart, between two attempts to open a reader for groups that have fallen behind.
const RETRY_POLLS: u32 = 40;

impl CatchUps {
    /// Adds a live group that has fallen behind. It was offered every event up to its trigger's position. Returns false
    /// if its source cannot be read again.
    pub(crate) fn add_group_behind(&mut self, id: TriggerId, group: GroupId) -> bool {
        let Some(replay) = self.replays.get_mut(&id) else { return false };
        let source = CatchUpSource::Ring { next: replay.next_number };
        let progress = GroupProgress::new(replay.position.clone(), source, true);
        replay.catching_up.insert(group, Box::new(progress));
        stats::add(&self.stats.fell_behind, 1);
        stats::add(&self.stats.catching_up, 1);
        true
    }

    /// Makes a group move to the other source of an operation when it has caught up.
    pub(crate) fn defer_move(&mut self, id: TriggerId, group: GroupId, operation: LiveOperation) {
        if let Some(progress) = self.progress_mut(id, group) {
            progress.deferred_move = Some(Box::new(operation));
        }
    }

    /// Opens readers again after their pause.
    pub(super) fn poll_retries(&mut self) {
        for mut retry in self.reader_polls.take_retrying() {
            retry.polls += 1;
            if retry.polls < RETRY_POLLS {
                self.reader_polls.keep_retrying(retry);
                continue;
            }
            let replay = self.replays.get_mut(&retry.trigger);
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
            let replay = self.replays.get_mut(&trigger);
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
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let unused = (FIRST_SLOW..SIDE_READERS_MAX)
            .find(|&index| replay.readers.get(index).is_none_or(|it| it.reading.is_empty()));
        if unused.is_none() && from >= FIRST_SLOW {
            // All readers are taken: the slowest groups share the pace of the slowest.
            return;
        }
        let groups = &replay.catching_up;
        let is_full = |id: &GroupId| groups.get(id).is_some_and(|it| it.is_full());
        let Some(side) = replay.readers.get(from) else { return };
        let full: Vec<_> = side.reading.iter().copied().filter(is_full).collect();
        let of_full = full.iter().filter_map(|id| groups.get(id));
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
            if let Some(progress) = replay.catching_up.get_mut(&group_id) {
                progress.source = CatchUpSource::Reader { index: to, is_full: false };
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
