//! Subscribers that come with a cursor.
//!
//! Such a subscriber gets a group of its own, or joins one that was made for an equal cursor and has got no event yet.
//! The group catches up (see [`super::catch_up`]): it begins in the ring if that holds everything after the cursor,
//! else with the shared side reader. A subscriber that neither of them serves waits for the side reader to begin again
//! further back ([`super::open_reader`]), together with others that come at about the same time.

use std::sync::Arc;

use events::Position;
use execute::{ErrorCode, GraphqlError};

use super::client_errors::refuse;
use super::group::Group;
use super::group_phase::{CatchUp, CatchUpSource, GroupPhase};
use super::side_reader::SHARED;
use super::{PendingSubscriber, Shard, TriggerId};
use crate::LiveOperation;
use crate::cursor::Resume;
use crate::operation::OperationByKey;
use crate::stats;

/// The number of polls of [`super::task`] without another subscriber after which the shared reader begins again for
/// those that wait: a tenth of a second, in which clients that have lost their connections together are back.
const REOPEN_QUIET_POLLS: u32 = 4;

/// The maximum number of polls for which subscribers wait for others: a second, also if others never cease to come.
const REOPEN_POLLS_MAX: u32 = 40;

fn events_not_stored() -> GraphqlError {
    let message = "The events of this subscription are not stored; subscribe without a cursor.";
    GraphqlError::new(ErrorCode::CursorExpired, message)
}

impl Shard {
    /// Adds a subscriber that comes with a cursor to a live trigger. One without a cursor joins a group of live events.
    pub(super) fn add_to_trigger(&mut self, id: TriggerId, mut pending: PendingSubscriber) {
        let Some(trigger) = self.triggers.get_mut(id) else { return };
        let Some(resume) = pending.resume.clone() else {
            return self.add_live_subscriber(id, pending);
        };
        let Some(replay) = &mut trigger.replay else {
            stats::add(&self.stats.cursors_expired, 1);
            return refuse(pending, events_not_stored());
        };
        if pending.reply.is_closed() {
            return;
        }
        pending.operation.source = trigger.source.clone();
        let operation = Arc::new(pending.operation.clone());
        let key = (OperationByKey(Arc::clone(&operation)), resume);
        if let Some(&group) = replay.catch_up_by_key.get(&key) {
            let is_sent = replay.is_at(&key.1);
            stats::add(&self.stats.resumed_shared, 1);
            self.add_subscriber(group, pending);
            if !is_sent {
                // The group may have got a later position than this subscriber has.
                self.schedule_position_update(group);
            }
            return;
        }
        let resume = key.1;
        let source = match &resume {
            Resume::After(position) if replay.ring_serves(position) => {
                stats::add(&self.stats.resumed_from_ring, 1);
                CatchUpSource::Ring { next: replay.ring_start() }
            }
            resume if replay.shared_reader_serves(resume) => {
                stats::add(&self.stats.resumed_from_reader, 1);
                CatchUpSource::Reader { index: SHARED, is_full: false }
            }
            _ => {
                replay.side(SHARED).waiting.push(pending);
                return self.schedule_reopen(id);
            }
        };
        self.add_catch_up_group(id, operation, resume, source, pending);
    }

    /// Makes a group that catches up, with one subscriber.
    fn add_catch_up_group(
        &mut self,
        id: TriggerId,
        operation: Arc<LiveOperation>,
        resume: Resume,
        source: CatchUpSource,
        pending: PendingSubscriber,
    ) {
        let group_id = self.groups.new_id();
        let scope = self.scope(&operation);
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        replay.catching_up.insert(group_id);
        if matches!(source, CatchUpSource::Reader { .. }) {
            replay.side(SHARED).reading.insert(group_id);
        }
        let sent_version = if replay.is_at(&resume) { replay.version } else { 0 };
        let key = (OperationByKey(Arc::clone(&operation)), resume.clone());
        replay.catch_up_by_key.insert(key.clone(), group_id);
        let position = match resume {
            Resume::After(position) => position,
            // The reader reports where the other partitions begin.
            Resume::Since { partition_offset, .. } => Position::from_iter([partition_offset]),
        };
        let mut group = Group::new(group_id, id, operation, scope);
        group.sent_version = sent_version;
        group.catch_up_key = Some(Box::new(key));
        group.phase = GroupPhase::CatchingUp(Box::new(CatchUp::new(position, source)));
        self.groups.insert(group);
        stats::add(&self.stats.groups, 1);
        stats::add(&self.stats.catching_up, 1);
        self.add_subscriber(group_id, pending);
        self.feed_from_ring(group_id);
    }

    /// Begins the shared reader again for the subscribers that wait for it: at once if it is closed, else in a moment,
    /// for all that come until then.
    pub(super) fn schedule_reopen(&mut self, id: TriggerId) {
        let Some(replay) = self.triggers.replay_mut(id) else { return };
        let side = replay.side(SHARED);
        match (&mut side.reopening, &side.stream) {
            (Some(reopening), _) => reopening.quiet_polls = 0,
            (None, None) => self.open_reader(id, SHARED),
            (None, Some(reader)) if reader.is_open => {
                self.reader_polls.delay_reopening(id, side);
            }
            // When it is open, subscribers that need an earlier start are handled.
            (None, Some(_)) => {}
        }
    }

    /// True if [`Shard::poll_readers`] must be called in a moment: subscribers wait for others to come, or side
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
            let Some(replay) = self.triggers.replay_mut(id) else { continue };
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
            self.close_reader_if_unused(id);
            self.close_if_unused(id);
        }
    }
}
