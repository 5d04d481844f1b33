//! The byte stream of one connection: a plain socket, or TLS over a socket. Network bytes are below it, the bytes of
//! the protocol machine above it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bytes::Bytes;
use net::{TlsProgress, TlsSession};
use rustix::net::{RecvFlags, Shutdown};

use crate::outgoing::{self, Outgoing};

/// The maximum number of bytes that one read takes from a socket.
pub(crate) const READ_BYTES_MAX: u16 = 16 << 10;

/// A connected, non-blocking socket, with a TLS session if the connection is encrypted.
#[derive(Debug)]
pub struct Stream {
    /// `None` for a stream without a socket, see [`Stream::null`].
    socket: Option<OwnedFd>,
    session: Option<TlsSession>,
    /// The network bytes that the socket has not taken. `None` unless the socket is full.
    outgoing: Option<Box<Outgoing>>,
}

/// Buffers of a thread that its connections use in turn.
#[derive(Debug)]
pub(crate) struct ThreadBuffers {
    received: Box<[u8]>,
    plain: Vec<u8>,
    scratch: Vec<u8>,
    pub(crate) discarded: DiscardStats,
}

/// The messages and bytes that were sent to streams without a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiscardStats {
    /// The number of messages, including those of protocols.
    pub messages: u64,
    /// The number of their bytes.
    pub bytes: u64,
}

/// The capacity that the buffer for decrypted input keeps. A larger record is freed after use.
const PLAIN_KEPT: usize = 2 * READ_BYTES_MAX as usize;

/// The outcome of one read from a socket.
pub(crate) enum Received<'a> {
    /// Input for the machine, possibly empty.
    Bytes {
        /// The decrypted input.
        bytes: &'a [u8],
        /// The number of bytes read from the network.
        taken: usize,
        /// True if the socket has no more input at the moment.
        is_all: bool,
        /// True if the peer has announced the end of its input, or has violated TLS.
        is_last: bool,
    },
    /// The socket has no input at the moment.
    Nothing,
    /// The socket will never have input again.
    Ended,
}

impl Stream {
    /// Takes over a socket. Input that `session` has read ahead precedes the input of the socket.
    pub fn new(socket: OwnedFd, session: Option<TlsSession>) -> Self {
        Self { socket: Some(socket), session, outgoing: None }
    }

    /// Makes a stream without a socket, which takes everything at once and never has input. It shows the cost of many
    /// connections without their descriptors. [`crate::Sockets::discard_stats`] counts what is sent to it.
    pub fn null() -> Self {
        Self { socket: None, session: None, outgoing: None }
    }

    /// Returns the descriptor to watch, if there is one.
    pub(crate) fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// True if the socket has not taken everything yet.
    pub(crate) fn is_blocked(&self) -> bool {
        self.outgoing.is_some()
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.outgoing.as_ref().map_or(0, |it| it.len())
    }

    /// Returns the time since which the socket has made no progress with unsent bytes.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        self.outgoing.as_ref().map(|it| it.progressed_at)
    }

    /// Returns the input that the TLS session has read ahead. The poller does not announce it.
    pub(crate) fn receive_ahead<'a>(
        &mut self,
        buffers: &'a mut ThreadBuffers,
    ) -> (&'a [u8], TlsProgress) {
        buffers.plain.clear();
        let progress = match &mut self.session {
            Some(session) => session.receive(&[], &mut buffers.plain),
            None => TlsProgress::Open,
        };
        (&buffers.plain, progress)
    }

    /// Reads once from the socket, at most `bytes_max` bytes of the network.
    pub(crate) fn receive<'a>(
        &mut self,
        buffers: &'a mut ThreadBuffers,
        bytes_max: u16,
    ) -> Received<'a> {
        let ThreadBuffers { received, plain, .. } = buffers;
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
        // A read that returns fewer bytes than requested has emptied the socket (epoll(7), kqueue(2)).
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

    /// Sends one message, or keeps the rest that the socket does not take now. Returns false if the socket failed.
    // hot path: once per recipient and event.
    pub(crate) fn send(
        &mut self,
        head: &[u8],
        body: &Bytes,
        tail: &'static [u8],
        buffers: &mut ThreadBuffers,
        now: Instant,
    ) -> bool {
        let Some(socket) = &self.socket else {
            buffers.discarded.messages += 1;
            buffers.discarded.bytes += (head.len() + body.len() + tail.len()) as u64;
            return true;
        };
        if let Some(session) = &mut self.session {
            buffers.scratch.clear();
            session.send([head, body, tail], &mut buffers.scratch);
            return self.send_records(buffers, now);
        }
        let mut sent = 0;
        if self.outgoing.is_none() {
            let parts = [head, body, tail];
            match outgoing::send_parts(socket.as_fd(), parts, &mut buffers.scratch) {
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

    /// Sends the records that the TLS session has produced. Returns false if the socket failed.
    pub(crate) fn send_session(&mut self, buffers: &mut ThreadBuffers, now: Instant) -> bool {
        let Some(session) = &mut self.session else { return true };
        buffers.scratch.clear();
        session.take_records(&mut buffers.scratch);
        self.send_records(buffers, now)
    }

    /// Ends the TLS session; the socket stays open until everything is written. Returns false if the socket failed.
    pub(crate) fn close_session(&mut self, buffers: &mut ThreadBuffers, now: Instant) -> bool {
        if let Some(session) = &mut self.session {
            session.close();
        }
        self.send_session(buffers, now)
    }

    /// Sends the records in `buffers.scratch`. Returns false if the socket failed.
    fn send_records(&mut self, buffers: &mut ThreadBuffers, now: Instant) -> bool {
        let Some(socket) = &self.socket else { return true };
        let records = &buffers.scratch;
        let mut sent = 0;
        if self.outgoing.is_none() && !records.is_empty() {
            match outgoing::send_piece(socket.as_fd(), records) {
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

    /// Writes unsent bytes. Returns false if the socket failed.
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

    /// Drops unsent bytes.
    pub(crate) fn drop_unsent(&mut self) {
        self.outgoing = None;
    }

    /// Ends the connection with FIN rather than RST, so that the peer reads the last bytes. Returns false if the socket
    /// failed.
    pub(crate) fn shut_down_writing(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        rustix::net::shutdown(socket, Shutdown::Write).is_ok()
    }
}

impl ThreadBuffers {
    pub(crate) fn new() -> Self {
        Self {
            received: vec![0; usize::from(READ_BYTES_MAX)].into(),
            plain: Vec::new(),
            scratch: Vec::new(),
            discarded: DiscardStats::default(),
        }
    }
}
