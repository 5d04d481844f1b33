//! Subscribers that come with a cursor.
//!
//! Such a subscriber is put into a group of its own, or into one that was made for an equal cursor and was given
//! nothing yet. The group catches up (see [`super::catch_up`]): it begins in the ring if that holds everything behind
//! the cursor, else with the shared side reader. A subscriber that neither of them serves waits for the side reader to
//! begin again further back ([`super::open_reader`]), together with others that come at about the same time.

use std::sync::Arc;

use events::Position;
use execute::{ErrorCode, GraphqlError};

use super::errors::refuse;
use super::group::{Catching, Group, Mode};
use super::side_reader::{Gathering, SHARED};
use super::trigger::replay_of;
use super::{Joining, Shard, TriggerId};
use crate::LiveOperation;
use crate::cursor::Resume;
use crate::operation::ByKey;
use crate::stats;

/// The number of polls of [`super::task`] without another subscriber after which the shared reader begins again for
/// those that wait: a tenth of a second, in which clients that have lost their connections together are back.
const GATHER_QUIET: u32 = 4;

/// The maximum number of polls for which subscribers wait for others: a second, also if others never cease to come.
const GATHER_MAX: u32 = 40;

fn no_replay() -> GraphqlError {
    let message = "The events of this subscription are not stored; subscribe without a cursor.";
    GraphqlError::new(ErrorCode::CursorExpired, message)
}

impl Shard {
    /// Adds a subscriber that comes with a cursor to a live trigger. One without a cursor joins a group of live events.
    pub(super) fn resume(&mut self, id: TriggerId, mut joining: Joining) {
        let Some(trigger) = self.triggers.get_mut(&id) else { return };
        let Some(resume) = joining.resume.clone() else { return self.join(id, joining) };
        let Some(replay) = &mut trigger.replay else {
            stats::add(&self.stats.cursors_expired, 1);
            return refuse(joining, no_replay());
        };
        if joining.reply.is_closed() {
            return;
        }
        joining.operation.source = trigger.source.clone();
        let operation = Arc::new(joining.operation.clone());
        let key = (ByKey(Arc::clone(&operation)), resume);
        if let Some(&group) = replay.unserved.get(&key) {
            let is_told = replay.is_at(&key.1);
            stats::add(&self.stats.resumed_shared, 1);
            self.admit(group, joining);
            if !is_told {
                // The group may have got a later position than this subscriber has.
                self.look_again(group);
            }
            return;
        }
        let resume = key.1;
        let mode = match &resume {
            Resume::After(position) if replay.ring_serves(position) => {
                stats::add(&self.stats.resumed_from_ring, 1);
                Mode::Ring { next: replay.ring_start() }
            }
            resume if replay.shared_reader_serves(resume) => {
                stats::add(&self.stats.resumed_from_reader, 1);
                Mode::Reader
            }
            _ => {
                replay.side(SHARED).waiting.push(joining);
                return self.gather(id);
            }
        };
        self.catch_up_anew(id, operation, resume, mode, joining);
    }

    /// Makes a group that catches up, with one subscriber.
    fn catch_up_anew(
        &mut self,
        id: TriggerId,
        operation: Arc<LiveOperation>,
        resume: Resume,
        mode: Mode,
        joining: Joining,
    ) {
        let group_id = self.new_group_id();
        let scope = self.scope(&operation);
        let Some(replay) = replay_of(&mut self.triggers, id) else { return };
        replay.catching.insert(group_id);
        if mode == Mode::Reader {
            replay.side(SHARED).reading.insert(group_id);
        }
        let told = if replay.is_at(&resume) { replay.version } else { 0 };
        let key = (ByKey(Arc::clone(&operation)), resume.clone());
        replay.unserved.insert(key.clone(), group_id);
        let position = match resume {
            Resume::After(position) => position,
            // The reader reports where the other lanes begin.
            Resume::Since { mark, .. } => Position::from_iter([mark]),
        };
        let mut group = Group::new(group_id, id, operation, scope);
        group.told = told;
        group.unserved = Some(Box::new(key));
        group.catching = Some(Box::new(Catching::new(position, mode)));
        self.groups.insert(group_id, Box::new(group));
        stats::add(&self.stats.groups, 1);
        stats::add(&self.stats.catching_up, 1);
        self.admit(group_id, joining);
        self.feed(group_id);
    }

    /// Begins the shared reader again for the subscribers that wait for it: at once if it is closed, else in a moment,
    /// for all that come until then.
    pub(super) fn gather(&mut self, id: TriggerId) {
        let Some(replay) = replay_of(&mut self.triggers, id) else { return };
        let side = replay.side(SHARED);
        match (&mut side.gathering, &side.stream) {
            (Some(gathering), _) => gathering.quiet = 0,
            (None, None) => self.read(id, SHARED),
            (None, Some(reader)) if reader.is_open => {
                side.gathering = Some(Gathering::default());
                self.gathering.push(id);
            }
            // When it is open, subscribers that need an earlier start are handled.
            (None, Some(_)) => {}
        }
    }

    /// True if [`Shard::look_after_gathered`] must be called in a moment: subscribers wait for others to come, or side
    /// readers are stalled or could not be opened.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.gathering.is_empty() || !self.stalled.is_empty() || !self.retrying.is_empty()
    }

    /// Begins shared readers again for subscribers that have waited long enough, and polls side readers that are
    /// stalled or could not be opened.
    pub(crate) fn look_after_gathered(&mut self) {
        self.poll_stalled_readers();
        self.poll_retries();
        for id in std::mem::take(&mut self.gathering) {
            let Some(replay) = replay_of(&mut self.triggers, id) else { continue };
            let side = replay.side(SHARED);
            let Some(gathering) = &mut side.gathering else { continue };
            gathering.quiet += 1;
            gathering.looks += 1;
            if gathering.quiet < GATHER_QUIET && gathering.looks < GATHER_MAX {
                self.gathering.push(id);
                continue;
            }
            side.gathering = None;
            side.waiting.retain(|joining| !joining.reply.is_closed());
            if !side.waiting.is_empty() {
                self.read(id, SHARED);
            }
            self.close_reader_if_unused(id);
            self.close_if_unused(id);
        }
    }
}
