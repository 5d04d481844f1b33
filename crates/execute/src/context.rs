//! The context of an execution beside plan and variables: the subgraphs, the forwarded headers, the
//! deadline.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use graph::{FieldId, SubgraphId, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Claims, Disclosure, GraphqlError, Sharing, Trace};

/// A future that stays on its worker: request state need not be `Send`.
pub type LocalFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// One immutable loaded graph with everything that serves it. A reload creates a new one; requests
/// and subscriptions hold theirs by `Arc`.
pub struct Generation {
    /// Counts loads from 1.
    pub number: u64,
    /// Hash of the supergraph's text.
    pub graph_id: u64,
    /// The model.
    pub graph: Arc<Supergraph>,
    /// The subgraphs by [`SubgraphId`]. Event subgraphs have a stand-in that refuses requests.
    pub subgraphs: Vec<Arc<dyn Subgraph>>,
    /// Publishes and sends requests for the root fields of event subgraphs.
    pub publisher: Arc<dyn Publisher>,
    /// The errors and headers of subgraphs that clients see beside the data.
    pub disclosure: Disclosure,
}

impl Generation {
    /// Returns the client of a subgraph.
    pub fn subgraph(&self, id: SubgraphId) -> &dyn Subgraph {
        &*self.subgraphs[usize::from(id.0)]
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({}, {:016x})", self.number, self.graph_id)
    }
}

/// The context of one operation.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The graph that executes the operation.
    pub generation: Arc<Generation>,
    /// Headers to send to subgraphs.
    pub headers: Arc<ForwardedHeaders>,
    /// The deadline of the whole operation.
    pub deadline: Instant,
    /// The state through which it shares requests to subgraphs; `None` if it shares none.
    pub sharing: Option<Arc<Sharing>>,
    /// The trace that records its fetches, if one was requested.
    pub trace: Option<Arc<Trace>>,
    /// The claims of the client's token, for fields of event subgraphs that depend on them.
    pub claims: Option<Claims>,
}

/// The headers that the configuration forwards, rendered once per request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ForwardedHeaders {
    /// The headers for every subgraph without rules of its own, sorted by name.
    pub all: Vec<(HeaderName, HeaderValue)>,
    /// The headers for subgraphs with rules of their own (those of `all` are included), sorted by
    /// name.
    pub by_subgraph: Vec<(SubgraphId, Vec<(HeaderName, HeaderValue)>)>,
}

impl ForwardedHeaders {
    /// Returns the headers for `subgraph`.
    pub fn of(&self, subgraph: SubgraphId) -> &[(HeaderName, HeaderValue)] {
        self.by_subgraph
            .iter()
            .find(|(id, _)| *id == subgraph)
            .map_or(&self.all, |(_, headers)| headers)
    }
}

/// The client of a subgraph. Implemented by `upstream` over HTTP, and by tests.
pub trait Subgraph: Send + Sync {
    /// Sends one request and waits for the whole response. Never retries a mutation.
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>>;

    /// Notes that a request with several aliases failed as a whole and is repeated in parts, for
    /// the metrics.
    fn note_taken_apart(&self) {}

    /// Notes that a response cannot be used, for the log. `problem` continues the sentence
    /// "subgraph "x" …".
    fn note_unusable_response(&self, _problem: &str) {}

    /// Notes the errors of a response with messages that clients do not see, for the log. Called
    /// once per response.
    fn note_hidden_errors(&self, _errors: &HiddenErrors<'_>) {}
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
    /// True for a mutation, which is never repeated or shared.
    pub is_mutation: bool,
    /// Headers to send.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The deadline of the response. The subgraph's own timeout may end it earlier.
    pub deadline: Instant,
}

/// The response of a subgraph, with a body that looks like JSON; execution parses it.
#[derive(Clone, Debug)]
pub struct SubgraphAnswer {
    /// The HTTP status. A status other than 2xx is valid if the body is a GraphQL response.
    pub status: StatusCode,
    /// Headers that response rules or cache policies may read.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
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

fn in_a_moment(pause: std::time::Duration) -> String {
    match pause.as_millis() {
        0 => "it is being tried again".into(),
        millis => format!("it will be tried again in {:.1}s", millis as f64 / 1000.0),
    }
}

/// A request for a root field of an event subgraph.
#[derive(Clone, Debug)]
pub struct EventRequest<'a> {
    /// The field; its directive names provider and topic.
    pub field: FieldId,
    /// All of its arguments: the text of a JSON object.
    pub arguments: Bytes,
    /// The headers that are forwarded to the event subgraph. A trace context among them is sent
    /// too.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The claims of the client's token.
    pub claims: Option<&'a Claims>,
    /// The deadline of the operation.
    pub deadline: Instant,
}

/// Publishes and sends requests for the root fields of event subgraphs. Implemented where providers
/// are known.
pub trait Publisher: Send + Sync {
    /// Publishes an event. `Ok(false)` means that the broker refused it or is not reachable, which
    /// has been logged. `Err` means that the client is not allowed to, that the field is not bound
    /// to a topic that can be published to, or that its template cannot be rendered.
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>>;

    /// Publishes a request and waits for its response: the JSON text of the field's value,
    /// unchanged.
    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>>;
}
