//! The connections of one thread, as the application sees them: adopt, speak, send.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::TlsProgress;
use wire::{Chunks, Machine};

use crate::connection::{
    End, Entry, FAREWELL_TIME_MAX, HANG_UP_TIME_MAX, IGNORED_BYTES_MAX, Phase, READ_BYTES_MAX,
    Reading,
};
use crate::poller::{Epoll, Poller};
use crate::slab::Slab;
use crate::stream::{Lent, Received, Sunk};
use crate::wheel::{Tick, Wheel};
use crate::{Stream, Token};

/// Reads of one socket before others have their turn.
const READS_MAX: usize = 4;

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is on its way, or the rest of it is kept and goes first.
    Taken,
    /// Earlier bytes wait still: nothing was taken. [`crate::Application::writable`] tells when they have gone.
    Blocked,
    /// The connection has ended or is about to: nothing was taken, and nothing ever will be.
    Gone,
}

/// All connections of one reactor thread. `C` is what the application keeps for each.
pub struct Sockets<M, C> {
    pub(crate) slab: Slab<Entry<M, C>>,
    pub(crate) epoll: Epoll,
    pub(crate) wheel: Wheel,
    /// Connections whose machine was spoken to; each once.
    pub(crate) dirty: Vec<Token>,
    /// Connections that are read in the next turn, see [`Reading::Queued`].
    pub(crate) unread: Vec<Token>,
    pub(crate) now: Instant,
    stall_time_max: Duration,
    lent: Lent,
}

impl<M: Machine, C> Sockets<M, C> {
    /// What a connection takes that has nothing on the heap: for those who promise a number.
    pub const ENTRY_BYTES: usize = Slab::<Entry<M, C>>::PLACE_BYTES;

