//! Byte transports: TCP, Unix domain sockets and TLS, for clients and servers. This is the only crate that names
//! rustls.
//!
//! Invariant: the crate knows no protocol above the transport. Callers get a stream of bytes both ways and nothing
//! else.

mod connect;
mod crypto;
mod delegate;
mod error;
mod pem;
mod race;
mod resolve;
mod stream;
mod tls;
mod tls_server;
mod tls_session;

pub use connect::connect;
#[cfg(unix)]
pub use connect::connect_unix;
pub use error::ConnectError;
pub use pem::read_pem_file;
pub use stream::{Stream, Unread};
pub use tls::{Roots, TlsClient, TlsError, TlsIdentity};
pub use tls_server::{
    TlsServer, TlsServerError, TlsServerFiles, TlsServerStream, has_client_certificate,
    negotiated_protocol,
};
pub use tls_session::{TlsClientSession, TlsProgress, TlsSession};
