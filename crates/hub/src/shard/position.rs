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
//! Positions are sent in rounds, a few groups at a time ([`Shard::send_positions`]). A trigger without a new position
//! costs a round one check.

use bindings::IndexWalk;
use bytes::Bytes;
use indexmap::IndexSet;

use super::group::Group;
use super::group_phase::GroupPhase;
use super::group_table::GroupTable;
use super::outlets::Outlets;
use super::trigger_table::TriggerTable;
use super::{Shard, TriggerId, TriggerPhase};
use crate::GroupId;
use crate::cursor::{Cursors, Scope};
use crate::settings::VISITS_PER_STEP;
use crate::stats::HubStats;

/// The triggers of a shard with positions that cursors carry, and the round that sends these to groups without events.
#[derive(Default)]
pub(super) struct PositionUpdates {
    triggers: IndexSet<TriggerId, foldhash::fast::RandomState>,
    round: Option<PositionRound>,
}

/// The progress of a round.
struct PositionRound {
    /// The number of triggers that the round has yet to visit.
    triggers: usize,
    /// The trigger that is visited, and the progress among its groups.
    trigger: Option<(TriggerId, IndexWalk)>,
    printed: Option<PrintedCursor>,
}

/// The latest printed cursor: nearly all groups of a trigger have the same.
struct PrintedCursor {
    of: (TriggerId, u64, Scope),
    cursor: Option<Bytes>,
}

/// The parts of a shard that a round needs to send positions.
struct PositionSender<'a> {
    triggers: &'a mut TriggerTable,
    groups: &'a mut GroupTable,
    outlets: &'a Outlets,
    cursors: Option<&'a Cursors>,
    stats: &'a HubStats,
}

impl Group {
    /// True if the group has had everything up to the position of its trigger.
    fn is_at_trigger_position(&self) -> bool {
        // A group that waits for another source resumes from that.
        self.is_drained() && !self.has_unannounced_loss() && matches!(self.phase, GroupPhase::Live)
    }
}

impl PositionUpdates {
    /// Adds a trigger with cursors.
    pub(super) fn add(&mut self, trigger: TriggerId) {
        self.triggers.insert(trigger);
    }

    /// Removes a trigger, if it is there.
    pub(super) fn remove(&mut self, trigger: TriggerId) {
        self.triggers.swap_remove(&trigger);
    }

    /// Continues a round, or begins one, and visits some groups. Returns false when the round is over.
    fn step(&mut self, sender: &mut PositionSender<'_>) -> bool {
        let triggers = self.triggers.len();
        let begin = || PositionRound { triggers, trigger: None, printed: None };
        let mut round = self.round.take().unwrap_or_else(begin);
        for _ in 0..VISITS_PER_STEP {
            let group = round.trigger.as_mut().and_then(|(id, left)| {
                let trigger = sender.triggers.get(*id)?;
                trigger.groups.walk(left)
            });
            if let Some(group) = group {
                sender.send_position(group, &mut round.printed);
                continue;
            }
            // As with groups, from the last one on: none is skipped because another one is removed.
            let Some(index) = round.triggers.min(self.triggers.len()).checked_sub(1) else {
                return false;
            };
            round.triggers = index;
            let id = self.triggers.get_index(index).copied();
            round.trigger = id.and_then(|id| Some((id, sender.start_group_walk(id)?)));
        }
        self.round = Some(round);
        true
    }
}

impl PositionSender<'_> {
    /// Returns a walk over all groups of a trigger. `None` if no group needs a position.
    fn start_group_walk(&mut self, id: TriggerId) -> Option<IndexWalk> {
        let trigger = self.triggers.get_mut(id)?;
        let is_live = matches!(trigger.phase, TriggerPhase::Live);
        let replay = trigger.replay.as_mut().filter(|_| is_live)?;
        replay.take_position_update().then(|| trigger.groups.all())
    }

    /// Sends its position to a group, if its subscribers do not have it and the group is at the position.
    fn send_position(&mut self, id: GroupId, printed: &mut Option<PrintedCursor>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let replay = self.triggers.replay_mut(group.trigger);
        let (Some(replay), Some(cursors), Some(scope)) = (replay, self.cursors, group.scope) else {
            return;
        };
        if group.sent_version == replay.version {
            return;
        }
        if !group.is_at_trigger_position() {
            return replay.schedule_position_update();
        }
        let of = (group.trigger, replay.version, scope);
        let printed = match printed.take() {
            Some(known) if known.of == of => printed.insert(known),
            _ => {
                let cursor = replay.cursor(cursors, scope).map(Bytes::from);
                printed.insert(PrintedCursor { of, cursor })
            }
        };
        group.sent_version = replay.version;
        if let Some(cursor) = &printed.cursor {
            group.send_position(cursor, self.outlets, self.stats);
        }
    }
}

impl Shard {
    /// True if there are triggers with positions that cursors carry.
    pub(crate) fn has_positions(&self) -> bool {
        !self.positions.triggers.is_empty()
    }

    /// Returns the approximate number of calls of [`Shard::send_positions`] in a round.
    pub(crate) fn round_steps(&self) -> usize {
        (self.positions.triggers.len() + self.groups.len()) / VISITS_PER_STEP + 1
    }

    /// Continues a round of positions, or begins one. Returns false when the round is over.
    pub(crate) fn send_positions(&mut self) -> bool {
        let Self { triggers, groups, outlets, cursors, stats, .. } = self;
        let cursors = cursors.as_deref();
        self.positions.step(&mut PositionSender { triggers, groups, outlets, cursors, stats })
    }

    /// Records that a subscriber of that group may not have the latest cursor.
    pub(super) fn schedule_position_update(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        group.sent_version = 0;
        if let Some(replay) = self.triggers.replay_mut(group.trigger) {
            replay.schedule_position_update();
        }
    }
}
