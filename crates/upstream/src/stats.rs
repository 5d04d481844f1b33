//! Counters of one subgraph's traffic, for the export of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use execute::FetchError;
use telemetry::{Buckets, TracedHistogram};

use crate::hedge::HedgeRefusal;
use crate::reported_errors::ReportedErrors;

telemetry::counters! {
    /// Counts since the start.
    pub struct UpstreamStats;
    /// The metrics of these counters. The label that names the subgraph is added by the caller.
    pub const UPSTREAM_COUNTERS;
    {
        /// Requests begun; retries are not counted separately here.
        counter requests = "starling_subgraph_requests": "Requests to subgraphs, without retries";
        counter retries = "starling_subgraph_retries": "Retries after a failure";
        counter retries_refused = "starling_subgraph_retries_refused":
            "Retries not sent because the budget was used up";
        counter retries_too_late = "starling_subgraph_retries_too_late":
            "Retries not sent because they could not end before the deadline of the request";
        /// Requests that were sent a second time because the response was late; they count once in `requests`.
        counter hedges = "starling_subgraph_hedges": "Requests sent a second time because the response was late";
        counter hedges_won = "starling_subgraph_hedges_won":
            "Requests sent a second time whose second response was the first to be complete";
        counter taken_apart = "starling_subgraph_requests_taken_apart":
            "Requests with several aliases that failed as a whole and were repeated once, in parts";
        counter reconnects = "starling_subgraph_reconnects":
            "Requests repeated at once because a reused connection was closed";
        counter unsolicited = "starling_subgraph_unsolicited_responses":
            "Times a subgraph sent a response over HTTP/1.1 without a request; its connections are not reused for \
             a while";
        counter connections_opened = "starling_subgraph_connections_opened": "Connections opened to subgraphs";
        counter queued = "starling_subgraph_requests_queued": "Requests that had to wait for a connection";
        counter bytes_sent = "starling_subgraph_sent_bytes": "Bytes of HTTP sent, before TLS";
        /// Bytes of HTTP received, after TLS and before they are expanded.
        counter bytes_received = "starling_subgraph_received_bytes": "Bytes of HTTP received, before they are expanded";
        counter breaker_opened = "starling_subgraph_breaker_opened": "Times that the circuit breaker has opened";
        counter breaker_checks = "starling_subgraph_breaker_checks":
            "Times that the circuit breaker sent a query of its own to find out whether the subgraph fails or \
             only certain requests do";
        gauge connections = "starling_subgraph_connections": "Open connections to subgraphs";
        gauge connections_idle = "starling_subgraph_connections_idle": "Idle connections over HTTP/1.1";
        gauge in_flight = "starling_subgraph_requests_in_flight": "Requests in flight";
        gauge waiting = "starling_subgraph_requests_waiting": "Requests that wait for a connection";
    }
    /// Total time that requests waited, in microseconds.
    pub queued_micros: AtomicU64,
    /// Duration of requests, from the first attempt to the end of the response or the failure.
    pub seconds: TracedHistogram<RequestBuckets>,
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// Late requests that were not sent a second time.
    pub(crate) hedges_refused: HedgeRefusals,
    /// Responses with errors, by code.
    pub(crate) reported_errors: ReportedErrors,
}

