//! The protocol of the npm package subscriptions-transport-ws (its PROTOCOL.md), subprotocol `graphql-ws`: the
//! predecessor of [`crate::graphql_transport_ws`], which many clients still speak.
//!
//! [`GraphqlWs`] is the server's machine. Its events and settings are those of the successor, so that one server
//! handles both ([`crate::subprotocol`]). The differences: operations may begin before the acknowledgement, an id that
//! is used again replaces its operation, invalid messages get a response and do not close the socket, and keep-alive
//! messages (`ka`) take the place of pings.

mod error_payload;
mod server;

pub use server::GraphqlWs;

/// The name in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "graphql-ws";
