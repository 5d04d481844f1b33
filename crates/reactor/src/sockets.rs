//! The connections of one thread, as the application sees them: adopt, command, send.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::TlsProgress;
use wire::{Chunks, Machine};

use crate::connection::{
    CLOSE_TIMEOUT, Connection, ConnectionEnd, HANG_UP_TIMEOUT, IGNORED_BYTES_MAX, Phase, ReadState,
};
use crate::poller::Poller;
use crate::recent_count::RecentCount;
use crate::slab::Slab;
use crate::stream::{DiscardStats, READ_BYTES_MAX, Received, ThreadBuffers};
use crate::wheel::{Tick, Wheel};
use crate::{Stream, Token};

/// The maximum number of reads of one socket before other sockets have their turn.
const READS_MAX: usize = 4;

/// The outcome of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// The message was sent, or its rest is kept and is sent before anything else.
    Taken,
    /// Earlier bytes are unsent: nothing was taken. [`crate::Application::on_writable`] is called when they have been
    /// sent.
    Blocked,
    /// The connection has ended or is about to end, or its peer has gone: nothing was taken, and nothing ever will be.
    Gone,
}

/// All connections of one reactor thread. `C` is the application's data of each.
pub struct Sockets<M, C> {
    pub(crate) slab: Slab<Connection<M, C>>,
    pub(crate) poller: Poller,
    pub(crate) wheel: Wheel,
    /// The connections that got commands or input; each once.
    pub(crate) dirty: Vec<Token>,
    /// The connections that are read in the next turn, see [`ReadState::Queued`].
    pub(crate) unread: Vec<Token>,
    pub(crate) now: Instant,
    /// The connections that have come in about the last second.
    pub(crate) arrivals: RecentCount,
    stall_time_max: Duration,
    buffers: ThreadBuffers,
}

impl<M: Machine, C> Sockets<M, C> {
    /// The size of a connection that has nothing on the heap, for callers that assert a limit.
    pub const CONNECTION_BYTES: usize = Slab::<Connection<M, C>>::PLACE_BYTES;

