//! The phase of a group: live, about to move to another trigger, or catching up with the live events.

use super::trigger_id::TriggerId;

/// The phase of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupPhase {
    /// The group gets the live events of its trigger.
    Live,
    /// The group gets the live events of its trigger, and moves to the other trigger once that is open.
    Moving(TriggerId),
    /// The group gets older events until it has reached the position of its trigger. [`super::catch_up`] has its
    /// progress. `was_live` is false if the group came with a cursor and has not been live yet.
    CatchingUp { was_live: bool },
}

impl GroupPhase {
    /// True if the group gets older events.
    pub(super) fn is_catching_up(self) -> bool {
        matches!(self, Self::CatchingUp { .. })
    }

    /// Returns the trigger that the group waits for, to move there.
    pub(super) fn moving_to(self) -> Option<TriggerId> {
        if let Self::Moving(target) = self { Some(target) } else { None }
    }
}
