//! The progress of one group that catches up.

use events::Position;
use indexmap::IndexMap;

use crate::{GroupId, LiveOperation};

/// The number of polls in a row, with the interval of [`task`](crate::shard::task) between them, at which subscribers
/// of a group may have no room. Then the group gets more events, and the policy for slow clients acts: one client that
/// reads nothing must not delay those that missed the same events. The polls amount to ten seconds, since a slow
/// network needs some to take what may wait for a client.
const FULL_POLLS_MAX: u32 = 2000;

/// The groups of a trigger that catch up, and their progress.
pub(super) type CatchingUp = IndexMap<GroupId, Box<GroupProgress>, foldhash::fast::RandomState>;

/// The progress of a group that catches up with the live events.
pub(super) struct GroupProgress {
    /// The position up to which the group has got the events of its source.
    pub(super) position: Position,
    pub(super) source: CatchUpSource,
    /// True if its subscribers do not keep up, and the group is in the list of those that wait for them.
    pub(super) is_backpressured: bool,
    /// The number of polls in a row that found no room in its subscribers' queues. If the group was live, the number of
    /// such polls less those that found room.
    full_polls: u32,
    /// True if the group was live and has fallen behind: its subscribers did not ask for past events, so events that
    /// the broker has deleted are announced as a gap and do not end the subscription.
    pub(super) was_live: bool,
    /// True if the broker has deleted the events that follow `position`: the reader begins with the oldest stored
    /// event.
    pub(super) from_oldest: bool,
    /// The operation of a newer graph that listens to another source. The group moves to it when it has caught up, so
    /// that it misses nothing of the source that it leaves.
    pub(super) deferred_move: Option<Box<LiveOperation>>,
}

impl GroupProgress {
    pub(super) fn new(position: Position, source: CatchUpSource, was_live: bool) -> Self {
        Self {
            position,
            source,
            is_backpressured: false,
            full_polls: 0,
            was_live,
            from_oldest: false,
            deferred_move: None,
        }
    }

    /// True if the group has no room for more events from its side reader.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.source, CatchUpSource::Reader { is_full: true, .. })
    }

    /// True if the subscribers of the group have read the events that they got, or had enough time for it.
    pub(super) fn may_get_more(&mut self, has_room: bool) -> bool {
        if has_room {
            self.record_room();
        }
        has_room || self.full_polls >= FULL_POLLS_MAX
    }

    /// Records whether a poll found room for more events in the queues of the subscribers.
    pub(super) fn record_poll(&mut self, has_room: bool) {
        self.is_backpressured = false;
        if has_room {
            self.record_room();
        } else {
            self.full_polls += 1;
        }
    }

    /// Records that the subscribers have room again. In a group that was live, a subscriber that reads little at a time
    /// must not hold up the others for ever: each event that is read makes up for one poll only.
    fn record_room(&mut self) {
        self.full_polls = if self.was_live { self.full_polls.saturating_sub(1) } else { 0 };
    }
}

/// The origin of the events that a group gets while it catches up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CatchUpSource {
    /// The trigger's ring, from that number on.
    Ring { next: u64 },
    /// The trigger's side reader with that index. `is_full` is true if the group has no room for more events from it.
    Reader { index: usize, is_full: bool },
}
