//! Accepting connections, and placing each on a core. What is said on them is for [`super::serve`].

use std::fmt;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use execute::{ErrorCode, GraphqlError};
use futures_util::FutureExt;
use net::TlsServer;
use tokio::net::{TcpListener, UnixListener};

use super::media::AnswerType;
use super::serve::{self, Accepted};
use super::unix::{BoundSocket, SocketFile};
use crate::connections::NoRoom;
use crate::descriptors::SpareDescriptor;
use crate::log_limit::LogLimit;
use crate::router::Router;

/// How long to wait when the process or system has no descriptor left: accepting at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A place where clients connect, bound.
#[derive(Debug)]
pub(crate) enum Bound {
    /// TCP, and the certificates if it speaks TLS.
    Tcp(std::net::TcpListener, Option<Arc<TlsServer>>),
    /// A Unix domain socket.
    Unix(BoundSocket),
}

impl Bound {
    /// The address, where it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// As the log names it.
impl fmt::Display for Bound {
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

/// A [`Bound`] that the runtime watches.
enum Listener {
    Tcp(TcpListener, Option<Arc<TlsServer>>),
    Unix(UnixListener, #[expect(dead_code, reason = "removed when it is dropped")] SocketFile),
}

impl Listener {
    fn new(bound: Bound) -> std::io::Result<Self> {
        Ok(match bound {
            Bound::Tcp(listener, tls) => Self::Tcp(TcpListener::from_std(listener)?, tls),
            Bound::Unix(bound) => {
                bound.listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(bound.listener)?, bound.file)
            }
        })
    }

    async fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Self::Tcp(listener, tls) => {
                let (socket, _) = listener.accept().await?;
                Ok(Accepted::Tcp(socket.into_std()?, tls.clone()))
            }
            Self::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                Ok(Accepted::Unix(socket.into_std()?))
            }
        }
    }
}

/// Accepts until shutdown and places each connection on the least loaded core.
pub(crate) async fn accept(router: Arc<Router>, bound: Bound) {
    let listener = match Listener::new(bound) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener could not be watched");
            return;
        }
    };
    let mut shutdown = router.shutdown.clone();
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
                place(&router, accepted);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                router.metrics.accept_failures.fetch_add(1, Ordering::Relaxed);
                if let Some(suppressed) = warnings.admit(Instant::now()) {
                    tracing::warn!(
                        %error,
                        suppressed,
                        "connections cannot be accepted; trying again and again"
                    );
                }
                if spare.free() {
                    // One that waits already, if there is still one.
                    if let Some(Ok(accepted)) = listener.accept().now_or_never() {
                        turn_away(accepted, NoRoom::Descriptors);
                    }
                    spare.take_again();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Errors that `accept` passes on from the connection and that say nothing of the listener (accept(2)).
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn place(router: &Arc<Router>, accepted: Accepted) {
    let permit = match router.connections.enter(accepted.address()) {
        Ok(permit) => permit,
        Err(no_room) => {
            turn_away(accepted, no_room);
            return;
        }
    };
    let serving = Arc::clone(router);
    router.cores.run(Box::new(move || {
        Box::pin(async move { serve::serve(serving, accepted, permit).await })
    }));
}

/// For connections over a limit: the one answer for whatever they would have asked.
///
/// Written without waiting, for a client that does not take it must not cost more than one that was let in. For the
/// same reason who would have to shake hands first (TLS) is not told.
fn turn_away(accepted: Accepted, no_room: NoRoom) {
    let (status, message) = match no_room {
        NoRoom::All => (
            "503 Service Unavailable",
            "the router has as many connections as it may have (`http.max_connections`); try \
             again later",
        ),
        NoRoom::Descriptors => {
            ("503 Service Unavailable", "the router may open no further file; try again later")
        }
        NoRoom::OfAddress => (
            "429 Too Many Requests",
            "this address has as many connections as it may have \
             (`http.max_connections_per_ip`); close one first",
        ),
    };
    let error = GraphqlError::new(ErrorCode::Overloaded, message);
    let body = execute::request_error(&[error]).bytes;
    let mut answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        AnswerType::Json.content_type(),
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    // The buffer of a fresh socket has room for it; if not, nobody is told.
    match accepted {
        Accepted::Tcp(mut socket, None) => {
            let _ = socket.write_all(&answer);
            let _ = socket.shutdown(Shutdown::Write);
        }
        Accepted::Unix(mut socket) => {
            let _ = socket.write_all(&answer);
            let _ = socket.shutdown(Shutdown::Write);
        }
        Accepted::Tcp(_, Some(_)) => {}
    }
}