    pub(crate) fn new(poller: Poller, stall_time_max: Duration, now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            poller,
            wheel: Wheel::new(now),
            dirty: Vec::new(),
            unread: Vec::new(),
            now,
            arrivals: RecentCount::new(1.0),
            stall_time_max,
            buffers: ThreadBuffers::new(),
        }
    }

    /// Takes over a connection with its machine. `early` is input that the caller has already read; input that a TLS
    /// session has read ahead follows it.
    ///
    /// # Errors
    /// The system cannot watch one more descriptor. The socket is closed and `client` is returned.
    pub fn adopt(
        &mut self,
        stream: Stream,
        machine: M,
        early: &[u8],
        client: C,
    ) -> Result<Token, (io::Error, C)> {
        let poller = &self.poller;
        let inserted = self.slab.insert_with(|token| {
            if let Some(fd) = stream.fd()
                && let Err(error) = poller.add(fd, token.to_u64())
            {
                return Err((error, client));
            }
            Ok(Connection {
                stream,
                machine,
                client,
                tick: Tick::NONE,
                phase: Phase::Open,
                ignored: 0,
                read_bytes_max: READ_BYTES_MAX,
                is_dirty: false,
                reading: ReadState::Done,
            })
        });
        let token = inserted?;
        let now = self.now;
        self.arrivals.add(1, now);
        self.mark_dirty(token);
        if let Some(connection) = self.slab.get_mut(token) {
            connection.machine.receive(now, early);
            // The poller announces input of the socket only, and not input that is already in the session.
            let (ahead, progress) = connection.stream.receive_ahead(&mut self.buffers);
            if !ahead.is_empty() {
                connection.machine.receive(now, ahead);
            }
            let works = connection.stream.send_session(&mut self.buffers, now);
            if !works || progress != TlsProgress::Open {
                self.mark_ended(token);
            }
        }
        Ok(token)
    }

    /// Returns the number of connections, including those that are about to end.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// True if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the messages and bytes that were sent to [`Stream::null`].
    pub fn discard_stats(&self) -> DiscardStats {
        self.buffers.discarded
    }

    /// Returns the tokens of all connections, in arbitrary order.
    pub fn tokens(&self) -> Vec<Token> {
        self.slab.tokens()
    }

    /// Returns the application's data of a connection.
    pub fn client(&mut self, token: Token) -> Option<&mut C> {
        self.slab.get_mut(token).map(|connection| &mut connection.client)
    }

    /// Returns a connection's machine for inspection.
    pub fn machine(&self, token: Token) -> Option<&M> {
        self.slab.get(token).map(|connection| &connection.machine)
    }

    /// Returns a connection's machine for commands. They take effect before anything else is sent there.
    pub fn machine_mut(&mut self, token: Token) -> Option<&mut M> {
        self.mark_dirty(token).map(|connection| &mut connection.machine)
    }

    /// True if the socket is full, so that [`Sockets::send`] would return [`SendOutcome::Blocked`].
    pub fn is_blocked(&self, token: Token) -> bool {
        self.slab.get(token).is_some_and(|connection| connection.stream.is_blocked())
    }

    /// Sends a whole message past the machine: `head` belongs to this recipient, `body` may be shared by many. The
    /// message must be one that the machine's protocol allows between any two of the machine's own messages.
    pub fn send(
        &mut self,
        token: Token,
        head: &[u8],
        body: &Bytes,
        tail: &'static [u8],
    ) -> SendOutcome {
        self.send_with(token, |_, _| Some((head, body, tail))).unwrap_or(SendOutcome::Gone)
    }

    /// Sends a message, as [`Sockets::send`] does, that `make` returns after a look at machine and client; sends
    /// nothing if `make` returns `None`. `make` is not called if nothing can be taken.
    // hot path: once per recipient and event.
    pub fn send_with<'a>(
        &mut self,
        token: Token,
        make: impl FnOnce(&M, &C) -> Option<(&'a [u8], &'a Bytes, &'static [u8])>,
    ) -> Option<SendOutcome> {
        if self.slab.get(token).is_some_and(|connection| connection.is_dirty) {
            self.transmit(token);
        }
        let Some(connection) = self.slab.get_mut(token) else { return Some(SendOutcome::Gone) };
        if connection.phase != Phase::Open || !connection.machine.is_open() {
            return Some(SendOutcome::Gone);
        }
        if connection.stream.is_blocked() {
            return Some(SendOutcome::Blocked);
        }
        let (head, body, tail) = make(&connection.machine, &connection.client)?;
        if !connection.stream.send(head, body, tail, &mut self.buffers, self.now) {
            self.mark_ended(token);
            return Some(SendOutcome::Gone);
        }
        connection.machine.sent(self.now);
        if connection.stream.is_blocked() {
            // A blocked stream has a deadline.
            self.mark_dirty(token);
        }
        Some(SendOutcome::Taken)
    }

    /// Reads what [`Sockets::send_with`] will read of a connection, so that the processor has it in its cache then.
    /// Calls for several connections in a row wait for the memory together, but sending to them waits for each. `look`
    /// reads what `make` will read.
    pub fn read_ahead(&self, token: Token, look: impl FnOnce(&M, &C) -> bool) {
        let read = self.slab.get(token).is_some_and(|connection| {
            let is_open = connection.phase == Phase::Open && connection.machine.is_open();
            let is_free = !connection.is_dirty && !connection.stream.is_blocked();
            is_open && is_free && look(&connection.machine, &connection.client)
        });
        // Otherwise the compiler leaves the reading out.
        std::hint::black_box(read);
    }

    /// Writes the output of the machine now rather than at the end of the turn, so that [`Sockets::is_blocked`] tells
    /// whether there is room for more.
    pub fn flush_machine(&mut self, token: Token) {
        self.transmit(token);
    }

    /// Adds a connection to the list of those that are processed at the end of the turn, and returns it.
    pub(crate) fn mark_dirty(&mut self, token: Token) -> Option<&mut Connection<M, C>> {
        let connection = self.slab.get_mut(token)?;
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(token);
        }
        Some(connection)
    }

    /// Marks a connection as ended: the peer has gone.
    fn mark_ended(&mut self, token: Token) {
        self.end_as(token, ConnectionEnd::Closed);
    }

    fn end_as(&mut self, token: Token, end: ConnectionEnd) {
        let now = self.now;
        if let Some(connection) = self.mark_dirty(token) {
            connection.phase = Phase::Ended(end);
            connection.stream.drop_unsent();
            connection.machine.receive_eof(now);
        }
    }

    /// Sends no more messages to a connection until [`Sockets::end_leaving`], because its peer has gone. The first
    /// message would only make the peer's system reset the connection, and the next one would end it out of turn. A
    /// connection that may not be read does not end in its turn, and its peer may have closed one direction only, so it
    /// still gets messages.
    pub(crate) fn begin_leaving(&mut self, token: Token) {
        if let Some(connection) = self.slab.get_mut(token)
            && connection.phase == Phase::Open
            && connection.is_readable()
        {
            connection.phase = Phase::Leaving;
        }
    }

    /// Ends the wait of a connection: reading its input is about to end it.
    pub(crate) fn end_leaving(&mut self, token: Token) {
        if let Some(connection) = self.slab.get_mut(token)
            && connection.phase == Phase::Leaving
        {
            connection.phase = Phase::Open;
        }
    }

    /// Writes the output of the machine.
    pub(crate) fn transmit(&mut self, token: Token) {
        let now = self.now;
        let Some(connection) = self.slab.get_mut(token) else { return };
        while let Some(chunks) = connection.machine.poll_transmit(now) {
            if matches!(connection.phase, Phase::Ended(_)) {
                continue;
            }
            let Chunks { head, body, tail } = &chunks;
            if !connection.stream.send(head, body, tail, &mut self.buffers, now) {
                connection.phase = Phase::Ended(ConnectionEnd::Closed);
                connection.machine.receive_eof(now);
            }
        }
    }

    /// Reads the input that has arrived, within limits. If `is_ending`, reads until the socket reports the end of
    /// input.
    pub(crate) fn read_input(&mut self, token: Token, is_ending: bool) {
        let now = self.now;
        for _ in 0..READS_MAX {
            let Some(connection) = self.slab.get_mut(token) else { return };
            if matches!(connection.phase, Phase::Ended(_)) {
                return;
            }
            if !connection.is_readable() {
                connection.reading = ReadState::Deferred;
                return;
            }
            let began = Instant::now();
            if connection.machine.has_input() {
                connection.machine.receive(now, &[]);
                connection.record_processing_time(began.elapsed());
                self.mark_dirty(token);
                self.transmit(token);
                self.send_session_records(token);
                break;
            }
            let received = connection.stream.receive(&mut self.buffers, connection.read_bytes_max);
            let (bytes, taken, is_all, is_last) = match received {
                Received::Bytes { bytes, taken, is_all, is_last } => {
                    (bytes, taken, is_all, is_last)
                }
                Received::Nothing => return,
                Received::Ended => return self.mark_ended(token),
            };
            if connection.phase.is_receiving() {
                if !bytes.is_empty() {
                    connection.machine.receive(now, bytes);
                }
            } else {
                // Cannot overflow: at most one read exceeds the limit.
                connection.ignored += taken as u32;
                if connection.ignored > IGNORED_BYTES_MAX {
                    return self.mark_ended(token);
                }
            }
            let is_long = connection.record_processing_time(began.elapsed());
            let has_input = connection.machine.has_input();
            self.mark_dirty(token);
            if is_all && !is_ending && !is_last && !has_input {
                return self.send_session_records(token);
            }
            // Responses to this input count against the limit of unsent bytes.
            self.transmit(token);
            self.send_session_records(token);
            if is_last {
                return self.mark_ended(token);
            }
            if is_long || has_input {
                break;
            }
        }
        self.queue_reading(token);
    }

    /// Queues a connection for reading if its reading was deferred, or its machine has unprocessed input, and it may be
    /// read again.
    pub(crate) fn resume_reading(&mut self, token: Token) {
        let Some(connection) = self.slab.get(token) else { return };
        let is_wanted = connection.reading == ReadState::Deferred || connection.machine.has_input();
        if is_wanted && connection.is_readable() {
            self.queue_reading(token);
        }
    }

    /// Queues a connection for reading in the next turn.
    fn queue_reading(&mut self, token: Token) {
        if let Some(connection) = self.slab.get_mut(token)
            && connection.reading != ReadState::Queued
        {
            connection.reading = ReadState::Queued;
            self.unread.push(token);
        }
    }

    /// Sends the records that the TLS session has produced while reading.
    fn send_session_records(&mut self, token: Token) {
        let now = self.now;
        if let Some(connection) = self.slab.get_mut(token)
            && !connection.stream.send_session(&mut self.buffers, now)
        {
            self.mark_ended(token);
        }
    }

    /// Writes unsent bytes. Returns true if all were written, so that the application may send more.
    pub(crate) fn flush(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(connection) = self.slab.get_mut(token) else { return false };
        if !connection.stream.is_blocked() {
            return false;
        }
        let unsent = connection.stream.unsent();
        if !connection.stream.flush(now) {
            self.mark_ended(token);
            return false;
        }
        if connection.stream.unsent() < unsent {
            connection.machine.taken(now);
        }
        self.resume_reading(token);
        !self.is_blocked(token)
    }

    /// Updates the phase and the timer of a connection. Returns true if the connection is over.
    pub(crate) fn update_phase(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(connection) = self.slab.get_mut(token) else { return false };
        if connection.phase.is_receiving() && connection.machine.is_closed() {
            connection.phase = match connection.stream.close_session(&mut self.buffers, now) {
                true => Phase::Closing(self.wheel.tick_of(now + CLOSE_TIMEOUT)),
                false => Phase::Ended(ConnectionEnd::Closed),
            };
        }
        if matches!(connection.phase, Phase::Closing(_)) && !connection.stream.is_blocked() {
            connection.phase = match connection.stream.shut_down_writing() {
                true => Phase::HangUp(self.wheel.tick_of(now + HANG_UP_TIMEOUT)),
                false => Phase::Ended(ConnectionEnd::Closed),
            };
        }
        if matches!(connection.phase, Phase::Ended(_)) {
            return true;
        }
        if let Some(tick) = connection.next_tick(&self.wheel, self.stall_time_max)
            && tick < connection.tick
        {
            connection.tick = tick;
            self.wheel.insert(tick, token.place());
        }
        false
    }

    /// Handles the connection of the timer wheel that was inserted for `tick`.
    pub(crate) fn on_timer(&mut self, tick: Tick, token: Token) {
        let now = self.now;
        let stall_time_max = self.stall_time_max;
        let Some(connection) = self.slab.get_mut(token) else { return };
        if connection.tick > tick {
            // The connection has a later connection.
            return;
        }
        connection.tick = Tick::NONE;
        match connection.phase {
            Phase::Open | Phase::Leaving => {
                if connection.stall_deadline(stall_time_max).is_some_and(|deadline| deadline <= now)
                {
                    return self.end_as(token, ConnectionEnd::Stalled);
                }
                connection.machine.handle_timeout(now);
            }
            Phase::Closing(until) | Phase::HangUp(until) => {
                if until <= tick {
                    connection.phase = Phase::Ended(ConnectionEnd::Closed);
                }
            }
            Phase::Ended(_) => {}
        }
        self.mark_dirty(token);
    }
}
