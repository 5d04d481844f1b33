//! An accepted connection over any transport, and the detection of its protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use net::TlsServerStream;
use net::TlsSession;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::write_timeout::WriteTimeout;

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct ClientStream {
    carrier: Carrier,
    early: Early,
}

/// The transport of a connection.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// TCP without TLS.
    Tcp(WriteTimeout<TcpStream>),
    /// TLS over TCP. Boxed because its state is some hundred times larger than a socket.
    Tls(Box<TlsServerStream<WriteTimeout<TcpStream>>>),
    /// A Unix domain socket.
    Unix(WriteTimeout<UnixStream>),
}

/// The protocol of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientProtocol {
    /// HTTP/1.1 or 1.0.
    Http1,
    /// HTTP/2.
    Http2,
    /// Neither. An invalid preface gets no response (RFC 9113, section 3.4).
    Other,
}

/// The ALPN name of HTTP/2 over TLS (RFC 9113, section 3.2).
pub const ALPN_HTTP2: &[u8] = b"h2";

/// The ALPN name of HTTP/1.1 (RFC 7301, section 6).
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The first bytes of every client of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes that were read to detect the protocol, and that the protocol has yet to read.
#[derive(Debug, Default)]
struct Early {
    bytes: [u8; PREFACE.len()],
    from: u8,
    to: u8,
}

impl ClientStream {
    /// Returns a connection of which nothing has been read.
    pub(crate) fn new(carrier: Carrier) -> Self {
        Self { carrier, early: Early::default() }
    }

    /// Returns the parts of the connection, for callers that read and write without a runtime: the socket, the TLS
    /// session on it, and bytes that were read and not yet processed.
    pub(crate) fn into_parts(
        self,
    ) -> io::Result<(std::os::fd::OwnedFd, Option<TlsSession>, Bytes)> {
        let Early { bytes, from, to } = self.early;
        let early = Bytes::copy_from_slice(&bytes[usize::from(from)..usize::from(to)]);
        let (socket, session) = match self.carrier {
            Carrier::Tcp(socket) => (socket.into_inner().into_std()?.into(), None),
            Carrier::Unix(socket) => (socket.into_inner().into_std()?.into(), None),
            Carrier::Tls(stream) => {
                let (socket, session) = TlsSession::from_stream(*stream);
                (socket.into_inner().into_std()?.into(), Some(session))
            }
        };
        Ok((socket, session, early))
    }

    /// True if the first bytes are those of a GET of HTTP/1.1.
    pub(crate) fn begins_with_get(&self) -> bool {
        self.early.bytes[..usize::from(self.early.to)].starts_with(b"GET ")
    }

    /// Returns the protocol of the client, agreed on by ALPN or detected from its first bytes (RFC 9113, section 3.3).
    /// `None` if the client disconnects without sending anything. Waits for the first bytes as long as the client
    /// takes, unless the protocol is HTTP/2 by ALPN, in which the server may send first.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn detect_protocol(&mut self) -> io::Result<Option<ClientProtocol>> {
        let is_http1_agreed = match &self.carrier {
            Carrier::Tls(stream) => match net::negotiated_protocol(stream) {
                Some(ALPN_HTTP2) => return Ok(Some(ClientProtocol::Http2)),
                Some(_) => true,
                // The client did not use ALPN, so the protocol is detected as without TLS.
                None => false,
            },
            Carrier::Tcp(_) | Carrier::Unix(_) => false,
        };
        loop {
            let known = usize::from(self.early.to);
            if is_http1_agreed && known > 0 {
                return Ok(Some(ClientProtocol::Http1));
            }
            if self.early.bytes[..known] != PREFACE[..known] {
                let is_other = is_another_protocol(&self.early.bytes[..known]);
                return Ok(Some(if is_other {
                    ClientProtocol::Other
                } else {
                    ClientProtocol::Http1
                }));
            }
            if known == PREFACE.len() {
                return Ok(Some(ClientProtocol::Http2));
            }
            let count = self.carrier.read(&mut self.early.bytes[known..]).await?;
            if count == 0 {
                return Ok((known > 0).then_some(ClientProtocol::Http1));
            }
            self.early.to += count as u8;
        }
    }
}

