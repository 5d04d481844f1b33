//! Side readers: streams beside a trigger's own that read older events for groups that catch up. Data only:
//! [`super::open_reader`] opens them, and [`super::reader_messages`] handles their messages.

use events::{PartitionOffset, Position, Start};
use indexmap::IndexSet;

use super::group_progress::CatchingUp;
use crate::GroupId;
use crate::cursor::Resume;
use crate::shard::pending_subscriber::PendingSubscriber;

/// The side reader of groups that came with a cursor.
pub(super) const SHARED: usize = 0;

/// The side reader of groups that have fallen behind. They have one of their own, because each subscriber that comes
/// with a cursor may make the shared reader begin again further back.
pub(super) const FALLEN_BEHIND: usize = 1;

/// The first of the side readers of slow groups, for which other groups would have to wait.
pub(super) const FIRST_SLOW: usize = 2;

/// The maximum number of side readers of one trigger. Each is a consumer at the broker.
pub(super) const SIDE_READERS_MAX: usize = 5;

/// A side reader of a trigger: its stream, and the groups that it serves.
#[derive(Default)]
pub(super) struct SideReader {
    /// The stream. `None` if it is not needed, or could not be opened and will be tried again.
    pub(super) stream: Option<ReaderStream>,
    /// The groups that it serves.
    pub(super) reading: IndexSet<GroupId, foldhash::fast::RandomState>,
    /// The number of groups in `reading` that have no room for more.
    pub(super) full: usize,
    /// Subscribers with a cursor that wait until the stream is open at a position that includes their events. Only the
    /// shared reader has any.
    pub(super) waiting: Vec<PendingSubscriber>,
    /// Set while those subscribers wait for others to come, before the stream begins again for all of them.
    pub(super) reopening: Option<ReopenDelay>,
    /// The number of attempts in a row at which the broker had deleted the first of the wanted events.
    pub(super) gone: u32,
    /// The number of polls at which the stream was paused for some of its groups while others had room.
    pub(super) stalled: u32,
    /// True if it is in the list of readers that may be stalled.
    pub(super) is_watched: bool,
    /// True if it is in the list of readers to be opened again.
    pub(super) is_retrying: bool,
}

impl SideReader {
    /// True if some groups wait only because others have no room.
    pub(super) fn is_stalled(&self) -> bool {
        let is_paused = self.stream.as_ref().is_some_and(|it| it.is_paused);
        is_paused && self.full < self.reading.len()
    }

    /// Returns where a stream begins that brings everything to all groups and waiting subscribers. `None` if there are
    /// none.
    pub(super) fn start(&self, groups: &CatchingUp) -> Option<Start> {
        let reading = self.reading.iter().filter_map(|id| groups.get(id));
        if reading.clone().any(|it| it.from_oldest) {
            return Some(Start::All);
        }
        let resumes = || self.waiting.iter().filter_map(|pending| pending.resume.as_ref());
        let waiting = resumes().filter_map(|resume| match resume {
            Resume::After(position) => Some(position),
            Resume::Since { .. } => None,
        });
        let mut positions = reading.map(|it| &it.position).chain(waiting).peekable();
        if positions.peek().is_some() {
            return Some(Start::After(earliest(positions)));
        }
        let times = resumes().filter_map(|resume| match resume {
            Resume::Since { time, .. } => Some(*time),
            Resume::After(_) => None,
        });
        times.min().map(Start::Since)
    }

    /// True if the stream begins where all of its groups can. Groups that fell out of the ring while it was opened may
    /// be further back.
    pub(super) fn serves_its_groups(&self, groups: &CatchingUp) -> bool {
        let Some(reader) = &self.stream else { return self.reading.is_empty() };
        self.reading.iter().filter_map(|id| groups.get(id)).all(|it| {
            matches!(reader.start, Start::Since(_) | Start::All)
                || is_before(&reader.position, &it.position)
        })
    }

    /// Returns the groups that have read less of a partition than the broker has deleted: the stream begins the
    /// partition with that offset.
    pub(super) fn groups_before(
        &self,
        groups: &CatchingUp,
        begin: PartitionOffset,
        was_live: bool,
    ) -> Vec<GroupId> {
        let nothing = PartitionOffset { partition: begin.partition, ..PartitionOffset::default() };
        let is_before = |id: &&GroupId| {
            let progress = groups.get(*id).filter(|it| it.was_live == was_live);
            // A group with a cursor has missed no event of a partition that its cursor does not name.
            let of_unknown = was_live.then_some(nothing);
            let reached =
                progress.and_then(|it| it.position.partition(begin.partition).or(of_unknown));
            reached.is_some_and(|reached| reached < begin)
        };
        self.reading.iter().filter(is_before).copied().collect()
    }

