//! The interface to subgraphs: requests, responses, and the errors of both.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use bytes::Bytes;
use graph::SubgraphId;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use std::sync::Arc;

use cache::PolicyFold;
use telemetry::spans::OutgoingSpan;

use crate::MultipartBody;

/// A future that stays on its worker: request state need not be `Send`.
pub type LocalFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// The headers that the configuration forwards, rendered once per request.
#[derive(Clone, Debug, Default)]
pub struct ForwardedHeaders {
    /// The headers for every subgraph without rules of its own, sorted by name.
    pub all: Vec<(HeaderName, HeaderValue)>,
    /// The headers for subgraphs with rules of their own (those of `all` are included), sorted by
    /// name.
    pub by_subgraph: Vec<(SubgraphId, Vec<(HeaderName, HeaderValue)>)>,
    /// The id of the request, for every subgraph. It does not distinguish requests: operations that share a request to
    /// a subgraph have different ids, and the subgraph gets one of them.
    pub request_id: Option<(HeaderName, HeaderValue)>,
}

impl ForwardedHeaders {
    /// Returns the headers for `subgraph`.
    pub fn of(&self, subgraph: SubgraphId) -> SubgraphHeaders<'_> {
        let own = self.by_subgraph.iter().find(|(id, _)| *id == subgraph);
        SubgraphHeaders {
            forwarded: own.map_or(&self.all, |(_, headers)| headers),
            request_id: self.request_id.as_ref(),
            span: None,
        }
    }
}

/// Without the id of the request.
impl PartialEq for ForwardedHeaders {
    fn eq(&self, other: &Self) -> bool {
        (&self.all, &self.by_subgraph) == (&other.all, &other.by_subgraph)
    }
}

impl Eq for ForwardedHeaders {}

impl Hash for ForwardedHeaders {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all.hash(state);
        self.by_subgraph.hash(state);
    }
}

/// The headers for one subgraph.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubgraphHeaders<'a> {
    /// The forwarded headers. Requests to a subgraph with different ones are never shared.
    pub forwarded: &'a [(HeaderName, HeaderValue)],
    /// The header with the id of the request.
    pub request_id: Option<&'a (HeaderName, HeaderValue)>,
    /// The span of the request, if it belongs to a trace. Its identity is sent in headers of its own.
    pub span: Option<&'a OutgoingSpan>,
}

/// The client of a subgraph. Implemented by `upstream` over HTTP, and by tests.
pub trait Subgraph: Send + Sync {
    /// Sends one request and waits for the whole response. Never retries a mutation.
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>>;

    /// Returns the address of the subgraph for the spans of traces; `None` if it has none.
    fn endpoint(&self) -> Option<&SubgraphEndpoint> {
        None
    }

    /// Notes that a request with several aliases failed as a whole and is repeated in parts, for
    /// the metrics.
    fn note_split(&self) {}

    /// Notes that a response cannot be used, for the log. `problem` continues the sentence
    /// "subgraph "x" …".
    fn note_unusable_response(&self, _problem: &str) {}

    /// Notes the errors of a response with messages that clients do not see, for the log. Called
    /// once per response.
    fn note_hidden_errors(&self, _errors: &HiddenErrors<'_>) {}
}

/// The address of a subgraph, without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubgraphEndpoint {
    /// The URL without its query, which may hold a key.
    pub url: Box<str>,
    /// The host, or the path of a socket.
    pub host: Box<str>,
    /// The port; none for a socket.
    pub port: Option<u16>,
}

/// The errors of one response of a subgraph whose messages are hidden from clients. The log is the
/// only place that shows them.
#[derive(Clone, Debug)]
pub struct HiddenErrors<'a> {
    /// The number of errors.
    pub count: usize,
    /// The message of the first error, cut to a bound.
    pub message: &'a str,
    /// The code of the first error, if it has one.
    pub code: Option<&'a str>,
    /// The `extensions` of the first error as JSON text, if it has any; cut to a bound.
    pub extensions: Option<&'a str>,
}

/// One request to a subgraph.
#[derive(Clone, Debug)]
pub struct SubgraphRequest<'a> {
    /// The JSON body: `{"query":…,"variables":…}`.
    pub body: Bytes,
    /// The form that is sent in place of `body`, if the request has files.
    pub form: Option<MultipartBody>,
    /// True for a mutation, which is never repeated or shared.
    pub is_mutation: bool,
    /// Headers to send.
    pub headers: SubgraphHeaders<'a>,
    /// The deadline of the response. The subgraph's own timeout may end it earlier.
    pub deadline: Instant,
}

/// The response of a subgraph, with a body that looks like JSON; execution parses it.
#[derive(Clone, Debug)]
pub struct SubgraphResponse {
    /// The HTTP status. A status other than 2xx is valid if the body is a GraphQL response.
    pub status: StatusCode,
    /// Headers that response rules or cache policies may read.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// For how long the response may be used, and by which clients; `None` if it may not be stored.
    pub policy: Option<Arc<PolicyFold>>,
}

/// Reason why a subgraph sent no usable response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection could be opened.
    #[error("connection failed: {0}")]
    Connect(String),
    /// The connection broke before the response was complete.
    #[error("connection closed before the response was complete: {0}")]
    Closed(String),
    /// The response did not come in time.
    #[error("no response within {0:?}")]
    Timeout(std::time::Duration),
    /// The body exceeds the limit.
    #[error("response larger than {limit} bytes")]
    TooLarge {
        /// The limit: `traffic.max_response_size`.
        limit: u64,
    },
    /// The status is one of failure and the body is no GraphQL response.
    #[error("HTTP status {status}{}", content_type.as_deref().map(|it| format!(", content type {it}")).unwrap_or_default())]
    Status {
        /// HTTP status.
        status: StatusCode,
        /// The content type of the body.
        content_type: Option<String>,
        /// The body, if its content type is JSON: it may hold GraphQL errors that explain more than
        /// the status.
        body: Option<Bytes>,
    },
    /// The response is not valid HTTP.
    #[error("{0}")]
    Protocol(String),
    /// Too many requests wait for a connection.
    #[error("too many requests are waiting for this subgraph")]
    Overloaded,
    /// The circuit breaker is open: so many requests have failed that none is sent, for this long.
    #[error("too many requests to it have failed; {}", in_a_moment(*.0))]
    Unavailable(std::time::Duration),
    /// The subgraph has no server: an event subgraph, or no URL is known.
    #[error("this subgraph has no server")]
    NoServer,
}

impl FetchError {
    /// Returns the kind of the error in a word, or the HTTP status, for the attribute `error.type` of spans.
    pub fn kind(&self) -> Cow<'static, str> {
        match self {
            Self::Connect(_) => "connect".into(),
            Self::Closed(_) => "closed".into(),
            Self::Timeout(_) => "timeout".into(),
            Self::TooLarge { .. } => "too_large".into(),
            Self::Status { status, .. } => status.as_str().to_owned().into(),
            Self::Protocol(_) => "protocol".into(),
            Self::Overloaded => "overloaded".into(),
            Self::Unavailable(_) => "circuit_open".into(),
            Self::NoServer => "no_server".into(),
        }
    }
}

fn in_a_moment(pause: std::time::Duration) -> String {
    match pause.as_millis() {
        0 => "it is being tried again".into(),
        millis => format!("it will be tried again in {:.1}s", millis as f64 / 1000.0),
    }
}
