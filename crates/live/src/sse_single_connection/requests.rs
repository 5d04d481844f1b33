//! The requests of single connection mode, apart from their HTTP: reserving, opening and sweeping streams, starting and
//! stopping operations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clients::authentication::Identity;
use clients::offload::INLINE_BYTES_MAX;
use clients::refusal::Refusal;
use clients::request_extensions::string_member;
use clients::request_source::{ConnectionOrigin, RequestSource};
use execute::{ClientKey, ErrorCode, GraphqlError};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use plan::OperationKind;
use prepare::OperationRequest;
use serving::figures::RequestFigures;
use serving::forwarding::ClientHeaders::OfMessage;
use serving::operation::{self, OperationClient};
use serving::operation_spans::OperationSpans;
use serving::prepared_request::attach_spans;
use telemetry::spans::RequestSpans;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::open_stream::{self, OpenStream};
use super::stream::{SharedStream, StreamRefusal};
use crate::client_work::ClientWork;
use crate::live_server::LiveServer;
use crate::metrics::Transport;
use crate::sse::AHEAD;
use crate::takeover::{LiveBody, LiveConnection, framing_of};

/// The interval at which streams that were not opened in time are removed. Their operations run until then.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The longest operation id in bytes, as on WebSockets: the id is sent with each event.
const ID_BYTES_MAX: usize = 1024;

/// Ends streams that were reserved and never opened, until the router shuts down.
pub async fn sweep(live: Arc<LiveServer>) {
    let mut shutdown = live.shutdown.signal();
    let mut looks = tokio::time::interval(SWEEP_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => live.streams.sweep(Instant::now()),
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Reserves a stream with this token for a client.
///
/// # Errors
/// The client has reserved too many, or all clients together have.
pub fn reserve(live: &LiveServer, token: &str, client: ClientKey) -> Result<(), Refusal> {
    let runner = live.runner();
    let outlet = runner.limits.make_outlet(Transport::Sse);
    // Operations arrive in requests of their own, so there is no connection to hold.
    let work = ClientWork::new(runner.open_account(client), Box::new(|| {}));
    let stream = Arc::new(SharedStream::new(outlet, work, runner.access_log.is_some()));
    let most = runner.limits.settings.max_reserved_streams_per_client as usize;
    if live.streams.reserve(token, stream, (client, most), Instant::now()) {
        return Ok(());
    }
    runner.serving.metrics.count_refusal(ErrorCode::Overloaded);
    let message = "too many streams are reserved and not opened \
                   (`subscriptions.max_reserved_streams_per_client`); open one, or try again later";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Err(refusal(status, ErrorCode::Overloaded, message).retry_later())
}

/// Opens a reserved stream as the body of a response over this version of HTTP.
///
/// # Errors
/// No stream has the token, or the stream is open already.
pub fn open(live: &LiveServer, token: &str, version: Version) -> Result<LiveBody, Refusal> {
    let stream = match live.streams.open(token, Instant::now()) {
        Ok(stream) => stream,
        Err(StreamRefusal::InUse) => {
            let message = "the stream is open already";
            return Err(refusal(StatusCode::CONFLICT, ErrorCode::BadRequest, message));
        }
        Err(_) => return Err(not_found()),
    };
    let runner = live.runner();
    let stream = OpenStream::new((runner, &live.streams, &live.shutdown), token, stream);
    if let Some(framing) = framing_of(version) {
        let connection = LiveConnection::SingleConnection(framing, Box::new(stream));
        return Ok(LiveBody::Connection(framing, connection));
    }
    let (pieces, body) = mpsc::channel(AHEAD);
    let open = runner.metrics.open_stream(Transport::Sse);
    tokio::task::spawn_local(open_stream::write_stream(stream, pieces, open));
    Ok(LiveBody::Pieces(body))
}

/// The request of an operation whose results come over a stream of single connection mode.
#[derive(Debug)]
pub struct StreamOperation<'a> {
    /// The operation.
    pub operation: &'a OperationRequest,
    /// The head of the request.
    pub head: &'a Parts,
    /// The identity of the client.
    pub identity: Identity,
    /// The key of the client's address.
    pub address: ClientKey,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
}

/// Starts an operation on the stream with this token.
///
/// # Errors
/// The stream or the operation is refused.
pub async fn start(
    live: &LiveServer,
    token: &str,
    request: StreamOperation<'_>,
) -> Result<(), Refusal> {
    let Some(stream) = live.streams.find(token, Instant::now()) else { return Err(not_found()) };
    let StreamOperation { operation, head, identity, address, origin } = request;
    let runner = live.runner();
    let client = || identity.client_key().unwrap_or(address);
    let id = match read_operation_id(live, &operation.extensions, client).await? {
        Some(id) if id.len() <= ID_BYTES_MAX => id,
        Some(_) => return Err(bad_request("`extensions.operationId` is too long")),
        None => {
            return Err(bad_request("`extensions.operationId` must be a string that is not empty"));
        }
    };
    let headers = OfMessage(&head.headers);
    let spans = head.extensions.get::<Arc<RequestSpans>>().map(OperationSpans::begin);
    let source = RequestSource::of_head(head, origin);
    let source = RequestSource { trace: spans.as_ref().map(|it| it.trace()), ..source };
    let serving = &runner.serving;
    let client = OperationClient { headers, identity, address, source };
    let mut ready = operation::prepare_for(serving, operation, client).await;
    attach_spans(&mut ready, spans);
    let mut ready = ready.map_err(Refusal::of_errors)?;
    runner.keep_logged_request(&mut ready, head, origin);
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        serving.count_refused(ready.figures, ErrorCode::BadRequest);
        return Err(Refusal::mutation_by_get());
    }
    let figures = ready.figures;
    let started = stream.start(runner, live.stream_operations_max, &id, ready);
    started.map_err(|refused| start_refusal(live, figures, refused))
}