    pub(crate) fn new(epoll: Epoll, stall_time_max: Duration, now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            epoll,
            wheel: Wheel::new(now),
            dirty: Vec::new(),
            unread: Vec::new(),
            now,
            stall_time_max,
            lent: Lent::new(),
        }
    }

    /// Takes over a connection with its machine. `early` is what its peer sent already and somebody else read; what a
    /// TLS session has read ahead comes behind it.
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor. The socket is closed, `client` comes back.
    pub fn adopt(
        &mut self,
        stream: Stream,
        machine: M,
        early: &[u8],
        client: C,
    ) -> Result<Token, (io::Error, C)> {
        let epoll = &self.epoll;
        let inserted = self.slab.insert_with(|token| {
            if let Some(fd) = stream.fd()
                && let Err(error) = epoll.add(fd, token.to_u64())
            {
                return Err((error, client));
            }
            Ok(Entry {
                stream,
                machine,
                client,
                tick: Tick::NONE,
                phase: Phase::Open,
                ignored: 0,
                appetite: READ_BYTES_MAX,
                is_dirty: false,
                reading: Reading::Done,
            })
        });
        let token = inserted?;
        let now = self.now;
        self.touch(token);
        if let Some(entry) = self.slab.get_mut(token) {
            entry.machine.receive(now, early);
            // Edges tell of what arrives at the socket, and of nothing that sits in the session already.
            let (ahead, progress) = entry.stream.receive_ahead(&mut self.lent);
            if !ahead.is_empty() {
                entry.machine.receive(now, ahead);
            }
            let works = entry.stream.send_session(&mut self.lent, now);
            if !works || progress != TlsProgress::Open {
                self.lose(token);
            }
        }
        Ok(token)
    }

    /// How many connections there are, those included that are about to end.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was sent to streams that lead nowhere; see [`Stream::nowhere`].
    pub fn sunk(&self) -> Sunk {
        self.lent.sunk
    }

    /// All of them, in no order that means anything.
    pub fn tokens(&self) -> Vec<Token> {
        self.slab.tokens()
    }

    /// What the application keeps for a connection.
    pub fn client(&mut self, token: Token) -> Option<&mut C> {
        self.slab.get_mut(token).map(|entry| &mut entry.client)
    }

    /// A connection's machine, to look at.
    pub fn machine(&self, token: Token) -> Option<&M> {
        self.slab.get(token).map(|entry| &entry.machine)
    }

    /// A connection's machine, for its commands. They take effect before anything else is sent there.
    pub fn machine_mut(&mut self, token: Token) -> Option<&mut M> {
        self.touch(token).map(|entry| &mut entry.machine)
    }

    /// Is the socket full, so that [`Sockets::send`] would answer [`Sent::Blocked`]?
    pub fn is_blocked(&self, token: Token) -> bool {
        self.slab.get(token).is_some_and(|entry| entry.stream.is_blocked())
    }

    /// Sends a whole message beside the machine: `head` is this recipient's own, `body` may be shared by many.
    /// Nothing may be sent so but what the machine's protocol allows between any two of its own messages.
    pub fn send(&mut self, token: Token, head: &[u8], body: &Bytes, tail: &'static [u8]) -> Sent {
        self.send_with(token, |_, _| Some((head, body, tail))).unwrap_or(Sent::Gone)
    }

    /// As [`Sockets::send`], of a message that `make` gives after a look at machine and client; `None` if it gives
    /// none. It is not asked where nothing could be taken.
    // hot path: once per recipient and event.
    pub fn send_with<'a>(
        &mut self,
        token: Token,
        make: impl FnOnce(&M, &C) -> Option<(&'a [u8], &'a Bytes, &'static [u8])>,
    ) -> Option<Sent> {
        if self.slab.get(token).is_some_and(|entry| entry.is_dirty) {
            self.transmit(token);
        }
        let Some(entry) = self.slab.get_mut(token) else { return Some(Sent::Gone) };
        if entry.phase != Phase::Open || !entry.machine.is_open() {
            return Some(Sent::Gone);
        }
        if entry.stream.is_blocked() {
            return Some(Sent::Blocked);
        }
        let (head, body, tail) = make(&entry.machine, &entry.client)?;
        if !entry.stream.send(head, body, tail, &mut self.lent, self.now) {
            self.lose(token);
            return Some(Sent::Gone);
        }
        entry.machine.sent(self.now);
        if entry.stream.is_blocked() {
            // From now on it has a deadline.
            self.touch(token);
        }
        Some(Sent::Taken)
    }

    /// Writes what the machine has to say now, and not when the turn ends, so that [`Sockets::is_blocked`] tells
    /// whether there is room for more.
    pub fn write_now(&mut self, token: Token) {
        self.transmit(token);
    }

    /// Marks a connection as spoken to, and gives it.
    pub(crate) fn touch(&mut self, token: Token) -> Option<&mut Entry<M, C>> {
        let entry = self.slab.get_mut(token)?;
        if !entry.is_dirty {
            entry.is_dirty = true;
            self.dirty.push(token);
        }
        Some(entry)
    }

    /// Nobody is there any more.
    fn lose(&mut self, token: Token) {
        self.give_up(token, End::Closed);
    }

    fn give_up(&mut self, token: Token, end: End) {
        let now = self.now;
        if let Some(entry) = self.touch(token) {
            entry.phase = Phase::Lost(end);
            entry.stream.forget_outgoing();
            entry.machine.receive_eof(now);
        }
    }

    /// Writes what the machine has to say.
    pub(crate) fn transmit(&mut self, token: Token) {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return };
        while let Some(chunks) = entry.machine.poll_transmit(now) {
            if matches!(entry.phase, Phase::Lost(_)) {
                continue;
            }
            let Chunks { head, body, tail } = &chunks;
            if !entry.stream.send(head, body, tail, &mut self.lent, now) {
                entry.phase = Phase::Lost(End::Closed);
                entry.machine.receive_eof(now);
            }
        }
    }

    /// Reads what has arrived, within bounds. `is_ending`: until the socket says that nothing follows.
    pub(crate) fn read(&mut self, token: Token, is_ending: bool) {
        let now = self.now;
        for _ in 0..READS_MAX {
            let Some(entry) = self.slab.get_mut(token) else { return };
            if matches!(entry.phase, Phase::Lost(_)) {
                return;
            }
            if !entry.may_be_read() {
                entry.reading = Reading::Deferred;
                return;
            }
            let began = Instant::now();
            if entry.machine.has_input() {
                entry.machine.receive(now, &[]);
                entry.has_taken(began.elapsed());
                self.touch(token);
                self.transmit(token);
                self.answer_session(token);
                break;
            }
            let received = entry.stream.receive(&mut self.lent, entry.appetite);
            let (bytes, taken, is_all, is_last) = match received {
                Received::Bytes { bytes, taken, is_all, is_last } => {
                    (bytes, taken, is_all, is_last)
                }
                Received::Nothing => return,
                Received::Ended => return self.lose(token),
            };
            if entry.phase == Phase::Open {
                if !bytes.is_empty() {
                    entry.machine.receive(now, bytes);
                }
            } else {
                // Cannot overflow: at most one read more than the bound.
                entry.ignored += taken as u32;
                if entry.ignored > IGNORED_BYTES_MAX {
                    return self.lose(token);
                }
            }
            let is_long = entry.has_taken(began.elapsed());
            let has_input = entry.machine.has_input();
            self.touch(token);
            if is_all && !is_ending && !is_last && !has_input {
                return self.answer_session(token);
            }
            // Answers to what was read count against what may wait.
            self.transmit(token);
            self.answer_session(token);
            if is_last {
                return self.lose(token);
            }
            if is_long || has_input {
                break;
            }
        }
        self.queue_reading(token);
    }

    /// Has a connection read in the next turn if its reading was deferred, or its machine has input that it did not get
    /// to, and nothing stands against that any more.
    pub(crate) fn resume_reading(&mut self, token: Token) {
        let Some(entry) = self.slab.get(token) else { return };
        let is_wanted = entry.reading == Reading::Deferred || entry.machine.has_input();
        if is_wanted && entry.may_be_read() {
            self.queue_reading(token);
        }
    }

    /// Has a connection read in the next turn.
    fn queue_reading(&mut self, token: Token) {
        if let Some(entry) = self.slab.get_mut(token)
            && entry.reading != Reading::Queued
        {
            entry.reading = Reading::Queued;
            self.unread.push(token);
        }
    }

    /// Sends what the TLS session has to say of what it has read.
    fn answer_session(&mut self, token: Token) {
        let now = self.now;
        if let Some(entry) = self.slab.get_mut(token)
            && !entry.stream.send_session(&mut self.lent, now)
        {
            self.lose(token);
        }
    }

    /// Writes what waits. Whether that was all, so that the application may go on.
    pub(crate) fn flush(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return false };
        if !entry.stream.is_blocked() {
            return false;
        }
        let unsent = entry.stream.unsent();
        if !entry.stream.flush(now) {
            self.lose(token);
            return false;
        }
        if entry.stream.unsent() < unsent {
            entry.machine.taken(now);
        }
        self.resume_reading(token);
        !self.is_blocked(token)
    }

    /// Brings a connection on its way out, and its timer, up to date. Whether it is over.
    pub(crate) fn is_over(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return false };
        if entry.phase == Phase::Open && entry.machine.is_closed() {
            entry.phase = match entry.stream.close(&mut self.lent, now) {
                true => Phase::Farewell(self.wheel.tick_of(now + FAREWELL_TIME_MAX)),
                false => Phase::Lost(End::Closed),
            };
        }
        if matches!(entry.phase, Phase::Farewell(_)) && !entry.stream.is_blocked() {
            entry.phase = match entry.stream.finish() {
                true => Phase::HangUp(self.wheel.tick_of(now + HANG_UP_TIME_MAX)),
                false => Phase::Lost(End::Closed),
            };
        }
        if matches!(entry.phase, Phase::Lost(_)) {
            return true;
        }
        if let Some(tick) = entry.due(&self.wheel, self.stall_time_max)
            && tick < entry.tick
        {
            entry.tick = tick;
            self.wheel.insert(tick, token.place());
        }
        false
    }

    /// The entry of the wheel for `tick` has fired.
    pub(crate) fn timeout(&mut self, tick: Tick, token: Token) {
        let now = self.now;
        let stall_time_max = self.stall_time_max;
        let Some(entry) = self.slab.get_mut(token) else { return };
        if entry.tick > tick {
            // It has another entry.
            return;
        }
        entry.tick = Tick::NONE;
        match entry.phase {
            Phase::Open => {
                if entry.stall_deadline(stall_time_max).is_some_and(|deadline| deadline <= now) {
                    return self.give_up(token, End::Stalled);
                }
                entry.machine.handle_timeout(now);
            }
            Phase::Farewell(until) | Phase::HangUp(until) => {
                if until <= tick {
                    entry.phase = Phase::Lost(End::Closed);
                }
            }
            Phase::Lost(_) => {}
        }
        self.touch(token);
    }
}
