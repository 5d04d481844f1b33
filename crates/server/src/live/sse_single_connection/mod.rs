//! GraphQL over server-sent events, single connection mode: a client reserves a stream (PUT), opens it (GET), and
//! starts (POST) and stops (DELETE) operations by requests of their own, whose results all come over that stream.
//!
//! These requests arrive on any worker, and share the [`SharedStream`] with the reactor or the task that writes it.

pub(super) mod open_stream;
mod stream;
mod stream_table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{ClientKey, ErrorCode, GraphqlError};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use plan::OperationKind;
use prepare::OperationRequest;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wire::result_stream::StreamFormat;

use super::client_work::ClientWork;
use super::connection_operations::response_account;
use super::outlet::ConnectionOutlet;
use super::sse::head;
use super::takeover::LiveConnection;
use crate::authentication::Identity;
use crate::error_mapping;
use crate::forwarding::ClientHeaders::OfMessage;
use crate::http::media::{self, ResponseFormat};
use crate::http::response::{self, Response, ResponseBody};
use crate::live::metrics::Transport;
use crate::offload::INLINE_BYTES_MAX;
use crate::operation;
use crate::request_extensions::string_member;
use crate::router::Router;
use open_stream::OpenStream;
use stream::{SharedStream, StreamRefusal};
pub(crate) use stream_table::StreamTable;

/// The interval at which streams that were not opened in time are removed. Their operations run until then.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The number of events passed to the HTTP library ahead of the socket; more wait in the outlet, to which the
/// configured limits apply.
const AHEAD: usize = 4;

/// The longest operation id in bytes, as on WebSockets: the id is sent with each event.
const ID_BYTES_MAX: usize = 1024;

/// The header with the token of a stream.
const TOKEN_HEADER: &str = "x-graphql-event-stream-token";

/// The parameter of the URL with the token, for `EventSource`, which sends no headers of its own.
const TOKEN_PARAMETER: &str = "token";

/// The prefix of the router's tokens. A URL may have a parameter `token` with another purpose.
const TOKEN_PREFIX: &str = "stream-";

/// The number of random bytes in a token, enough that no two are equal and none can be guessed.
const TOKEN_RANDOM_BYTES: usize = 16;

/// Returns the token that a request carries.
pub(crate) fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<Box<str>> {
    if let Some(token) = headers.get(TOKEN_HEADER) {
        return Some(String::from_utf8_lossy(token.as_bytes()).into());
    }
    let query = uri.query()?;
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    let token = parameters.find(|(name, _)| name == TOKEN_PARAMETER).map(|(_, value)| value);
    token.filter(|it| it.starts_with(TOKEN_PREFIX)).map(|it| it.into_owned().into())
}

/// True if a GET that carries a token opens the stream. With an operation, and from a client that accepts no events, it
/// starts that operation instead, as POST does.
pub(crate) fn is_opened_by(uri: &Uri, headers: &HeaderMap) -> bool {
    let parameters = uri.query().unwrap_or_default().as_bytes();
    let has_operation = url::form_urlencoded::parse(parameters).any(|(name, _)| name == "query");
    let takes_events =
        media::negotiate(headers).is_some_and(|it| it.stream == Some(StreamFormat::EventStream));
    takes_events || !has_operation
}

