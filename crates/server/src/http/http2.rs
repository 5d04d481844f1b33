//! HTTP/2 on one connection (RFC 9113): its limits, when it is idle, and streams whose client takes nothing.
//!
//! The HTTP library bounds what it keeps of a connection, but lets a stream wait for ever: while one stream's window
//! stays shut the socket goes on, so [`super::patient`] sees nothing. Each stream is therefore a task of its own that
//! [`watch`] ends when nothing of its answer has been taken for too long, which resets the stream. The same place
//! counts streams that clients open and cancel at once (CVE-2023-44487), and what a connection weighs on its core.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use execute::{ErrorCode, GraphqlError};
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::client_connection::{ClientConnection, ClientRequest, InFlight};
use super::media::ResponseFormat;
use super::paced_body::PacedBody;
use super::pipeline;
use super::response::{self, Response, ResponseBody};
use super::stream::ClientStream;
use super::write_timeout::is_stall;
use crate::connections::ConnectionPermit;
use crate::cores;
use crate::metrics::TimeoutPhase;
use crate::router::Router;

/// What a client may send ahead on one stream. A body at the default `limits.body` takes eight round trips.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// What a client may send ahead on all streams together.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Streams that were reset before we saw them, and that may wait for being seen; beyond that the connection ends.
const RESET_STREAMS_WAITING_MAX: usize = 20;

/// Errors of a client that we answer by a reset; beyond that the connection ends (CVE-2025-8671).
const ERROR_RESETS_MAX: usize = 256;

/// Requests that a client may cancel before they are answered, unless it waits for as many others. A page that a
/// reader leaves cancels some dozens.
const CANCELLED_MAX: u64 = 200;

/// An answer goes to the HTTP library in pieces of this size: it keeps what it has been given, window or not, and
/// each piece that is taken is a sign of life. As large as a frame.
const PIECE_BYTES: usize = 16 << 10;

