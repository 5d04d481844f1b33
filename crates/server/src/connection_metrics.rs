//! Counters of client connections that ended badly.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use telemetry::{Metric, read};

/// Counters of client connections.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics {
    /// Connections closed because the client took too long.
    timeouts: Family<TimeoutLabel, Counter>,
    accept_failures: AtomicU64,
    tls_failures: AtomicU64,
}

/// The metrics of client connections.
pub(crate) const CONNECTION_METRICS: &[Metric<ConnectionMetrics>] = &[
    Metric::handle(
        "starling_http_timeouts",
        "Connections closed because the client took too long, by phase",
        |it| &it.timeouts,
    ),
    Metric::counter(
        "starling_http_accept_failures",
        "Connections that could not be accepted, most likely because no descriptor was free",
        |it| read(&it.accept_failures),
    ),
    Metric::counter("starling_http_tls_failures", "TLS handshakes that failed", |it| {
        read(&it.tls_failures)
    }),
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct TimeoutLabel {
    phase: TimeoutPhase,
}

/// The phase in which a client took too long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum TimeoutPhase {
    /// The TLS handshake.
    handshake,
    /// The body of a request.
    body,
    /// The client read nothing of the data sent to it.
    stall,
}

impl ConnectionMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(crate) fn new() -> Self {
        let timeouts = Family::<TimeoutLabel, Counter>::default();
        for phase in [TimeoutPhase::handshake, TimeoutPhase::body, TimeoutPhase::stall] {
            drop(timeouts.get_or_create(&TimeoutLabel { phase }));
        }
        Self { timeouts, accept_failures: AtomicU64::new(0), tls_failures: AtomicU64::new(0) }
    }

    /// Counts a client that took too long.
    pub(crate) fn count_timeout(&self, phase: TimeoutPhase) {
        self.timeouts.get_or_create(&TimeoutLabel { phase }).inc();
    }

    /// Counts a failed `accept` call.
    pub(crate) fn count_accept_failure(&self) {
        self.accept_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn count_tls_failure(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }
}
