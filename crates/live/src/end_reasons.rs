//! The reasons for which operations and connections end, as errors, as close codes of WebSockets, and as words for the
//! access log and the console.

use execute::{ErrorCode, GraphqlError};
use wire::websocket::CloseCode;

/// The close code for a queue that ran over. RFC 6455, section 7.4.2, leaves 4000 to 4999 to applications;
/// graphql-ws reconnects after this one.
pub const SLOW_SUBSCRIBER: CloseCode = CloseCode(4410);

/// A rate limit has refused more operations of the connection than its `close_after`.
pub(crate) const TOO_MANY_REFUSALS: CloseCode = CloseCode(4429);

/// The reason of a close with the code 4403: the client's token has expired.
pub(super) const TOKEN_EXPIRED: &str = "token expired";

/// The reason of a close with [`CloseCode::TRY_AGAIN_LATER`], after which graphql-ws reconnects: the token cannot be
/// verified at present.
pub(super) const AUTHENTICATION_UNAVAILABLE: &str = "authentication unavailable";

/// The reason of a close with [`CloseCode::TRY_AGAIN_LATER`] because overload has refused many operations.
pub(crate) const OVERLOADED: &str = "the router is overloaded: try again later";

/// The reason of a close with [`CloseCode::SERVICE_RESTART`], after which graphql-ws reconnects: the connection has
/// kept only the claims that the graph of its time read.
pub(super) const OTHER_CLAIMS: &str = "the graph reads other claims now: connect again";

/// The reason of an end that nothing else explains: the client has closed its connection, or has lost it.
pub(crate) const CONNECTION_CLOSED: &str = "connection_closed";

/// The client has closed its WebSocket.
pub(crate) const CLIENT_CLOSED: &str = "client_closed";

/// The router has closed a WebSocket.
pub(crate) const ROUTER_CLOSED: &str = "router_closed";

/// A WebSocket has ended without a close frame, or its client did not respond any more.
pub(crate) const CONNECTION_LOST: &str = "connection_lost";

/// The source of the subscription has no more events.
pub(crate) const SOURCE_COMPLETED: &str = "source_completed";

/// The client's token has expired.
pub(crate) const EXPIRED: &str = "token_expired";

/// The client has completed the subscription.
pub(crate) const CLIENT_COMPLETED: &str = "client_completed";

/// The error of an operation that a defect of the router ended.
pub(super) fn broken_off() -> GraphqlError {
    let message = "the operation was aborted by a defect of the router";
    GraphqlError::new(ErrorCode::InternalServerError, message)
}

/// The error of a client that reads too slowly.
pub(super) fn too_slow() -> GraphqlError {
    GraphqlError::new(
        ErrorCode::SlowSubscriber,
        "events came faster than this client read them; the connection is closed",
    )
}

/// The error of a stream that ends because the router is shut down.
pub(super) fn shutting_down_error() -> GraphqlError {
    let message = "the router is shutting down; connect again, to another instance";
    GraphqlError::new(ErrorCode::ShuttingDown, message)
}
