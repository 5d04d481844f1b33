//! Counters of HTTP requests and responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use telemetry::{LabelledCounters, Metric, read};

/// Counters of HTTP requests and responses.
#[derive(Debug)]
pub struct HttpMetrics {
    responses: LabelledCounters,
    /// The counter of status 200 in `responses`: looking it up takes a lock that all workers share.
    responses_ok: Arc<AtomicU64>,
    /// The responses with other statuses, and those of them with statuses from 500.
    responses_other: AtomicU64,
    responses_failed: AtomicU64,
    /// Those with status 503, of which most are refusals.
    responses_unavailable: AtomicU64,
    /// Batches, and operations in them.
    batches: AtomicU64,
    batched_operations: AtomicU64,
}

/// The metrics of HTTP requests and responses.
pub const HTTP_METRICS: &[Metric<HttpMetrics>] = &[
    Metric::counters(
        "starling_http_answers",
        "HTTP responses on the public listeners, by status",
        |it, samples| it.responses.write("status", samples),
    ),
    Metric::counter("starling_http_batches", "Requests with several operations", |it| {
        read(&it.batches)
    }),
    Metric::counter("starling_http_batched_operations", "Operations in batches", |it| {
        read(&it.batched_operations)
    }),
];

impl Default for HttpMetrics {
    /// Creates the counters.
    fn default() -> Self {
        let responses = LabelledCounters::default();
        Self {
            responses_ok: responses.counter(StatusCode::OK.as_str()),
            responses,
            responses_other: AtomicU64::new(0),
            responses_failed: AtomicU64::new(0),
            responses_unavailable: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batched_operations: AtomicU64::new(0),
        }
    }
}

impl HttpMetrics {
    /// Counts a response.
    pub(crate) fn count_response(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.responses_ok.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.responses_other.fetch_add(1, Ordering::Relaxed);
        if status.is_server_error() {
            self.responses_failed.fetch_add(1, Ordering::Relaxed);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            self.responses_unavailable.fetch_add(1, Ordering::Relaxed);
        }
        self.responses.add(status.as_str(), 1);
    }

    /// Returns the number of responses to requests that were not refused.
    pub(crate) fn served_responses(&self) -> u64 {
        self.response_totals().0.saturating_sub(read(&self.responses_unavailable))
    }

    /// Returns the numbers of all responses, and of those with a status from 500.
    pub fn response_totals(&self) -> (u64, u64) {
        (read(&self.responses_ok) + read(&self.responses_other), read(&self.responses_failed))
    }

    /// Counts a batch of this number of operations.
    pub(crate) fn count_batch(&self, operations: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batched_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_no_served_responses() {
        let metrics = HttpMetrics::default();
        let statuses = [
            StatusCode::OK,
            StatusCode::BAD_REQUEST,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::INTERNAL_SERVER_ERROR,
        ];
        statuses.into_iter().for_each(|status| metrics.count_response(status));
        assert_eq!(metrics.response_totals(), (4, 2));
        assert_eq!(metrics.served_responses(), 3);
    }
}
