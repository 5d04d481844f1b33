//! The HTTP server: from an accepted socket to a response.
//!
//! [`listener`] accepts sockets, `connection` and `http2` serve them. [`pipeline`] is the path of a request, to be read
//! from top to bottom: [`transport`] classifies the request, and one `match` passes it to its handler.

mod authority;
mod batch;
pub(crate) mod body;
pub(crate) mod cache_control;
mod client_connection;
pub(crate) mod compression;
mod connection;
pub(crate) mod cors;
mod framing;
mod handover;
mod http2;
pub(crate) mod listener;
pub(crate) mod media;
pub(crate) mod metrics;
mod paced_body;
pub(crate) mod page;
pub(crate) mod pipeline;
mod received_request;
pub(crate) mod request;
pub(crate) mod request_cache;
pub(crate) mod response;
mod single_connection;
pub(crate) mod stream;
pub(crate) mod takeover;
pub(crate) mod tcp;
mod transport;
pub(crate) mod unix;
pub(crate) mod write_timeout;
