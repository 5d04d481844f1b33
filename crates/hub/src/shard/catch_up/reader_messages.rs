//! Messages of side readers. Their events go to the groups that they serve, and the first offset of a partition shows
//! which events the broker has deleted.

use std::sync::Arc;

use bindings::FilteredEvent;
use events::{PartitionOffset, SourceError, SourceMessage, Start, StreamEnd};
use execute::{ErrorCode, GraphqlError};

use super::group_progress::CatchUpSource;
use super::{CatchUpSignal, CatchUps, READ_AHEAD, wait_for_subscribers};
use crate::cursor::EventCursor;
use crate::event_spans::EventSpans;
use crate::shard::client_errors::{source_end, source_error};
use crate::shard::group::{Group, OfferedEvent};
use crate::shard::trigger_id::TriggerId;
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

/// An offset that a side reader has reached, for the groups that it serves.
pub(crate) struct ReadEvent {
    partition_offset: PartitionOffset,
    /// The event at the offset. `None` if the broker had nothing for the trigger's topics up to it.
    event: Option<TriggerEvent>,
    values: Option<FilteredEvent>,
    /// The trace of the event, if it has one: the same for all groups that the reader serves.
    spans: Option<Arc<EventSpans>>,
    /// The groups that the reader serves.
    pub(crate) groups: Vec<GroupId>,
}

impl CatchUps {
    /// Handles a message of a side reader's stream. `None` if the stream was dropped without an end. Returns the offset
    /// that the reader has reached; [`CatchUps::advance_group`] passes it to each group. `None` if the stream is no
    /// longer wanted.
    pub(crate) fn on_reader_message(
        &mut self,
        id: TriggerId,
        stream_id: u64,
        message: Option<SourceMessage>,
    ) -> Option<ReadEvent> {
        let replay = self.replays.get_mut(&id)?;
        let index = replay.reader_of(stream_id)?;
        let (event, partition_offset) = match message {
            Some(SourceMessage::Event(event)) => match event.partition_offset {
                Some(partition_offset) => (Some(event), partition_offset),
                None => {
                    let message = "The broker does not report the positions of its events.";
                    let error = GraphqlError::new(ErrorCode::ProviderUnavailable, message);
                    self.on_reader_failed(id, index, &error);
                    return None;
                }
            },
            Some(SourceMessage::Progress(partition_offset)) => (None, partition_offset),
            Some(SourceMessage::Gap) => {
                // Nothing is lost: a new stream reads the missing events again.
                self.open_reader(id, index);
                return None;
            }
            Some(SourceMessage::End(end)) => {
                let end = source_end(replay.provider_name(), &end);
                self.on_reader_failed(id, index, &end);
                return None;
            }
            None => {
                let end = source_end(replay.provider_name(), &StreamEnd::Closed);
                self.on_reader_failed(id, index, &end);
                return None;
            }
        };
        self.record_offset(id, index, partition_offset, event.is_some());
        let replay = self.replays.get_mut(&id)?;
        let groups = replay.side(index).reading.iter().copied().collect();
        let event = event.map(|event| TriggerEvent::new(event, self.settings.event_bytes_max));
        let values = event.as_ref().and_then(|it| FilteredEvent::read(&it.event));
        let traced = event.as_ref().zip(self.tracer.as_ref());
        let spans = traced.map(|(event, tracer)| EventSpans::begin_catching_up(tracer, event));
        Some(ReadEvent { partition_offset, event, values, spans, groups })
    }

