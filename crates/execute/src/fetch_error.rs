//! The reasons why a subgraph sent no usable response.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

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
    Timeout(Duration),
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
    /// The memory budget of the process is used up.
    #[error("the router has no memory left for its response (`limits.memory`)")]
    MemoryUsedUp,
    /// Too many requests wait for a connection.
    #[error("too many requests are waiting for this subgraph")]
    Overloaded,
    /// The circuit breaker is open: so many requests have failed that none is sent, for this long.
    #[error("too many requests to it have failed; {}", in_a_moment(*.0))]
    Unavailable(Duration),
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
            Self::MemoryUsedUp => "memory_used_up".into(),
            Self::Overloaded => "overloaded".into(),
            Self::Unavailable(_) => "circuit_open".into(),
            Self::NoServer => "no_server".into(),
        }
    }
}

fn in_a_moment(pause: Duration) -> String {
    match pause.as_millis() {
        0 => "it is being tried again".into(),
        millis => format!("it will be tried again in {:.1}s", millis as f64 / 1000.0),
    }
}
