//! The clients of all transports: their identity, their limits, and the threads that serve them.
//!
//! Tokens are verified in [`authentication`]; [`client_limits`] bounds connections, handshakes, unread responses and
//! large requests; [`workers`] are the threads, and [`idle_turns`] the moments in which one has nothing else to do;
//! [`shutdown`] is what connections see of the end; [`access_log`] records what clients did. Invariant: this crate
//! knows no graph, and no protocol beyond the vocabulary that HTTP and WebSockets share.

pub mod access_log;
pub mod authentication;
pub mod byte_budget;
pub mod cache_control;
pub mod client_deadline;
pub mod client_info;
pub mod client_limits;
pub mod connection_metrics;
pub mod connections;
pub mod drain;
pub mod error_mapping;
pub mod generation_note;
pub mod handshake_pace;
mod handshake_queue;
pub mod idle_turns;
pub mod kept_operations;
pub mod memory_refusal;
pub mod offload;
pub mod operation_metrics;
pub mod rate_limit_headers;
pub mod refusal;
pub mod request_extensions;
pub mod request_ids;
pub mod request_source;
pub mod served_connections;
pub mod shutdown;
mod thread_priority;
pub mod trace_headers;
pub mod workers;
