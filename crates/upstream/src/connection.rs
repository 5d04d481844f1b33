//! Connections to a server: opening one, and sending requests over it by HTTP/2, many at a time. An HTTP/1.1
//! connection carries one request at a time: see [`crate::http1`].

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::FetchError;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::Stream;
use tokio::sync::OwnedSemaphorePermit;

use crate::Protocol;
use crate::counted::Counted;
use crate::http1::Connection;
use crate::retry::{Failure, Sent};
use crate::standing::{STREAMS_MAX, Standing};
use crate::stats::count;
use crate::target::{Address, Origin};

/// An HTTP/2 connection with requests in flight is asked by a ping after this time without a frame
/// whether it still lives …
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// … and given up after this time without an answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer's headers over HTTP/2, expanded.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Requests that go out before the server has said how many it allows: more could be refused. The
/// others wait for its word, which comes with the first answer at the latest.
const STREAMS_BEFORE_SETTINGS: usize = 1;

/// What was opened.
pub(crate) enum Opened {
    Http1(Connection),
    Http2(Rc<Multiplexed>),
}

/// Opens a connection. Must be called on a `LocalSet`: the task that drives the connection stays on
/// this core. The permit is held until it closes.
pub(crate) async fn open(
    origin: &Origin,
    protocol: Protocol,
    timeout: Duration,
    standing: &Standing,
    permit: OwnedSemaphorePermit,
) -> Result<Opened, FetchError> {
    count(&standing.stats.connections_opened);
    let stream = connect(origin, timeout).await?;
    let agreed = stream.agreed_protocol() == Some(b"h2");
    if origin.tls.is_some() {
        standing.agreed_http2.store(agreed, Ordering::Relaxed);
        if protocol == Protocol::Http2 && !agreed {
            return Err(FetchError::Connect("TLS: the server does not agree to HTTP/2".into()));
        }
    }
    let stream = Counted::new(stream, &standing.stats, permit);
    if agreed || protocol == Protocol::Http2 {
        Ok(Opened::Http2(Rc::new(Multiplexed::start(stream).await?)))
    } else {
        Ok(Opened::Http1(Connection::new(stream, Arc::clone(&standing.reuse))))
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

/// An HTTP/2 connection, shared by the requests of one core. It closes with its last `Rc`.
pub(crate) struct Multiplexed {
    sender: http2::SendRequest<Full<Bytes>>,
    /// Requests that it carries.
    streams: Cell<usize>,
    /// How many the server allows, as far as is known. What is over that waits inside of hyper.
    allowed: Rc<Cell<usize>>,
    idle_since: Cell<Instant>,
}

impl Multiplexed {
    async fn start(stream: Counted) -> Result<Self, FetchError> {
        let (sender, mut connection) = http2::Builder::new(OnThisCore)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| FetchError::Connect(error.to_string()))?;
        let allowed = Rc::new(Cell::new(STREAMS_MAX));
        let told = Rc::clone(&allowed);
        tokio::task::spawn_local(async move {
            let driven = poll_fn(|context| {
                let polled = Pin::new(&mut connection).poll(context);
                let allowed = connection.current_max_send_streams();
                if polled.is_pending() && allowed > STREAMS_BEFORE_SETTINGS {
                    told.set(allowed.min(STREAMS_MAX));
                }
                polled
            });
            // How it ends is told to the requests in flight, if any.
            let _ = driven.await;
        });
        Ok(Self { sender, streams: Cell::new(0), allowed, idle_since: Cell::new(Instant::now()) })
    }

    /// Is it known to be closed?
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// May it carry one more request?
    pub(crate) fn has_room(&self) -> bool {
        self.streams.get() < self.allowed.get()
    }

    /// Since when it has carried none; `None` while it does.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.streams.get() == 0).then(|| self.idle_since.get())
    }
}

/// A request's place on an HTTP/2 connection.
pub(crate) struct OneStream(Rc<Multiplexed>);

impl OneStream {
    pub(crate) fn new(connection: Rc<Multiplexed>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Self(connection)
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        self.0.sender.clone().try_send_request(request).await.map_err(|mut failed| {
            let sent =
                if failed.take_message().is_some() { Sent::Nothing } else { Sent::Unanswered };
            Failure { sent, ..describe(failed.error()).into() }
        })
    }
}

impl Drop for OneStream {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get().saturating_sub(1));
        self.0.idle_since.set(Instant::now());
    }
}

/// Where hyper spawns what an HTTP/2 connection needs.
#[derive(Clone, Copy)]
struct OnThisCore;

impl<F> hyper::rt::Executor<F> for OnThisCore
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// hyper's errors as ours. Their texts name no hosts.
pub(crate) fn describe(error: &hyper::Error) -> FetchError {
    if error.is_parse() {
        return FetchError::Protocol(format!("the answer is not valid HTTP ({error})"));
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
