//! Listeners: they accept connections and assign each to a worker. `connection` serves the connection.

use std::fmt;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU16;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use clients::connections::ConnectionRefused;
use clients::request_source::ConnectionOrigin;
use execute::GraphqlError;
use futures_util::FutureExt;
use net::TlsServer;
use telemetry::LogLimit;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::OwnedSemaphorePermit;

use super::connection::{self, AcceptedSocket};
use super::http_server::HttpServer;
use super::media::ResponseFormat;
use super::unix::{BoundSocket, SocketFile};
use crate::descriptors::SpareDescriptor;

/// The pause after the process or the system ran out of descriptors: accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time for which a connection waits until workers serve those before. After it the worker that has them stands
/// still, and others may serve.
const PLACE_WAIT_MAX: Duration = Duration::from_millis(100);

/// How often the listener looks for responses meanwhile.
const PLACE_POLL: Duration = Duration::from_millis(1);

/// The time between two looks at the handshakes that wait. The listener then accepts several connections together,
/// because each of its runs costs two switches between threads.
const HANDSHAKES_POLL: Duration = Duration::from_millis(5);

/// A bound address at which clients connect.
#[derive(Debug)]
pub enum BoundListener {
    /// A TCP address, and the certificates if the listener uses TLS.
    Tcp(std::net::TcpListener, Option<Arc<TlsServer>>),
    /// A Unix domain socket.
    Unix(BoundSocket),
}

impl BoundListener {
    /// Returns the address, unless the listener is a Unix domain socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// Writes the name of the listener in the log.
impl fmt::Display for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener, tls) => match listener.local_addr() {
                Ok(address) if tls.is_some() => write!(f, "{address} (TLS)"),
                Ok(address) => address.fmt(f),
                Err(error) => write!(f, "an unknown address ({error})"),
            },
            Self::Unix(bound) => write!(f, "unix:{}", bound.file.path().display()),
        }
    }
}

/// A [`BoundListener`] that the runtime watches.
enum WatchedListener {
    Tcp(TcpListener, Option<Arc<TlsServer>>),
    Unix(UnixListener, #[expect(dead_code, reason = "removed when it is dropped")] SocketFile),
}

impl WatchedListener {
    /// Watches a listener. `stall_timeout` is the time for which a client may acknowledge nothing that is sent to it.
    fn new(bound: BoundListener, stall_timeout: Duration) -> std::io::Result<Self> {
        Ok(match bound {
            BoundListener::Tcp(listener, tls) => {
                inherit_options(&listener, stall_timeout);
                Self::Tcp(TcpListener::from_std(listener)?, tls)
            }
            BoundListener::Unix(bound) => {
                bound.listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(bound.listener)?, bound.file)
            }
        })
    }

    async fn accept(&self) -> std::io::Result<(AcceptedSocket, ConnectionOrigin)> {
        match self {
            Self::Tcp(listener, tls) => {
                let (socket, address) = listener.accept().await?;
                let address = Some(address.ip().to_canonical());
                let origin = ConnectionOrigin { address, is_tls: tls.is_some() };
                Ok((AcceptedSocket::Tcp(socket.into_std()?, tls.clone()), origin))
            }
            Self::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                Ok((AcceptedSocket::Unix(socket.into_std()?), ConnectionOrigin::default()))
            }
        }
    }
}

/// Sets the options of a listener that each accepted socket inherits (socket(7), tcp(7)), which saves two system calls
/// for each. Best effort: without them connections are slower, or their loss is noticed later.
fn inherit_options(listener: &std::net::TcpListener, stall_timeout: Duration) {
    let options = socket2::SockRef::from(listener);
    let _ = options.set_tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = options.set_tcp_user_timeout(Some(stall_timeout));
    #[cfg(not(target_os = "linux"))]
    let _ = stall_timeout;
}

