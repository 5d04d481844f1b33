//! What the slab holds for each connection, and how long its end may take.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use wire::connection::{Connection, Protocol};

use crate::outgoing::Outgoing;
use crate::wheel::Tick;

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

/// One connection.
pub(crate) struct Entry<P, C> {
    pub(crate) socket: OwnedFd,
    pub(crate) machine: Connection<P>,
    pub(crate) client: C,
    /// Only a connection whose socket is full has any.
    pub(crate) outgoing: Option<Box<Outgoing>>,
    /// When its entry in the wheel fires.
    pub(crate) tick: Tick,
    pub(crate) phase: Phase,
    /// Bytes that came after the end, see [`IGNORED_BYTES_MAX`].
    pub(crate) ignored: u32,
    /// Stands in the list of those whose machine was spoken to.
    pub(crate) is_dirty: bool,
    /// Bytes may wait in the socket that were told and not read; nobody tells of them again.
    pub(crate) has_more: bool,
}

/// From a working connection to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Both directions work.
    Open,
    /// The machine has ended; what waits must be written until then.
    Farewell(Instant),
    /// All is written; the peer must hang up until then.
    HangUp(Instant),
    /// Nobody is there any more.
    Lost,
}

impl<P: Protocol, C> Entry<P, C> {
    /// How many bytes wait for the socket.
    pub(crate) fn unsent(&self) -> usize {
        self.outgoing.as_ref().map_or(0, |it| it.len())
    }

    /// When something has to be done, though nothing comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Open => self.machine.poll_timeout(),
            Phase::Farewell(until) | Phase::HangUp(until) => Some(until),
            Phase::Lost => None,
        }
    }
}
