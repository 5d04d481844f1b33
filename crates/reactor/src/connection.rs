//! The state of one connection in the slab, and the time limits of its end.

use std::time::{Duration, Instant};

use wire::Machine;

use crate::stream::{READ_BYTES_MAX, Stream};
use crate::wheel::{Tick, Wheel};

/// The time that a peer may take to read the last bytes of a connection. A live peer needs one round trip.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a peer may take to hang up after it has received the last bytes. Input is read and discarded
/// meanwhile: otherwise the system sends a reset, which can overtake the close frame.
pub(crate) const HANG_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of bytes discarded in that time. A peer that keeps sending would occupy the thread without
/// use.
pub(crate) const IGNORED_BYTES_MAX: u32 = 1 << 20;

/// The number of unsent bytes above which nothing more is read from the peer. A peer that sends pings and never reads
/// would fill the memory with pongs.
pub(crate) const WRITE_AHEAD_BYTES: usize = 64 << 10;

/// The same limit for a connection with input that takes long to process.
pub(crate) const READ_BYTES_MIN: u16 = 1 << 10;

/// The time that the input of one connection may take before other connections have their turn; input of a single read
/// is always finished. A full read of small messages takes less; messages that expand a thousandfold take more.
const PROCESSING_TIME_MAX: Duration = Duration::from_millis(1);

/// One connection: its byte stream, its protocol machine and the application's data.
pub(crate) struct Connection<M, C> {
    pub(crate) stream: Stream,
    pub(crate) machine: M,
    pub(crate) client: C,
    /// The tick at which its entry in the timer wheel fires.
    pub(crate) tick: Tick,
    pub(crate) phase: Phase,
    /// The number of bytes received after the end, see [`IGNORED_BYTES_MAX`].
    pub(crate) ignored: u32,
    /// The current limit of one read, see [`Connection::record_processing_time`].
    pub(crate) read_bytes_max: u16,
    /// True while the connection is in the list of those that got commands or input.
    pub(crate) is_dirty: bool,
    /// True if the socket must be read again without an event of the system.
    pub(crate) reading: ReadState,
}

/// The state of input that the system has announced. The system announces it once (edge-triggered).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadState {
    /// All input was read.
    Done,
    /// Input may be left, and the connection must not be read at present, see [`Connection::is_readable`].
    Deferred,
    /// Input may be left, and the connection is in the list of those that are read in the next turn.
    Queued,
}

/// The life of a connection, from open to ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Both directions work.
    Open,
    /// The peer has gone, and the connection waits for its turn to be ended, see `endings`. It is as if open, but takes
    /// no messages.
    Leaving,
    /// The machine has ended; unsent bytes must be written until this tick.
    Closing(Tick),
    /// Everything is written; the peer must hang up until this tick.
    HangUp(Tick),
    /// The peer has gone, or reads nothing any more.
    Ended(ConnectionEnd),
}

/// The way in which a connection ended, as far as sockets can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEnd {
    /// The machine had nothing more to send, or the peer has gone.
    Closed,
    /// The peer was connected, as far as the system knows, and took nothing of the unsent bytes for too long.
    Stalled,
}

impl Phase {
    /// True while the machine receives input.
    pub(crate) fn is_receiving(self) -> bool {
        matches!(self, Self::Open | Self::Leaving)
    }
}

impl<M: Machine, C> Connection<M, C> {
    /// False while too many bytes are unsent, and while the machine is paused.
    pub(crate) fn is_readable(&self) -> bool {
        self.stream.unsent() < WRITE_AHEAD_BYTES && !self.machine.is_paused()
    }

    /// Records the time that the machine took for the input of one read. Returns true if that was long: other
    /// connections then have their turn, and the next read is shorter.
    pub(crate) fn record_processing_time(&mut self, time: Duration) -> bool {
        let is_long = time > PROCESSING_TIME_MAX;
        self.read_bytes_max =
            if is_long { READ_BYTES_MIN } else { READ_BYTES_MAX.min(2 * self.read_bytes_max) };
        is_long
    }

    /// Returns the tick of `wheel` at which the connection needs attention although no event arrives. `stall_time_max`
    /// is the time that a peer may take nothing at all of the unsent bytes.
    pub(crate) fn next_tick(&self, wheel: &Wheel, stall_time_max: Duration) -> Option<Tick> {
        match self.phase {
            Phase::Open | Phase::Leaving => {
                let stall = self.stall_deadline(stall_time_max);
                let deadline = match (self.machine.poll_timeout(), stall) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                deadline.map(|deadline| wheel.tick_of(deadline))
            }
            Phase::Closing(until) | Phase::HangUp(until) => Some(until),
            Phase::Ended(_) => None,
        }
    }

    /// Returns the time at which the peer is given up unless it takes some bytes.
    pub(crate) fn stall_deadline(&self, stall_time_max: Duration) -> Option<Instant> {
        self.stream.stalled_since()?.checked_add(stall_time_max)
    }
}
