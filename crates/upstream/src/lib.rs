//! The subgraph client: connection pools, limits, deadlines.
//!
//! Invariant: knows nothing of plans. A body goes out, an answer that looks like GraphQL over HTTP
//! comes back, or an error that says what happened without naming hosts or addresses.

mod connection;
mod content_type;
mod no_server;
mod pool;
mod request_headers;
mod settings;
mod stats;
mod target;
mod upstream;

pub use no_server::NoServer;
pub use settings::UpstreamSettings;
pub use stats::{FailureKind, UpstreamStats};
pub use target::TargetError;
pub use upstream::Upstream;
