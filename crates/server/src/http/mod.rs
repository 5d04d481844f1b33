//! The HTTP server: from an accepted socket to a response.
//!
//! [`listener`] accepts sockets, `connection` and `http2` serve them. [`pipeline`] is the path of a request, to be read
//! from top to bottom: `transport` classifies the request, and one `match` passes it to its handler. Operations are
//! executed behind [`service`]: this module knows neither graphs nor the live layer.

mod authority;
mod batch;
pub(crate) mod body;
mod client_connection;
pub(crate) mod compression;
mod connection;
mod cors;
mod framing;
mod handover;
mod http2;
pub(crate) mod http_server;
pub(crate) mod listener;
mod media;
pub(crate) mod metrics;
mod paced_body;
pub(crate) mod page;
pub(crate) mod pipeline;
pub(crate) mod received_request;
mod request;
mod request_cache;
pub(crate) mod response;
pub(crate) mod service;
mod single_connection;
pub(crate) mod stream;
mod stream_response;
pub(crate) mod takeover;
pub(crate) mod tcp;
mod transport;
pub(crate) mod unix;
mod websocket;
pub(crate) mod write_timeout;