/// True if a line has begun whose second word is not a request target (RFC 9112, section 3.2). It is then not a bad
/// request of HTTP/1.1, which would get a response, but another protocol. False as long as the bytes do not decide it.
fn is_another_protocol(first: &[u8]) -> bool {
    let mut words = first.split(u8::is_ascii_whitespace);
    let (Some(method), Some(target), Some(_)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    // A path, `*`, or a colon behind a scheme or before a port.
    let is_target = target.starts_with(b"/") || target == b"*" || target.contains(&b':');
    !method.is_empty() && !target.is_empty() && !is_target
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let early = &mut this.early;
        if early.from < early.to {
            let waiting = &early.bytes[usize::from(early.from)..usize::from(early.to)];
            let count = waiting.len().min(buffer.remaining());
            buffer.put_slice(&waiting[..count]);
            early.from += count as u8;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.carrier).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().carrier).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().carrier).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.carrier.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().carrier).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().carrier).poll_shutdown(context)
    }
}

net::delegate_stream!(Carrier { Tcp, Tls, Unix });

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;

    /// Returns a stream and its client.
    fn connect() -> (ClientStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let stall_time_max = Duration::from_secs(60);
        (ClientStream::new(Carrier::Unix(WriteTimeout::new(ours, stall_time_max))), theirs)
    }

    async fn detect(parts: &[&[u8]]) -> (Option<ClientProtocol>, Vec<u8>) {
        let (mut stream, mut theirs) = connect();
        let talking = async {
            for part in parts {
                theirs.write_all(part).await.expect("room");
                tokio::task::yield_now().await;
            }
            drop(theirs);
        };
        let listening = async {
            let protocol = stream.detect_protocol().await.expect("no error");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.expect("no error");
            (protocol, rest)
        };
        tokio::join!(talking, listening).1
    }

    #[tokio::test]
    async fn the_protocol_is_other_from_the_first_bytes_and_none_of_them_is_lost() {
        for (parts, protocol) in [
            (&[&PREFACE[..], b"rest"][..], Some(ClientProtocol::Http2)),
            (&[&PREFACE[..1], &PREFACE[1..20], &PREFACE[20..]], Some(ClientProtocol::Http2)),
            (&[b"POST /graphql HTTP/1.1\r\n\r\n"], Some(ClientProtocol::Http1)),
            (&[b"P", b"OST /graphql HTTP/1.1\r\n\r\n"], Some(ClientProtocol::Http1)),
            (&[b"PRI * HTTP/1.1\r\n\r\n"], Some(ClientProtocol::Http1)),
            (&[b"PRI"], Some(ClientProtocol::Http1)),
            (&[], None),
        ] {
            assert_eq!(detect(parts).await, (protocol, parts.concat()));
        }
    }

    #[tokio::test]
    async fn a_get_is_known_by_the_first_bytes() {
        let cases: [(&[u8], bool); 4] = [
            (b"GET /graphql HTTP/1.1\r\n", true),
            (b"POST /graphql HTTP/1.1\r\n", false),
            (b"GETS /graphql HTTP/1.1\r\n", false),
            (PREFACE, false),
        ];
        for (sent, is_get) in cases {
            let (mut stream, mut client) = connect();
            client.write_all(sent).await.expect("room");
            stream.detect_protocol().await.expect("no error");
            assert_eq!(stream.begins_with_get(), is_get, "{}", sent.escape_ascii());
        }
    }

    #[tokio::test]
    async fn who_begins_like_neither_protocol_is_other_from_who_sends_a_bad_request() {
        let cases: [(&[u8], bool); 11] = [
            (b"INVALID CONNECTION PREFACE\r\n\r\n", true),
            (b"SSH 2 0\r\n", true),
            (b"GET graphql HTTP/1.1\r\n\r\n", true),
            (b"GET /graphql HTTP/7.7\r\n\r\n", false),
            (b"GET /graphql\r\n\r\n", false),
            (b"OPTIONS * HTTP/1.1\r\n\r\n", false),
            (b"CONNECT a:1 HTTP/1.1\r\n\r\n", false),
            (b"GET http://a/ HTTP/1.1\r\n", false),
            (b"\r\nGET /graphql HTTP/1.1\r\n\r\n", false),
            (b"\x16\x03\x01\x02\x00 \x01 ", true),
            (b"GET  HTTP/1.1\r\n\r\n", false),
        ];
        for (sent, is_another) in cases {
            let is_other = detect(&[sent]).await.0 == Some(ClientProtocol::Other);
            assert_eq!(is_other, is_another, "{}", sent.escape_ascii());
        }
    }
}
