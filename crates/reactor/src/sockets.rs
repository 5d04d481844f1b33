//! The connections of one thread, as the application sees them: adopt, speak, send.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bytes::Bytes;
use rustix::net::{RecvFlags, Shutdown};
use wire::connection::{Connection, Protocol};

use crate::Token;
use crate::connection::{
    Entry, FAREWELL_TIME_MAX, HANG_UP_TIME_MAX, IGNORED_BYTES_MAX, Phase, WRITE_AHEAD_BYTES,
};
use crate::outgoing::{self, Outgoing};
use crate::poller::{Epoll, Poller};
use crate::slab::Slab;
use crate::wheel::{Tick, Wheel};

/// Bytes taken from a socket at once, into a buffer of the thread.
const READ_BYTES: usize = 16 << 10;

/// Reads of one socket before others have their turn.
const READS_MAX: usize = 4;

/// What became of a frame.
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
pub struct Sockets<P, C> {
    pub(crate) slab: Slab<Entry<P, C>>,
    pub(crate) epoll: Epoll,
    pub(crate) wheel: Wheel,
    /// Connections whose machine was spoken to; each once.
    pub(crate) dirty: Vec<Token>,
    /// Connections with bytes that nobody tells of again.
    pub(crate) unread: Vec<Token>,
    pub(crate) now: Instant,
    buffer: Box<[u8]>,
    scratch: Vec<u8>,
}

