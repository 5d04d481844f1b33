//! TLS of one connection without a socket: bytes of the network go in and plain text comes out, and the other way
//! round. For callers that own sockets without a runtime.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};

use rustls::{ClientConnection, ConnectionCommon, ServerConnection};

use crate::TlsServerStream;

/// The server's side of a TLS connection after its handshake.
///
/// An idle session holds its keys and one read buffer of rustls, about 6 KiB together.
pub struct TlsSession(Box<ServerConnection>);

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("version", &self.0.protocol_version()).finish()
    }
}

/// The state of a session after it received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsProgress {
    /// The session is open.
    Open,
    /// The peer has announced the end of its data.
    Ended,
    /// The peer broke the protocol. The records of [`TlsSession::take_records`] report that to it.
    Failed,
}

impl TlsSession {
    /// Splits a stream into its carrier and its session. The session may hold data that it has read ahead, and records
    /// that are not yet written: call [`TlsSession::receive`] with no bytes and [`TlsSession::take_records`] before
    /// waiting for the carrier, which reports neither.
    pub fn from_stream<S>(stream: TlsServerStream<S>) -> (S, Self) {
        let (carrier, mut connection) = stream.into_inner();
        // The sender bounds it: the plain text is encrypted at once and taken out.
        connection.set_buffer_limit(None);
        (carrier, Self(Box::new(connection)))
    }

    /// Takes bytes from the network, in pieces of any size, and appends their plain text to `plain`: at most as many
    /// bytes as there were, besides those that had been read ahead.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> TlsProgress {
        receive(&mut self.0, bytes, plain)
    }

    /// Appends the records that carry `parts`, one behind the other, to `records`.
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

    /// Appends the session's own records: alerts, tickets, responses to key updates.
    pub fn take_records(&mut self, records: &mut Vec<u8>) {
        take_records(&mut self.0, records);
    }

    /// Announces the end of the data. The record is among those that are taken next.
    pub fn close(&mut self) {
        self.0.send_close_notify();
    }
}

/// The client's side of a TLS connection from its first byte on. Data that is sent before the end of the handshake
/// waits in the session. See [`crate::TlsClient::session`].
pub struct TlsClientSession(Box<ClientConnection>);

impl fmt::Debug for TlsClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClientSession").field("version", &self.0.protocol_version()).finish()
    }
}

impl TlsClientSession {
    pub(crate) fn new(mut connection: ClientConnection) -> Self {
        // As for [`TlsSession`], the sender bounds it.
        connection.set_buffer_limit(None);
        Self(Box::new(connection))
    }

    /// Takes bytes from the network like [`TlsSession::receive`]. The handshake's records are then in
    /// [`TlsClientSession::take_records`].
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> TlsProgress {
        receive(&mut self.0, bytes, plain)
    }

    /// Appends the records that carry `bytes` to `records`.
    pub fn send(&mut self, bytes: &[u8], records: &mut Vec<u8>) {
        // Without a limit, the session accepts everything.
        let _ = self.0.writer().write_all(bytes);
        self.take_records(records);
    }

    /// Appends the records that wait to be sent to `records`.
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
            // There is no room for a record that is longer than records may be.
            _ => return TlsProgress::Failed,
        }
    }
    // rustls frees the buffer of a large record only when it is about to read again.
    let _ = connection.read_tls(&mut EmptyReader);
    TlsProgress::Open
}

fn take_records<D>(connection: &mut ConnectionCommon<D>, records: &mut Vec<u8>) {
    while connection.wants_write() {
        // A vector accepts everything.
        if connection.write_tls(records).is_err() {
            return;
        }
    }
}

/// A network without data at the moment.
struct EmptyReader;

impl Read for EmptyReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