/// Returns `operationId` out of the extensions of a request. Long ones are read on another thread.
///
/// # Errors
/// The extensions are long, and there is no room to read them.
async fn read_operation_id(
    live: &LiveServer,
    extensions: &Bytes,
    client: impl Fn() -> ClientKey,
) -> Result<Option<String>, Refusal> {
    if extensions.len() <= INLINE_BYTES_MAX {
        return Ok(operation_id(extensions));
    }
    let serving = &live.runner().serving;
    let deadline = Instant::now() + serving.time_max;
    let (size, extensions) = (extensions.len(), extensions.clone());
    let read = move || operation_id(&extensions);
    let read = serving.limits.offload.run(client(), size, deadline, read).await;
    read.map_err(|not_done| {
        let error = not_done.error();
        serving.metrics.count_refusal(error.code);
        Refusal::of_errors(vec![error])
    })
}

/// Counts an operation that a stream does not start, and returns its refusal.
fn start_refusal(
    live: &LiveServer,
    figures: Option<RequestFigures>,
    refused: StreamRefusal,
) -> Refusal {
    let code = match refused {
        StreamRefusal::NotFound | StreamRefusal::InUse => ErrorCode::BadRequest,
        StreamRefusal::TooBusy | StreamRefusal::TooMany => ErrorCode::Overloaded,
    };
    live.runner().serving.count_refused(figures, code);
    match refused {
        StreamRefusal::NotFound => not_found(),
        StreamRefusal::InUse => {
            let message = "an operation with this id is in progress on the stream";
            refusal(StatusCode::CONFLICT, code, message)
        }
        StreamRefusal::TooBusy => {
            let message = "too many operations of the stream are in progress; try again later";
            refusal(StatusCode::TOO_MANY_REQUESTS, code, message).retry_later()
        }
        StreamRefusal::TooMany => {
            let message = format!(
                "the stream has {} operations in progress, the maximum \
                 (`websocket.max_subscriptions_per_connection`): stop one first",
                live.stream_operations_max
            );
            refusal(StatusCode::TOO_MANY_REQUESTS, code, &message)
        }
    }
}

/// Stops the operation with this id on the stream with this token.
///
/// # Errors
/// No stream has the token, or there is no id.
pub fn stop(live: &LiveServer, token: &str, id: Option<&str>) -> Result<(), Refusal> {
    let Some(stream) = live.streams.find(token, Instant::now()) else { return Err(not_found()) };
    let Some(id) = id else {
        return Err(bad_request("the URL needs the parameter `operationId`"));
    };
    stream.stop(id);
    Ok(())
}

fn not_found() -> Refusal {
    let message = "no stream has this token: reserve one by PUT";
    refusal(StatusCode::NOT_FOUND, ErrorCode::BadRequest, message)
}

fn bad_request(message: &str) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message)
}

fn refusal(status: StatusCode, code: ErrorCode, message: &str) -> Refusal {
    Refusal::new(status, GraphqlError::new(code, message.to_owned()))
}

/// Returns `operationId` out of the extensions of a request.
fn operation_id(extensions: &Bytes) -> Option<String> {
    string_member(extensions, "operationId").ok().flatten().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_id_is_a_string_in_the_extensions() {
        for (extensions, expected) in [
            (r#"{"operationId":"1"}"#, Some("1")),
            (r#"{"operationId":""}"#, None),
            (r#"{"operationId":1}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(operation_id(&extensions.into()).as_deref(), expected, "{extensions}");
        }
    }
}
