//! Counters of client connections that ended badly.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::{LabelledCounters, Metric, read};

/// Counters of client connections.
#[derive(Debug)]
pub struct ConnectionMetrics {
    /// Connections closed because the client took too long.
    timeouts: LabelledCounters,
    accept_failures: AtomicU64,
    tls_failures: AtomicU64,
}

/// The metrics of client connections.
pub const CONNECTION_METRICS: &[Metric<ConnectionMetrics>] = &[
    Metric::counters(
        "starling_http_timeouts",
        "Connections closed because the client took too long, by phase",
        |it, samples| it.timeouts.write("phase", samples),
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

/// The phase in which a client took too long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeoutPhase {
    /// The TLS handshake.
    Handshake,
    /// The body of a request.
    Body,
    /// The client read nothing of the data sent to it.
    Stall,
}

impl TimeoutPhase {
    const ALL: [Self; 3] = [Self::Handshake, Self::Body, Self::Stall];

    fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Body => "body",
            Self::Stall => "stall",
        }
    }
}

impl Default for ConnectionMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    fn default() -> Self {
        let timeouts = LabelledCounters::with_values(TimeoutPhase::ALL.map(TimeoutPhase::name));
        Self { timeouts, accept_failures: AtomicU64::new(0), tls_failures: AtomicU64::new(0) }
    }
}

impl ConnectionMetrics {
    /// Counts a client that took too long.
    pub fn count_timeout(&self, phase: TimeoutPhase) {
        self.timeouts.add(phase.name(), 1);
    }

    /// Counts a failed `accept` call.
    pub fn count_accept_failure(&self) {
        self.accept_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed TLS handshake.
    pub fn count_tls_failure(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }
}
