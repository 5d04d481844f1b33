//! The GraphQL error of the router and its codes. A new code is one line of the table below; the router decides its
//! HTTP status and explanation, and the compiler names both places.

use std::borrow::Cow;
use std::num::NonZeroU16;

/// Defines [`ErrorCode`] from the documentation, name and text of each code.
macro_rules! error_codes {
    ($($(#[$documentation:meta])+ $name:ident = $text:literal,)+) => {
        /// `extensions.code` of an error. `docs/errors.md` lists them with their HTTP status.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorCode {
            $($(#[$documentation])+ $name,)+
        }

        impl ErrorCode {
            /// All codes, for the generated table.
            pub const ALL: [Self; [$(Self::$name,)+].len()] = [$(Self::$name,)+];

            /// Returns the code as clients see it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

error_codes! {
    /// The request is not a well-formed GraphQL request (body, parameters, headers).
    BadRequest = "BAD_REQUEST",
    /// The document does not parse.
    GraphqlParseFailed = "GRAPHQL_PARSE_FAILED",
    /// The document does not validate against the schema, or names no known operation.
    GraphqlValidationFailed = "GRAPHQL_VALIDATION_FAILED",
    /// Several operations and no name, or an unknown name.
    OperationNotFound = "OPERATION_NOT_FOUND",
    /// The request has the hash of an operation but not its text.
    PersistedQueryNotSupported = "PERSISTED_QUERY_NOT_SUPPORTED",
    /// No operation with the hash of the request is stored.
    PersistedQueryNotFound = "PERSISTED_QUERY_NOT_FOUND",
    /// The hash of the request is not that of its text.
    PersistedQueryHashMismatch = "PERSISTED_QUERY_HASH_MISMATCH",
    /// No persisted document with the id of the request is known, or it is for other clients.
    PersistedDocumentNotFound = "PERSISTED_DOCUMENT_NOT_FOUND",
    /// The router runs persisted documents only, and the operation is none.
    PersistedDocumentRequired = "PERSISTED_DOCUMENT_REQUIRED",
    /// A variable's value does not fit its type.
    BadUserInput = "BAD_USER_INPUT",
    /// There is no token, or it is wrong or has expired.
    Unauthenticated = "UNAUTHENTICATED",
    /// The token cannot be verified at present: the keys of its issuer are not known.
    AuthenticationUnavailable = "AUTHENTICATION_UNAVAILABLE",
    /// A condition of the configuration refuses the operation.
    OperationBlocked = "OPERATION_BLOCKED",
    /// A rate limit of the configuration is reached.
    RateLimited = "RATE_LIMITED",
    /// The claims of the token, or its absence, do not allow it.
    Forbidden = "FORBIDDEN",
    /// The client may not use a field or type, by a directive of the schema.
    UnauthorizedFieldOrType = "UNAUTHORIZED_FIELD_OR_TYPE",
    /// The operation exceeds a configured limit.
    OperationLimitExceeded = "OPERATION_LIMIT_EXCEEDED",
    /// The estimated cost of the operation is above the configured maximum.
    CostEstimatedTooExpensive = "COST_ESTIMATED_TOO_EXPENSIVE",
    /// The operation is valid but cannot be planned.
    PlanningFailed = "PLANNING_FAILED",
    /// The operation needs a feature that this version does not have.
    NotSupported = "NOT_SUPPORTED",
    /// A subgraph could not be reached, or its response was invalid or too late.
    SubgraphRequestFailed = "SUBGRAPH_REQUEST_FAILED",
    /// A subgraph receives no requests because most requests to it have failed.
    SubgraphUnavailable = "SUBGRAPH_UNAVAILABLE",
    /// An error that a subgraph reported without a code of its own.
    DownstreamServiceError = "DOWNSTREAM_SERVICE_ERROR",
    /// A value does not fit the schema: null where it is not allowed, a string for an `Int`.
    InvalidSubgraphValue = "INVALID_SUBGRAPH_VALUE",
    /// The request took longer than its deadline.
    Timeout = "TIMEOUT",
    /// A provider of events is down or unknown.
    ProviderUnavailable = "PROVIDER_UNAVAILABLE",
    /// No responder listens for requests over a broker.
    NoResponder = "NO_RESPONDER",
    /// The stream or topic of a subscription was deleted at the broker.
    SourceGone = "SOURCE_GONE",
    /// A cursor was not made by this graph's routers, or was changed.
    CursorInvalid = "CURSOR_INVALID",
    /// A cursor belongs to another subscription.
    CursorForeign = "CURSOR_FOREIGN",
    /// The broker no longer has the events after a cursor.
    CursorExpired = "CURSOR_EXPIRED",
    /// An event, or the response to a request over a broker, is malformed.
    InvalidEvent = "INVALID_EVENT",
    /// The graph was replaced, and the subscription is not valid on the new one.
    GraphReloaded = "GRAPH_RELOADED",
    /// The token of a connection was renewed, and a subscription cannot continue with the new one.
    TokenRenewed = "TOKEN_RENEWED",
    /// The subscriber read too slowly.
    SlowSubscriber = "SLOW_SUBSCRIBER",
    /// The router is shutting down.
    ShuttingDown = "SHUTTING_DOWN",
    /// A limit on connections, subscriptions or queues was reached.
    Overloaded = "OVERLOADED",
    /// A defect of the router.
    InternalServerError = "INTERNAL_SERVER_ERROR",
}

/// One step of an error's path in the client's response.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PathSegment {
    /// A response key.
    Key(Box<str>),
    /// An index of a list, from 0.
    Index(u32),
}

/// A position in the client's document, both from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// An error in a response (GraphQL specification, section 7.1.2).
#[derive(Clone, PartialEq, Debug)]
pub struct GraphqlError {
    /// The failure and possible remedies, for the client's developer. Never contains secrets or
    /// internal addresses.
    pub message: Cow<'static, str>,
    /// Positions in the document; empty for errors of execution.
    pub locations: Vec<Location>,
    /// The path in the response; empty for request errors.
    pub path: Vec<PathSegment>,
    /// `extensions.code`
    pub code: ErrorCode,
    /// The members of a subgraph's own `extensions` that are passed on, as the text of a JSON
    /// object. They are printed after those of the router; a `code` among them replaces `code`.
    pub extensions: Option<Box<str>>,
    /// `extensions.serviceName`: the subgraph it came from.
    pub subgraph: Option<Box<str>>,
    /// The rate limit that refused the operation. HTTP sends it as headers.
    pub rate_limit: Option<Box<RateLimitState>>,
    /// The time after which the client may try again, in seconds, if the router is overloaded. HTTP sends it as a
    /// header.
    // Two bytes, which fit beside the code: results with errors are moved a lot.
    pub retry_after_seconds: Option<NonZeroU16>,
}

/// The state of a rate limit for one key, when it refused an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimitState {
    /// The name of the limit.
    pub name: Box<str>,
    /// The number of units that are available after a pause.
    pub quota: u64,
    /// The time in which the whole quota becomes available, in seconds.
    pub window_seconds: u64,
    /// The number of units that are available now.
    pub remaining: u64,
    /// The time after which the same operation may be sent again, in seconds.
    pub retry_after_seconds: u64,
    /// The number of refusals after which a connection is closed; 0: it stays open.
    pub close_after: u32,
}

impl GraphqlError {
    /// Creates an error without a path.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            message: message.into(),
            locations: Vec::new(),
            path: Vec::new(),
            code,
            extensions: None,
            subgraph: None,
            rate_limit: None,
            retry_after_seconds: None,
        }
    }

    /// Creates the error of a request that is refused because the router is overloaded. The client may send it again
    /// after `seconds`, which are `extensions.retryAfter` too.
    pub fn overloaded(message: impl Into<Cow<'static, str>>, seconds: u64) -> Self {
        Self {
            extensions: Some(retry_after(seconds)),
            retry_after_seconds: NonZeroU16::new(u16::try_from(seconds).unwrap_or(u16::MAX)),
            ..Self::new(ErrorCode::Overloaded, message)
        }
    }

    /// Creates the error of a request for which a bounded queue or table has no room. The time after which the client
    /// may send it again is random, so that clients come back spread out.
    pub fn no_room(message: impl Into<Cow<'static, str>>) -> Self {
        Self::overloaded(message, spread_seconds())
    }

    /// Creates the error of an operation that a rate limit refuses. The time after which the client may send it again
    /// is `extensions.retryAfter` too.
    pub fn rate_limited(message: impl Into<Cow<'static, str>>, limit: RateLimitState) -> Self {
        Self {
            extensions: Some(retry_after(limit.retry_after_seconds)),
            rate_limit: Some(Box::new(limit)),
            ..Self::new(ErrorCode::RateLimited, message)
        }
    }

    /// Sets the path in the response.
    pub fn at(mut self, path: Vec<PathSegment>) -> Self {
        self.path = path;
        self
    }
}

/// The maximum number of seconds after which a client may try again what found no room. Queues are emptied within one;
/// the rest is there so that thousands do not return at once.
const SPREAD_SECONDS_MAX: u64 = 5;

/// Returns the random number of seconds after which a client may try again what found no room.
pub fn spread_seconds() -> u64 {
    fastrand::u64(1..=SPREAD_SECONDS_MAX)
}

/// Returns `extensions` with the time after which the client may try again, in seconds.
fn retry_after(seconds: u64) -> Box<str> {
    format!(r#"{{"retryAfter":{seconds}}}"#).into()
}
