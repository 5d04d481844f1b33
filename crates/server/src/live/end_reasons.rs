//! The reasons for which the router ends an operation or a connection, as errors and as close codes of WebSockets.

use execute::{ErrorCode, GraphqlError};
use wire::websocket::CloseCode;

/// Close code of a connection whose queue ran over. RFC 6455, section 7.4.2, leaves 4000 to 4999 to applications;
/// graphql-ws reconnects after this one.
pub(crate) const SLOW_SUBSCRIBER: CloseCode = CloseCode(4410);

/// Reason of a connection that is closed with the code 4403 because its client's token has expired.
pub(super) const TOKEN_EXPIRED: &str = "token expired";

/// Reason of a connection that is closed because its token cannot be verified at present. The code is
/// [`CloseCode::TRY_AGAIN_LATER`]; graphql-ws reconnects after it.
pub(super) const AUTHENTICATION_UNAVAILABLE: &str = "authentication unavailable";

/// The error of an operation whose task a defect broke off.
pub(super) fn broken_off() -> GraphqlError {
    let message = "the operation broke off by a defect of the router";
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
