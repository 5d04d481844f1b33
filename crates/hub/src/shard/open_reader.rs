//! Opening and closing of side readers. A side reader is opened at a position where all of its groups can begin. It is
//! opened again further back when a group needs that, or at the oldest stored event when the broker has deleted the
//! events that they need, and closed when no group needs it.
//!
//! Subscribers that come with a cursor share one reader, which begins at the earliest of their positions. When a
//! subscriber comes from further back the reader begins again there, and the groups that have had more skip those
//! events. Groups that have fallen behind have readers of their own, see [`super::fall_behind`].

use events::{Position, SourceError, Start};
use execute::{ErrorCode, GraphqlError};

use super::client_errors::{refuse, source_error};
use super::side_reader::ReaderStream;
use super::{Effect, PendingSubscriber, Shard, TriggerId};
use crate::cursor::Resume;
use crate::{EndReason, GroupId, stats};

/// The number of attempts in a row at which the broker had deleted the first of the wanted events. After them all that
/// wait are refused: each attempt costs the broker a request.
const DELETED_ATTEMPTS_MAX: u32 = 16;

/// Returns the error for a subscriber with a time, while the reader serves subscribers with positions.
fn reader_busy() -> GraphqlError {
    let message = "The events since the time of the cursor cannot be read while other subscribers of these topics catch up; try \
         again in a moment.";
    GraphqlError::new(ErrorCode::Overloaded, message)
}

