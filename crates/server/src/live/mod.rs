//! Live transports: WebSockets and event streams over HTTP/1.1 on reactor threads, and one task for each event stream
//! over HTTP/2. [`backlog`] limits the deliveries that wait for a slow socket.

mod backlog;
pub(crate) mod client_context;
pub(crate) mod client_work;
mod connection_operations;
mod end_reasons;
pub(crate) mod first_event;
pub(crate) mod group_shares;
mod init_payload;
mod jitter;
mod large_messages;
pub(crate) mod live_server;
pub(crate) mod metrics;
pub(crate) mod operation_runner;
mod outlet;
pub(crate) mod queue_total;
pub(crate) mod reactors;
pub(crate) mod sse;
pub(crate) mod sse_single_connection;
pub(crate) mod subscription_limits;
pub(crate) mod takeover;
mod timer;
mod websocket;
pub(crate) mod websocket_settings;

pub(crate) use end_reasons::SLOW_SUBSCRIBER;
