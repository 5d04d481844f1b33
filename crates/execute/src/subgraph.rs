//! The interface to subgraphs: requests and responses.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use bytes::Bytes;
use graph::SubgraphId;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use std::sync::Arc;

use cache::PolicyFold;
use telemetry::spans::OutgoingSpan;

use crate::fetch_error::FetchError;
use crate::uploads::MultipartBody;

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

    /// Notes before a request whether the subgraph takes several times longer than usual. While it does, no query is
    /// sent a second time because its response is late.
    fn note_slowness(&self, _is_slow: bool) {}

    /// True if requests to the subgraph take several times longer than usual at present.
    fn is_slow(&self) -> bool {
        false
    }

    /// Notes that a request with several aliases failed as a whole and is repeated in parts, for
    /// the metrics.
    fn note_split(&self) {}

    /// Notes that a response cannot be used, for the log. `problem` continues the sentence
    /// "subgraph "x" …".
    fn note_unusable_response(&self, _problem: &str) {}

    /// Notes that a response has errors, for the metrics. `code` is `extensions.code` of the first one, as the subgraph
    /// sent it.
    fn note_errors(&self, _code: Option<&str>) {}

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

/// The errors of one response of a subgraph, with messages that are hidden from clients. Messages may repeat values of
/// the request, so only the level `debug` of the log shows them.
#[derive(Clone)]
pub struct HiddenErrors<'a> {
    /// The number of errors.
    pub count: usize,
    /// The code of the first error, if it has one.
    pub code: Option<&'a str>,
    /// Returns the path of the first error in the response of the subgraph, such as `_entities.0.price`, if it has one.
    /// Most responses write no line and need no path.
    pub path: &'a dyn Fn() -> Option<String>,
}

impl fmt::Debug for HiddenErrors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HiddenErrors");
        shown.field("count", &self.count).field("code", &self.code).finish_non_exhaustive()
    }
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
    /// Whether the second request was faster, if the request was sent a second time because the response was late.
    pub hedge: Option<HedgeOutcome>,
}

/// The outcome of a request that was sent a second time because the response was late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HedgeOutcome {
    /// The response is that to the second request.
    Won,
    /// The response is that to the first request.
    Lost,
}

impl HedgeOutcome {
    /// Returns the outcome in a word, for traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Lost => "lost",
        }
    }
}
