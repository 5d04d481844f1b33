//! Protocol machines without sockets: WebSocket, graphql-transport-ws, SSE.
//!
//! Every machine here is plain state: bytes and commands go in, bytes and events come out, and the
//! caller owns sockets, threads and clocks. Time is a parameter. The verbs are the same everywhere:
//!
//! - `receive(now, bytes)` takes what a read returned, in pieces of any size;
//! - `poll_transmit(now)` gives what must be written, in order, until it gives `None`;
//! - `poll_event()` gives what the peer meant, until it gives `None`;
//! - `poll_timeout()` says when to call `handle_timeout(now)`; calling early does nothing.
//!
//! Drain `poll_transmit` and `poll_event` after each call. Machines have no queue that a slow peer
//! could fill: what waits for a slow socket waits in the caller's own bounded queue.
//!
//! | module | speaks |
//! |---|---|
//! | [`websocket`] | RFC 6455: opening handshake, frames, closing handshake, liveness |
//! | [`graphql_transport_ws`] | the protocol of the npm package graphql-ws, server and client |
//! | [`connection`] | a subprotocol joined to the WebSocket under it |
//! | [`sse`] | GraphQL over server-sent events, distinct connections mode |
//! | `pair` | test kit (feature `testkit`): two machines, a virtual network and clock |
//!
//! Nothing here parses GraphQL, and JSON is looked at only as far as a protocol's envelope needs.

mod chunks;
pub mod connection;
pub mod graphql_transport_ws;
#[cfg(feature = "testkit")]
pub mod pair;
pub mod sse;
pub mod websocket;

pub use chunks::Chunks;
