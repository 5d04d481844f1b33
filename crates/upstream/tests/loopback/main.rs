//! The subgraph client against servers on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod breaker;
mod connections;
mod hedging;
mod http1;
mod http2;
mod memory;
mod responses;
mod retries;
mod scripted;
mod transports;
mod unsolicited;
