//! Listeners: they accept connections and assign each to a worker. `connection` serves the connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use clients::connections::ConnectionRefused;
use clients::request_source::ConnectionOrigin;
use futures_util::FutureExt;
use net::TlsServer;
use telemetry::LogLimit;
use tokio::net::{TcpListener, UnixListener};

use super::connection::AcceptedSocket;
use super::connection_storm::{Storm, park_in_storm, unpark_all};
use super::http_server::HttpServer;
use super::new_connection::{
    NewConnection, PLACE_WAIT_MAX, Place, assign_to_worker, enter, reject,
};
use super::parked_handshakes::ParkedHandshakes;
use super::unix::{BoundSocket, SocketFile};
use crate::descriptors::SpareDescriptor;

/// The pause after the process or the system ran out of descriptors: accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the listener looks for responses while a connection waits for a place.
const PLACE_POLL: Duration = Duration::from_millis(1);

/// The time between two looks at whether there is room for a further connection.
const ROOM_POLL: Duration = Duration::from_millis(5);

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
    Tcp {
        listener: TcpListener,
        /// The same listener, of which many waiting connections are accepted: Tokio would register each of them with
        /// this runtime, and a worker serves it.
        direct: std::net::TcpListener,
        tls: Option<Arc<TlsServer>>,
    },
    Unix(UnixListener, #[expect(dead_code, reason = "removed when it is dropped")] SocketFile),
}

impl WatchedListener {
    /// Watches a listener. `stall_timeout` is the time for which a client may acknowledge nothing that is sent to it.
    fn new(bound: BoundListener, stall_timeout: Duration) -> std::io::Result<Self> {
        Ok(match bound {
            BoundListener::Tcp(listener, tls) => {
                inherit_options(&listener, stall_timeout);
                let direct = listener.try_clone()?;
                Self::Tcp { listener: TcpListener::from_std(listener)?, direct, tls }
            }
            BoundListener::Unix(bound) => {
                bound.listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(bound.listener)?, bound.file)
            }
        })
    }

    /// Accepts the next connection. `many` tells whether others are likely to wait as well.
    async fn accept(&self, many: bool) -> std::io::Result<(AcceptedSocket, ConnectionOrigin)> {
        match self {
            Self::Tcp { listener, direct, tls } => {
                let waiting = match many {
                    true => {
                        // Other tasks of this thread have their turns as well.
                        tokio::task::coop::consume_budget().await;
                        accept_waiting(direct).ok()
                    }
                    false => None,
                };
                let (socket, address) = match waiting {
                    Some(waiting) => waiting,
                    None => {
                        let (socket, address) = listener.accept().await?;
                        (socket.into_std()?, Some(address))
                    }
                };
                let address = address.map(|it| it.ip().to_canonical());
                let origin = ConnectionOrigin { address, is_tls: tls.is_some() };
                Ok((AcceptedSocket::Tcp(socket, tls.clone()), origin))
            }
            Self::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                Ok((AcceptedSocket::Unix(socket.into_std()?), ConnectionOrigin::default()))
            }
        }
    }
}

/// Accepts a connection that waits at a listener, as one that does not block. The listener must not block either.
fn accept_waiting(
    listener: &std::net::TcpListener,
) -> std::io::Result<(std::net::TcpStream, Option<SocketAddr>)> {
    #[cfg(target_os = "linux")]
    let accepted = {
        use rustix::net::{SocketFlags, acceptfrom_with};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, address) = acceptfrom_with(listener, flags)?;
        (socket.into(), address.and_then(|it| it.try_into().ok()))
    };
    #[cfg(not(target_os = "linux"))]
    let accepted = {
        let (socket, address) = listener.accept()?;
        socket.set_nonblocking(true)?;
        (socket, Some(address))
    };
    Ok(accepted)
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
/// serve them, and some for the responses that they send meanwhile ([`crate::accept_pace`]). In a storm of WebSocket
/// handshakes it parks some (`connection_storm`).
pub async fn accept_connections(server: Arc<HttpServer>, bound: BoundListener) {
    let listener = match WatchedListener::new(bound, server.settings.stall_timeout) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener could not be watched");
            return;
        }
    };
    let total = Arc::clone(server.pipeline.first_turns.parked());
    let parked = Arc::new(ParkedHandshakes::new(total));
    let mut shutdown = server.shutdown.signal();
    tokio::select! {
        () = accept_all(&server, &listener, &parked) => {}
        () = unpark_all(&server, &parked) => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

/// Accepts connections; never returns.
async fn accept_all(
    server: &Arc<HttpServer>,
    listener: &WatchedListener,
    parked: &Arc<ParkedHandshakes<NewConnection>>,
) {
    let warnings = LogLimit::new();
    let mut spare = SpareDescriptor::take();
    let mut storm = Storm::new(server.workers.count());
    loop {
        wait_for_room(server).await;
        match listener.accept(!parked.is_empty()).await {
            Ok((accepted, origin)) => {
                spare.take_again();
                let Some(new) = enter(server, accepted, origin) else { continue };
                let Some(new) = park_in_storm(server, parked, &mut storm, new).await else {
                    continue;
                };
                let place = take_place(server).await;
                assign_to_worker(server, new, place);
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
                    if let Some(Ok((accepted, _))) = listener.accept(false).now_or_never() {
                        reject(accepted, ConnectionRefused::Descriptors);
                    }
                    spare.take_again();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits while there is no room for a further connection, and others end in a moment. When all clients return at once,
/// their old connections are still there.
async fn wait_for_room(server: &HttpServer) {
    while server.limits.connections.is_full() && (server.hurry_leaving)() > 0 {
        tokio::time::sleep(ROOM_POLL).await;
    }
}

/// Waits until a connection may be assigned to a worker. Returns its place among those that wait for their workers.
async fn take_place(server: &HttpServer) -> Place {
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options_of_the_listener() {
        let bound = crate::tcp::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = bound.local_addr().expect("bound");
        let stall_timeout = Duration::from_secs(7);
        let listener = WatchedListener::new(BoundListener::Tcp(bound, None), stall_timeout);
        let listener = listener.expect("a runtime");
        for many in [false, true] {
            let client = std::net::TcpStream::connect(address).expect("the listener is bound");
            let accepted = listener.accept(many).await.expect("a client connects");
            let (AcceptedSocket::Tcp(mut socket, None), origin) = accepted else {
                panic!("not a TCP connection: {accepted:?}");
            };
            assert_eq!(origin.address, client.local_addr().ok().map(|it| it.ip()));
            let blocked = socket.read(&mut [0]).expect_err("nothing was sent");
            assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock, "{many}");
            let options = socket2::SockRef::from(&socket);
            assert!(options.tcp_nodelay().expect("an option of TCP"));
            #[cfg(target_os = "linux")]
            assert_eq!(options.tcp_user_timeout().expect("an option of TCP"), Some(stall_timeout));
        }
    }
}
