//! The side readers that the task polls: the shard has no clock, so it counts polls.

use super::side_reader::{ReopenDelay, SideReader};
use crate::shard::trigger_id::TriggerId;

/// The side readers of a shard that wait for time to pass. Entries of removed triggers are skipped.
#[derive(Default)]
pub(super) struct ReaderPolls {
    /// Side readers that wait for some of their groups while others have room.
    stalled: Vec<(TriggerId, usize)>,
    /// Side readers that could not be opened and will be tried again.
    retrying: Vec<ReaderRetry>,
    /// Triggers with subscribers that wait for the shared reader to begin again, together with others.
    reopening: Vec<TriggerId>,
}

/// A reader that could not be opened and is tried again.
pub(super) struct ReaderRetry {
    pub(super) trigger: TriggerId,
    pub(super) reader: usize,
    pub(super) polls: u32,
}

impl ReaderPolls {
    /// True if no reader waits. Otherwise the readers must be polled in a moment.
    pub(super) fn is_empty(&self) -> bool {
        self.stalled.is_empty() && self.retrying.is_empty() && self.reopening.is_empty()
    }

    /// Observes a reader that is paused though some of its groups have room for more.
    pub(super) fn watch_stalled(
        &mut self,
        trigger: TriggerId,
        reader: usize,
        side: &mut SideReader,
    ) {
        if !std::mem::replace(&mut side.is_watched, true) {
            side.stalled = 0;
            self.keep_stalled(trigger, reader);
        }
    }

    /// Polls a stalled reader again.
    pub(super) fn keep_stalled(&mut self, trigger: TriggerId, reader: usize) {
        self.stalled.push((trigger, reader));
    }

    /// Takes the stalled readers, to poll them.
    pub(super) fn take_stalled(&mut self) -> Vec<(TriggerId, usize)> {
        std::mem::take(&mut self.stalled)
    }

    /// Schedules another attempt to open a reader of groups that have fallen behind.
    pub(super) fn retry(&mut self, trigger: TriggerId, reader: usize, side: &mut SideReader) {
        if !std::mem::replace(&mut side.is_retrying, true) {
            self.keep_retrying(ReaderRetry { trigger, reader, polls: 0 });
        }
    }

    /// Polls a reader again that could not be opened.
    pub(super) fn keep_retrying(&mut self, retry: ReaderRetry) {
        self.retrying.push(retry);
    }

    /// Takes the readers that could not be opened, to poll them.
    pub(super) fn take_retrying(&mut self) -> Vec<ReaderRetry> {
        std::mem::take(&mut self.retrying)
    }

    /// Begins the delay in which subscribers wait for others, before the shared reader of a trigger begins again.
    pub(super) fn delay_reopening(&mut self, trigger: TriggerId, side: &mut SideReader) {
        side.reopening = Some(ReopenDelay::default());
        self.keep_reopening(trigger);
    }

    /// Polls the shared reader of a trigger again.
    pub(super) fn keep_reopening(&mut self, trigger: TriggerId) {
        self.reopening.push(trigger);
    }

    /// Takes the triggers with a shared reader that begins again, to poll them.
    pub(super) fn take_reopening(&mut self) -> Vec<TriggerId> {
        std::mem::take(&mut self.reopening)
    }
}