/// The kinds of failure that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// The connection broke before the response was complete.
    Closed,
    /// The request exceeded its timeout.
    Timeout,
    /// The operation had less time for it than the timeout, and that was over.
    Deadline,
    /// The response exceeded the size limit.
    TooLarge,
    /// The response did not fit into the memory budget of the router.
    MemoryUsedUp,
    /// A status or content type that is no GraphQL response.
    Status,
    /// The response is not valid HTTP, or has an unknown coding.
    Protocol,
    /// The queue for connections was full.
    QueueFull,
    /// The circuit breaker was open.
    BreakerOpen,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Connect,
        Self::Closed,
        Self::Timeout,
        Self::Deadline,
        Self::TooLarge,
        Self::MemoryUsedUp,
        Self::Status,
        Self::Protocol,
        Self::QueueFull,
        Self::BreakerOpen,
    ];

    /// The value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Deadline => "deadline",
            Self::TooLarge => "too_large",
            Self::MemoryUsedUp => "memory_used_up",
            Self::Status => "status",
            Self::Protocol => "protocol",
            Self::QueueFull => "queue_full",
            Self::BreakerOpen => "breaker_open",
        }
    }

    /// Returns the kind of a failure. A timeout shorter than `timeout` is that of the operation.
    pub(crate) fn of(error: &FetchError, timeout: Duration) -> Self {
        match error {
            FetchError::Connect(_) | FetchError::NoServer => Self::Connect,
            FetchError::Closed(_) => Self::Closed,
            FetchError::Timeout(limit) if *limit < timeout => Self::Deadline,
            FetchError::Timeout(_) => Self::Timeout,
            FetchError::TooLarge { .. } => Self::TooLarge,
            FetchError::MemoryUsedUp => Self::MemoryUsedUp,
            FetchError::Status { .. } => Self::Status,
            FetchError::Protocol(_) => Self::Protocol,
            FetchError::Overloaded => Self::QueueFull,
            FetchError::Unavailable(_) => Self::BreakerOpen,
        }
    }
}

impl UpstreamStats {
    /// The number of requests that failed in this way.
    pub fn failures(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize].load(Ordering::Relaxed)
    }

    /// The number of late requests that were not sent a second time for this reason.
    pub fn hedges_refused(&self, refusal: HedgeRefusal) -> u64 {
        self.hedges_refused.of(refusal)
    }

    pub(crate) fn count_failure(&self, kind: FailureKind) {
        count(&self.failures[kind as usize]);
    }
}

/// The numbers of late requests that were not sent a second time, by reason.
#[derive(Debug, Default)]
pub(crate) struct HedgeRefusals([AtomicU64; HedgeRefusal::ALL.len()]);

impl HedgeRefusals {
    pub(crate) fn count(&self, refusal: HedgeRefusal) {
        count(&self.0[refusal as usize]);
    }

    pub(crate) fn of(&self, refusal: HedgeRefusal) -> u64 {
        self.0[refusal as usize].load(Ordering::Relaxed)
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Bounds for requests to subgraphs: from the time of an idle neighbour to the default timeout.
#[derive(Debug)]
pub struct RequestBuckets;

impl Buckets for RequestBuckets {
    const BOUNDS_MICROS: &'static [u64] = &[
        1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 10_000_000, 30_000_000,
    ];
}

/// A [`telemetry::GaugeGuard`] that owns its counters, for values that outlive a function.
#[derive(Debug)]
pub(crate) struct OwnedGauge {
    stats: Arc<UpstreamStats>,
    pick: fn(&UpstreamStats) -> &AtomicU64,
}

impl OwnedGauge {
    pub(crate) fn up(stats: &Arc<UpstreamStats>, pick: fn(&UpstreamStats) -> &AtomicU64) -> Self {
        count(pick(stats));
        Self { stats: Arc::clone(stats), pick }
    }
}

impl Drop for OwnedGauge {
    fn drop(&mut self) {
        (self.pick)(&self.stats).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A wait in the queue: counted while it lasts, its duration when it ends.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    stats: &'a UpstreamStats,
    since: Instant,
}

impl<'a> Wait<'a> {
    pub(crate) fn begin(stats: &'a UpstreamStats) -> Self {
        count(&stats.waiting);
        count(&stats.queued);
        Self { stats, since: Instant::now() }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.stats.waiting.fetch_sub(1, Ordering::Relaxed);
        let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.queued_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{DurationHistogram, HistogramReading};

    use super::*;

    #[test]
    fn a_duration_belongs_to_the_first_bound_that_is_not_below_it() {
        let durations = DurationHistogram::<RequestBuckets>::default();
        for micros in [0, 1_000, 1_001, 30_000_000, 30_000_001] {
            durations.add(Duration::from_micros(micros));
        }
        let HistogramReading { sum, buckets, .. } = durations.read();
        assert!((sum - 60.002_002).abs() < 1e-9, "{sum}");
        let counts: Vec<_> = buckets.iter().map(|it| it.1).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((buckets[0].0, buckets[13].0), (0.001, f64::INFINITY));
    }
}
