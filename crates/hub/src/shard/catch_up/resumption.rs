//! Subscribers that come with a cursor.
//!
//! Such a subscriber gets a group of its own, or joins one that was made for an equal cursor and has got no event yet.
//! The group catches up: it begins in the ring if that holds everything after the cursor,
//! else with the shared side reader. A subscriber that neither of them serves waits for the side reader to begin again
//! further back ([`super::open_reader`]), together with others that come at about the same time.

use events::Position;
use execute::{ErrorCode, GraphqlError};

use super::group_progress::{CatchUpSource, GroupProgress};
use super::side_reader::SHARED;
use super::{CatchUpSignal, CatchUps};
use crate::cursor::Resume;
use crate::shard::group::Group;
use crate::shard::group_phase::GroupPhase;
use crate::shard::pending_subscriber::PendingSubscriber;
use crate::shard::trigger_id::TriggerId;
use crate::stats;

/// The number of polls of [`task`](crate::shard::task) without another subscriber after which the shared reader begins
/// again for those that wait: a tenth of a second, in which clients that have lost their connections together are back.
const REOPEN_QUIET_POLLS: u32 = 4;

/// The maximum number of polls for which subscribers wait for others: a second, also if others never cease to come.
const REOPEN_POLLS_MAX: u32 = 40;

/// Returns the error for a subscriber with a cursor, if its source cannot be read again.
fn events_not_stored() -> GraphqlError {
    let message = "The events of this subscription are not stored; subscribe without a cursor.";
    GraphqlError::new(ErrorCode::CursorExpired, message)
}

impl CatchUps {
    /// Returns the source from which a group with that cursor begins. `None`: its subscriber must wait for a side
    /// reader that begins further back.
    ///
    /// # Errors
    /// The source of the trigger cannot be read again.
    pub(crate) fn find_start(
        &self,
        id: TriggerId,
        resume: &Resume,
    ) -> Result<Option<CatchUpSource>, GraphqlError> {
        let Some(replay) = self.replays.get(&id) else {
            stats::add(&self.stats.cursors_expired, 1);
            return Err(events_not_stored());
        };
        Ok(match resume {
            Resume::After(position) if replay.ring_serves(position) => {
                stats::add(&self.stats.resumed_from_ring, 1);
                Some(CatchUpSource::Ring { next: replay.ring_start() })
            }
            resume if replay.shared_reader_serves(resume) => {
                stats::add(&self.stats.resumed_from_reader, 1);
                Some(CatchUpSource::Reader { index: SHARED, is_full: false })
            }
            _ => None,
        })
    }

    /// Makes a new group catch up from a cursor, which its subscribers have.
    pub(crate) fn add_resumed_group(
        &mut self,
        group: &mut Group,
        resume: Resume,
        source: CatchUpSource,
    ) {
        let Some(replay) = self.replays.get_mut(&group.trigger) else { return };
        if matches!(source, CatchUpSource::Reader { .. }) {
            replay.side(SHARED).reading.insert(group.id);
        }
        group.sent_version = if replay.is_at(&resume) { replay.version } else { 0 };
        group.phase = GroupPhase::CatchingUp { was_live: false };
        let position = match resume {
            Resume::After(position) => position,
            // The reader reports where the other partitions begin.
            Resume::Since { partition_offset, .. } => Position::from_iter([partition_offset]),
        };
        let progress = GroupProgress::new(position, source, false);
        replay.catching_up.insert(group.id, Box::new(progress));
        stats::add(&self.stats.catching_up, 1);
    }

    /// Makes a subscriber with a cursor wait for the shared side reader.
    pub(crate) fn wait_for_reader(&mut self, id: TriggerId, pending: PendingSubscriber) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        replay.side(SHARED).waiting.push(pending);
        self.schedule_reopen(id);
    }

    /// Begins the shared reader again for the subscribers that wait for it: at once if it is closed, else in a moment,
    /// for all that come until then.
    pub(super) fn schedule_reopen(&mut self, id: TriggerId) {
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let side = replay.side(SHARED);
        match (&mut side.reopening, &side.stream) {
            (Some(reopening), _) => reopening.quiet_polls = 0,
            (None, None) => self.open_reader(id, SHARED),
            (None, Some(reader)) if reader.is_open() => {
                self.reader_polls.delay_reopening(id, side);
            }
            // When it is open, subscribers that need an earlier start are handled.
            (None, Some(_)) => {}
        }
    }

    /// True if [`CatchUps::poll_readers`] must be called in a moment: subscribers wait for others to come, or side
    /// readers are stalled or could not be opened.
    pub(crate) fn has_readers_to_poll(&self) -> bool {
        !self.reader_polls.is_empty()
    }

    /// Begins shared readers again for subscribers that have waited long enough, and polls side readers that are
    /// stalled or could not be opened.
    pub(crate) fn poll_readers(&mut self) {
        self.poll_stalled_readers();
        self.poll_retries();
        for id in self.reader_polls.take_reopening() {
            let Some(replay) = self.replays.get_mut(&id) else { continue };
            let side = replay.side(SHARED);
            let Some(reopening) = &mut side.reopening else { continue };
            reopening.quiet_polls += 1;
            reopening.polls += 1;
            if reopening.quiet_polls < REOPEN_QUIET_POLLS && reopening.polls < REOPEN_POLLS_MAX {
                self.reader_polls.keep_reopening(id);
                continue;
            }
            side.reopening = None;
            side.waiting.retain(|pending| !pending.reply.is_closed());
            if !side.waiting.is_empty() {
                self.open_reader(id, SHARED);
            }
            self.signals.push_back(CatchUpSignal::Check(id));
        }
    }
}
