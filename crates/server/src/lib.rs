//! The router as a process: start and shutdown, brokers, admin listener, reload.
//!
//! [`start()`] contains the life of the process; `assembly` joins the parts, which crates below implement: `frontend`
//! (HTTP), `live` (subscriptions), `serving` (the graph and its operations). `graphql_service` is the border between
//! the front end and the other two. Invariant: this crate knows nothing of planning's internals.

mod admin;
mod admin_host;
mod admin_reload;
mod assembly;
mod cache_page;
mod cache_share;
mod callbacks;
mod certificates;
mod check;
mod collector_export;
mod composition;
mod composition_findings;
mod config_changes;
mod connectivity_check;
mod console_api;
mod document_load_metrics;
mod document_source;
mod document_watch;
mod error_reference;
mod file_replacement;
mod file_watch;
mod further_graphs;
mod generation_numbers;
mod graph_assembly;
mod graph_change;
mod graph_history;
mod graph_load_metrics;
mod graph_watch;
mod graphql_service;
mod internal_listener;
mod invalidation_topics;
mod load_watch;
mod manifest_downloads;
mod memory_watch;
mod metric_collector;
mod metrics_export;
mod preparation_pace;
mod profiling;
mod providers;
mod reload;
mod reload_requests;
mod remote_file;
#[cfg(test)]
mod schema_folder_tests;
#[cfg(test)]
mod schema_server;
mod signals;
mod start;
mod start_material;
mod stores;
mod subscriptions_page;
mod supergraph_download;
mod supergraph_source;
mod trace_export;
mod usage_page;
mod warming;

pub use check::{CheckReport, SubscriptionRoute, check, has_errors, read_supergraph};
pub use config_changes::{ConfigSource, report_config_changes};
pub use connectivity_check::{OnlineCheck, OnlineReport, OnlineVerdict, check_online};
pub use error_reference::error_reference;
pub use file_replacement::{FilePermissions, create_file_with, replace_file};
pub use graph_change::{GraphChange, GraphDifference};
pub use serving::figures::field_usage::{FieldUsageReport, UsageRow};
pub use serving::generation::read_graph;
pub use signals::{Signal, Signals};
pub use start::{Options, RunningRouter, StartError, start};
pub use supergraph_source::{SupergraphSource, read_supergraph_file};
