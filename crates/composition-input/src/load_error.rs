//! The reasons why the schema of a subgraph cannot be loaded, and the advice for each.

use std::time::Duration;

use config::diagnostic::Diagnostic;

pub use crate::text_file::FileError;

/// The reason why the schema of one subgraph cannot be loaded. Its text contains no header and no credentials.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("subgraph `{subgraph}`: {kind}")]
pub struct LoadError {
    /// The name of the subgraph.
    pub subgraph: String,
    /// The reason.
    pub kind: LoadErrorKind,
    /// The message for people, with the place in the file and advice.
    pub diagnostic: Box<Diagnostic>,
}

/// The kinds of failures to load a schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The schema file cannot be read.
    #[error("cannot read its schema {path}: {error}")]
    File {
        /// The path, relative to the working directory.
        path: String,
        /// The reason.
        error: FileError,
    },
    /// The URL cannot be used.
    #[error("its schema cannot be requested: {0}")]
    Request(String),
    /// A header cannot be used.
    #[error("its schema cannot be requested: {0}")]
    Header(String),
    /// No connection could be opened, or it broke.
    #[error("its server cannot be reached: {0}")]
    Unreachable(String),
    /// The response did not come in time.
    #[error("its server did not respond within {0:?}")]
    Timeout(Duration),
    /// The status is one of failure.
    #[error("its server responded with HTTP status {status}{}", listed(.errors))]
    Status {
        /// The status.
        status: u16,
        /// The messages of the GraphQL errors in the body, if there are any.
        errors: Vec<String>,
    },
    /// The response is not a GraphQL response.
    #[error("its server did not send a GraphQL response: {0}")]
    NotGraphql(String),
    /// The response contains GraphQL errors.
    #[error("its server refused to return its schema{}", listed(.0))]
    Refused(Vec<String>),
    /// The response contains no schema.
    #[error("its server returned an empty schema")]
    Empty,
    /// The schema is too large.
    #[error("its schema is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// There is no URL at which the router can reach the subgraph.
    #[error("it has no `routing_url`")]
    NoRoutingUrl,
    /// The same for a schema in a folder, where files have no URLs.
    #[error("it has no URL")]
    NoUrl {
        /// The key of the router's configuration that sets the URL.
        key: String,
    },
}

fn listed(errors: &[String]) -> String {
    match errors {
        [] => String::new(),
        errors => format!(": {}", errors.join("; ")),
    }
}

impl LoadErrorKind {
    /// Returns the stable name of the kind, as the other codes of messages about files.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File { .. } => "unreadable-schema",
            Self::Request(_) | Self::Header(_) => "invalid-request",
            Self::Unreachable(_) | Self::Timeout(_) => "unreachable-subgraph",
            Self::Status { .. } | Self::NotGraphql(_) | Self::Refused(_) | Self::Empty => {
                "introspection-failed"
            }
            Self::TooLarge(_) => "schema-too-large",
            Self::NoRoutingUrl | Self::NoUrl { .. } => "missing-routing-url",
        }
    }

    /// Returns the advice on how to correct it.
    pub fn advice(&self) -> String {
        let advice = match self {
            Self::File { error, .. } => return error.advice("schema.file"),
            Self::Request(_) => {
                "write scheme, host and path: `http://products.internal:4001/graphql`"
            }
            Self::Header(_) => {
                "write the name with letters, digits and hyphens, and the value with visible ASCII characters and spaces; \
                 headers such as `host` are determined by the request itself"
            }
            Self::Unreachable(_) => {
                "check that the subgraph runs and that this machine can reach it, or give its schema as a file"
            }
            Self::Timeout(_) => "check that the subgraph works, or give its schema as a file",
            Self::Status { status: 401 | 403, .. } => {
                "the subgraph requires authorization: give a token in the headers of introspection"
            }
            Self::Status { status: 300..=399, .. } => {
                "redirections are not followed: give the URL to which the server redirects"
            }
            Self::Status { status: 404 | 405, .. } => {
                "check the path of the URL; the schema is requested by POST from the GraphQL endpoint"
            }
            Self::Status { .. } => "the log of the subgraph may say more",
            Self::NotGraphql(_) => "check that the URL is that of the GraphQL endpoint",
            Self::Refused(_) => {
                "enable introspection of the subgraph for this machine, or give its schema as a file"
            }
            Self::Empty => "check the subgraph's implementation of `_service { sdl }`",
            Self::TooLarge(_) => "split the subgraph",
            Self::NoRoutingUrl => {
                "add `routing_url: http://HOST:PORT/PATH`; only event subgraphs have none, and every root field of theirs \
                 has an event directive such as `@events__subscribe`"
            }
            Self::NoUrl { key } => {
                return format!(
                    "set `{key}` in the configuration of the router; only event subgraphs have none, and every root \
                     field of theirs has an event directive such as `@events__subscribe`"
                );
            }
        };
        advice.to_owned()
    }
}