/// Ends streams that were reserved and never opened, until the router shuts down.
pub(crate) async fn sweep(router: Arc<Router>) {
    let mut shutdown = router.shutdown.clone();
    let mut looks = tokio::time::interval(SWEEP_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => router.streams.sweep(Instant::now()),
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// Handles PUT: reserves a stream and responds with its token.
pub(crate) fn reserve(router: &Router, client: ClientKey) -> Response {
    let mut random = [0; TOKEN_RANDOM_BYTES];
    if let Err(error) = getrandom::fill(&mut random) {
        tracing::error!(%error, "the system provides no random bytes, so streams cannot be reserved");
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Overloaded,
            "try again later",
        );
    }
    let mut token = TOKEN_PREFIX.to_owned();
    token.extend(random.iter().map(|byte| format!("{byte:02x}")));
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    // Operations arrive in requests of their own, so there is no connection to hold.
    let work = ClientWork::new(response_account(router, client), Box::new(|| {}));
    let stream = Arc::new(SharedStream::new(outlet, work));
    let most = router.config.subscriptions.max_reserved_streams_per_client as usize;
    if !router.streams.reserve(&token, stream, (client, most), Instant::now()) {
        router.metrics.operations.count_refusal(ErrorCode::Overloaded);
        let message = "too many streams are reserved and not opened \
                       (`subscriptions.max_reserved_streams_per_client`); open one, or try again later";
        let mut answer =
            error_response(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, message);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return answer;
    }
    response::text(StatusCode::CREATED, token)
}

/// Handles GET: opens a reserved stream.
pub(crate) fn open(router: &Arc<Router>, token: &str, version: Version) -> Response {
    let stream = match router.streams.open(token, Instant::now()) {
        Ok(stream) => stream,
        Err(StreamRefusal::InUse) => {
            return error_response(
                StatusCode::CONFLICT,
                ErrorCode::BadRequest,
                "the stream is open already",
            );
        }
        Err(_) => return not_found(),
    };
    let stream = OpenStream::new(router, token, stream);
    if version < Version::HTTP_2 {
        let connection = |framing| LiveConnection::SingleConnection(framing, Box::new(stream));
        return super::sse::hand_over_as(router, ResponseFormat::EventStream, version, connection);
    }
    let (pieces, body) = mpsc::channel(AHEAD);
    let open = router.metrics.subscriptions.open_stream(Transport::sse);
    tokio::task::spawn_local(open_stream::write_stream(stream, pieces, open));
    head(ResponseFormat::EventStream, ResponseBody::Stream(body))
}

/// Handles POST, and GET of a query: starts an operation. Its results come over a stream.
pub(crate) async fn start(
    router: &Arc<Router>,
    token: &str,
    request: &OperationRequest,
    head: &Parts,
    (identity, address): (Identity, ClientKey),
) -> Response {
    let Some(stream) = router.streams.find(token, Instant::now()) else { return not_found() };
    let id = if request.extensions.len() <= INLINE_BYTES_MAX {
        operation_id(&request.extensions)
    } else {
        let client = identity.client_key().unwrap_or(address);
        let deadline = Instant::now() + router.config.limits.time;
        let extensions = request.extensions.clone();
        let read = router
            .offload
            .run(client, extensions.len(), deadline, move || operation_id(&extensions));
        match read.await {
            Ok(id) => id,
            Err(not_done) => {
                let error = not_done.error();
                router.metrics.operations.count_refusal(error.code);
                return response::request_errors(&[error], ResponseFormat::Json, true);
            }
        }
    };
    let id = match id {
        Some(id) if id.len() <= ID_BYTES_MAX => id,
        Some(_) => {
            let message = "`extensions.operationId` is too long";
            return error_response(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message);
        }
        None => {
            let message = "`extensions.operationId` must be a string that is not empty";
            return error_response(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message);
        }
    };
    let headers = OfMessage(&head.headers);
    let ready = match operation::prepare_for(router, request, headers, identity, address).await {
        Ok(ready) => ready,
        Err(errors) if response::is_overloaded(&errors) => {
            return response::overloaded(&errors, ResponseFormat::Json);
        }
        Err(errors) => {
            let status =
                errors.first().map_or(StatusCode::BAD_REQUEST, |it| error_mapping::status(it.code));
            return response::refused(status, &errors, ResponseFormat::Json);
        }
    };
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        return response::mutation_by_get();
    }
    match stream.start(router, &id, ready) {
        Ok(()) => response::empty(StatusCode::ACCEPTED),
        Err(StreamRefusal::NotFound) => not_found(),
        Err(StreamRefusal::InUse) => {
            let message = "an operation with this id is in progress on the stream";
            error_response(StatusCode::CONFLICT, ErrorCode::BadRequest, message)
        }
        Err(StreamRefusal::TooBusy) => {
            let message = "too many operations of the stream are in progress; try again later";
            router.metrics.operations.count_refusal(ErrorCode::Overloaded);
            let status = StatusCode::TOO_MANY_REQUESTS;
            let mut answer = error_response(status, ErrorCode::Overloaded, message);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Err(StreamRefusal::TooMany) => {
            let message = format!(
                "the stream has {} operations in progress, the maximum \
                 (`websocket.max_subscriptions_per_connection`): stop one first",
                router.config.websocket.max_subscriptions_per_connection
            );
            router.metrics.operations.count_refusal(ErrorCode::Overloaded);
            error_response(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Overloaded, &message)
        }
    }
}

/// Handles DELETE: stops an operation.
pub(crate) fn stop(router: &Router, token: &str, uri: &Uri) -> Response {
    let Some(stream) = router.streams.find(token, Instant::now()) else { return not_found() };
    let query = uri.query().unwrap_or_default().as_bytes();
    let id = url::form_urlencoded::parse(query).find(|(name, _)| name == "operationId");
    match id {
        Some((_, id)) if !id.is_empty() => {
            stream.stop(&id);
            response::empty(StatusCode::OK)
        }
        _ => {
            let message = "the URL needs the parameter `operationId`";
            error_response(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message)
        }
    }
}

fn not_found() -> Response {
    let message = "no stream has this token: reserve one by PUT";
    error_response(StatusCode::NOT_FOUND, ErrorCode::BadRequest, message)
}

fn error_response(status: StatusCode, code: ErrorCode, message: &str) -> Response {
    response::refused(status, &[GraphqlError::new(code, message.to_owned())], ResponseFormat::Json)
}

/// Returns `operationId` out of the extensions of a request.
fn operation_id(extensions: &Bytes) -> Option<String> {
    string_member(extensions, "operationId").ok().flatten().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn a_token_is_in_a_header_or_has_the_prefix_of_the_router() {
        let mut headers = HeaderMap::new();
        let token = |uri, headers: &HeaderMap| token_of(&Uri::from_static(uri), headers);
        assert_eq!(token("/graphql?token=stream-7", &headers).as_deref(), Some("stream-7"));
        assert_eq!(token("/graphql?token=eyJhbGciOi", &headers), None);
        assert_eq!(token("/graphql", &headers), None);
        headers.insert(TOKEN_HEADER, HeaderValue::from_static("any"));
        assert_eq!(token("/graphql", &headers).as_deref(), Some("any"));
    }

    #[test]
    fn a_get_with_a_token_opens_a_stream_unless_it_has_an_operation_and_accepts_no_events() {
        for (uri, accept, expected) in [
            ("/graphql", "application/json", true),
            ("/graphql?token=stream-7", "*/*", true),
            ("/graphql?query=x", "text/event-stream", true),
            ("/graphql?query=x", "application/json, text/event-stream", true),
            ("/graphql?query=x", "application/json", false),
            ("/graphql?query=x", "*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(is_opened_by(&Uri::from_static(uri), &headers), expected, "{uri} {accept}");
        }
    }

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
