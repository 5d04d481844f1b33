//! Protocol machines without sockets: WebSocket, both GraphQL subprotocols on it, server-sent events, multipart.
//!
//! Every machine is plain state: bytes and commands go in, bytes and events come out, and the caller owns sockets,
//! threads and clocks. Time is a parameter. The methods have the same names everywhere:
//!
//! - `receive(now, bytes)` takes the bytes that a read returned, in pieces of any size;
//! - `poll_transmit(now)` returns the bytes to write, in order, until it returns `None`;
//! - `poll_event()` returns the peer's messages as events, until it returns `None`;
//! - `poll_timeout()` returns the time at which to call `handle_timeout(now)`; an early call does nothing.
//!
//! The trait [`Machine`] has these methods for the complete protocol of a socket. Two traits are below it:
//!
//! - [`connection::Protocol`]: a subprotocol of WebSocket. [`connection::Connection`] makes it a [`Machine`];
//! - [`BodyMachine`]: the contents of a streamed HTTP response, with heartbeats. [`http1::FramedBody`] makes it a
//!   [`Machine`] for HTTP/1.1; a task of the server writes it to HTTP/2.
//!
//! A new transport implements one of the three. Nothing here chooses the transport of a request: the server does.
//!
//! Drain `poll_transmit` and `poll_event` after each call. Machines have no queue that a slow peer could fill: data for
//! a slow socket waits in the caller's own bounded queue.
//!
//! | module | contents |
//! |---|---|
//! | [`websocket`] | RFC 6455: opening handshake, frames, closing handshake, liveness |
//! | [`graphql_transport_ws`] | the protocol of the npm package graphql-ws, server and client |
//! | [`graphql_ws`] | its predecessor, of the npm package subscriptions-transport-ws: the server |
//! | [`subprotocol`] | the one of the two that a client negotiated |
//! | [`connection`] | a subprotocol joined to the WebSocket under it |
//! | `body` | the queue and the heartbeats of streamed responses |
//! | [`sse`] | GraphQL over server-sent events |
//! | [`multipart`] | results as the parts of one HTTP response |
//! | [`result_stream`] | the one of these two formats that a client accepts |
//! | [`http1`] | the framing of a streamed HTTP/1.1 response body |
//! | [`upstream`] | the client's side towards subgraphs: WebSocket, SSE, multipart, HTTP callbacks |
//! | `pair` | test kit (feature `testkit`): two machines, a virtual network and clock |
//!
//! The server's side of one socket, from the upgrade to the first result:
//!
//! ```
//! use std::{sync::Arc, time::Instant};
//! use wire::connection::Connection;
//! use wire::graphql_transport_ws::{GraphqlTransportWs, SUBPROTOCOL, ServerEvent};
//!
//! # fn serve(read: &[u8]) -> Vec<u8> {
//! let now = Instant::now();
//! let protocol = GraphqlTransportWs::new(Arc::default(), Some(SUBPROTOCOL), now);
//! let mut connection = Connection::server(Arc::default(), protocol, now);
//!
//! connection.receive(now, read);
//! while let Some(event) = connection.poll_event() {
//!     match event {
//!         ServerEvent::Init { .. } => connection.protocol.accept_init(None),
//!         ServerEvent::Subscribe { id, .. } => {
//!             connection.protocol.next(&id, r#"{"data":{"hello":"world"}}"#.into());
//!             connection.protocol.complete(&id);
//!         }
//!         // The machine has responded to a ping. Large messages come with `client_bounds` only.
//!         ServerEvent::Ping { .. }
//!         | ServerEvent::Complete { .. }
//!         | ServerEvent::Large(_)
//!         | ServerEvent::Ended(_) => {}
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
//! The crate does not parse GraphQL, and parses JSON only as far as a protocol's envelope needs.

mod body;
mod chunks;
pub mod connection;
pub mod graphql_transport_ws;
pub mod graphql_ws;
pub mod http1;
mod lazy_state;
mod machine;
mod messages;
pub mod multipart;
mod operations;
#[cfg(feature = "testkit")]
pub mod pair;
mod pending;
pub mod result_stream;
mod server_message;
mod server_state;
pub mod sse;
pub mod subprotocol;
pub mod upstream;
pub mod websocket;

pub use body::{BodyMachine, BodyQueue};
pub use chunks::Chunks;
pub use machine::Machine;
