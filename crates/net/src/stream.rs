//! A connection to a server, over any transport.

use std::io;
use std::mem::MaybeUninit;

use socket2::SockRef;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A connected byte stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream {
    /// TCP without TLS.
    Plain(TcpStream),
    /// TLS over TCP. Boxed because its state is some hundred times larger than a socket.
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// A Unix domain socket.
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Returns the protocol that both sides agreed on by ALPN; `None` without TLS or without agreement.
    pub fn agreed_protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol(),
            _ => None,
        }
    }

    /// Looks for unread contents at the socket itself, whether the runtime has noticed them or not.
    pub fn unread(&self) -> Unread {
        let socket = match self {
            Self::Plain(stream) => SockRef::from(stream),
            Self::Tls(stream) => SockRef::from(stream.get_ref().0),
            #[cfg(unix)]
            Self::Unix(stream) => SockRef::from(stream),
        };
        let mut bytes = [MaybeUninit::<u8>::uninit(); 1];
        match socket.peek(&mut bytes) {
            Ok(0) => Unread::End,
            Ok(_) if matches!(self, Self::Tls(_)) => Unread::Encrypted,
            Ok(_) => Unread::Bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Unread::Nothing,
            Err(_) => Unread::End,
        }
    }
}

/// The unread contents of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// Nothing yet.
    Nothing,
    /// Bytes of the connection's protocol.
    Bytes,
    /// Bytes of TLS, which may concern the session only.
    Encrypted,
    /// The end of the stream, or an error.
    End,
}

crate::delegate_stream!(Stream {
    Plain,
    Tls,
    #[cfg(unix)]
    Unix,
});
