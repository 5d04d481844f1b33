//! The subgraph client: connection pools, limits, deadlines, retries, circuit breakers.
//!
//! Invariant: knows nothing of plans. A body goes out, and a response that looks like GraphQL over
//! HTTP comes back, or an error that describes the failure without naming hosts or addresses.
//!
//! The path of a request (`upstream`):
//!
//! 1. The circuit breaker admits it or not (`breaker`).
//! 2. It waits for its permit (`shared`).
//! 3. It takes a connection of this worker (`pool`), or opens one (`connection`).
//! 4. It is sent (`http1`, or hyper for HTTP/2).
//! 5. Its response is read, expanded and checked (`response`, `decode`, `content_type`).
//! 6. If its response is late, it may be sent a second time (`hedge`, `hedged_attempt`).
//! 7. If it failed, it may be sent again (`retry`).

mod attempt_timeout;
mod aws_signer;
mod backoff;
mod breaker;
mod byte_counter;
mod clock;
mod connection;
mod content_type;
mod decode;
mod event_loop_turn;
mod fastest_response;
mod fetch_resource;
mod hedge;
mod hedged_attempt;
mod http1;
mod latency_histogram;
mod metrics;
mod pool;
mod reported_errors;
mod request_body;
mod request_budget;
mod request_headers;
mod response;
mod retry;
mod reuse;
mod settings;
mod shared;
mod signature;
mod stats;
mod target;
mod timeout_header;
mod unreachable_subgraph;
mod upstream;

pub use aws_signer::{AwsSigner, HAS_AWS};
pub use backoff::Backoff;
pub use breaker::BreakerState;
pub use clock::Clock;
pub use fetch_resource::{
    MessageResponse, Resource, Revision, resource_tls, resource_tls_with_identity, server_tls,
};
pub use hedge::HedgeRefusal;
#[doc(hidden)]
pub use http1::{FuzzedResponse, fuzz_response};
pub use metrics::UPSTREAM_METRICS;
pub use reported_errors::LOGGED_CODE_BYTES_MAX;
pub use request_headers::{belongs_to_connection, write_trace_headers};
pub use settings::{
    BreakerSettings, HedgeDelay, HedgeSettings, Protocol, RetrySettings, UpstreamSettings,
};
pub use signature::{RequestSigner, SignatureHash, SignatureMismatch};
pub use stats::{FailureKind, RequestBuckets, UPSTREAM_COUNTERS, UpstreamStats};
pub use target::{Target, TargetError};
pub use timeout_header::{TimeoutFormat, TimeoutHeader};
pub use unreachable_subgraph::UnreachableSubgraph;
pub use upstream::Upstream;
