//! Live transports: WebSockets and event streams over HTTP/1.1 on reactor threads, and one task for each event stream
//! over HTTP/2.
//!
//! [`live_server`] is the entrance: it opens streams and takes connections over. [`operation_runner`] runs operations
//! and subscribes to the hub; `backlog` limits the deliveries that wait for a slow socket; [`watches`] has the
//! histories of the few subscribers that operators watch. Invariant: this crate does not know the HTTP server; it gets
//! connections as data (`clients::connections::TakenOver`) and returns bodies.

mod access_records;
mod backlog;
pub mod client_context;
mod client_work;
mod connection_operations;
mod end_reasons;
pub mod first_event;
mod group_shares;
mod init_payload;
mod jitter;
mod large_messages;
pub mod live_server;
pub mod metrics;
mod open_outlets;
pub mod operation_runner;
mod operation_start;
mod outlet;
pub mod queue_total;
pub mod reactors;
pub mod sse;
pub mod sse_single_connection;
pub mod subscription_limits;
pub mod takeover;
mod timer;
pub mod watches;
mod watching;
mod websocket;
pub mod websocket_settings;
mod websocket_span;

pub use end_reasons::SLOW_SUBSCRIBER;