/// Serves HTTP/2 on `stream` to its end.
pub(super) async fn serve(router: Arc<Router>, stream: ClientStream, permit: &ConnectionPermit) {
    let mut shutdown = router.shutdown.clone();
    let http = &router.config.http;
    let streams = Streams(Rc::new(StreamsState {
        router: Arc::clone(&router),
        open: Cell::new(0),
        idle_since: Cell::new(Instant::now()),
        answered: Cell::new(0),
        cancelled: Cell::new(0),
        abused: Notify::new(),
    }));
    let client = Rc::new(ClientConnection::new(&router, permit));
    let service = service_fn(|request| {
        let (router, client) = (Arc::clone(&router), Rc::clone(&client));
        async move {
            let client_request = ClientRequest::multiplexed(&client);
            let response = handle(&router, &client_request, request).await;
            let in_flight = client_request.take_in_flight();
            Ok::<_, Infallible>(response.map(|body| StreamBody::new(body, &client, in_flight)))
        }
    });
    let header_bytes = u32::try_from(http.max_header_size).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(streams.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(http.http2.max_concurrent_streams)
        .max_header_list_size(header_bytes)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS_WAITING_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .keep_alive_interval(http.http2.ping_interval)
        .keep_alive_timeout(http.http2.ping_interval)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut ending = false;
    let result = loop {
        let patience = if ending { http.stall_timeout } else { http.header_timeout };
        let idle_until = streams.0.idle_since() + patience;
        tokio::select! {
            result = connection.as_mut() => break result,
            _ = shutdown.wait_for(|stop| *stop), if !ending => {
                // Ends when the streams that are open have their answers.
                connection.as_mut().graceful_shutdown();
                ending = true;
            }
            () = tokio::time::sleep_until(idle_until) => {
                if streams.0.idle_since() + patience > Instant::now() {
                    continue;
                }
                if ending {
                    // Answers of less than a piece that nobody takes: the HTTP library would wait for ever.
                    router.metrics.timeout(TimeoutPhase::stall);
                    return;
                }
                connection.as_mut().graceful_shutdown();
                streams.0.idle_since.set(Instant::now());
                ending = true;
            }
            () = client.account().evicted() => {
                tracing::debug!("a connection with unread responses is closed: there are too many");
                return;
            }
            () = streams.0.abused.notified() => {
                tracing::debug!("a client opens streams only to cancel them; its connection is closed");
                return;
            }
        }
    };
    if let Err(error) = result {
        if is_stall(&error) {
            router.metrics.timeout(TimeoutPhase::stall);
        }
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn handle(
    router: &Arc<Router>,
    client: &ClientRequest,
    request: Request<Incoming>,
) -> Response {
    let max = usize::from(router.config.http.max_headers);
    if request.headers().len() > max {
        let message = format!("the request has more than {max} headers (`http.max_headers`)");
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let response = response::refused(status, &[error], ResponseFormat::Json);
        router.metrics.answer(status);
        return response;
    }
    client.connection().begin_turn();
    pipeline::handle(router, client, request).await
}

/// The streams of one connection; spawns them.
#[derive(Clone)]
struct Streams(Rc<StreamsState>);

struct StreamsState {
    router: Arc<Router>,
    open: Cell<usize>,
    idle_since: Cell<Instant>,
    answered: Cell<u64>,
    cancelled: Cell<u64>,
    /// Rung when more has been cancelled than is believable.
    abused: Notify,
}

impl StreamsState {
    /// Since when nothing has happened; now, while something does.
    fn idle_since(&self) -> Instant {
        if self.open.get() > 0 { Instant::now() } else { self.idle_since.get() }
    }

    fn ended(&self, exchange: &StreamProgress) {
        self.open.set(self.open.get().saturating_sub(1));
        self.idle_since.set(Instant::now());
        let count = if exchange.answered.get() { &self.answered } else { &self.cancelled };
        count.set(count.get() + 1);
        if self.cancelled.get() > CANCELLED_MAX + self.answered.get() {
            self.abused.notify_one();
        }
    }
}

impl<F: Future + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let state = Rc::clone(&self.0);
        state.open.set(state.open.get() + 1);
        tokio::task::spawn_local(watch(state, stream));
    }
}

/// One stream: what its task and the body of its answer tell each other.
#[derive(Default)]
struct StreamProgress {
    answered: Cell<bool>,
    /// Since when a piece of the answer has waited for being taken.
    waiting_since: Cell<Option<Instant>>,
}

thread_local! {
    /// The stream that is being polled: an answer finds out which one it belongs to.
    static CURRENT: RefCell<Option<Rc<StreamProgress>>> = const { RefCell::new(None) };
}

/// Runs a stream to its end, or until nothing of its answer has been taken for too long.
async fn watch<F: Future>(state: Rc<StreamsState>, stream: F) {
    // One connection can carry as much as a hundred.
    let _occupied = cores::occupy();
    let exchange = Rc::new(StreamProgress::default());
    let stall_time_max = state.router.config.http.stall_timeout;
    {
        let mut stream = std::pin::pin!(stream);
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        std::future::poll_fn(|context| {
            let outer = CURRENT.replace(Some(Rc::clone(&exchange)));
            let polled = stream.as_mut().poll(context);
            CURRENT.set(outer);
            if polled.is_ready() {
                return Poll::Ready(());
            }
            let Some(since) = exchange.waiting_since.get() else {
                patience = None;
                return Poll::Pending;
            };
            let until = since + stall_time_max;
            let sleep = patience.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if sleep.deadline() != until {
                sleep.as_mut().reset(until);
            }
            ready!(sleep.as_mut().poll(context));
            state.router.metrics.timeout(TimeoutPhase::stall);
            Poll::Ready(())
        })
        .await;
        // Dropped before its end, the stream is reset.
    }
    state.ended(&exchange);
}

/// The body of an answer, in pieces, and the times at which they go.
struct StreamBody {
    body: PacedBody,
    exchange: Option<Rc<StreamProgress>>,
}

impl StreamBody {
    fn new(body: ResponseBody, client: &ClientConnection, in_flight: Option<InFlight>) -> Self {
        let exchange = CURRENT.with_borrow(Clone::clone);
        if let Some(exchange) = &exchange {
            exchange.answered.set(true);
            exchange.waiting_since.set(Some(Instant::now()));
        }
        let body = match in_flight {
            Some(in_flight) => client.charge_in_flight(body, in_flight),
            None => client.charge(body),
        };
        Self { body: PacedBody::new(body, client.account(), PIECE_BYTES), exchange }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Some(exchange) = &this.exchange {
            // What is not there yet nobody can take.
            let is_there = matches!(frame, Poll::Ready(Some(_)));
            exchange.waiting_since.set(is_there.then(Instant::now));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
