//! The router as a process: start and shutdown, brokers, admin listener, reload.
//!
//! [`start()`] contains the life of the process; `assembly` joins the parts, which crates below implement: `frontend`
//! (HTTP), `live` (subscriptions), `serving` (the graph and its operations). `graphql_service` is the border between
//! the front end and the other two. Invariant: this crate knows nothing of planning's internals.

mod admin;
mod admin_host;
mod assembly;
mod certificates;
mod check;
mod config_changes;
mod connectivity_check;
mod error_reference;
mod graph_load_metrics;
mod graphql_service;
mod metrics_export;
mod profiling;
mod providers;
mod reload;
mod signals;
mod start;
mod start_material;
mod subscriptions_page;

pub use check::{check, has_errors};
pub use config_changes::{ConfigSource, report_config_changes};
pub use connectivity_check::{OnlineCheck, OnlineReport, OnlineVerdict, check_online};
pub use error_reference::error_reference;
pub use serving::generation::{SupergraphSource, read_graph};
pub use signals::{Signal, Signals};
pub use start::{Options, RunningRouter, StartError, start};
