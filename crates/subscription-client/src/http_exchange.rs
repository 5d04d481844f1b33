//! One request on a connection of its own, and its response. The task that reads the response drives the connection,
//! so the connection closes when the response is dropped.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt};
use http::{Response, StatusCode, response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use upstream::Protocol;

use crate::endpoint::SubscriptionEndpoint;
use crate::http_request::OperationRequest;
use crate::stats::{SubscriptionStats, add, subtract};

/// The maximum size of the headers of a response over HTTP/2, expanded, in bytes.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// The time without a response to a ping of HTTP/2 after which the connection counts as lost.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why an operation did not begin.
#[derive(Debug)]
pub(crate) struct AttemptFailure {
    /// The reason, without credentials and hosts.
    pub(crate) reason: String,
    /// True if another attempt may succeed.
    pub(crate) is_transient: bool,
    /// True if the connection was open, and no whole response arrived in time.
    pub(crate) is_timeout: bool,
}

/// A response with a body that is read in pieces.
pub(crate) struct HttpResponse {
    pub(crate) head: response::Parts,
    body: Incoming,
    connection: DrivenConnection,
}

/// A connection that is driven by whatever waits for its response.
struct DrivenConnection {
    /// `None` once the connection has ended.
    driver: Option<BoxFuture<'static, hyper::Result<()>>>,
    /// Keeps the connection open.
    sender: RequestSender,
    stats: Arc<SubscriptionStats>,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Connects and sends a request. Returns when the head of the response has arrived.
pub(crate) async fn send(
    endpoint: &SubscriptionEndpoint,
    request: OperationRequest,
) -> Result<HttpResponse, AttemptFailure> {
    let mut connection = connect(endpoint).await.inspect_err(|_| {
        add(&endpoint.stats.connect_failures, 1);
    })?;
    let timeout = endpoint.settings.ack_timeout;
    let response = tokio::time::timeout(timeout, connection.send(endpoint, request)).await;
    let response = response.unwrap_or_else(|_| {
        let seconds = timeout.as_secs_f64();
        Err(AttemptFailure::timeout(format!("the subgraph did not respond within {seconds} s")))
    })?;
    let (head, body) = response.into_parts();
    Ok(HttpResponse { head, body, connection })
}

async fn connect(endpoint: &SubscriptionEndpoint) -> Result<DrivenConnection, AttemptFailure> {
    let SubscriptionEndpoint { target, settings, stats, .. } = endpoint;
    let stream = target.connect(settings.connect_timeout).await;
    let stream = stream.map_err(|error| AttemptFailure::transient(error.to_string()))?;
    let is_http2 = stream.agreed_protocol() == Some(b"h2") || settings.http == Protocol::Http2;
    let stream = TokioIo::new(stream);
    let (sender, driver) = match is_http2 {
        true => {
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(settings.ping_interval)
                .keep_alive_timeout(PING_TIMEOUT)
                .max_header_list_size(HEADER_LIST_BYTES_MAX)
                .handshake(stream);
            let (sender, driver) = handshake.await.map_err(|error| AttemptFailure::of(&error))?;
            (RequestSender::Http2(sender), driver.boxed())
        }
        false => {
            let handshake = http1::handshake(stream);
            let (sender, driver) = handshake.await.map_err(|error| AttemptFailure::of(&error))?;
            (RequestSender::Http1(sender), driver.boxed())
        }
    };
    add(&stats.connections_opened, 1);
    add(&stats.connections, 1);
    Ok(DrivenConnection { driver: Some(driver), sender, stats: Arc::clone(stats) })
}

impl DrivenConnection {
    async fn send(
        &mut self,
        endpoint: &SubscriptionEndpoint,
        request: OperationRequest,
    ) -> Result<Response<Incoming>, AttemptFailure> {
        let target = &endpoint.target;
        let response = match &mut self.sender {
            RequestSender::Http1(sender) => {
                sender.send_request(request.into_http(target, false)).boxed()
            }
            RequestSender::Http2(sender) => {
                sender.send_request(request.into_http(target, true)).boxed()
            }
        };
        tokio::pin!(response);
        let response = loop {
            let Some(driver) = &mut self.driver else { break response.await };
            tokio::select! {
                biased;
                response = &mut response => break response,
                ended = driver => {
                    self.driver = None;
                    // The bytes read before the end belong to the response already.
                    ended.map_err(|error| AttemptFailure::of(&error))?;
                }
            }
        };
        response.map_err(|error| AttemptFailure::of(&error))
    }
}

impl Drop for DrivenConnection {
    fn drop(&mut self) {
        subtract(&self.stats.connections, 1);
    }
}

impl HttpResponse {
    /// Returns the next piece of the body; `None` at its end. If it is cancelled, nothing is lost.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, AttemptFailure> {
        loop {
            let frame = match &mut self.connection.driver {
                None => self.body.frame().await,
                Some(driver) => tokio::select! {
                    biased;
                    frame = self.body.frame() => frame,
                    // The body has the reason, if the connection has failed.
                    _ = driver => {
                        self.connection.driver = None;
                        continue;
                    }
                },
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(AttemptFailure::of(&error)),
                Some(Ok(frame)) => {
                    // Trailers mean nothing here.
                    let Ok(data) = frame.into_data() else { continue };
                    return Ok(Some(data));
                }
            }
        }
    }

    /// Reads the whole body, at most `limit` bytes, within `time`.
    pub(crate) async fn read_body(
        &mut self,
        limit: usize,
        time: Duration,
    ) -> Result<Bytes, AttemptFailure> {
        let read = async {
            let mut body = BytesMut::new();
            while let Some(chunk) = self.next_chunk().await? {
                if body.len() + chunk.len() > limit {
                    let reason = format!("the subgraph sent a response of more than {limit} bytes");
                    return Err(AttemptFailure::permanent(reason));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(body.freeze())
        };
        tokio::time::timeout(time, read).await.unwrap_or_else(|_| {
            let seconds = time.as_secs_f64();
            let reason = format!("the subgraph's response did not end within {seconds} s");
            Err(AttemptFailure::timeout(reason))
        })
    }
}

impl AttemptFailure {
    pub(crate) fn transient(reason: String) -> Self {
        Self { reason, is_transient: true, is_timeout: false }
    }

    fn timeout(reason: String) -> Self {
        Self { reason, is_transient: true, is_timeout: true }
    }

    pub(crate) fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_transient: false, is_timeout: false }
    }

    /// Returns the failure that a status means.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let reason = format!("the subgraph responded with status {}", status.as_u16());
        Self { reason, is_transient: is_transient_status(status), is_timeout: false }
    }

    fn of(error: &hyper::Error) -> Self {
        if error.is_parse() {
            let reason = format!("the subgraph's response is not valid HTTP ({error})");
            return Self::permanent(reason);
        }
        let cause = error.source().and_then(|it| it.downcast_ref::<io::Error>());
        let cause = match cause {
            _ if error.is_incomplete_message() => "unexpected end".to_owned(),
            Some(cause) => cause.kind().to_string(),
            None => error.to_string(),
        };
        Self::transient(format!("the connection to the subgraph was lost: {cause}"))
    }
}

/// True for statuses that a proxy sends while no server is behind it, and a server under too much load.
pub(crate) fn is_transient_status(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500..)
}
