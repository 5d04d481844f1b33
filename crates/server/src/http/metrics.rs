//! Counters of HTTP requests and responses.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use telemetry::{Metric, read};

/// Counters of HTTP requests and responses.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    responses: Family<StatusLabel, Counter>,
    /// The counter of status 200 in `responses`: looking it up takes a lock that all workers share.
    responses_ok: Counter,
    /// Batches, and operations in them.
    batches: AtomicU64,
    batched_operations: AtomicU64,
}

/// The metrics of HTTP requests and responses.
pub(crate) const HTTP_METRICS: &[Metric<HttpMetrics>] = &[
    Metric::handle(
        "starling_http_answers",
        "HTTP responses on the public listeners, by status",
        |it| &it.responses,
    ),
    Metric::counter("starling_http_batches", "Requests with several operations", |it| {
        read(&it.batches)
    }),
    Metric::counter("starling_http_batched_operations", "Operations in batches", |it| {
        read(&it.batched_operations)
    }),
];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

impl HttpMetrics {
    pub(crate) fn new() -> Self {
        let responses = Family::<StatusLabel, Counter>::default();
        Self {
            responses_ok: responses.get_or_create_owned(&StatusLabel { status: 200 }),
            responses,
            batches: AtomicU64::new(0),
            batched_operations: AtomicU64::new(0),
        }
    }

    /// Counts a response.
    pub(crate) fn count_response(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.responses_ok.inc();
            return;
        }
        self.responses.get_or_create(&StatusLabel { status: status.as_u16() }).inc();
    }

    /// Counts a batch of this number of operations.
    pub(crate) fn count_batch(&self, operations: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batched_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }
}
