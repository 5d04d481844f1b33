//! Protocol machines without sockets: WebSocket, both GraphQL subprotocols on it, SSE, multipart.
//!
//! Every machine here is plain state: bytes and commands go in, bytes and events come out, and the
//! caller owns sockets, threads and clocks. Time is a parameter. The verbs are the same everywhere:
//!
//! - `receive(now, bytes)` takes what a read returned, in pieces of any size;
//! - `poll_transmit(now)` gives what must be written, in order, until it gives `None`;
//! - `poll_event()` gives what the peer meant, until it gives `None`;
//! - `poll_timeout()` says when to call `handle_timeout(now)`; calling early does nothing.
//!
//! Whole machines of a socket have them as the trait [`Machine`].
//!
//! Drain `poll_transmit` and `poll_event` after each call. Machines have no queue that a slow peer
//! could fill: what waits for a slow socket waits in the caller's own bounded queue.
//!
//! | module | speaks |
//! |---|---|
//! | [`websocket`] | RFC 6455: opening handshake, frames, closing handshake, liveness |
//! | [`graphql_transport_ws`] | the protocol of the npm package graphql-ws, server and client |
//! | [`graphql_ws`] | its predecessor, of the npm package subscriptions-transport-ws: the server |
//! | [`subprotocol`] | whichever of the two a client negotiated |
//! | [`connection`] | a subprotocol joined to the WebSocket under it |
//! | [`sse`] | GraphQL over server-sent events |
//! | [`multipart`] | results as the parts of one HTTP response |
//! | [`result_stream`] | whichever of the two a client accepts |
//! | [`http1`] | the framing of a lasting HTTP/1.1 response body around such a stream |
//! | `pair` | test kit (feature `testkit`): two machines, a virtual network and clock |
//!
//! A server's side of one socket, from the upgrade to the first result:
//!
//! ```
//! use std::{sync::Arc, time::Instant};
//! use wire::connection::Connection;
//! use wire::graphql_transport_ws::{Event, GraphqlTransportWs, SUBPROTOCOL};
//!
//! # fn serve(read: &[u8]) -> Vec<u8> {
//! let now = Instant::now();
//! let protocol = GraphqlTransportWs::new(Arc::default(), Some(SUBPROTOCOL), now);
//! let mut connection = Connection::server(Arc::default(), protocol, now);
//!
//! connection.receive(now, read);
//! while let Some(event) = connection.poll_event() {
//!     match event {
//!         Event::Init { .. } => connection.protocol.accept_init(None),
//!         Event::Subscribe { id, .. } => {
//!             connection.protocol.next(&id, r#"{"data":{"hello":"world"}}"#.into());
//!             connection.protocol.complete(&id);
//!         }
//!         // Large messages come with `client_bounds` only.
//!         Event::Complete { .. } | Event::Large(_) | Event::Ended(_) => {}
//!     }
//! }
//! let mut write = Vec::new();
//! while let Some(chunks) = connection.poll_transmit(now) {
//!     chunks.append_to(&mut write);
//! }
//! # write
//! # }
//! # assert_eq!(serve(b"\x81\x9a\0\0\0\0{\"type\":\"connection_init\"}"), b"\x81\x19{\"type\":\"connection_ack\"}");
//! ```
//!
//! Nothing here parses GraphQL, and JSON is looked at only as far as a protocol's envelope needs.

mod chunks;
pub mod connection;
pub mod graphql_transport_ws;
pub mod graphql_ws;
pub mod http1;
mod machine;
pub mod multipart;
mod operations;
#[cfg(feature = "testkit")]
pub mod pair;
mod pending;
pub mod result_stream;
pub mod sse;
pub mod subprotocol;
pub mod websocket;

pub use chunks::Chunks;
pub use machine::Machine;
