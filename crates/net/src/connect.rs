//! Connections to servers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::error::ConnectError;
use crate::race::{connect_to_first, interleave_families};
use crate::resolve;
use crate::stream::Stream;
use crate::tls::TlsClient;

/// The idle time after which a connection is probed, and the interval of further probes. Without probes a connection to
/// a peer that has vanished would stay open for hours.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to `host` (a name or an IP address, IPv6 with or without brackets), over TLS if `tls` is given. Several
/// addresses are tried as RFC 8305 says ("happy eyeballs"): each gets a head start over the next. `timeout` covers name
/// resolution, connecting and the TLS handshake together.
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
        let addresses = resolve::addresses_of(host).await?;
        let addresses = addresses.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
        let stream = connect_to_first(interleave_families(addresses), connect_tcp).await?;
        match tls {
            Some(tls) => tls.handshake(host, stream).await,
            None => Ok(Stream::Plain(stream)),
        }
    };
    tokio::time::timeout(timeout, connecting).await.unwrap_or(Err(ConnectError::Timeout(timeout)))
}

/// Connects to the Unix domain socket at `path`.
///
/// # Errors
/// See [`ConnectError`].
#[cfg(unix)]
pub async fn connect_unix(
    path: &std::path::Path,
    timeout: Duration,
) -> Result<Stream, ConnectError> {
    match tokio::time::timeout(timeout, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => Ok(Stream::Unix(stream)),
        Ok(Err(error)) => Err(ConnectError::Refused(error.kind())),
        Err(_) => Err(ConnectError::Timeout(timeout)),
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Requests are written whole, so waiting for more data only costs time. Where one of the options cannot be set, the
    // connection works all the same.
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    Ok(stream)
}
