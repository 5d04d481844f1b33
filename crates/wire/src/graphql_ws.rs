//! The protocol of the npm package subscriptions-transport-ws (its PROTOCOL.md), subprotocol
//! `graphql-ws`: the predecessor of [`crate::graphql_transport_ws`], which many clients still speak.
//!
//! [`GraphqlWs`] is the server's machine. Its events and settings are those of the successor, so that
//! whoever serves one serves both ([`crate::subprotocol`]). What differs: operations may begin
//! before the acknowledgement, an id that is used again replaces its operation, what cannot be
//! understood is answered and not punished, and signs of life (`ka`) are messages of the server's.

pub(crate) mod messages;
mod server;

pub use server::GraphqlWs;

/// The name in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "graphql-ws";

/// The type of a result's message.
pub(crate) const DATA: &str = "data";
