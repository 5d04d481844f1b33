//! The contents of a streamed response, without framing: the queue and the heartbeats that all formats have in common.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Chunks;
use crate::lazy_state::pop_or_release;

/// The queue of a streamed response, and the time of its next heartbeat.
pub struct BodyQueue {
    outgoing: VecDeque<Chunks>,
    heartbeat: Option<Duration>,
    last_sent: Instant,
    is_completed: bool,
}

impl BodyQueue {
    /// Begins a body with `first`, so that the client sees the response head before the first result. `heartbeat` is
    /// the idle time after which a heartbeat is sent; `None` sends none.
    pub(crate) fn new(first: Chunks, heartbeat: Option<Duration>, now: Instant) -> Self {
        let outgoing = VecDeque::from([first]);
        Self { outgoing, heartbeat, last_sent: now, is_completed: false }
    }

    /// Queues a part. Dropped after the end.
    pub(crate) fn push(&mut self, part: impl IntoIterator<Item = Chunks>) {
        if !self.is_completed {
            self.outgoing.extend(part);
        }
    }

    /// Ends the body.
    pub(crate) fn complete(&mut self) {
        self.is_completed = true;
    }
}

/// The contents of a streamed response, without framing.
pub trait BodyMachine {
    /// Returns the queue of the body.
    fn queue(&self) -> &BodyQueue;
    /// Returns the queue of the body, to change it.
    fn queue_mut(&mut self) -> &mut BodyQueue;
    /// Returns a heartbeat.
    fn heartbeat(&self) -> Chunks;

    /// Returns the next bytes to write.
    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        let queue = self.queue_mut();
        let chunks = pop_or_release(&mut queue.outgoing)?;
        queue.last_sent = now;
        Some(chunks)
    }

    /// Returns the time at which a heartbeat is due. The time moves back whenever something is sent; a caller may keep
    /// its timer and call [`BodyMachine::handle_timeout`] early.
    fn poll_timeout(&self) -> Option<Instant> {
        let BodyQueue { heartbeat, last_sent, is_completed, .. } = self.queue();
        if *is_completed { None } else { last_sent.checked_add((*heartbeat)?) }
    }

    /// Sends a heartbeat if one is due.
    fn handle_timeout(&mut self, now: Instant) {
        let is_due = self.poll_timeout().is_some_and(|deadline| deadline <= now);
        if is_due && self.queue().outgoing.is_empty() {
            let heartbeat = self.heartbeat();
            self.queue_mut().push([heartbeat]);
        }
    }

    /// Notes that a part was written beside the body.
    fn sent(&mut self, now: Instant) {
        self.queue_mut().last_sent = now;
    }

    /// True if the body ends once everything is written.
    fn is_finished(&self) -> bool {
        self.queue().is_completed
    }
}
