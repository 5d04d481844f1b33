//! The router as a server: HTTP, subscriptions, admin listener, reload.
//!
//! Invariant: this crate knows nothing of planning's internals. `http::pipeline` contains the path of a
//! request; [`start()`] contains the life of the process.

mod admin;
mod admin_host;
mod authentication;
mod background_priority;
mod byte_budget;
mod certificates;
mod check;
mod config_changes;
mod connection_metrics;
mod connection_options;
mod connections;
mod connectivity_check;
mod descriptors;
mod drain;
mod error_mapping;
mod error_reference;
mod forwarding;
mod generation;
mod graph_load_metrics;
mod http;
mod live;
mod metrics;
mod metrics_export;
mod offload;
mod operation;
mod operation_metrics;
mod prepare_settings;
mod prepared_request;
mod profiling;
mod reload;
mod request_extensions;
mod router;
mod sharing;
mod signals;
mod start;
mod start_material;
mod subscription_migration;
mod subscriptions_page;
mod trace;
mod upstreams;
mod workers;

pub use check::{check, has_errors};
pub use config_changes::{ConfigSource, report_config_changes};
pub use connectivity_check::{OnlineCheck, OnlineReport, OnlineVerdict, check_online};
pub use error_reference::error_reference;
pub use generation::{SupergraphSource, read_graph};
pub use signals::{Signal, Signals};
pub use start::{Options, RunningRouter, StartError, start};
