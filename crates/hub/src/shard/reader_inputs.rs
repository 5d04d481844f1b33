//! Inputs for groups that catch up: messages of side readers, and polls of readers and of subscribers that do not keep
//! up. [`CatchUps`](super::catch_up::CatchUps) decides; the shard offers its events to the groups.

use events::{SourceError, SourceMessage};

use super::Shard;
use super::catch_up::ReaderStep;
use super::group_phase::GroupPhase;
use super::trigger_id::TriggerId;
use crate::{GroupId, LiveOperation};

impl Shard {
    /// Handles the provider's response to [`Effect::OpenReader`](super::Effect::OpenReader). Returns false if the
    /// stream is no longer wanted.
    pub(crate) fn on_reader_opened(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        result: Result<(), SourceError>,
    ) -> bool {
        for pending in self.catch_up.on_reader_opened(id, stream_id, result) {
            self.join(id, pending);
        }
        self.catch_up.complete_opening(id, stream_id);
        self.settle();
        self.catch_up.has_reader(id, stream_id)
    }

    /// Handles a message of a side reader's stream. `None` if the stream was dropped without an end.
    pub(crate) fn on_reader_message(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        message: Option<SourceMessage>,
    ) -> ReaderStep {
        if let Some(read) = self.catch_up.on_reader_message(id, stream_id, message) {
            for &group_id in &read.groups {
                let Some(group) = self.groups.get(group_id) else { continue };
                if let Some(offered) = self.catch_up.advance_group(group, &read)
                    && let Some(group) = self.groups.offer(group_id, offered)
                {
                    self.scheduler.start_all(group, &mut self.effects);
                }
                let has_room = self.groups.have_room(group_id);
                if let Some(group) = self.groups.get(group_id) {
                    self.catch_up.complete_advance(group, has_room);
                }
            }
        }
        self.settle();
        self.catch_up.reader_step(id, stream_id)
    }

    /// Polls side readers that are stalled or could not be opened, and begins shared readers again for subscribers that
    /// have waited long enough.
    pub(crate) fn poll_readers(&mut self) {
        self.catch_up.poll_readers();
        self.settle();
    }

    /// Continues with groups that waited for their subscribers or outlets, if these have room again.
    pub(crate) fn poll_backpressured(&mut self) {
        for group_id in self.groups.take_held_back() {
            self.release(group_id);
        }
        for group_id in self.catch_up.take_backpressured() {
            let has_room = self.groups.have_room(group_id);
            if let Some(group) = self.groups.get(group_id)
                && self.catch_up.record_poll(group, has_room)
            {
                self.continue_group(group_id);
            }
        }
        self.settle();
    }

    /// Makes a group live that has got everything that it missed. A move that was deferred until then follows.
    pub(super) fn make_live(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if !group.phase.is_catching_up() {
            // The signal may come twice.
            return;
        }
        group.phase = GroupPhase::Live;
        let deferred_move = self.catch_up.remove_group(group);
        if let Some(trigger) = self.triggers.get_mut(group.trigger) {
            trigger.attach_candidate(group_id, &group.operation);
        }
        if let Some(replay) = self.catch_up.replay_mut(group.trigger) {
            replay.schedule_position_update();
        }
        match deferred_move {
            Some(operation) => self.replace_operation(group_id, *operation),
            None => self.continue_group(group_id),
        }
    }

    /// Makes the groups that had no room for the latest event of their trigger catch up.
    pub(super) fn detach_groups_behind(&mut self) {
        while let Some(group_id) = self.groups.next_behind() {
            let Some(group) = self.groups.get_mut(group_id) else { continue };
            let id = group.trigger;
            if !self.catch_up.add_group_behind(id, group_id) {
                continue;
            }
            let behind = GroupPhase::CatchingUp { was_live: true };
            let phase = std::mem::replace(&mut group.phase, behind);
            if let Some(trigger) = self.triggers.get_mut(id) {
                trigger.detach(group_id, &group.operation);
                trigger.merge_candidates.swap_remove(&group_id);
            }
            // A group that waits for another trigger stays at its own until it has caught up.
            let Some(target) = phase.moving_to() else { continue };
            if let Some(operation) = self.triggers.cancel_move(group_id, target) {
                self.catch_up.defer_move(id, group_id, LiveOperation::clone(&operation));
            }
        }
    }
}
