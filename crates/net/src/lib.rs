//! Byte transports: plain TCP, unix sockets and TLS, both sides of it. The only crate that names rustls.
//!
//! Invariant: knows no protocol. Who connects gets bytes both ways and nothing else.

mod connect;
mod race;
mod resolve;
mod stream;
mod tls;
mod tls_server;
mod tls_session;

#[cfg(unix)]
pub use connect::connect_unix;
pub use connect::{ConnectError, connect};
pub use stream::{Stream, Unread};
pub use tls::{Identity, Roots, TlsClient, TlsError};
pub use tls_server::{
    TlsServer, TlsServerError, TlsServerFiles, TlsServerStream, negotiated_protocol,
};
pub use tls_session::{TlsClientSession, TlsProgress, TlsSession};
