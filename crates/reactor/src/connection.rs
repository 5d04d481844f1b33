//! What the slab holds for each connection, and how long its end may take.

use std::time::{Duration, Instant};

use wire::Machine;

use crate::Stream;
use crate::wheel::{Tick, Wheel};

/// How long a peer may take to read our last words. A live one needs a round trip.
pub(crate) const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a peer may take to hang up after them. What it still sends is read and ignored meanwhile: otherwise the
/// system answers it by a reset, which can overtake our close frame.
pub(crate) const HANG_UP_TIME_MAX: Duration = Duration::from_secs(1);

/// How much of that is taken. One that goes on sending would keep this thread busy with nothing.
pub(crate) const IGNORED_BYTES_MAX: u32 = 1 << 20;

/// How much may wait for the socket before nothing more is read of its peer: one that sends pings and never reads
/// would fill our memory with answers.
pub(crate) const WRITE_AHEAD_BYTES: usize = 64 << 10;

/// Bytes that are taken from a socket at once.
pub(crate) const READ_BYTES_MAX: u16 = 16 << 10;

/// The same of one whose bytes take long.
pub(crate) const READ_BYTES_MIN: u16 = 1 << 10;

/// How long one connection may make the others wait by what it says, but for what was read at once. Small messages, as
/// many as fit, do not take so long; those that expand a thousandfold do.
const TURN_TIME_MAX: Duration = Duration::from_millis(1);

/// One connection.
pub(crate) struct Entry<M, C> {
    pub(crate) stream: Stream,
    pub(crate) machine: M,
    pub(crate) client: C,
    /// When its entry in the wheel fires.
    pub(crate) tick: Tick,
    pub(crate) phase: Phase,
    /// Bytes that came after the end, see [`IGNORED_BYTES_MAX`].
    pub(crate) ignored: u32,
    /// How much of what its peer says is read at once, see [`Entry::has_taken`].
    pub(crate) appetite: u16,
    /// Stands in the list of those whose machine was spoken to.
    pub(crate) is_dirty: bool,
    /// Whether the socket is to be read again without an event of the system.
    pub(crate) reading: Reading,
}

/// The state of the bytes that the system has announced, which it does once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// All were read.
    Done,
    /// Some may be left, and the connection may not be read at present, see [`Entry::may_be_read`].
    Deferred,
    /// Some may be left, and the connection is in the list of those that are read in the next turn.
    Queued,
}

/// From a working connection to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Both directions work.
    Open,
    /// The machine has ended; what waits must be written until then.
    Farewell(Tick),
    /// All is written; the peer must hang up until then.
    HangUp(Tick),
    /// Nobody is there any more, or nobody who reads.
    Lost(End),
}

/// How a connection ended, as far as sockets can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its machine had nothing more to say, or the peer has gone.
    Closed,
    /// The peer was there, as far as one could tell, and took nothing of what waited for it for too long.
    Stalled,
}

impl<M: Machine, C> Entry<M, C> {
    /// False while the peer takes too little of what waits for it, and while the machine is paused.
    pub(crate) fn may_be_read(&self) -> bool {
        self.stream.unsent() < WRITE_AHEAD_BYTES && !self.machine.is_paused()
    }

    /// Notes the time that the machine took for the bytes of one read. True if that was long: other connections have
    /// their turn then, and less is read next time.
    pub(crate) fn has_taken(&mut self, time: Duration) -> bool {
        let is_long = time > TURN_TIME_MAX;
        self.appetite =
            if is_long { READ_BYTES_MIN } else { READ_BYTES_MAX.min(2 * self.appetite) };
        is_long
    }

    /// The tick of `wheel` in which something has to be done, though nothing comes. `stall_time_max`: how long a peer
    /// may take nothing at all of what waits for it.
    pub(crate) fn due(&self, wheel: &Wheel, stall_time_max: Duration) -> Option<Tick> {
        match self.phase {
            Phase::Open => {
                let stall = self.stall_deadline(stall_time_max);
                let deadline = match (self.machine.poll_timeout(), stall) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                deadline.map(|deadline| wheel.tick_of(deadline))
            }
            Phase::Farewell(until) | Phase::HangUp(until) => Some(until),
            Phase::Lost(_) => None,
        }
    }

    /// When the peer is given up, unless it takes something.
    pub(crate) fn stall_deadline(&self, stall_time_max: Duration) -> Option<Instant> {
        self.stream.stalled_since()?.checked_add(stall_time_max)
    }
}
