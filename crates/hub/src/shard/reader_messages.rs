//! Messages of side readers. Their events go to the groups that they serve, and the first offset of a partition shows
//! which events the broker has deleted.

use std::sync::Arc;

use bindings::FilteredEvent;
use events::{Event, PartitionOffset, SourceError, SourceMessage, Start, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::catch_up::READ_AHEAD;
use super::client_errors::{source_end, source_error};
use super::group::OfferedEvent;
use super::group_phase::CatchUpSource;
use super::source_messages::without_payload;
use super::{Shard, TriggerId};
use crate::cursor::EventCursor;
use crate::{EndReason, GroupId, TriggerEvent, stats};

/// The next step of the task that reads a side reader's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReaderStep {
    /// It reads the next message.
    Continue,
    /// It reads no message until [`Effect::ResumeReader`](super::Effect::ResumeReader).
    Pause,
    /// It drops the stream.
    Close,
}

impl Shard {
    /// Handles a message of a side reader's stream. `None` if the stream was dropped without an end.
    pub(crate) fn on_reader_message(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        message: Option<SourceMessage>,
    ) -> ReaderStep {
        let Some(replay) = self.triggers.replay_mut(id) else { return ReaderStep::Close };
        let Some(index) = replay.reader_of(stream_id) else { return ReaderStep::Close };
        let Some(reader) = &mut replay.side(index).stream else { return ReaderStep::Close };
        let (event, partition_offset) = match message {
            Some(SourceMessage::Event(event)) => match event.partition_offset {
                Some(partition_offset) => (Some(event), partition_offset),
                None => {
                    let message = "The broker does not report the positions of its events.";
                    let error = GraphqlError::new(ErrorCode::ProviderUnavailable, message);
                    self.on_reader_failed(id, index, &error);
                    return ReaderStep::Close;
                }
            },
            Some(SourceMessage::Progress(partition_offset)) => (None, partition_offset),
            Some(SourceMessage::Gap) => {
                // Nothing is lost: a new stream reads the missing events again.
                self.open_reader(id, index);
                return ReaderStep::Close;
            }
            Some(SourceMessage::End(end)) => {
                let end = source_end(self.triggers.provider_name(id), &end);
                self.on_reader_failed(id, index, &end);
                return ReaderStep::Close;
            }
            None => {
                let end = source_end(self.triggers.provider_name(id), &StreamEnd::Closed);
                self.on_reader_failed(id, index, &end);
                return ReaderStep::Close;
            }
        };
        let is_known = reader.position.partition(partition_offset.partition).is_some();
        reader.position.advance(partition_offset);
        let is_lane_start = event.is_none() && !is_known;
        match reader.start {
            Start::Since(_) if is_lane_start => self.end_groups_before(id, index, partition_offset),
            Start::All if is_lane_start => {
                replay.side(index).announce_deleted(
                    &mut self.groups,
                    partition_offset,
                    &self.stats,
                );
                self.end_groups_before(id, index, partition_offset);
            }
            Start::All if event.is_some() => {
                replay.side(index).on_oldest_known(&mut self.groups);
            }
            _ => {}
        }
        let Some(replay) = self.triggers.replay_mut(id) else { return ReaderStep::Close };
        let reading: Vec<_> = replay.side(index).reading.iter().copied().collect();
        // The payload of an event that is too large is not delivered, so its memory is freed.
        let bytes = event.as_ref().map(|event| event.payload.len());
        let too_large = bytes.filter(|bytes| *bytes > self.settings.event_bytes_max);
        let event = event.map(|event| match too_large {
            Some(_) => Arc::new(without_payload(&event)),
            None => event,
        });
        let values = event.as_ref().and_then(FilteredEvent::read);
        for group in reading {
            self.offer_to_reading_group(
                group,
                partition_offset,
                event.as_ref().zip(Some(too_large)),
                values.as_ref(),
            );
        }
        self.close_reader_if_unused(id);
        let Some(replay) = self.triggers.replay_mut(id) else { return ReaderStep::Close };
        let side = replay.side(index);
        match side.stream.as_mut().filter(|it| it.stream_id == stream_id) {
            None => ReaderStep::Close,
            Some(reader) if side.full > 0 => {
                reader.is_paused = true;
                if side.is_stalled() {
                    self.reader_polls.watch_stalled(id, index, side);
                }
                ReaderStep::Pause
            }
            Some(_) => ReaderStep::Continue,
        }
    }

    /// Ends the groups with a position in a partition before `begin`, since the broker has deleted the events between
    /// the two. The reader began at a time, or with the oldest event, and begins the partition with that offset. Groups
    /// that were live announce a gap instead, see
    /// [`SideReader::announce_deleted`](super::side_reader::SideReader::announce_deleted).
    fn end_groups_before(&mut self, id: TriggerId, index: usize, begin: PartitionOffset) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let is_before = |group: &GroupId| {
            let catch_up = self.groups.catch_up(*group).filter(|it| !it.was_live);
            let reached = catch_up.and_then(|it| it.position.partition(begin.partition));
            reached.is_some_and(|reached| reached < begin)
        };
        let reading = replay.side(index).reading.iter().copied();
        let expired: Vec<_> = reading.filter(is_before).collect();
        stats::add(&self.stats.cursors_expired, expired.len());
        let error =
            source_error(&SourceError::Gone { provider: self.triggers.provider_name(id).into() });
        for group in expired {
            self.end_group(group, &EndReason::Error(Box::new(error.clone())));
        }
    }

    /// Advances a group to `partition_offset`, which its side reader has reached, and offers it the event that is
    /// there. Without an event, the broker had nothing for the trigger's topics up to the offset.
    fn offer_to_reading_group(
        &mut self,
        group_id: GroupId,
        partition_offset: PartitionOffset,
        event: Option<(&Arc<Event>, Option<usize>)>,
        values: Option<&FilteredEvent>,
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let id = group.trigger;
        let Some(catch_up) = group.phase.catch_up_mut() else { return };
        let is_new = catch_up.position.advance(partition_offset);
        let position = catch_up.position.clone();
        let filter = group.operation.filter.as_deref();
        let passes = || filter.is_none_or(|filter| values.is_some_and(|it| filter.passes(it)));
        if let Some((event, too_large)) = event.filter(|_| is_new && passes()) {
            let cursor = EventCursor::new(0, partition_offset, position.clone(), event.published);
            let cursor = Some(Arc::new(cursor));
            let event = TriggerEvent { event: Arc::clone(event), too_large, sharing: None };
            let is_stored = self.settings.catch_up;
            group.offer(OfferedEvent { event, number: 0, cursor, is_stored });
            stats::add(&self.stats.replayed, 1);
            stats::add(&self.stats.waiting, 1);
            self.scheduler.start_all(group, &mut self.effects);
        }
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let has_room = group.has_room_for_more(&self.outlets);
        let is_crowded = group.waiting.len() >= READ_AHEAD || !has_room;
        let Some(catch_up) = group.phase.catch_up_mut() else { return };
        let CatchUpSource::Reader { index, is_full } = &mut catch_up.source else { return };
        let index = *index;
        if replay.ring_covers(&position) {
            let was_full = *is_full;
            catch_up.source = CatchUpSource::Ring { next: replay.ring_start() };
            replay.side(index).reading.swap_remove(&group_id);
            if was_full {
                self.effects.extend(replay.decrement_full(id, index));
            }
            self.feed_from_ring(group_id);
        } else if is_crowded && !std::mem::replace(is_full, true) {
            replay.side(index).full += 1;
            if !has_room {
                self.backpressure.wait_for_subscribers(group);
            }
        }
    }
}
