//! Live transports: WebSockets and event streams over HTTP/1.1 on reactor threads, and one task for each event stream
//! over HTTP/2. [`backlog`] limits the deliveries that wait for a slow socket.

mod backlog;
mod client_context;
pub(crate) mod client_work;
mod connection_operations;
mod dropped_events;
mod end_reasons;
pub(crate) mod first_event;
pub(crate) mod group_shares;
mod init_payload;
mod jitter;
pub(crate) mod kept_operations;
mod large_messages;
pub(crate) mod metrics;
mod negotiated_protocol;
mod outlet;
pub(crate) mod queue_total;
pub(crate) mod reactors;
pub(crate) mod sse;
pub(crate) mod sse_single_connection;
mod takeover;
mod timer;
pub(crate) mod websocket;

pub(crate) use end_reasons::SLOW_SUBSCRIBER;
pub(crate) use queue_total::QueueTotal;
