//! Counters of one subgraph's traffic, for whoever exports metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use execute::FetchError;

/// What happened since the start. Only ever counted up, except for the two gauges.
#[derive(Debug, Default)]
pub struct UpstreamStats {
    /// Requests begun.
    pub requests: AtomicU64,
    /// Requests sent again because a reused connection had died.
    pub retries: AtomicU64,
    /// Connections opened.
    pub connections_opened: AtomicU64,
    /// Gauge: requests in flight.
    pub in_flight: AtomicU64,
    /// Gauge: requests that wait for a connection.
    pub waiting: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
}

/// The kinds of failure that are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// The connection broke before the answer was complete.
    Closed,
    /// Not in time.
    Timeout,
    /// Over the size limit.
    TooLarge,
    /// A status or content type that is no GraphQL answer.
    Status,
    /// What came is not HTTP, or encoded in a way that was not asked for.
    Protocol,
    /// The queue for connections was full.
    QueueFull,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Connect,
        Self::Closed,
        Self::Timeout,
        Self::TooLarge,
        Self::Status,
        Self::Protocol,
        Self::QueueFull,
    ];

    /// As a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::Status => "status",
            Self::Protocol => "protocol",
            Self::QueueFull => "queue_full",
        }
    }

    fn of(error: &FetchError) -> Self {
        match error {
            FetchError::Connect(_) | FetchError::NoServer => Self::Connect,
            FetchError::Closed(_) => Self::Closed,
            FetchError::Timeout(_) => Self::Timeout,
            FetchError::TooLarge { .. } => Self::TooLarge,
            FetchError::Status { .. } => Self::Status,
            FetchError::Protocol(_) => Self::Protocol,
            FetchError::Overloaded => Self::QueueFull,
        }
    }
}

impl UpstreamStats {
    /// Requests that failed in this way.
    pub fn failures(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_failure(&self, error: &FetchError) {
        count(&self.failures[FailureKind::of(error) as usize]);
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts a gauge up, and down again on drop.
pub(crate) struct Gauge<'a>(&'a AtomicU64);

impl<'a> Gauge<'a> {
    pub(crate) fn up(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
