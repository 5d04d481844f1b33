//! Live transports: WebSockets and event streams on reactor threads, and a task for each event stream by HTTP/2.
//! [`backlog`] bounds the deliveries that wait for a slow socket.

mod backlog;
mod caller;
pub(crate) mod client_work;
mod dropped_events;
mod end_reasons;
pub(crate) mod group_shares;
mod init_payload;
pub(crate) mod kept_operations;
mod large_messages;
mod leaving;
pub(crate) mod once;
pub(crate) mod outlet;
mod queue_total;
pub(crate) mod reactors;
pub(crate) mod running;
pub(crate) mod single;
mod spread;
pub(crate) mod sse;
mod timer;
pub(crate) mod websocket;

pub(crate) use end_reasons::SLOW_SUBSCRIBER;
pub(crate) use queue_total::QueueTotal;