    /// Treats a stream that began with the oldest event like any other, once it has said where its partitions begin.
    pub(super) fn on_oldest_known(&mut self, groups: &mut CatchingUp) {
        let Some(stream) = self.stream.as_mut().filter(|it| matches!(it.start, Start::All)) else {
            return;
        };
        stream.start = Start::After(Position::default());
        for group_id in &self.reading {
            if let Some(progress) = groups.get_mut(group_id) {
                progress.from_oldest = false;
            }
        }
    }

    /// Resumes the stream if it is paused and all groups have room. Returns its number then.
    pub(super) fn resume_if_free(&mut self) -> Option<u64> {
        let stream = self.stream.as_mut().filter(|it| self.full == 0 && it.is_paused)?;
        stream.is_paused = false;
        Some(stream.stream_id)
    }

    /// True if a group, or a subscriber that waits for no other, needs the stream.
    pub(super) fn is_needed(&self) -> bool {
        !self.reading.is_empty() || (!self.waiting.is_empty() && self.reopening.is_none())
    }

    /// True if the stream is open and brings everything that `resume` asks for.
    pub(super) fn serves(&self, resume: &Resume) -> bool {
        self.stream.as_ref().is_some_and(|it| it.serves(resume))
    }
}

/// The time for which subscribers have waited for others to come, counted in polls.
#[derive(Default)]
pub(super) struct ReopenDelay {
    /// The number of polls since the first subscriber came.
    pub(super) polls: u32,
    /// The number of polls since the latest subscriber came.
    pub(super) quiet_polls: u32,
}

/// A stream that reads older events.
pub(super) struct ReaderStream {
    /// The number that distinguishes this stream from earlier ones of its trigger.
    pub(super) stream_id: u64,
    pub(super) state: ReaderState,
    /// The position or time at which it was asked to begin. Set when it takes a place among those that are opened.
    pub(super) start: Start,
    /// The position up to which it was read.
    pub(super) position: Position,
    /// True if it is not read until all of its groups have room again.
    pub(super) is_paused: bool,
}

/// The state of a stream that reads older events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReaderState {
    /// It waits for a place among the streams that are opened at a time, with this ticket.
    Waiting { ticket: u64 },
    /// The provider is opening it.
    Opening,
    /// The provider has opened it.
    Open,
}

impl ReaderStream {
    /// Creates a stream that waits for a place among those that are opened at a time.
    pub(super) fn waiting(stream_id: u64, ticket: u64) -> Self {
        Self {
            stream_id,
            state: ReaderState::Waiting { ticket },
            start: Start::default(),
            position: Position::default(),
            is_paused: false,
        }
    }

    /// True if the provider has opened it.
    pub(super) fn is_open(&self) -> bool {
        self.state == ReaderState::Open
    }

    /// True if it is open and brings everything that `resume` asks for.
    fn serves(&self, resume: &Resume) -> bool {
        self.is_open()
            && match (&self.start, resume) {
                (Start::After(_), Resume::After(position)) => is_before(&self.position, position),
                (Start::Since(begin), Resume::Since { time, .. }) => {
                    begin <= time && self.position.partition_offsets().is_empty()
                }
                _ => false,
            }
    }
}

/// True if `first` is further than `second` in no partition.
pub(super) fn is_before(first: &Position, second: &Position) -> bool {
    first.partition_offsets().iter().all(|partition_offset| {
        second.partition(partition_offset.partition).is_some_and(|other| *partition_offset <= other)
    })
}

/// Returns the position at which a stream begins that brings everything to all of `positions`.
pub(super) fn earliest<'a>(positions: impl IntoIterator<Item = &'a Position>) -> Position {
    let mut positions = positions.into_iter();
    let first = positions.next().cloned().unwrap_or_default();
    positions.fold(first, |earliest, position| {
        // A partition that one of them has not read at all is read from its begin.
        let both = earliest.partition_offsets().iter().filter_map(|partition_offset| {
            position.partition(partition_offset.partition).map(|other| other.min(*partition_offset))
        });
        both.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_begins_at_the_earliest_offset_of_all_groups_in_each_partition() {
        let all = [&[(0, 5), (1, 9)][..], &[(0, 7), (1, 3), (2, 1)], &[(0, 6), (1, 4)]];
        let position = |partition_offsets: &[(u32, u64)]| -> Position {
            partition_offsets
                .iter()
                .map(|&(partition, offset)| PartitionOffset { partition, offset, part: 0 })
                .collect()
        };
        let all = all.map(position);
        let earliest = earliest(&all);
        assert_eq!(earliest, position(&[(0, 5), (1, 3)]));
        assert!(all.iter().all(|it| is_before(&earliest, it)));
    }
}
