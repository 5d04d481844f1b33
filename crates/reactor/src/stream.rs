//! The byte stream of one connection: a socket as it is, or TLS over it. Below it are bytes of the network, above it
//! those that the machine means.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bytes::Bytes;
use net::{TlsProgress, TlsSession};
use rustix::net::{RecvFlags, Shutdown};

use crate::connection::READ_BYTES_MAX;
use crate::outgoing::{self, Outgoing};

/// A connected, non-blocking socket, and the TLS session on it if there is one.
#[derive(Debug)]
pub struct Stream {
    /// `None`: leads nowhere, see [`Stream::nowhere`].
    socket: Option<OwnedFd>,
    session: Option<TlsSession>,
    /// Bytes of the network that the socket has not taken. Only a connection whose socket is full has any.
    outgoing: Option<Box<Outgoing>>,
}

/// Memory that a thread lends to one connection after the other.
#[derive(Debug)]
pub(crate) struct Lent {
    received: Box<[u8]>,
    plain: Vec<u8>,
    scratch: Vec<u8>,
    pub(crate) sunk: Sunk,
}

/// What was sent to streams that lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sunk {
    /// Messages, those of protocols included.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Memory for what a peer says that is kept: one record over it gives it back.
const PLAIN_KEPT: usize = 2 * READ_BYTES_MAX as usize;

/// What one look at a socket gave.
pub(crate) enum Received<'a> {
    /// Bytes for the machine, maybe none.
    Bytes {
        /// What they are.
        bytes: &'a [u8],
        /// How many there were on the network.
        taken: usize,
        /// Nothing more is there at the moment.
        is_all: bool,
        /// The peer has said that nothing follows, or broke the rules of TLS.
        is_last: bool,
    },
    /// Nothing is there at the moment.
    Nothing,
    /// Nothing will ever come.
    Ended,
}

impl Stream {
    /// Takes over a socket. What `session` has read ahead of it is for the machine first.
    pub fn new(socket: OwnedFd, session: Option<TlsSession>) -> Self {
        Self { socket: Some(socket), session, outgoing: None }
    }

    /// One whose peer takes everything at once and never says a word, to see what many connections cost without their
    /// descriptors. What is sent is counted by [`crate::Sockets::sunk`].
    pub fn nowhere() -> Self {
        Self { socket: None, session: None, outgoing: None }
    }

    /// What to watch, if there is anything.
    pub(crate) fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Has the socket not taken everything yet?
    pub(crate) fn is_blocked(&self) -> bool {
        self.outgoing.is_some()
    }

    /// How many bytes wait for the socket.
    pub(crate) fn unsent(&self) -> usize {
        self.outgoing.as_ref().map_or(0, |it| it.len())
    }

