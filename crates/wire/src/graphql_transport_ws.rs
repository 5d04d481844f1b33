//! The protocol of the npm package graphql-ws (its PROTOCOL.md), subprotocol
//! `graphql-transport-ws`, in both roles.
//!
//! [`GraphqlTransportWs`] is the server's machine: messages in, [`Event`]s out; commands in,
//! messages out. [`Client`] is its counterpart for tests, the load tool and streams from subgraphs.
//! [`crate::connection::Connection`] joins either to a WebSocket. Documents, variables and results
//! stay text: what they mean is for the layers above.

mod client;
pub(crate) mod envelope;
mod position;
mod server;

pub use client::{Client, ClientEvent};
pub use envelope::Request;
pub(crate) use position::{POSITION_TAIL, append_position_head};
pub use server::{Config, Event, GraphqlTransportWs, append_next_head, next_frame};
pub(crate) use server::{NEXT, append_result_head};

use crate::websocket::CloseCode;

/// The name in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "graphql-transport-ws";

/// A message of a type or form that the protocol does not have.
pub const INVALID_MESSAGE: CloseCode = CloseCode(4400);
/// `subscribe` before the connection was acknowledged.
pub const UNAUTHORIZED: CloseCode = CloseCode(4401);
/// The server does not want this client.
pub const FORBIDDEN: CloseCode = CloseCode(4403);
/// The client offered none of the server's subprotocols.
pub const SUBPROTOCOL_NOT_ACCEPTABLE: CloseCode = CloseCode(4406);
/// No `connection_init` in time.
pub const INITIALISATION_TIMEOUT: CloseCode = CloseCode(4408);
/// An operation id that is in use.
pub const SUBSCRIBER_ALREADY_EXISTS: CloseCode = CloseCode(4409);
/// A second `connection_init`.
pub const TOO_MANY_INITIALISATION_REQUESTS: CloseCode = CloseCode(4429);

/// Every close code of the protocol with what it tells a client's author, for the reference pages.
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