/// Accepts connections until shutdown and assigns each to the least loaded worker: as fast as the workers begin to
/// serve them, and some for the responses that they send meanwhile ([`crate::accept_pace`]). While many WebSocket
/// handshakes wait for their turn, it accepts slowly ([`clients::handshake_pace`]).
pub async fn accept_connections(server: Arc<HttpServer>, bound: BoundListener) {
    let listener = match WatchedListener::new(bound, server.settings.stall_timeout) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener could not be watched");
            return;
        }
    };
    let mut shutdown = server.shutdown.signal();
    let warnings = LogLimit::new();
    let mut spare = SpareDescriptor::take();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok(accepted) => {
                spare.take_again();
                let place = tokio::select! {
                    place = take_place(&server) => place,
                    _ = shutdown.wait_for(|stop| *stop) => return,
                };
                assign_to_worker(&server, accepted, place);
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                server.metrics.count_accept_failure();
                if let Some(suppressed) = warnings.admit(Instant::now()) {
                    tracing::warn!(
                        %error,
                        suppressed,
                        "connections cannot be accepted; the listener tries again"
                    );
                }
                if spare.free() {
                    // A connection that already waits, if there is still one.
                    if let Some(Ok((accepted, _))) = listener.accept().now_or_never() {
                        reject(accepted, ConnectionRefused::Descriptors);
                    }
                    spare.take_again();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits until a connection may be accepted. Returns its place among those that wait for their workers; `None` if it
/// needs none.
async fn take_place(server: &HttpServer) -> Option<OwnedSemaphorePermit> {
    if let Some(handshakes) = &server.limits.handshakes {
        while !handshakes.may_accept() {
            tokio::time::sleep(HANDSHAKES_POLL).await;
        }
    }
    let place = Arc::clone(&server.accepting).acquire_owned();
    tokio::select! {
        // Responses earn connections for the time in which there is no place.
        biased;
        // Never fails, because the semaphore is never closed.
        place = place => place.ok(),
        () = earn_place(server) => None,
    }
}

/// Waits until a connection may be accepted although as many as may wait for their workers do so.
async fn earn_place(server: &HttpServer) {
    let began = Instant::now();
    let is_earned = || {
        let responses = server.pipeline.metrics.served_responses();
        let mut pace = server.accept_pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.take(responses)
    };
    // Nothing announces responses: that would cost each of them.
    while !is_earned() && began.elapsed() < PLACE_WAIT_MAX {
        tokio::time::sleep(PLACE_POLL).await;
    }
}

/// True for errors that `accept` passes on from the connection and that do not concern the listener (accept(2)).
pub fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn assign_to_worker(
    server: &Arc<HttpServer>,
    (accepted, origin): (AcceptedSocket, ConnectionOrigin),
    place: Option<OwnedSemaphorePermit>,
) {
    let permit = match server.limits.connections.enter(origin.address) {
        Ok(permit) => permit,
        Err(no_room) => {
            reject(accepted, no_room);
            return;
        }
    };
    let Some(served) = server.limits.served.enter() else {
        reject(accepted, ConnectionRefused::Memory);
        return;
    };
    let serving = Arc::clone(server);
    server.workers.run(Box::new(move || {
        Box::pin(async move {
            // The earlier work of the worker comes first.
            tokio::task::yield_now().await;
            drop(place);
            connection::serve(serving, accepted, permit, served, origin).await;
        })
    }));
}

/// Responds to a connection over a limit, whatever its request would have been.
///
/// The response is written without waiting, because a client that does not read it must not cost more than an accepted
/// one. For the same reason a client that would have to do a TLS handshake first gets no response.
fn reject(accepted: AcceptedSocket, no_room: ConnectionRefused) {
    let (status, message) = match no_room {
        ConnectionRefused::All => (
            "503 Service Unavailable",
            "the router has as many connections as it may have (`http.max_connections`); try \
             again later",
        ),
        ConnectionRefused::Descriptors => {
            ("503 Service Unavailable", "the router may open no further file; try again later")
        }
        ConnectionRefused::Memory => (
            "503 Service Unavailable",
            "the router has no memory left for further connections (`limits.memory`); try again \
             later",
        ),
        ConnectionRefused::OfAddress => (
            "429 Too Many Requests",
            "this address has as many connections as it may have \
             (`http.max_connections_per_ip`); close one first",
        ),
    };
    let error = GraphqlError::no_room(message);
    let retry_after = error.retry_after_seconds.map_or(1, NonZeroU16::get);
    let body = execute::request_error(&[error]).bytes;
    let mut response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nretry-after: {retry_after}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        ResponseFormat::Json.content_type(),
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(&body);
    // The buffer of a fresh socket has room for the response; if not, the client gets none.
    match accepted {
        AcceptedSocket::Tcp(mut socket, None) => {
            let _ = socket.write_all(&response);
            let _ = socket.shutdown(Shutdown::Write);
        }
        AcceptedSocket::Unix(mut socket) => {
            let _ = socket.write_all(&response);
            let _ = socket.shutdown(Shutdown::Write);
        }
        AcceptedSocket::Tcp(_, Some(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options_of_the_listener() {
        let bound = crate::tcp::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = bound.local_addr().expect("bound");
        let stall_timeout = Duration::from_secs(7);
        let listener = WatchedListener::new(BoundListener::Tcp(bound, None), stall_timeout);
        let client = std::net::TcpStream::connect(address).expect("the listener is bound");
        let accepted = listener.expect("a runtime").accept().await.expect("a client connects");
        let (AcceptedSocket::Tcp(socket, None), origin) = accepted else {
            panic!("not a TCP connection: {accepted:?}");
        };
        assert_eq!(origin.address, client.local_addr().ok().map(|it| it.ip()));
        let options = socket2::SockRef::from(&socket);
        assert!(options.tcp_nodelay().expect("an option of TCP"));
        #[cfg(target_os = "linux")]
        assert_eq!(options.tcp_user_timeout().expect("an option of TCP"), Some(stall_timeout));
    }
}
