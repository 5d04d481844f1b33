//! The subgraph client: connection pools, limits, deadlines, retries, circuit breakers.
//!
//! Invariant: knows nothing of plans. A body goes out, an answer that looks like GraphQL over HTTP
//! comes back, or an error that says what happened without naming hosts or addresses.
//!
//! The way of a request (`upstream`): the breaker lets it through or not, it waits for its turn
//! (`standing`), takes a connection of this core (`pool`) or opens one (`connection`), is sent (`http1`, or hyper for HTTP/2), and
//! its answer is read, expanded and checked (`answer`, `decode`, `content_type`). What failed is perhaps sent again
//! (`retry`).

mod answer;
mod breaker;
mod clock;
mod connection;
mod content_type;
mod counted;
mod decode;
mod get;
mod http1;
mod log_throttle;
mod no_server;
mod pool;
mod request_headers;
mod retry;
mod reuse;
mod settings;
mod standing;
mod stats;
mod target;
mod turn;
mod upstream;

pub use breaker::BreakerState;
pub use clock::Clock;
pub use get::Resource;
pub use no_server::NoServer;
pub use request_headers::belongs_to_connection;
pub use settings::{BreakerSettings, Protocol, RetrySettings, UpstreamSettings};
pub use stats::{FailureKind, Latencies, UpstreamStats};
pub use target::TargetError;
pub use upstream::Upstream;