impl Shard {
    /// Opens a side reader where all that need it can begin. A reader that is open begins again.
    pub(super) fn open_reader(&mut self, id: TriggerId, index: usize) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let Some(replay) = &mut trigger.replay else { return };
        let side = replay.side(index);
        if side.stream.as_ref().is_some_and(|reader| !reader.is_open) {
            // Groups that need an earlier start are handled when it is open.
            return;
        }
        // Subscribers that wait for others to come are served along.
        side.reopening = None;
        side.waiting.retain(|pending| !pending.reply.is_closed());
        if let Some(old) = side.stream.take() {
            self.effects.push(Effect::CloseReader { trigger: id, stream_id: old.stream_id });
        }
        let Some(start) = side.start(&self.groups) else { return self.close_if_unused(id) };
        let has_time = |it: &PendingSubscriber| matches!(it.resume, Some(Resume::Since { .. }));
        if !matches!(start, Start::Since(_)) {
            for pending in side.waiting.extract_if(.., |pending| has_time(pending)) {
                refuse(pending, reader_busy());
            }
        }
        let position = match &start {
            Start::After(position) => position.clone(),
            _ => Position::default(),
        };
        let stream_id = replay.next_stream_id;
        replay.next_stream_id += 1;
        let wanted = trigger.source.read_from(start.clone());
        let reader = ReaderStream { stream_id, start, is_open: false, position, is_paused: false };
        replay.side(index).stream = Some(reader);
        stats::add(&self.stats.side_readers, 1);
        let source = trigger.source.clone();
        self.effects.push(Effect::OpenReader { trigger: id, stream_id, source, wanted });
    }

    /// Handles the provider's response to [`Effect::OpenReader`]. False if the stream is no longer wanted.
    pub(crate) fn on_reader_opened(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        result: Result<(), SourceError>,
    ) -> bool {
        let Some(replay) = self.triggers.replay_mut(id) else { return false };
        let Some(index) = replay.reader_of(stream_id) else { return false };
        let side = replay.side(index);
        let Some(reader) = &mut side.stream else { return false };
        reader.is_open = true;
        match result {
            Ok(()) if matches!(reader.start, Start::Since(_)) && !side.reading.is_empty() => {
                // Groups fell out of the ring meanwhile. The events that they need may be older than that time.
                side.gone = 0;
                self.open_reader(id, index);
                return false;
            }
            Ok(()) => {
                side.gone = 0;
                self.serve_waiting_subscribers(id, index);
            }
            Err(SourceError::Gone { provider }) => {
                self.on_reader_gone(id, index, SourceError::Gone { provider });
            }
            Err(error) => self.on_reader_failed(id, index, &source_error(&error)),
        }
        self.close_reader_if_unused(id);
        // All subscribers that waited may have left.
        self.close_if_unused(id);
        let replay = self.triggers.replay_mut(id);
        replay.is_some_and(|it| it.reader_of(stream_id).is_some())
    }

    /// Serves the subscribers that waited for a reader, which has been opened. For those, and for groups, that it does
    /// not suit it begins again.
    fn serve_waiting_subscribers(&mut self, id: TriggerId, index: usize) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        for pending in std::mem::take(&mut replay.side(index).waiting) {
            let Some(replay) = self.triggers.replay_mut(id) else { continue };
            if pending.resume.as_ref().is_some_and(|resume| replay.serves(resume)) {
                self.add_to_trigger(id, pending);
            } else {
                replay.side(index).waiting.push(pending);
            }
        }
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(index);
        if !side.serves_its_groups(&self.groups) {
            self.open_reader(id, index);
        } else if !side.waiting.is_empty() {
            self.schedule_reopen(id);
        }
    }

    /// Handles that the broker has deleted events that the earliest group or subscriber of a reader needs. A group that
    /// was live continues with the oldest stored event; another one ends, and a subscriber is refused. The others get
    /// another attempt.
    fn on_reader_gone(&mut self, id: TriggerId, index: usize, error: SourceError) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(index);
        side.stream = None;
        side.gone += 1;
        let age = |position: &Position| -> u128 {
            position
                .partition_offsets()
                .iter()
                .map(|partition_offset| u128::from(partition_offset.offset))
                .sum()
        };
        let age_of_pending = |pending: &PendingSubscriber| match &pending.resume {
            Some(Resume::After(position)) => age(position),
            Some(Resume::Since { .. }) | None => 0,
        };
        let age_of_group = |id: GroupId| self.groups.catch_up(id).map(|it| age(&it.position));
        let ages = side.waiting.iter().map(age_of_pending);
        let earliest = ages.chain(side.reading.iter().filter_map(|id| age_of_group(*id))).min();
        let limit = if side.gone >= DELETED_ATTEMPTS_MAX { Some(u128::MAX) } else { earliest };
        let is_deleted = |age: u128| limit.is_some_and(|limit| age <= limit);
        let reading = side.reading.iter().copied();
        let gone: Vec<_> = reading.filter(|id| age_of_group(*id).is_some_and(is_deleted)).collect();
        let error = source_error(&error);
        for pending in side.waiting.extract_if(.., |pending| is_deleted(age_of_pending(pending))) {
            stats::add(&self.stats.cursors_expired, 1);
            refuse(pending, error.clone());
        }
        for group_id in gone {
            match self.groups.catch_up_mut(group_id) {
                Some(catch_up) if catch_up.was_live => catch_up.from_oldest = true,
                _ => {
                    stats::add(&self.stats.cursors_expired, 1);
                    self.end_group(group_id, &EndReason::Error(Box::new(error.clone())));
                }
            }
        }
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(index);
        if side.waiting.is_empty() && side.reading.is_empty() {
            self.close_if_unused(id);
        } else {
            self.open_reader(id, index);
        }
    }

    /// Handles that a reader cannot be opened, or has ended. Subscribers and groups that need it get the error; groups
    /// that were live wait until it can be opened.
    pub(super) fn on_reader_failed(&mut self, id: TriggerId, index: usize, error: &GraphqlError) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(index);
        if let Some(reader) = side.stream.take() {
            self.effects.push(Effect::CloseReader { trigger: id, stream_id: reader.stream_id });
        }
        for pending in std::mem::take(&mut side.waiting) {
            refuse(pending, error.clone());
        }
        let reading: Vec<_> = side.reading.iter().copied().collect();
        let mut stays = false;
        for group_id in reading {
            if self.groups.catch_up(group_id).is_some_and(|it| it.was_live) {
                stays = true;
            } else {
                self.end_group(group_id, &EndReason::Error(Box::new(error.clone())));
            }
        }
        if stays && let Some(replay) = self.triggers.replay_mut(id) {
            self.reader_polls.retry(id, index, replay.side(index));
        }
        self.close_if_unused(id);
    }

    /// Closes the side readers of a trigger that no group needs.
    pub(super) fn close_reader_if_unused(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        for side in &mut replay.readers {
            if !side.is_needed()
                && let Some(reader) = side.stream.take()
            {
                self.effects.push(Effect::CloseReader { trigger: id, stream_id: reader.stream_id });
            }
        }
    }
}
