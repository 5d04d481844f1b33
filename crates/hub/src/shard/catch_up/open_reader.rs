//! Opening and closing of side readers. A side reader is opened at a position where all of its groups can begin. It is
//! opened again further back when a group needs that, or at the oldest stored event when the broker has deleted the
//! events that they need, and closed when no group needs it. A few are opened at a time ([`super::reader_openings`]).
//!
//! Subscribers that come with a cursor share one reader, which begins at the earliest of their positions. When a
//! subscriber comes from further back the reader begins again there, and the groups that have had more skip those
//! events. Groups that have fallen behind have readers of their own, see [`super::fall_behind`].

use events::{Position, SourceError, Start};
use execute::{ErrorCode, GraphqlError};

use super::side_reader::{ReaderState, ReaderStream};
use super::{CatchUpSignal, CatchUps};
use crate::cursor::Resume;
use crate::shard::client_errors::source_error;
use crate::shard::effect::Effect;
use crate::shard::pending_subscriber::PendingSubscriber;
use crate::shard::trigger_id::TriggerId;
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

impl CatchUps {
    /// Opens a side reader for all that need it, when it has a place. A reader that is open begins again.
    pub(super) fn open_reader(&mut self, id: TriggerId, index: usize) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let side = replay.side(index);
        if side.stream.as_ref().is_some_and(|reader| !reader.is_open()) {
            // Groups that need an earlier start are handled when it is open.
            return;
        }
        // Subscribers that wait for others to come are served along.
        side.reopening = None;
        side.waiting.retain(|pending| !pending.reply.is_closed());
        if let Some(old) = side.stream.take() {
            self.effects.push(Effect::CloseReader { trigger: id, stream_id: old.stream_id });
        }
        if !side.is_needed() {
            return self.signals.push_back(CatchUpSignal::Check(id));
        }
        let stream_id = replay.next_stream_id;
        replay.next_stream_id += 1;
        let ticket = self.openings.wait(replay.source.name(), id, index);
        replay.side(index).stream = Some(ReaderStream::waiting(stream_id, ticket));
        stats::add(&self.stats.readers_waiting, 1);
    }

    /// Opens side readers that wait, as far as there are places. Must be called when the consequences of an input were
    /// handled, so that readers which are no longer needed have given their places up. Returns true if there are
    /// signals to handle before the next call.
    pub(crate) fn open_waiting_readers(&mut self) -> bool {
        while let Some((id, index)) = self.openings.take_place(self.settings.readers_opening_max) {
            stats::subtract(&self.stats.readers_waiting, 1);
            self.begin_opening(id, index);
        }
        !self.signals.is_empty()
    }

    /// Opens a side reader, which has a place, where all that need it now can begin.
    fn begin_opening(&mut self, id: TriggerId, index: usize) {
        let Some(replay) = self.replays.get_mut(&id) else {
            debug_assert!(false, "a trigger is removed after its readers");
            return;
        };
        let side = replay.side(index);
        side.waiting.retain(|pending| !pending.reply.is_closed());
        let Some(start) = replay.readers[index].start(&replay.catching_up) else {
            replay.side(index).stream = None;
            self.openings.give_place_back(replay.source.name());
            return self.signals.push_back(CatchUpSignal::Check(id));
        };
        let side = replay.side(index);
        let has_time = |it: &PendingSubscriber| matches!(it.resume, Some(Resume::Since { .. }));
        if !matches!(start, Start::Since(_)) {
            for pending in side.waiting.extract_if(.., |pending| has_time(pending)) {
                pending.refuse(reader_busy());
            }
        }
        let position = match &start {
            Start::After(position) => position.clone(),
            _ => Position::default(),
        };
        let source = replay.source.clone();
        let wanted = source.read_from(start.clone());
        let Some(reader) = &mut replay.side(index).stream else {
            debug_assert!(false, "a reader that waits has a stream");
            return self.openings.give_place_back(source.name());
        };
        let stream_id = reader.stream_id;
        (reader.state, reader.start, reader.position) = (ReaderState::Opening, start, position);
        stats::add(&self.stats.side_readers, 1);
        self.effects.push(Effect::OpenReader { trigger: id, stream_id, source, wanted });
    }

    /// Handles the provider's response to [`Effect::OpenReader`]. Returns the subscribers that it serves, to add them.
    /// [`CatchUps::complete_opening`] must be called next.
    pub(crate) fn on_reader_opened(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        result: Result<(), SourceError>,
    ) -> Vec<PendingSubscriber> {
        let Some(replay) = self.replays.get_mut(&id) else { return Vec::new() };
        let Some(index) = replay.reader_of(stream_id) else { return Vec::new() };
        let is_available = !matches!(result, Err(SourceError::Unavailable { .. }));
        self.openings.note_availability(replay.source.name(), is_available);
        self.openings.give_place_back(replay.source.name());
        let side = replay.side(index);
        let Some(reader) = &mut side.stream else { return Vec::new() };
        debug_assert_eq!(reader.state, ReaderState::Opening, "a stream is opened once");
        reader.state = ReaderState::Open;
        match result {
            Ok(()) => {
                side.gone = 0;
                if matches!(reader.start, Start::Since(_)) && !side.reading.is_empty() {
                    // Groups fell out of the ring meanwhile. The events that they need may be older than that time.
                    self.open_reader(id, index);
                    return Vec::new();
                }
                let waiting = std::mem::take(&mut side.waiting);
                let is_served = |it: &PendingSubscriber| {
                    it.resume.as_ref().is_some_and(|resume| replay.serves(resume))
                };
                let (served, waiting) = waiting.into_iter().partition(is_served);
                replay.side(index).waiting = waiting;
                served
            }
            Err(SourceError::Gone { provider }) => {
                self.on_reader_gone(id, index, SourceError::Gone { provider });
                Vec::new()
            }
            Err(error) => {
                self.on_reader_failed(id, index, &source_error(&error));
                Vec::new()
            }
        }
    }

    /// Begins a reader that has been opened again further back, if it does not suit all of its groups and the
    /// subscribers that wait.
    pub(crate) fn complete_opening(&mut self, id: TriggerId, stream_id: u64) {
        // All subscribers that waited may have left.
        self.signals.push_back(CatchUpSignal::Check(id));
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let Some(index) = replay.reader_of(stream_id) else { return };
        let side = &replay.readers[index];
        if !side.serves_its_groups(&replay.catching_up) {
            self.open_reader(id, index);
        } else if !side.waiting.is_empty() {
            self.schedule_reopen(id);
        }
    }

    /// Handles that the broker has deleted events that the earliest group or subscriber of a reader needs. A group that
    /// was live continues with the oldest stored event; another one ends, and a subscriber is refused. The others get
    /// another attempt.
    fn on_reader_gone(&mut self, id: TriggerId, index: usize, error: SourceError) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        replay.side(index).stream = None;
        let side = &mut replay.readers[index];
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
        let groups = &replay.catching_up;
        let age_of_group = |id: GroupId| groups.get(&id).map(|it| age(&it.position));
        let ages = side.waiting.iter().map(age_of_pending);
        let earliest = ages.chain(side.reading.iter().filter_map(|id| age_of_group(*id))).min();
        let limit = if side.gone >= DELETED_ATTEMPTS_MAX { Some(u128::MAX) } else { earliest };
        let is_deleted = |age: u128| limit.is_some_and(|limit| age <= limit);
        let reading = side.reading.iter().copied();
        let gone: Vec<_> = reading.filter(|id| age_of_group(*id).is_some_and(is_deleted)).collect();
        let error = source_error(&error);
        for pending in side.waiting.extract_if(.., |pending| is_deleted(age_of_pending(pending))) {
            stats::add(&self.stats.cursors_expired, 1);
            pending.refuse(error.clone());
        }
        for group_id in gone {
            match self.progress_mut(id, group_id) {
                Some(progress) if progress.was_live => progress.from_oldest = true,
                _ => {
                    stats::add(&self.stats.cursors_expired, 1);
                    self.end_group(id, group_id, EndReason::Error(Box::new(error.clone())));
                }
            }
        }
        // Begins again for the others. If there are none, it stays closed.
        self.open_reader(id, index);
    }

    /// Handles that a reader cannot be opened, or has ended. Subscribers and groups that need it get the error; groups
    /// that were live wait until it can be opened.
    pub(super) fn on_reader_failed(&mut self, id: TriggerId, index: usize, error: &GraphqlError) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let side = replay.side(index);
        if let Some(reader) = side.stream.take() {
            self.effects.push(Effect::CloseReader { trigger: id, stream_id: reader.stream_id });
        }
        for pending in std::mem::take(&mut side.waiting) {
            pending.refuse(error.clone());
        }
        let reading: Vec<_> = side.reading.iter().copied().collect();
        let mut stays = false;
        for group_id in reading {
            if self.progress_mut(id, group_id).is_some_and(|it| it.was_live) {
                stays = true;
            } else {
                self.end_group(id, group_id, EndReason::Error(Box::new(error.clone())));
            }
        }
        if stays && let Some(replay) = self.replays.get_mut(&id) {
            self.reader_polls.retry(id, index, replay.side(index));
        }
        self.signals.push_back(CatchUpSignal::Check(id));
    }

    /// Closes the side readers of a trigger that no group needs. Those that are being opened or wait for it give their
    /// places up.
    pub(crate) fn close_unused_readers(&mut self, id: TriggerId) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let provider = replay.source.name();
        for side in &mut replay.readers {
            if side.is_needed() {
                continue;
            }
            let Some(reader) = side.stream.take() else { continue };
            match reader.state {
                ReaderState::Waiting { ticket } => {
                    self.openings.stop_waiting(provider, ticket);
                    stats::subtract(&self.stats.readers_waiting, 1);
                    // The task does not know it.
                    continue;
                }
                ReaderState::Opening => self.openings.give_place_back(provider),
                ReaderState::Open => {}
            }
            self.effects.push(Effect::CloseReader { trigger: id, stream_id: reader.stream_id });
        }
    }
}
