//! A running router over real sockets, in this process: what it does with clients that misbehave, with web
//! pages of others, when it is told to stop, and when its graph is replaced.
//!
//! Joins and subgraphs have tests of their own elsewhere; here the only source is a topic in memory.

#![allow(clippy::unwrap_used)] // a test that cannot get its answer has failed

mod bodies;
mod documented_events;
mod ending;
mod http;
mod http2;
mod leaving;
mod listeners;
mod overload;
mod reloading;
mod router;
mod socket;
mod web_pages;
mod websockets;
