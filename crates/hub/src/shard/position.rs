//! Positions for subscribers that get no events. A filter may pass one event of a million. A subscriber that comes
//! again with the cursor of that event would have all the others read again for nothing. So from time to time the
//! members of each group are told the position of its trigger, as a cursor without a payload.
//!
//! A group is told when it is done with all events up to that position: they were delivered, kept back by its filter,
//! or announced as lost. A group with events that wait or are being resolved is told with their payloads, and so is one
//! that catches up. A group with an unannounced loss waits until an event has announced it, since a cursor beyond the
//! loss would hide it.
//!
//! Events cost nothing for it: positions have versions, and a group knows which one its members were given last. It is
//! done in rounds, of a few groups at a time ([`Shard::tell_positions`]). A trigger without news costs a round one
//! look.

use bytes::Bytes;

use super::group::Group;
use super::{Shard, State, TriggerId};
use crate::GroupId;
use crate::cursor::Scope;
use crate::filter::index::Left;
use crate::settings::LOOKS_PER_TURN;

/// How far a round is.
pub(super) struct Round {
    /// So many triggers have yet to be looked at.
    triggers: usize,
    /// The one whose groups are being looked at.
    trigger: Option<(TriggerId, Left)>,
    printed: Option<Printed>,
}

/// The latest cursor: nearly all groups of a trigger have the same.
struct Printed {
    of: (TriggerId, u64, Scope),
    cursor: Option<Bytes>,
}

impl Group {
    /// Is there nothing between it and the position of its trigger?
    fn is_even(&self) -> bool {
        // One that waits for another source comes again to that.
        self.is_drained()
            && !self.owes_news()
            && self.catching.is_none()
            && self.moving_to.is_none()
    }
}

impl Shard {
    /// Might anybody have to be told where they are?
    pub(crate) fn has_positions(&self) -> bool {
        !self.placed.is_empty()
    }

    /// About how many calls of [`Shard::tell_positions`] a round takes.
    pub(crate) fn turns_of_round(&self) -> usize {
        (self.placed.len() + self.groups.len()) / LOOKS_PER_TURN + 1
    }

    /// Goes on with a round, or begins one, and looks at some groups. False: it is over.
    pub(crate) fn tell_positions(&mut self) -> bool {
        let triggers = self.placed.len();
        let begin = || Round { triggers, trigger: None, printed: None };
        let mut round = self.round.take().unwrap_or_else(begin);
        for _ in 0..LOOKS_PER_TURN {
            let group = round.trigger.as_mut().and_then(|(id, left)| {
                let trigger = self.triggers.get(id)?;
                trigger.groups.walk(left)
            });
            if let Some(group) = group {
                self.tell(group, &mut round.printed);
                continue;
            }
            // As with groups, from the last one on: none is passed over because another one goes.
            let Some(index) = round.triggers.min(self.placed.len()).checked_sub(1) else {
                return false;
            };
            round.triggers = index;
            let id = self.placed.get_index(index).copied();
            round.trigger = id.and_then(|id| Some((id, self.groups_to_look_at(id)?)));
        }
        self.round = Some(round);
        true
    }

    /// All groups of a trigger, unless there is nothing to tell to any of them.
    fn groups_to_look_at(&mut self, id: TriggerId) -> Option<Left> {
        let trigger = self.triggers.get_mut(&id)?;
        let is_live = matches!(trigger.state, State::Live);
        let replay = trigger.replay.as_mut().filter(|_| is_live)?;
        replay.begin_look().then(|| trigger.groups.all())
    }

    /// Tells the members of a group where they are, if they do not know and it can be told.
    fn tell(&mut self, id: GroupId, printed: &mut Option<Printed>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let replay = self.triggers.get_mut(&group.trigger).and_then(|it| it.replay.as_mut());
        let (Some(replay), Some(cursors), Some(scope)) = (replay, &self.cursors, group.scope)
        else {
            return;
        };
        if group.told == replay.version {
            return;
        }
        if !group.is_even() {
            return replay.look_again();
        }
        let of = (group.trigger, replay.version, scope);
        let printed = match printed.take() {
            Some(known) if known.of == of => printed.insert(known),
            _ => {
                let cursor = replay.cursor(cursors, scope).map(Bytes::from);
                printed.insert(Printed { of, cursor })
            }
        };
        group.told = replay.version;
        if let Some(cursor) = &printed.cursor {
            group.tell(cursor, &self.outlets, &self.stats);
        }
    }

    /// Somebody in that group may not have its latest cursor.
    pub(super) fn look_again(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.told = 0;
        let replay = self.triggers.get_mut(&group.trigger).and_then(|it| it.replay.as_mut());
        if let Some(replay) = replay {
            replay.look_again();
        }
    }
}