impl<P: Protocol, C> Sockets<P, C> {
    pub(crate) fn new(epoll: Epoll, now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            epoll,
            wheel: Wheel::new(now),
            dirty: Vec::new(),
            unread: Vec::new(),
            now,
            buffer: vec![0; READ_BYTES].into(),
            scratch: Vec::new(),
        }
    }

    /// Takes over a connected, non-blocking socket with its machine. `early` is what its peer sent already and
    /// somebody else read.
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor. The socket is closed, `client` comes back.
    pub fn adopt(
        &mut self,
        socket: OwnedFd,
        machine: Connection<P>,
        early: &[u8],
        client: C,
    ) -> Result<Token, (io::Error, C)> {
        let epoll = &self.epoll;
        let inserted = self.slab.insert_with(|token| {
            if let Err(error) = epoll.add(socket.as_fd(), token.to_u64()) {
                return Err((error, client));
            }
            Ok(Entry {
                socket,
                machine,
                client,
                outgoing: None,
                tick: Tick::NONE,
                phase: Phase::Open,
                ignored: 0,
                is_dirty: false,
                has_more: false,
            })
        });
        let token = inserted?;
        let now = self.now;
        if let Some(entry) = self.touch(token) {
            entry.machine.receive(now, early);
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

    /// All of them, in no order that means anything.
    pub fn tokens(&self) -> Vec<Token> {
        self.slab.tokens()
    }

    /// What the application keeps for a connection.
    pub fn client(&mut self, token: Token) -> Option<&mut C> {
        self.slab.get_mut(token).map(|entry| &mut entry.client)
    }

    /// A connection's protocol, to look at.
    pub fn protocol(&self, token: Token) -> Option<&P> {
        self.slab.get(token).map(|entry| &entry.machine.protocol)
    }

    /// A connection's protocol, for its commands. They take effect before anything else is sent there.
    pub fn protocol_mut(&mut self, token: Token) -> Option<&mut P> {
        self.touch(token).map(|entry| &mut entry.machine.protocol)
    }

    /// May compressed messages be sent there?
    pub fn deflates(&self, token: Token) -> bool {
        self.slab.get(token).is_some_and(|entry| entry.machine.deflates())
    }

    /// Is the socket full, so that [`Sockets::send`] would answer [`Sent::Blocked`]?
    pub fn is_blocked(&self, token: Token) -> bool {
        self.slab.get(token).is_some_and(|entry| entry.outgoing.is_some())
    }

    /// Sends a whole frame beside the machine: `head` is this recipient's own, `body` may be shared by many.
    /// Nothing may be sent so but data frames of a protocol that allows it.
    // hot path: once per recipient and event.
    pub fn send(&mut self, token: Token, head: &[u8], body: &Bytes, tail: &'static [u8]) -> Sent {
        if self.slab.get(token).is_some_and(|entry| entry.is_dirty) {
            self.transmit(token);
        }
        let Some(entry) = self.slab.get_mut(token) else { return Sent::Gone };
        if entry.phase != Phase::Open || !entry.machine.is_open() {
            return Sent::Gone;
        }
        if entry.outgoing.is_some() {
            return Sent::Blocked;
        }
        let parts = [head, body, tail];
        match outgoing::send(entry.socket.as_fd(), parts, &mut self.scratch) {
            Some(sent) if sent == head.len() + body.len() + tail.len() => {}
            Some(sent) => {
                let own = &head[sent.min(head.len())..];
                let sent = sent.saturating_sub(head.len());
                let shared = body.slice(sent.min(body.len())..);
                let sent = sent.saturating_sub(body.len());
                let mut outgoing = Box::<Outgoing>::default();
                outgoing.push(Bytes::copy_from_slice(own));
                outgoing.push(shared);
                outgoing.push(Bytes::from_static(&tail[sent.min(tail.len())..]));
                entry.outgoing = Some(outgoing);
            }
            None => {
                self.lose(token);
                return Sent::Gone;
            }
        }
        Sent::Taken
    }

    /// Marks a connection as spoken to, and gives it.
    pub(crate) fn touch(&mut self, token: Token) -> Option<&mut Entry<P, C>> {
        let entry = self.slab.get_mut(token)?;
        if !entry.is_dirty {
            entry.is_dirty = true;
            self.dirty.push(token);
        }
        Some(entry)
    }

    /// Nobody is there any more.
    fn lose(&mut self, token: Token) {
        let now = self.now;
        if let Some(entry) = self.touch(token) {
            entry.phase = Phase::Lost;
            entry.outgoing = None;
            entry.machine.receive_eof(now);
        }
    }

    /// Writes what the machine has to say.
    pub(crate) fn transmit(&mut self, token: Token) {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return };
        while let Some(chunks) = entry.machine.poll_transmit(now) {
            if entry.phase == Phase::Lost {
                continue;
            }
            let mut sent = 0;
            if entry.outgoing.is_none() {
                let taken = outgoing::send(entry.socket.as_fd(), chunks.parts(), &mut self.scratch);
                let Some(taken) = taken else {
                    entry.phase = Phase::Lost;
                    entry.machine.receive_eof(now);
                    continue;
                };
                sent = taken;
            }
            if sent < chunks.len() {
                let outgoing = entry.outgoing.get_or_insert_default();
                for piece in [chunks.head, chunks.body, Bytes::from_static(chunks.tail)] {
                    let skipped = sent.min(piece.len());
                    sent -= skipped;
                    outgoing.push(piece.slice(skipped..));
                }
            }
        }
    }

    /// Reads what has arrived, within bounds. `is_ending`: until the socket says that nothing follows.
    pub(crate) fn read(&mut self, token: Token, is_ending: bool) {
        let now = self.now;
        for _ in 0..READS_MAX {
            let Some(entry) = self.slab.get_mut(token) else { return };
            if entry.phase == Phase::Lost {
                return;
            }
            if entry.unsent() >= WRITE_AHEAD_BYTES {
                // Goes on when the peer has taken something.
                entry.has_more = true;
                return;
            }
            let received =
                rustix::net::recv(&entry.socket, &mut self.buffer[..], RecvFlags::DONTWAIT);
            let count = match received {
                Ok((_, count)) => count,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => 0,
            };
            if count == 0 {
                return self.lose(token);
            }
            if entry.phase == Phase::Open {
                entry.machine.receive(now, &self.buffer[..count]);
                self.touch(token);
            } else {
                // Cannot overflow: at most READ_BYTES more than the bound.
                entry.ignored += count as u32;
                if entry.ignored > IGNORED_BYTES_MAX {
                    return self.lose(token);
                }
            }
            if count < READ_BYTES && !is_ending {
                // A short read has emptied the socket (epoll(7)).
                return;
            }
            // Answers to what was read count against what may wait.
            self.transmit(token);
        }
        if let Some(entry) = self.slab.get_mut(token)
            && !entry.has_more
        {
            entry.has_more = true;
            self.unread.push(token);
        }
    }

    /// Writes what waits. Whether that was all, so that the application may go on.
    pub(crate) fn flush(&mut self, token: Token) -> bool {
        let Some(entry) = self.slab.get_mut(token) else { return false };
        let Some(outgoing) = &mut entry.outgoing else { return false };
        if !outgoing.flush(entry.socket.as_fd()) {
            self.lose(token);
            return false;
        }
        let left = outgoing.len();
        if entry.has_more && left < WRITE_AHEAD_BYTES {
            self.unread.push(token);
        }
        if left == 0 {
            entry.outgoing = None;
        }
        left == 0
    }

    /// Brings a connection on its way out, and its timer, up to date. Whether it is over.
    pub(crate) fn is_over(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return false };
        if entry.phase == Phase::Open && entry.machine.is_closed() {
            entry.phase = Phase::Farewell(now + FAREWELL_TIME_MAX);
        }
        if matches!(entry.phase, Phase::Farewell(_)) && entry.outgoing.is_none() {
            // Says goodbye with FIN rather than RST, so that the peer reads our close frame.
            entry.phase = match rustix::net::shutdown(&entry.socket, Shutdown::Write) {
                Ok(()) => Phase::HangUp(now + HANG_UP_TIME_MAX),
                Err(_) => Phase::Lost,
            };
        }
        if entry.phase == Phase::Lost {
            return true;
        }
        if let Some(deadline) = entry.deadline() {
            let tick = self.wheel.tick_of(deadline);
            if tick < entry.tick {
                entry.tick = tick;
                self.wheel.insert(tick, token);
            }
        }
        false
    }

    /// The entry of the wheel for `tick` has fired.
    pub(crate) fn timeout(&mut self, tick: Tick, token: Token) {
        let now = self.now;
        let Some(entry) = self.slab.get_mut(token) else { return };
        if entry.tick > tick {
            // It has another entry.
            return;
        }
        entry.tick = Tick::NONE;
        match entry.phase {
            Phase::Open => entry.machine.handle_timeout(now),
            Phase::Farewell(until) | Phase::HangUp(until) => {
                if until <= now {
                    entry.phase = Phase::Lost;
                }
            }
            Phase::Lost => {}
        }
        self.touch(token);
    }
}
