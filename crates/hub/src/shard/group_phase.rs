//! The phase of a group: live, about to move to another trigger, or catching up with the live events.

use events::Position;

use super::TriggerId;
use crate::LiveOperation;

/// The phase of a group.
pub(super) enum GroupPhase {
    /// The group gets the live events of its trigger.
    Live,
    /// The group gets the live events of its trigger, and moves to the other trigger once that is open.
    Moving(TriggerId),
    /// The group gets older events until it has reached the position of its trigger.
    CatchingUp(Box<CatchUp>),
}

impl GroupPhase {
    /// Returns how the group catches up, if it does.
    pub(super) fn catch_up(&self) -> Option<&CatchUp> {
        if let Self::CatchingUp(catch_up) = self { Some(catch_up) } else { None }
    }

    /// Returns how the group catches up, if it does, to change it.
    pub(super) fn catch_up_mut(&mut self) -> Option<&mut CatchUp> {
        if let Self::CatchingUp(catch_up) = self { Some(catch_up) } else { None }
    }

    /// Makes a group live that catches up, and returns how it did.
    pub(super) fn take_catch_up(&mut self) -> Option<Box<CatchUp>> {
        match std::mem::replace(self, Self::Live) {
            Self::CatchingUp(catch_up) => Some(catch_up),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the trigger that the group waits for, to move there.
    pub(super) fn moving_to(&self) -> Option<TriggerId> {
        if let Self::Moving(target) = self { Some(*target) } else { None }
    }

    /// Keeps a group at its trigger that was about to move, and returns the trigger that it waited for.
    pub(super) fn take_moving_to(&mut self) -> Option<TriggerId> {
        let target = self.moving_to()?;
        *self = Self::Live;
        Some(target)
    }

    /// True if the group moves to another trigger when it has caught up.
    pub(super) fn has_deferred_move(&self) -> bool {
        self.catch_up().is_some_and(|it| it.deferred_move.is_some())
    }
}

/// The state of a group that catches up with the live events, see [`super::catch_up`].
pub(super) struct CatchUp {
    /// The position up to which it has got the events of its source.
    pub(super) position: Position,
    pub(super) source: CatchUpSource,
    /// True if its subscribers do not keep up, and the group is in the shard's list of those that wait for them.
    pub(super) is_backpressured: bool,
    /// The number of polls in a row that found no room in its subscribers' queues. If the group was live, the number of
    /// such polls less those that found room.
    pub(super) full_polls: u32,
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

impl CatchUp {
    pub(super) fn new(position: Position, source: CatchUpSource) -> Self {
        Self {
            position,
            source,
            is_backpressured: false,
            full_polls: 0,
            was_live: false,
            from_oldest: false,
            deferred_move: None,
        }
    }

    /// True if the group has no room for more events from its side reader.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.source, CatchUpSource::Reader { is_full: true, .. })
    }

    /// Records that the subscribers have room again. In a group that was live, a subscriber that reads little at a time
    /// must not hold up the others for ever: each event that is read makes up for one poll only.
    pub(super) fn record_room(&mut self) {
        self.full_polls = if self.was_live { self.full_polls.saturating_sub(1) } else { 0 };
    }
}

/// The origin of the events that a group gets while it catches up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CatchUpSource {
    /// The trigger's ring, from that number on.
    Ring { next: u64 },
    /// The trigger's side reader with that index. `is_full` is true if the group has no room for more events from it.
    Reader { index: usize, is_full: bool },
}
