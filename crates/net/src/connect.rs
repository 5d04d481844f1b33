//! Opening connections.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};

use crate::{Stream, TlsClient};

/// Why there is no connection. Its text names no host and no address: it may reach clients.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("the host name cannot be resolved")]
    Resolve,
    /// Every address refused or failed; this is why the last one did.
    #[error("{}", describe(*.0))]
    Refused(io::ErrorKind),
    /// Not in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(&'static str),
}

fn describe(kind: io::ErrorKind) -> String {
    // `io::ErrorKind` has short texts of its own: "connection refused", "host unreachable".
    kind.to_string()
}

/// Connects to `host` (a name or an IP address, IPv6 with or without brackets), over TLS if `tls`
/// is given. Addresses are tried one after the other. `timeout` covers everything: resolving,
/// connecting, shaking hands.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(
    host: &str,
    port: u16,
    tls: Option<&TlsClient>,
    timeout: Duration,
) -> Result<Stream, ConnectError> {
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let connecting = async {
        let stream = connect_plain(host, port).await?;
        match tls {
            Some(tls) => tls.handshake(host, stream).await,
            None => Ok(Stream::Plain(stream)),
        }
    };
    tokio::time::timeout(timeout, connecting).await.unwrap_or(Err(ConnectError::Timeout(timeout)))
}

async fn connect_plain(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = lookup_host((host, port)).await.map_err(|_| ConnectError::Resolve)?;
    let mut problem = ConnectError::Resolve;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are written whole; waiting for more to send only costs time. Where the
                // option cannot be set the connection works all the same.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => problem = ConnectError::Refused(error.kind()),
        }
    }
    Err(problem)
}
