//! HTTP/2 on one connection (RFC 9113): its limits, its idle timeout, and streams whose client reads nothing.
//!
//! The HTTP library bounds the data that it keeps for a connection, but lets a stream wait for ever: while the window
//! of one stream is closed the socket works, so [`super::write_timeout`] notices nothing. Each stream is therefore a
//! task of its own, which [`watch`] ends if the client has read nothing of its response for too long; this resets the
//! stream. The module also counts streams that clients open and cancel at once (CVE-2023-44487), and the load of a
//! connection on its worker.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use clients::connection_metrics::TimeoutPhase;
use clients::connections::ConnectionPermit;
use clients::request_source::ConnectionOrigin;
use clients::served_connections::{RequestTracker, ServedConnection};
use clients::workers;
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
use super::http_server::HttpServer;
use super::media::ResponseFormat;
use super::paced_body::PacedBody;
use super::pipeline;
use super::response::{self, Response, ResponseBody};
use super::stream::ClientStream;
use super::write_timeout::is_stall;

/// The number of bytes that a client may send ahead on one stream. A body at the default `limits.body` takes eight
/// round trips.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The number of bytes that a client may send ahead on all streams together.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// The maximum number of streams that wait to be accepted although their client has reset them; with more, the
/// connection ends.
const RESET_STREAMS_WAITING_MAX: usize = 20;

/// The maximum number of streams that the router resets because of errors of the client; with more, the connection ends
/// (CVE-2025-8671).
const ERROR_RESETS_MAX: usize = 256;

/// The number of requests that a client may cancel before their response, beyond the number of those that it lets the
/// router finish. A page whose reader leaves cancels a few dozen.
const CANCELLED_MAX: u64 = 200;

/// The size of the pieces in which a response is passed to the HTTP library, the size of a frame. The library keeps the
/// bytes that it has, whether the window is open or not, and each piece that it takes is a sign of life.
const PIECE_BYTES: usize = 16 << 10;

