//! HTTP: from an accepted socket to an answer. [`pipeline`] is the path of a request, to be read from
//! top to bottom; the other modules are its steps.

pub(crate) mod answer;
mod authority;
mod batch;
pub(crate) mod body;
pub(crate) mod cache_control;
mod client_connection;
pub(crate) mod compression;
pub(crate) mod cors;
mod departure;
mod framing;
mod http2;
pub(crate) mod known_bodies;
pub(crate) mod listener;
pub(crate) mod media;
mod paced_body;
pub(crate) mod page;
pub(crate) mod patient;
pub(crate) mod pipeline;
pub(crate) mod request;
mod serve;
pub(crate) mod stream;
pub(crate) mod takeover;
pub(crate) mod tcp;
pub(crate) mod unix;
