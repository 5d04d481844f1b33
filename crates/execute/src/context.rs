//! What execution needs to know beside plan and variables: who stands behind each subgraph, which
//! headers go along, until when.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use graph::{FieldId, SubgraphId, Supergraph};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Claims, Disclosure, GraphqlError, Sharing, Trace};

/// A future that stays on its core: request state need not be `Send`.
pub type LocalFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// One immutable loaded graph with everything that serves it. A reload makes a new one; requests
/// and subscriptions hold theirs by `Arc`.
pub struct Generation {
    /// Counts loads from 1.
    pub number: u64,
    /// Hash of the supergraph's text.
    pub graph_id: u64,
    /// The model.
    pub graph: Arc<Supergraph>,
    /// By [`SubgraphId`]. Event subgraphs have a stand-in that refuses.
    pub subgraphs: Vec<Arc<dyn Subgraph>>,
    /// Publishes and asks for the root fields of event subgraphs.
    pub publisher: Arc<dyn Publisher>,
    /// What clients get to see of subgraphs beside the data.
    pub disclosure: Disclosure,
}

impl Generation {
    /// Who answers for a subgraph.
    pub fn subgraph(&self, id: SubgraphId) -> &dyn Subgraph {
        &*self.subgraphs[usize::from(id.0)]
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({}, {:016x})", self.number, self.graph_id)
    }
}

/// What travels with one operation.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The graph that answers.
    pub generation: Arc<Generation>,
    /// Headers to send to subgraphs.
    pub headers: Arc<ForwardedHeaders>,
    /// When everything must be done.
    pub deadline: Instant,
    /// With whom it shares requests to subgraphs; `None`: with nobody.
    pub sharing: Option<Arc<Sharing>>,
    /// Who wants to know what is fetched.
    pub trace: Option<Arc<Trace>>,
    /// What the client's token says, for fields of event subgraphs that depend on it.
    pub claims: Option<Claims>,
}

/// The headers that the configuration forwards, rendered once per request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ForwardedHeaders {
    /// For every subgraph without rules of its own, sorted by name.
    pub all: Vec<(HeaderName, HeaderValue)>,
    /// For subgraphs with rules of their own (those of `all` are merged in already), sorted by name.
    pub by_subgraph: Vec<(SubgraphId, Vec<(HeaderName, HeaderValue)>)>,
}

impl ForwardedHeaders {
    /// What goes to `subgraph`.
    pub fn of(&self, subgraph: SubgraphId) -> &[(HeaderName, HeaderValue)] {
        self.by_subgraph
            .iter()
            .find(|(id, _)| *id == subgraph)
            .map_or(&self.all, |(_, headers)| headers)
    }
}

/// Who answers for a subgraph. Implemented by `upstream` over HTTP and by tests.
pub trait Subgraph: Send + Sync {
    /// Sends one request and waits for the whole answer. Never retries a mutation.
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphAnswer, FetchError>>;

    /// Told when a request with several aliases failed as a whole and is repeated in parts. For those
    /// who count.
    fn note_taken_apart(&self) {}

    /// Notes that a response cannot be used, for the log. `problem` goes after "subgraph "x" …".
    fn note_unusable_response(&self, _problem: &str) {}

    /// Notes the errors of a response with messages that clients do not see, for the log. Called once per response.
    fn note_hidden_errors(&self, _errors: &HiddenErrors<'_>) {}
}

/// The errors of one response of a subgraph that hides its messages from clients. They are for the log, the only place
/// that shows them.
#[derive(Clone, Debug)]
pub struct HiddenErrors<'a> {
    /// How many there are.
    pub count: usize,
    /// The message of the first one, cut to a bound.
    pub message: &'a str,
    /// The code of the first one, if it has one.
    pub code: Option<&'a str>,
    /// The `extensions` of the first one as JSON text, if it has any; cut to a bound.
    pub extensions: Option<&'a str>,
}

/// One request to a subgraph.
#[derive(Clone, Debug)]
pub struct SubgraphRequest<'a> {
    /// The JSON body: `{"query":…,"variables":…}`.
    pub body: Bytes,
    /// Is it a mutation? Those are never repeated or shared.
    pub is_mutation: bool,
    /// To send along.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// When the answer must be there. The subgraph's own timeout may end it earlier.
    pub deadline: Instant,
}

/// A subgraph's answer whose body looks like JSON; execution parses it.
#[derive(Clone, Debug)]
pub struct SubgraphAnswer {
    /// HTTP status. Other than 2xx is fine as long as the body is a GraphQL answer.
    pub status: StatusCode,
    /// Headers that response rules or cache policies may read.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why a subgraph gave no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error("connection failed: {0}")]
    Connect(String),
    /// The connection broke before the answer was complete.
    #[error("connection closed before the answer was complete: {0}")]
    Closed(String),
    /// Not in time.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The body is over the limit.
    #[error("answer larger than {limit} bytes")]
    TooLarge {
        /// `traffic.max_response_size`
        limit: u64,
    },
    /// The status says failure and the body is no GraphQL answer.
    #[error("HTTP status {status}{}", content_type.as_deref().map(|it| format!(", content type {it}")).unwrap_or_default())]
    Status {
        /// HTTP status.
        status: StatusCode,
        /// What the body claims to be.
        content_type: Option<String>,
        /// The body, if it claims to be JSON: it may hold GraphQL errors that say more than the status.
        body: Option<Bytes>,
    },
    /// What came is not an HTTP answer that can be read.
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

/// What a root field of an event subgraph sends.
#[derive(Clone, Debug)]
pub struct EventRequest<'a> {
    /// The field; its directive names provider and topic.
    pub field: FieldId,
    /// All of its arguments: a JSON object's text.
    pub arguments: Bytes,
    /// What is forwarded to the event subgraph. A trace context among them goes along.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// What the client's token says.
    pub claims: Option<&'a Claims>,
    /// When the operation must be done.
    pub deadline: Instant,
}

/// Publishes and asks for the root fields of event subgraphs. Implemented where providers are known.
pub trait Publisher: Send + Sync {
    /// Publishes. `Ok(false)`: the broker refused or is away; it has been logged. `Err`: the client may not, the field is not bound
    /// to a topic that can be published to, or its template cannot be rendered.
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>>;

    /// Publishes and waits for an answer: JSON text of the field's value, as it came.
    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>>;
}