    /// Records that a side reader has reached an offset, and handles the events that the broker has deleted before it.
    fn record_offset(
        &mut self,
        id: TriggerId,
        index: usize,
        partition_offset: PartitionOffset,
        has_event: bool,
    ) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let side = replay.side(index);
        let Some(reader) = &mut side.stream else { return };
        let is_known = reader.position.partition(partition_offset.partition).is_some();
        reader.position.advance(partition_offset);
        let is_partition_start = !has_event && !is_known;
        match reader.start {
            Start::Since(_) if is_partition_start => {
                self.end_groups_before(id, index, partition_offset);
            }
            Start::All if is_partition_start => {
                // Groups that were live announce a gap.
                let side = &replay.readers[index];
                let groups = side.groups_before(&replay.catching_up, partition_offset, true);
                stats::add(&self.stats.outrun, groups.len());
                self.signals.extend(groups.into_iter().map(CatchUpSignal::Gap));
                self.end_groups_before(id, index, partition_offset);
            }
            Start::All if has_event => {
                replay.readers[index].on_oldest_known(&mut replay.catching_up);
            }
            _ => {}
        }
    }

    /// Ends the groups with a position in a partition before `begin`, since the broker has deleted the events between
    /// the two. The reader began at a time, or with the oldest event, and begins the partition with that offset. Groups
    /// that were live announce a gap instead.
    fn end_groups_before(&mut self, id: TriggerId, index: usize, begin: PartitionOffset) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let expired = replay.readers[index].groups_before(&replay.catching_up, begin, false);
        stats::add(&self.stats.cursors_expired, expired.len());
        let provider = replay.provider_name().into();
        let error = source_error(&SourceError::Gone { provider });
        for group in expired {
            self.end_group(id, group, EndReason::Error(Box::new(error.clone())));
        }
    }

    /// Advances a group to the offset that its side reader has reached. Returns the event that is there, if it is for
    /// the group. [`CatchUps::complete_advance`] must be called when the event was offered to the group.
    pub(crate) fn advance_group(
        &mut self,
        group: &Group,
        read: &ReadEvent,
    ) -> Option<OfferedEvent> {
        let is_stored = self.settings.catch_up;
        let progress = self.progress_mut(group.trigger, group.id)?;
        let is_new = progress.position.advance(read.partition_offset);
        let event = read.event.as_ref().filter(|_| is_new)?;
        let filter = group.operation.filter.as_deref();
        if filter.is_some_and(|it| !read.values.as_ref().is_some_and(|values| it.passes(values))) {
            return None;
        }
        let (offset, position) = (read.partition_offset, progress.position.clone());
        let cursor = EventCursor::new(0, offset, position, event.event.published);
        stats::add(&self.stats.replayed, 1);
        Some(OfferedEvent {
            event: event.clone(),
            number: 0,
            cursor: Some(Arc::new(cursor)),
            is_stored,
            spans: read.spans.clone(),
        })
    }

    /// Continues with a group that was advanced: from the ring, if that has all the rest, or by the side reader, which
    /// waits if the group has no room. `has_room` is true if its subscribers have read the events that they got.
    pub(crate) fn complete_advance(&mut self, group: &Group, has_room: bool) {
        let (id, group_id) = (group.trigger, group.id);
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let Some(progress) = replay.catching_up.get_mut(&group_id) else { return };
        let may_get_more = progress.may_get_more(has_room);
        let is_crowded = group.waiting() >= READ_AHEAD || !may_get_more;
        let source = progress.source;
        let CatchUpSource::Reader { index, is_full } = source else { return };
        if replay.ring_covers(&replay.catching_up[&group_id].position) {
            let next = replay.ring_start();
            replay.catching_up[&group_id].source = CatchUpSource::Ring { next };
            self.effects.extend(replay.leave_reader(id, group_id, source));
            self.signals.push_back(CatchUpSignal::Continue(group_id));
        } else if is_crowded && !is_full {
            replay.side(index).full += 1;
            let progress = &mut replay.catching_up[&group_id];
            progress.source = CatchUpSource::Reader { index, is_full: true };
            if !may_get_more {
                wait_for_subscribers(&mut self.backpressured, group_id, progress);
            }
        }
    }

    /// Returns the next step of the task after a message of a side reader, when all of its groups have been advanced.
    pub(crate) fn reader_step(&mut self, id: TriggerId, stream_id: u64) -> ReaderStep {
        self.close_unused_readers(id);
        let Some(replay) = self.replays.get_mut(&id) else { return ReaderStep::Close };
        let Some(index) = replay.reader_of(stream_id) else { return ReaderStep::Close };
        let side = replay.side(index);
        let Some(reader) = &mut side.stream else { return ReaderStep::Close };
        if side.full == 0 {
            return ReaderStep::Continue;
        }
        reader.is_paused = true;
        if side.is_stalled() {
            self.reader_polls.watch_stalled(id, index, side);
        }
        ReaderStep::Pause
    }
}
