//! The name of the protocol and its close codes.

use crate::websocket::CloseCode;

/// The name in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "graphql-transport-ws";

/// A message has a type or form that the protocol does not have.
pub const INVALID_MESSAGE: CloseCode = CloseCode(4400);
/// `subscribe` was received before the connection was acknowledged.
pub const UNAUTHORIZED: CloseCode = CloseCode(4401);
/// The server rejects this client.
pub const FORBIDDEN: CloseCode = CloseCode(4403);
/// The client offered none of the server's subprotocols.
pub const SUBPROTOCOL_NOT_ACCEPTABLE: CloseCode = CloseCode(4406);
/// No `connection_init` was received in time.
pub const INITIALISATION_TIMEOUT: CloseCode = CloseCode(4408);
/// An operation with the same id is in progress.
pub const SUBSCRIBER_ALREADY_EXISTS: CloseCode = CloseCode(4409);
/// A second `connection_init` was received.
pub const TOO_MANY_INITIALISATION_REQUESTS: CloseCode = CloseCode(4429);

/// All close codes of the protocol with their meaning for the author of a client, for the reference pages.
pub const CLOSE_CODES: [(CloseCode, &str); 7] = [
    (INVALID_MESSAGE, "A message has a type or a form that the protocol does not have."),
    (
        UNAUTHORIZED,
        "`subscribe` came before `connection_ack` (with `graphql-ws`: `start` before `connection_init`).",
    ),
    (FORBIDDEN, "The server refused the `connection_init`."),
    (
        SUBPROTOCOL_NOT_ACCEPTABLE,
        "The client offered neither `graphql-transport-ws` nor `graphql-ws`.",
    ),
    (INITIALISATION_TIMEOUT, "`connection_init` did not come in time."),
    (SUBSCRIBER_ALREADY_EXISTS, "An operation with the same id is in progress."),
    (TOO_MANY_INITIALISATION_REQUESTS, "`connection_init` came twice."),
];
