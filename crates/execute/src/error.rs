//! The GraphQL error of the router and its codes.

use std::borrow::Cow;

/// `extensions.code` of an error. `docs/errors.md` lists them with their HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// The request is not a well-formed GraphQL request (body, parameters, headers).
    BadRequest,
    /// The document does not parse.
    GraphqlParseFailed,
    /// The document does not validate against the schema, or names no known operation.
    GraphqlValidationFailed,
    /// Several operations and no name, or an unknown name.
    OperationNotFound,
    /// The request has the hash of an operation but not its text.
    PersistedQueryNotSupported,
    /// A variable's value does not fit its type.
    BadUserInput,
    /// There is no token, or it is wrong or has expired.
    Unauthenticated,
    /// The token cannot be verified at present: the keys of its issuer are not known.
    AuthenticationUnavailable,
    /// The claims of the token, or its absence, do not allow it.
    Forbidden,
    /// The operation exceeds a configured limit.
    OperationLimitExceeded,
    /// The operation is valid but cannot be planned.
    PlanningFailed,
    /// The operation needs a feature that this version does not have.
    NotSupported,
    /// A subgraph could not be reached, or its response was invalid or too late.
    SubgraphRequestFailed,
    /// A subgraph receives no requests because most requests to it have failed.
    SubgraphUnavailable,
    /// An error that a subgraph reported without a code of its own.
    DownstreamServiceError,
    /// A value does not fit the schema: null where it is not allowed, a string for an `Int`.
    InvalidSubgraphValue,
    /// The request took longer than its deadline.
    Timeout,
    /// A provider of events is down or unknown.
    ProviderUnavailable,
    /// No responder listens for requests over a broker.
    NoResponder,
    /// The stream or topic of a subscription was deleted at the broker.
    SourceGone,
    /// A cursor was not made by this graph's routers, or was changed.
    CursorInvalid,
    /// A cursor belongs to another subscription.
    CursorForeign,
    /// The broker no longer has the events after a cursor.
    CursorExpired,
    /// An event, or the response to a request over a broker, is malformed.
    InvalidEvent,
    /// The graph was replaced, and the subscription is not valid on the new one.
    GraphReloaded,
    /// The subscriber read too slowly.
    SlowSubscriber,
    /// The router is shutting down.
    ShuttingDown,
    /// A limit on connections, subscriptions or queues was reached.
    Overloaded,
    /// A defect of the router.
    InternalServerError,
}

impl ErrorCode {
    /// All codes, for the generated table.
    pub const ALL: [Self; 29] = [
        Self::BadRequest,
        Self::GraphqlParseFailed,
        Self::GraphqlValidationFailed,
        Self::OperationNotFound,
        Self::PersistedQueryNotSupported,
        Self::BadUserInput,
        Self::Unauthenticated,
        Self::AuthenticationUnavailable,
        Self::Forbidden,
        Self::OperationLimitExceeded,
        Self::PlanningFailed,
        Self::NotSupported,
        Self::SubgraphRequestFailed,
        Self::SubgraphUnavailable,
        Self::DownstreamServiceError,
        Self::InvalidSubgraphValue,
        Self::Timeout,
        Self::ProviderUnavailable,
        Self::NoResponder,
        Self::SourceGone,
        Self::CursorInvalid,
        Self::CursorForeign,
        Self::CursorExpired,
        Self::InvalidEvent,
        Self::GraphReloaded,
        Self::SlowSubscriber,
        Self::ShuttingDown,
        Self::Overloaded,
        Self::InternalServerError,
    ];

    /// The code as clients see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BAD_REQUEST",
            Self::GraphqlParseFailed => "GRAPHQL_PARSE_FAILED",
            Self::GraphqlValidationFailed => "GRAPHQL_VALIDATION_FAILED",
            Self::OperationNotFound => "OPERATION_NOT_FOUND",
            Self::PersistedQueryNotSupported => "PERSISTED_QUERY_NOT_SUPPORTED",
            Self::BadUserInput => "BAD_USER_INPUT",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::AuthenticationUnavailable => "AUTHENTICATION_UNAVAILABLE",
            Self::Forbidden => "FORBIDDEN",
            Self::OperationLimitExceeded => "OPERATION_LIMIT_EXCEEDED",
            Self::PlanningFailed => "PLANNING_FAILED",
            Self::NotSupported => "NOT_SUPPORTED",
            Self::SubgraphRequestFailed => "SUBGRAPH_REQUEST_FAILED",
            Self::SubgraphUnavailable => "SUBGRAPH_UNAVAILABLE",
            Self::DownstreamServiceError => "DOWNSTREAM_SERVICE_ERROR",
            Self::InvalidSubgraphValue => "INVALID_SUBGRAPH_VALUE",
            Self::Timeout => "TIMEOUT",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::NoResponder => "NO_RESPONDER",
            Self::SourceGone => "SOURCE_GONE",
            Self::CursorInvalid => "CURSOR_INVALID",
            Self::CursorForeign => "CURSOR_FOREIGN",
            Self::CursorExpired => "CURSOR_EXPIRED",
            Self::InvalidEvent => "INVALID_EVENT",
            Self::GraphReloaded => "GRAPH_RELOADED",
            Self::SlowSubscriber => "SLOW_SUBSCRIBER",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Overloaded => "OVERLOADED",
            Self::InternalServerError => "INTERNAL_SERVER_ERROR",
        }
    }
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
        }
    }

    /// Sets the path in the response.
    pub fn at(mut self, path: Vec<PathSegment>) -> Self {
        self.path = path;
        self
    }
}
