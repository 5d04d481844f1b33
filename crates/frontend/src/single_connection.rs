//! Requests of single connection mode (GraphQL over SSE), the least used transport: one event stream carries several
//! operations, each started by a request of its own. The service holds the service.

use std::time::Instant;

use clients::authentication::Identity;
use clients::refusal::Refusal;
use execute::{ErrorCode, GraphqlError};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use telemetry::LogLimit;
use wire::result_stream::StreamFormat;

use super::batch;
use super::client_connection::ClientRequest;
use super::media::{self, ResponseFormat};
use super::metrics::HttpMetrics;
use super::received_request::{ReceivedRequest, RequestReceiver};
use super::request::{self, ParsedRequest};
use super::response::{self, Response};
use super::service::{GraphqlBatch, GraphqlRequest, GraphqlService, RequestClient};
use super::stream_response;

/// The header with the token of a stream.
const TOKEN_HEADER: &str = "x-graphql-event-stream-token";

/// The parameter of the URL with the token, for `EventSource`, which sends no headers of its own.
const TOKEN_PARAMETER: &str = "token";

/// The prefix of the router's tokens. A URL may have a parameter `token` with another purpose.
const TOKEN_PREFIX: &str = "stream-";

/// The number of random bytes in a token, enough that no two are equal and none can be guessed.
const TOKEN_RANDOM_BYTES: usize = 16;

/// Returns the token that a request carries.
fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<Box<str>> {
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
fn is_opened_by(uri: &Uri, headers: &HeaderMap) -> bool {
    let has_operation = request::has_operation(uri.query().unwrap_or_default());
    let takes_events =
        media::negotiate(headers).is_some_and(|it| it.stream == Some(StreamFormat::EventStream));
    takes_events || !has_operation
}

/// A request of single connection mode. A token identifies the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StreamRequest {
    /// Reserves a stream.
    Reserve,
    /// Opens the stream with this token.
    Open(Box<str>),
    /// Starts an operation on the stream with this token.
    Start(Box<str>),
    /// Stops an operation on the stream with this token.
    Stop(Box<str>),
}

impl StreamRequest {
    /// True if the client must be authorized before its request is handled. A client with the token of a stream was
    /// authorized when it reserved the stream; `EventSource` sends no headers.
    pub(super) fn requires_authorization(&self) -> bool {
        match self {
            Self::Open(_) | Self::Stop(_) => false,
            Self::Reserve | Self::Start(_) => true,
        }
    }
}

/// Returns the kind of a request to the endpoint; `None` if it does not belong to this mode.
pub(super) fn classify(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<StreamRequest> {
    match *method {
        Method::GET => token_of(uri, headers).map(|token| match is_opened_by(uri, headers) {
            true => StreamRequest::Open(token),
            false => StreamRequest::Start(token),
        }),
        Method::POST => token_of(uri, headers).map(StreamRequest::Start),
        Method::PUT => Some(StreamRequest::Reserve),
        Method::DELETE => token_of(uri, headers).map(StreamRequest::Stop),
        _ => None,
    }
}

/// Responds to a request of single connection mode.
pub(super) async fn respond(
    (service, receiver, metrics): (&dyn GraphqlService, &RequestReceiver, &HttpMetrics),
    client: &ClientRequest,
    stream_request: StreamRequest,
    request: Request<Incoming>,
    identity: Identity,
) -> Response {
    let done = match stream_request {
        StreamRequest::Reserve => {
            let client = identity.client_key().unwrap_or(client.connection().client());
            let Some(token) = random_token() else { return no_random_bytes() };
            let reserved = service.reserve_stream(&token, client);
            reserved.map(|()| response::text(StatusCode::CREATED, token))
        }
        StreamRequest::Open(token) => {
            let opened = service.open_stream(&token, request.version());
            opened.map(|body| stream_response::with_stream(StreamFormat::EventStream, body))
        }
        StreamRequest::Stop(token) => {
            let query = request.uri().query().unwrap_or_default().as_bytes();
            let id = url::form_urlencoded::parse(query).find(|(name, _)| name == "operationId");
            let id = id.map(|(_, id)| id).filter(|id| !id.is_empty());
            let stopped = service.stop_on_stream(&token, id.as_deref());
            stopped.map(|()| response::empty(StatusCode::OK))
        }
        StreamRequest::Start(token) => {
            match start((service, receiver, metrics), client, &token, request, identity).await {
                Ok(done) => done,
                Err(response) => return *response,
            }
        }
    };
    done.unwrap_or_else(|refusal| response::refuse(refusal, ResponseFormat::Json))
}

/// Starts an operation that sends its results over the stream with this token.
///
/// # Errors
/// The response to a request that cannot be read.
async fn start(
    (service, receiver, metrics): (&dyn GraphqlService, &RequestReceiver, &HttpMetrics),
    client: &ClientRequest,
    token: &str,
    request: Request<Incoming>,
    identity: Identity,
) -> Result<Result<Response, Refusal>, Box<Response>> {
    let received = receiver.receive(client, &identity, request, None).await?;
    let ReceivedRequest { head, parsed, accepted } = received;
    let client = RequestClient::of(client, identity);
    match parsed {
        ParsedRequest::One(operation) => {
            let request = GraphqlRequest { head, operation, client, accepted, uploads: None };
            let started = service.start_on_stream(token, request).await;
            Ok(started.map(|()| response::empty(StatusCode::ACCEPTED)))
        }
        ParsedRequest::Batch(operations) => {
            let batch = GraphqlBatch { head: &head, operations, client };
            Ok(Ok(batch::respond(service, metrics, batch, accepted.result).await))
        }
    }
}

/// Returns a new token; `None` if the system provides no random bytes.
fn random_token() -> Option<String> {
    let mut random = [0; TOKEN_RANDOM_BYTES];
    if let Err(error) = getrandom::fill(&mut random) {
        static LIMIT: LogLimit = LogLimit::new();
        if let Some(suppressed) = LIMIT.admit(Instant::now()) {
            let problem = "the system provides no random bytes, so streams cannot be reserved";
            tracing::error!(%error, suppressed, "{problem}");
        }
        return None;
    }
    let mut token = TOKEN_PREFIX.to_owned();
    token.extend(random.iter().map(|byte| format!("{byte:02x}")));
    Some(token)
}

fn no_random_bytes() -> Response {
    let error = GraphqlError::new(ErrorCode::Overloaded, "try again later");
    response::refused(StatusCode::SERVICE_UNAVAILABLE, &[error], ResponseFormat::Json)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
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
            ("/graphql?documentId=x", "*/*", false),
            ("/graphql?extensions=x", "*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(is_opened_by(&Uri::from_static(uri), &headers), expected, "{uri} {accept}");
        }
    }
}
