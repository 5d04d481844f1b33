//! Failures of connection attempts.

use std::io;
use std::time::Duration;

/// The reason that there is no connection. Its text names no host and no address: clients may see it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host name has no address.
    #[error("the host name cannot be resolved")]
    Resolve,
    /// All addresses refused or failed; the kind is that of the last error. Its text is short: "connection refused",
    /// "host unreachable".
    #[error("{}", .0)]
    Refused(io::ErrorKind),
    /// The connection was not made in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(&'static str),
}
