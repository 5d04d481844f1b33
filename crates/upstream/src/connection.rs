//! Opens connections to a server, and sends requests over HTTP/2, many at a time. An HTTP/1.1
//! connection carries one request at a time: see [`crate::http1`].

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use execute::FetchError;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::Stream;
use tokio::sync::OwnedSemaphorePermit;

use crate::Protocol;
use crate::byte_counter::CountedStream;
use crate::http1::Http1Connection;
use crate::request_body::RequestBody;
use crate::retry::{FailedAttempt, SentState};
use crate::shared::{STREAMS_MAX, SubgraphState};
use crate::stats::count;
use crate::target::{Address, Origin, Target};

/// Time without a frame after which an HTTP/2 connection with requests in flight is checked by a
/// ping.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Time without a response to the ping after which the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the headers of a response over HTTP/2, expanded, in bytes.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Number of requests that are sent before the server has announced its limit: it could refuse
/// more. Further requests wait for the announcement, which comes with the first response at the
/// latest.
const STREAMS_BEFORE_SETTINGS: usize = 1;

/// A connection that was opened.
pub(crate) enum OpenedConnection {
    Http1(Http1Connection),
    Http2(Rc<Http2Connection>),
}

/// Opens a connection. Must be called on a `LocalSet`: the task that drives the connection stays on
/// this worker. The permit is held until the connection closes.
pub(crate) async fn open_connection(
    origin: &Origin,
    protocol: Protocol,
    timeout: Duration,
    state: &SubgraphState,
    permit: OwnedSemaphorePermit,
) -> Result<OpenedConnection, FetchError> {
    count(&state.stats.connections_opened);
    let stream = connect(origin, timeout).await?;
    let agreed = stream.agreed_protocol() == Some(b"h2");
    if origin.tls.is_some() {
        state.agreed_http2.store(agreed, Ordering::Relaxed);
        if protocol == Protocol::Http2 && !agreed {
            return Err(FetchError::Connect("TLS: the server does not agree to HTTP/2".into()));
        }
    }
    let stream = CountedStream::new(stream, &state.stats, permit);
    if agreed || protocol == Protocol::Http2 {
        Ok(OpenedConnection::Http2(Rc::new(Http2Connection::start(stream).await?)))
    } else {
        Ok(OpenedConnection::Http1(Http1Connection::new(stream, Arc::clone(&state.reuse))))
    }
}

impl Target {
    /// Opens a connection to the server that belongs to no pool.
    ///
    /// # Errors
    /// No connection could be opened within the time.
    pub async fn connect(&self, timeout: Duration) -> Result<Stream, FetchError> {
        connect(&self.origin, timeout).await
    }
}

pub(crate) async fn connect(origin: &Origin, timeout: Duration) -> Result<Stream, FetchError> {
    let connected = match &origin.address {
        Address::Tcp { host, port } => {
            net::connect(host, *port, origin.tls.as_ref(), timeout).await
        }
        #[cfg(unix)]
        Address::Unix(path) => net::connect_unix(path, timeout).await,
        #[cfg(not(unix))]
        Address::Unix(_) => {
            return Err(FetchError::Connect("this system has no unix sockets".into()));
        }
    };
    connected.map_err(|error| FetchError::Connect(error.to_string()))
}

/// An HTTP/2 connection, shared by the requests of one worker. It closes with its last `Rc`.
pub(crate) struct Http2Connection {
    sender: http2::SendRequest<RequestBody>,
    /// The number of requests in flight on this connection.
    streams: Cell<usize>,
    /// The number of requests that the server allows, as far as is known. hyper queues requests
    /// above it.
    allowed: Rc<Cell<usize>>,
    idle_since: Cell<Instant>,
}

impl Http2Connection {
    async fn start(stream: CountedStream) -> Result<Self, FetchError> {
        let (sender, mut connection) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| FetchError::Connect(error.to_string()))?;
        let allowed = Rc::new(Cell::new(STREAMS_MAX));
        let announced = Rc::clone(&allowed);
        tokio::task::spawn_local(async move {
            let driven = poll_fn(|context| {
                let polled = Pin::new(&mut connection).poll(context);
                let allowed = connection.current_max_send_streams();
                if polled.is_pending() && allowed > STREAMS_BEFORE_SETTINGS {
                    announced.set(allowed.min(STREAMS_MAX));
                }
                polled
            });
            // Requests in flight, if any, receive the reason of the end.
            let _ = driven.await;
        });
        Ok(Self { sender, streams: Cell::new(0), allowed, idle_since: Cell::new(Instant::now()) })
    }

    /// True if the connection is known to be closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// True if the connection may carry one more request.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.get() < self.allowed.get()
    }

    /// The time since which the connection carries no request; `None` while it carries some.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.streams.get() == 0).then(|| self.idle_since.get())
    }
}

/// The slot of one request on an HTTP/2 connection.
pub(crate) struct Http2Stream(Rc<Http2Connection>);

impl Http2Stream {
    pub(crate) fn new(connection: Rc<Http2Connection>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Self(connection)
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, FailedAttempt> {
        self.0.sender.clone().try_send_request(request).await.map_err(|mut failed| {
            let sent = if failed.take_message().is_some() {
                SentState::NotSent
            } else {
                SentState::NoResponse
            };
            FailedAttempt { sent, ..convert_error(failed.error()).into() }
        })
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get().saturating_sub(1));
        self.0.idle_since.set(Instant::now());
    }
}

/// Spawns the tasks of an HTTP/2 connection on the current worker.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// Converts an error of hyper. The messages name no hosts.
pub(crate) fn convert_error(error: &hyper::Error) -> FetchError {
    if error.is_parse() {
        return FetchError::Protocol(format!("the response is not valid HTTP ({error})"));
    }
    FetchError::Closed(if error.is_incomplete_message() {
        "unexpected end".into()
    } else {
        let cause = std::error::Error::source(error)
            .and_then(|cause| cause.downcast_ref::<io::Error>())
            .map(|cause| cause.kind().to_string());
        cause.unwrap_or_else(|| error.to_string())
    })
}