    /// Since when the socket has taken nothing of what waits.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        self.outgoing.as_ref().map(|it| it.moved)
    }

    /// What was read ahead of us, by the session. Nobody tells of it again.
    pub(crate) fn receive_ahead<'a>(&mut self, lent: &'a mut Lent) -> (&'a [u8], TlsProgress) {
        lent.plain.clear();
        let progress = match &mut self.session {
            Some(session) => session.receive(&[], &mut lent.plain),
            None => TlsProgress::Open,
        };
        (&lent.plain, progress)
    }

    /// Looks once what has arrived, at most that many bytes of the network.
    pub(crate) fn receive<'a>(&mut self, lent: &'a mut Lent, bytes_max: u16) -> Received<'a> {
        let Lent { received, plain, .. } = lent;
        let Some(socket) = &self.socket else { return Received::Nothing };
        let room = &mut received[..usize::from(bytes_max)];
        let room_bytes = room.len();
        let taken = match rustix::net::recv(socket, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Received::Ended,
            Ok((_, count)) => count,
            Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
            Err(rustix::io::Errno::INTR) => 0,
            Err(_) => return Received::Ended,
        };
        // A short read has emptied the socket (epoll(7)).
        let is_all = (1..room_bytes).contains(&taken);
        let bytes = &received[..taken];
        let Some(session) = &mut self.session else {
            return Received::Bytes { bytes, taken, is_all, is_last: false };
        };
        plain.clear();
        plain.shrink_to(PLAIN_KEPT);
        let is_last = session.receive(bytes, plain) != TlsProgress::Open;
        Received::Bytes { bytes: plain, taken, is_all, is_last }
    }

    /// Sends one message, or keeps what the socket does not take now. Whether the socket still works.
    // hot path: once per recipient and event.
    pub(crate) fn send(
        &mut self,
        head: &[u8],
        body: &Bytes,
        tail: &'static [u8],
        lent: &mut Lent,
        now: Instant,
    ) -> bool {
        let Some(socket) = &self.socket else {
            lent.sunk.messages += 1;
            lent.sunk.bytes += (head.len() + body.len() + tail.len()) as u64;
            return true;
        };
        if let Some(session) = &mut self.session {
            lent.scratch.clear();
            session.send([head, body, tail], &mut lent.scratch);
            return self.send_records(lent, now);
        }
        let mut sent = 0;
        if self.outgoing.is_none() {
            let parts = [head, body, tail];
            match outgoing::send(socket.as_fd(), parts, &mut lent.scratch) {
                Some(count) if count == head.len() + body.len() + tail.len() => return true,
                Some(count) => sent = count,
                None => return false,
            }
        }
        let waiting = self.outgoing.get_or_insert_with(|| Box::new(Outgoing::new(now)));
        let own = &head[sent.min(head.len())..];
        sent = sent.saturating_sub(head.len());
        let shared = body.slice(sent.min(body.len())..);
        sent = sent.saturating_sub(body.len());
        waiting.push(Bytes::copy_from_slice(own));
        waiting.push(shared);
        waiting.push(Bytes::from_static(&tail[sent.min(tail.len())..]));
        true
    }

    /// Sends what the session itself has to say. Whether the socket still works.
    pub(crate) fn send_session(&mut self, lent: &mut Lent, now: Instant) -> bool {
        let Some(session) = &mut self.session else { return true };
        lent.scratch.clear();
        session.take_records(&mut lent.scratch);
        self.send_records(lent, now)
    }

    /// Says that nothing follows, as far as the session goes; the socket stays open until all is written.
    pub(crate) fn close(&mut self, lent: &mut Lent, now: Instant) -> bool {
        if let Some(session) = &mut self.session {
            session.close();
        }
        self.send_session(lent, now)
    }

    /// Sends the records in `lent.scratch`.
    fn send_records(&mut self, lent: &mut Lent, now: Instant) -> bool {
        let Some(socket) = &self.socket else { return true };
        let records = &lent.scratch;
        let mut sent = 0;
        if self.outgoing.is_none() && !records.is_empty() {
            match outgoing::send_one(socket.as_fd(), records) {
                Some(count) => sent = count,
                None => return false,
            }
        }
        if sent < records.len() {
            let waiting = self.outgoing.get_or_insert_with(|| Box::new(Outgoing::new(now)));
            waiting.push(Bytes::copy_from_slice(&records[sent..]));
        }
        true
    }

    /// Writes what waits. Whether the socket still works.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        let (Some(outgoing), Some(socket)) = (&mut self.outgoing, &self.socket) else {
            return true;
        };
        if !outgoing.flush(socket.as_fd(), now) {
            return false;
        }
        if outgoing.len() == 0 {
            self.outgoing = None;
        }
        true
    }

    /// What waits is for nobody any more.
    pub(crate) fn forget_outgoing(&mut self) {
        self.outgoing = None;
    }

    /// Says goodbye with FIN rather than RST, so that the peer reads our last words. Whether the socket still works.
    pub(crate) fn finish(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        rustix::net::shutdown(socket, Shutdown::Write).is_ok()
    }
}

impl Lent {
    pub(crate) fn new() -> Self {
        Self {
            received: vec![0; usize::from(READ_BYTES_MAX)].into(),
            plain: Vec::new(),
            scratch: Vec::new(),
            sunk: Sunk::default(),
        }
    }
}
