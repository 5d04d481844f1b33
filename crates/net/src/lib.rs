//! Byte transports: plain TCP and TLS. The only crate that names rustls.
//!
//! Invariant: knows no protocol. Who connects gets bytes both ways and nothing else.

mod connect;
mod stream;
mod tls;

pub use connect::{ConnectError, connect};
pub use stream::Stream;
pub use tls::{TlsClient, TlsError};