/// The time that a client has to close an idle connection when the memory is short.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves HTTP/2 on `stream` to its end.
pub(super) async fn serve(
    server: Arc<HttpServer>,
    stream: ClientStream,
    permit: &ConnectionPermit,
    served: Arc<ServedConnection>,
    origin: ConnectionOrigin,
) {
    let mut shutdown = server.shutdown.signal();
    let http = &server.settings;
    let streams = Http2Streams(Rc::new(Http2StreamsState {
        server: Arc::clone(&server),
        requests: served.track_requests(),
        open: Cell::new(0),
        idle_since: Cell::new(Instant::now()),
        responded: Cell::new(0),
        cancelled: Cell::new(0),
        abused: Notify::new(),
    }));
    let client = Rc::new(ClientConnection::new(&server.limits, permit, origin));
    let service = service_fn(|request| {
        let (server, client) = (Arc::clone(&server), Rc::clone(&client));
        async move {
            let client_request = ClientRequest::multiplexed(&client);
            let response = handle(&server, &client_request, request).await;
            let in_flight = client_request.take_in_flight();
            Ok::<_, Infallible>(response.map(|body| Http2Body::new(body, &client, in_flight)))
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
    let (mut is_draining, mut is_closing) = (false, false);
    let result = loop {
        let timeout = match (is_draining, is_closing) {
            (_, true) => CLOSE_TIME_MAX,
            (true, false) => http.stall_timeout,
            (false, false) => http.header_timeout,
        };
        let idle_until = streams.0.idle_since() + timeout;
        tokio::select! {
            result = connection.as_mut() => break result,
            _ = shutdown.wait_for(|stop| *stop), if !is_draining => {
                // Ends when the open streams have their responses.
                connection.as_mut().graceful_shutdown();
                is_draining = true;
            }
            () = tokio::time::sleep_until(idle_until) => {
                if streams.0.idle_since() + timeout > Instant::now() {
                    continue;
                }
                if is_closing {
                    return;
                }
                if is_draining {
                    // The remaining responses are shorter than a piece and not read: the HTTP library would wait for
                    // ever.
                    server.metrics.count_timeout(TimeoutPhase::Stall);
                    return;
                }
                connection.as_mut().graceful_shutdown();
                streams.0.idle_since.set(Instant::now());
                is_draining = true;
            }
            () = served.closing(), if !is_closing => {
                tracing::debug!("an idle connection is closed, because the memory is short");
                connection.as_mut().graceful_shutdown();
                streams.0.idle_since.set(Instant::now());
                (is_draining, is_closing) = (true, true);
            }
            () = client.account().evicted() => {
                tracing::debug!("a connection with unread responses is closed: there are too many");
                return;
            }
            () = streams.0.abused.notified() => {
                tracing::debug!("a connection is closed because its client opens streams only to cancel them");
                return;
            }
        }
    };
    if let Err(error) = result {
        if is_stall(&error) {
            server.metrics.count_timeout(TimeoutPhase::Stall);
        }
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn handle(
    server: &Arc<HttpServer>,
    client: &ClientRequest,
    request: Request<Incoming>,
) -> Response {
    let max = usize::from(server.settings.max_headers);
    if request.headers().len() > max {
        let message = format!("the request has more than {max} headers (`http.max_headers`)");
        let error = GraphqlError::new(ErrorCode::BadRequest, message);
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let response = response::refused(status, &[error], ResponseFormat::Json);
        server.pipeline.metrics.count_response(status);
        return response;
    }
    client.connection().begin_turn();
    pipeline::handle(&server.pipeline, client, request).await
}

/// The streams of one connection; spawns their tasks.
#[derive(Clone)]
struct Http2Streams(Rc<Http2StreamsState>);

struct Http2StreamsState {
    server: Arc<HttpServer>,
    requests: RequestTracker,
    /// The number of open streams.
    open: Cell<usize>,
    idle_since: Cell<Instant>,
    /// The numbers of streams that got a response and of those that were cancelled before.
    responded: Cell<u64>,
    cancelled: Cell<u64>,
    /// Notified when the client has cancelled implausibly many requests.
    abused: Notify,
}

impl Http2StreamsState {
    /// Returns the time since which no stream is open; now, while one is.
    fn idle_since(&self) -> Instant {
        if self.open.get() > 0 { Instant::now() } else { self.idle_since.get() }
    }

    fn ended(&self, progress: &StreamProgress) {
        self.open.set(self.open.get().saturating_sub(1));
        self.idle_since.set(Instant::now());
        let count = if progress.responded.get() { &self.responded } else { &self.cancelled };
        count.set(count.get() + 1);
        if self.cancelled.get() > CANCELLED_MAX + self.responded.get() {
            self.abused.notify_one();
        }
    }
}

impl<F: Future + 'static> hyper::rt::Executor<F> for Http2Streams {
    fn execute(&self, stream: F) {
        let state = Rc::clone(&self.0);
        state.open.set(state.open.get() + 1);
        tokio::task::spawn_local(watch(state, stream));
    }
}

/// The state that the task of a stream and the body of its response share.
#[derive(Default)]
struct StreamProgress {
    responded: Cell<bool>,
    /// The time since which a piece of the response waits to be taken.
    waiting_since: Cell<Option<Instant>>,
}

thread_local! {
    /// The stream that is being polled, so that a response finds the stream to which it belongs.
    static CURRENT: RefCell<Option<Rc<StreamProgress>>> = const { RefCell::new(None) };
}

/// Runs a stream to its end, or until nothing of its response has been taken for too long.
async fn watch<F: Future>(state: Rc<Http2StreamsState>, stream: F) {
    // One connection can carry as much load as a hundred.
    let _occupied = workers::hold_worker();
    let _in_progress = state.requests.begin();
    let progress = Rc::new(StreamProgress::default());
    let stall_time_max = state.server.settings.stall_timeout;
    {
        let mut stream = std::pin::pin!(stream);
        let mut stall_timer: Option<Pin<Box<Sleep>>> = None;
        std::future::poll_fn(|context| {
            let outer = CURRENT.replace(Some(Rc::clone(&progress)));
            let polled = stream.as_mut().poll(context);
            CURRENT.set(outer);
            if polled.is_ready() {
                return Poll::Ready(());
            }
            let Some(since) = progress.waiting_since.get() else {
                stall_timer = None;
                return Poll::Pending;
            };
            let until = since + stall_time_max;
            let sleep =
                stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if sleep.deadline() != until {
                sleep.as_mut().reset(until);
            }
            ready!(sleep.as_mut().poll(context));
            state.server.metrics.count_timeout(TimeoutPhase::Stall);
            Poll::Ready(())
        })
        .await;
        // A stream that is dropped before its end is reset.
    }
    state.ended(&progress);
}

/// The body of a response in pieces, with the times at which they are taken.
struct Http2Body {
    body: PacedBody,
    progress: Option<Rc<StreamProgress>>,
}

impl Http2Body {
    fn new(body: ResponseBody, client: &ClientConnection, in_flight: Option<InFlight>) -> Self {
        let progress = CURRENT.with_borrow(Clone::clone);
        if let Some(progress) = &progress {
            progress.responded.set(true);
            progress.waiting_since.set(Some(Instant::now()));
        }
        let body = match in_flight {
            Some(in_flight) => client.charge_in_flight(body, in_flight),
            None => client.charge(body),
        };
        Self { body: PacedBody::new(body, client.account(), PIECE_BYTES), progress }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Some(progress) = &this.progress {
            // Only a piece that is ready can wait to be taken.
            let is_ready = matches!(frame, Poll::Ready(Some(_)));
            progress.waiting_since.set(is_ready.then(Instant::now));
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
