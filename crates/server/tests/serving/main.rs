//! Tests of a running router over real sockets, in this process: misbehaving clients, web pages of other origins,
//! shutdown, and reloads.
//!
//! Other suites test joins and subgraphs; here the only source is a topic in memory.

#![allow(clippy::unwrap_used)] // a test that cannot get its response has failed

mod bodies;
mod callbacks;
mod documented_events;
mod http;
mod http2;
mod listeners;
mod overload;
mod reload;
mod router;
mod shutdown;
mod socket;
mod takeover;
mod web_pages;
mod websockets;
