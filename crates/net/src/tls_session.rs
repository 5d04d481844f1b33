//! TLS of one connection without a socket: bytes from the network go in, what they mean comes out, and the other way
//! round. For those who own sockets without a runtime.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};

use rustls::{ClientConnection, ConnectionCommon, ServerConnection};

use crate::TlsServerStream;

/// The server's side of a TLS connection after its handshake.
///
/// Idle it keeps its keys and one read buffer of rustls, some 6 KiB together.
pub struct TlsSession(Box<ServerConnection>);

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("version", &self.0.protocol_version()).finish()
    }
}

/// How a session goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsProgress {
    /// More may come.
    Open,
    /// The peer has said that nothing follows.
    Ended,
    /// The peer broke the protocol. What [`TlsSession::take_records`] gives tells it so.
    Failed,
}

impl TlsSession {
    /// Parts a stream into what carries it and its session. What the session has read ahead and not yet written is
    /// in it still: call [`TlsSession::receive`] with nothing and [`TlsSession::take_records`] before waiting for
    /// the carrier, which will tell of neither.
    pub fn part<S>(stream: TlsServerStream<S>) -> (S, Self) {
        let (carrier, mut connection) = stream.into_inner();
        // Bounded by whoever sends: what it gives is encrypted at once and taken out.
        connection.set_buffer_limit(None);
        (carrier, Self(Box::new(connection)))
    }

    /// Takes bytes from the network, in pieces of any size, and appends what they say to `plain`: no more bytes than
    /// there were, beside what had been read ahead.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> TlsProgress {
        receive(&mut self.0, bytes, plain)
    }

    /// Appends the records that say `parts`, one after the other, to `records`.
    pub fn send(&mut self, parts: [&[u8]; 3], records: &mut Vec<u8>) {
        let mut parts = parts.map(IoSlice::new);
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            match self.0.writer().write_vectored(parts) {
                Ok(0) | Err(_) => break,
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
            }
        }
        self.take_records(records);
    }

    /// Appends what the session itself has to say: alerts, tickets, answers to changes of keys.
    pub fn take_records(&mut self, records: &mut Vec<u8>) {
        take_records(&mut self.0, records);
    }

    /// Says that nothing follows. The record is among those that are taken next.
    pub fn close(&mut self) {
        self.0.send_close_notify();
    }
}

/// The client's side of a TLS connection, from its first byte on: what is to be said waits in it for the end of the
/// handshake. Made by [`crate::TlsClient::session`].
pub struct TlsClientSession(Box<ClientConnection>);

impl fmt::Debug for TlsClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClientSession").field("version", &self.0.protocol_version()).finish()
    }
}

impl TlsClientSession {
    pub(crate) fn new(mut connection: ClientConnection) -> Self {
        // As on the other side.
        connection.set_buffer_limit(None);
        Self(Box::new(connection))
    }

    /// As [`TlsSession::receive`]. What the handshake has to say is in [`TlsClientSession::take_records`] then.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> TlsProgress {
        receive(&mut self.0, bytes, plain)
    }

    /// As [`TlsSession::send`].
    pub fn send(&mut self, bytes: &[u8], records: &mut Vec<u8>) {
        // Without a limit it takes everything.
        let _ = self.0.writer().write_all(bytes);
        self.take_records(records);
    }

    /// As [`TlsSession::take_records`].
    pub fn take_records(&mut self, records: &mut Vec<u8>) {
        take_records(&mut self.0, records);
    }
}

fn receive<D>(
    connection: &mut ConnectionCommon<D>,
    mut bytes: &[u8],
    plain: &mut Vec<u8>,
) -> TlsProgress {
    loop {
        let Ok(state) = connection.process_new_packets() else { return TlsProgress::Failed };
        let count = state.plaintext_bytes_to_read();
        if count > 0 {
            let start = plain.len();
            plain.resize(start + count, 0);
            if connection.reader().read_exact(&mut plain[start..]).is_err() {
                return TlsProgress::Failed;
            }
        }
        if state.peer_has_closed() {
            return TlsProgress::Ended;
        }
        if bytes.is_empty() {
            break;
        }
        match connection.read_tls(&mut bytes) {
            Ok(count) if count > 0 => {}
            // No room for a record that is larger than records may be.
            _ => return TlsProgress::Failed,
        }
    }
    // It gives the room that a large record took back only when it is about to read again.
    let _ = connection.read_tls(&mut Nothing);
    TlsProgress::Open
}

fn take_records<D>(connection: &mut ConnectionCommon<D>, records: &mut Vec<u8>) {
    while connection.wants_write() {
        // A vector takes everything.
        if connection.write_tls(records).is_err() {
            return;
        }
    }
}

/// A network that is silent at the moment.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
