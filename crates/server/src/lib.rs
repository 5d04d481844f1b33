//! The router as a server: HTTP, subscriptions, configuration, admin listener, reload.
//!
//! Invariant: this crate knows nothing of planning's internals. [`http::pipeline`](http) contains the path of a
//! request; [`start`] contains the life of the process.

pub mod config;
pub mod diagnostic;
mod log_writer;
pub mod logging;

mod admin;
mod admin_host;
mod authentication;
mod background_priority;
mod byte_budget;
mod certificates;
mod check;
mod config_changes;
mod connection_options;
mod connections;
mod cores;
mod descriptors;
mod error_reference;
mod farewell;
mod forwarding;
mod http;
mod live;
mod loaded;
mod log_limit;
mod metrics;
mod metrics_text;
mod offload;
mod online;
mod operation;
mod profiling;
mod refusal;
mod reload;
mod renewal;
mod request_extensions;
mod router;
mod scrape;
mod sharing;
mod signals;
mod start;
mod start_material;
mod topology;
mod trace;
mod upstreams;

pub use check::{check, has_errors};
pub use config_changes::{ConfigSource, report_config_changes};
pub use error_reference::error_reference;
pub use loaded::{SupergraphSource, read_graph};
pub use online::{OnlineCheck, OnlineReport, OnlineVerdict, check_online};
pub use signals::{Signal, Signals};
pub use start::{Options, Running, StartError, start};
