//! The HTTP server for clients: from an accepted socket to a response.
//!
//! [`listener`] accepts sockets, `connection` and `http2` serve them. [`pipeline`] is the path of a request, to be read
//! from top to bottom: `transport` classifies the request, and one `match` passes it to its handler. Invariant: this
//! crate knows neither graphs nor the live layer. Operations are executed behind [`service::GraphqlService`], and a
//! connection that leaves HTTP is handed on as data ([`takeover`]).

pub mod accept_pace;
mod authority;
mod batch;
pub mod body;
mod body_wakes;
pub mod callback;
pub mod client_caching;
mod client_connection;
pub mod compression;
mod connection;
mod connection_storm;
mod cors;
pub mod cors_rules;
#[cfg(test)]
mod counted_wakes;
pub mod csrf;
pub mod descriptors;
pub mod endpoint;
pub mod first_turn;
mod framing;
mod handover;
mod head_timer;
mod http2;
pub mod http_server;
pub mod listener;
pub mod load_report;
pub mod media;
pub mod metrics;
mod new_connection;
mod paced_body;
pub mod page;
mod parked_handshakes;
pub mod pipeline;
pub mod received_request;
pub mod refusal_pacing;
mod request;
mod request_cache;
mod request_record;
pub mod response;
mod server_span;
pub mod service;
mod single_connection;
pub mod stream;
mod stream_response;
pub mod takeover;
pub mod tcp;
mod transport;
pub mod unix;
pub mod uploads;
mod websocket;
mod woken_signal;
pub mod write_timeout;
