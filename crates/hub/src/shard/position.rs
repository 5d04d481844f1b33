//! Positions for subscribers that get no events. A filter may pass one event of a million. A subscriber that resumes
//! from the cursor of that event would read all the others again in vain. So the subscribers of each group regularly
//! get the position of its trigger, as a cursor without a payload.
//!
//! A group gets the position when it is done with all events up to it: they were delivered, filtered out, or announced
//! as lost. A group with events that wait or are being resolved gets its position with their payloads, and so does one
//! that catches up. A group with an unannounced loss waits until an event has announced it, since a cursor beyond the
//! loss would hide it.
//!
//! Events have no cost for it: positions have versions, and a group knows the version that its subscribers got last.
//! Positions are sent in rounds, a few groups at a time
//! ([`Shard::send_positions`](super::Shard::send_positions)). A trigger without a new position costs a round one check.
//! This file has the progress of a round, and what cursors need; the shard visits the groups.

use std::sync::Arc;

use bindings::{IndexWalk, Source};
use bytes::Bytes;
use indexmap::IndexSet;

use super::catch_up::Replay;
use super::group::Group;
use super::trigger_id::TriggerId;
use crate::LiveOperation;
use crate::cursor::{Cursors, Scope};

/// The triggers of a shard with positions that cursors carry, and the round that sends these to groups without events.
pub(super) struct PositionUpdates {
    /// The signer of cursors. `None` if payloads have no cursors.
    cursors: Option<Arc<Cursors>>,
    triggers: IndexSet<TriggerId, foldhash::fast::RandomState>,
    round: Option<PositionRound>,
}

/// The progress of a round.
struct PositionRound {
    /// The number of triggers that the round has yet to visit.
    triggers: usize,
    /// The trigger that is visited, and the progress among its groups.
    walk: Option<(TriggerId, IndexWalk)>,
    printed: Option<PrintedCursor>,
}

/// The latest printed cursor: nearly all groups of a trigger have the same.
struct PrintedCursor {
    of: (TriggerId, u64, Scope),
    cursor: Option<Bytes>,
}

impl PositionUpdates {
    /// Creates an empty set of triggers. `cursors` is `None` if payloads have no cursors.
    pub(super) fn new(cursors: Option<Arc<Cursors>>) -> Self {
        Self { cursors, triggers: IndexSet::default(), round: None }
    }

    /// Returns the signer of cursors.
    pub(super) fn cursors(&self) -> Option<&Cursors> {
        self.cursors.as_deref()
    }

    /// True if payloads of that source have cursors.
    pub(super) fn are_for(&self, source: &Source) -> bool {
        self.cursors().is_some_and(|it| it.are_for(source))
    }

    /// Returns the scope of the cursors in payloads of that operation. `None` if its payloads have no cursors.
    pub(super) fn scope(&self, operation: &LiveOperation) -> Option<Scope> {
        let LiveOperation { source, field, bound_to, .. } = operation;
        let cursors = self.cursors().filter(|it| it.are_for(source))?;
        Some(cursors.scope(field, source, bound_to))
    }

    /// Adds a trigger with cursors.
    pub(super) fn add(&mut self, trigger: TriggerId) {
        self.triggers.insert(trigger);
    }

    /// Removes a trigger, if it is there.
    pub(super) fn remove(&mut self, trigger: TriggerId) {
        self.triggers.swap_remove(&trigger);
    }

    /// Returns the number of triggers with positions.
    pub(super) fn triggers(&self) -> usize {
        self.triggers.len()
    }

    /// Returns the trigger whose groups the round visits, and the progress among them.
    pub(super) fn walk(&mut self) -> Option<(TriggerId, &mut IndexWalk)> {
        let (trigger, walk) = self.round.as_mut()?.walk.as_mut()?;
        Some((*trigger, walk))
    }

    /// Returns the next trigger of the round, which begins if there is none. `None`: the round is over.
    pub(super) fn next_trigger(&mut self) -> Option<TriggerId> {
        let triggers = self.triggers.len();
        let round = self.round.get_or_insert(PositionRound { triggers, walk: None, printed: None });
        round.walk = None;
        // As with groups, from the last one on: none is skipped because another one is removed.
        let next = round.triggers.min(triggers).checked_sub(1);
        match next {
            Some(index) => round.triggers = index,
            None => self.round = None,
        }
        self.triggers.get_index(next?).copied()
    }

    /// Begins to visit the groups of a trigger.
    pub(super) fn start_walk(&mut self, trigger: TriggerId, walk: IndexWalk) {
        if let Some(round) = &mut self.round {
            round.walk = Some((trigger, walk));
        }
    }

    /// Returns the position of a group's trigger as a cursor, if the subscribers of the group do not have it and the
    /// group is at the position. A group that is not there is visited again in the next round.
    pub(super) fn cursor_for(&mut self, group: &mut Group, replay: &mut Replay) -> Option<Bytes> {
        let (cursors, round) = (self.cursors.as_deref()?, self.round.as_mut()?);
        let scope = group.scope.filter(|_| group.sent_version != replay.version)?;
        if !group.is_at_trigger_position() {
            replay.schedule_position_update();
            return None;
        }
        group.sent_version = replay.version;
        let of = (group.trigger, replay.version, scope);
        let known = round.printed.take().filter(|known| known.of == of);
        let print = || PrintedCursor { of, cursor: replay.cursor(cursors, scope).map(Bytes::from) };
        round.printed.insert(known.unwrap_or_else(print)).cursor.clone()
    }
}
