//! The graph that serves, and the operations on it: prepared, shared, executed, and migrated to the next graph.
//!
//! [`generation`] loads a graph with its subgraphs; [`serving`] holds the current one; [`operation`] is the path of one
//! operation, whatever its transport. Invariant: this crate knows no transport; it returns payloads and errors.

pub mod admission;
pub mod busy_time;
mod cache_tags;
pub mod caching;
mod connection_options;
pub mod cost_control;
pub mod expression_stats;
pub mod field_access;
pub mod figures;
pub mod forwarding;
pub mod generation;
mod header_rules;
pub mod invalidation_events;
pub mod known_operations;
pub mod live_queries;
pub mod memory;
pub mod operation;
pub mod operation_condition;
pub mod operation_spans;
pub mod overload;
pub mod policy_loading;
mod policy_questions;
mod prepare_settings;
pub mod prepared_request;
pub mod rate_limits;
pub mod redaction;
pub mod request_facts;
pub mod response_forwarding;
pub mod serving;
pub mod shared_cache;
pub mod sharing;
pub mod stream_cause;
pub mod subgraph_streams;
pub mod subscription_count;
pub mod subscription_endpoint;
pub mod subscription_migration;
#[cfg(test)]
mod test_graphs;
pub mod trace;
pub mod trace_formats;
pub mod trace_ratios;
pub mod upstreams;
mod websocket_subgraph;
