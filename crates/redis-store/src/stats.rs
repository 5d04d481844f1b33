//! The counters of a store. Metrics that are no counters are in `metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::{Buckets, DurationHistogram};

use crate::reply::StoreError;

telemetry::counters! {
    /// Counts since the start.
    pub struct StoreStats;
    /// The metrics of these counters. The label that names the store is added by the caller.
    pub const STORE_COUNTERS;
    {
        counter commands = "starling_store_commands": "Commands to Redis as a store, also those that failed";
        counter breaker_opened = "starling_store_breaker_opened":
            "Times that commands to a server of a store failed at once because it did not respond in time";
        counter connected = "starling_store_connections_opened": "Connections to servers of a store";
        counter connection_failures = "starling_store_connection_failures": "Failed attempts to connect to a store";
        gauge in_flight = "starling_store_commands_in_flight": "Commands that wait for a reply of a store";
    }
    /// Commands that failed, by reason.
    pub(crate) failures: Failures,
    /// The durations of runs, also of those that failed.
    pub(crate) durations: DurationHistogram<CommandBuckets>,
}

/// Bounds for a server in the same region, which responds within a millisecond.
#[derive(Debug, Default)]
pub(crate) struct CommandBuckets;

impl Buckets for CommandBuckets {
    const BOUNDS_MICROS: &'static [u64] =
        &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000];
}

/// The failures of commands.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) disconnected: AtomicU64,
    pub(crate) timeout: AtomicU64,
    pub(crate) overloaded: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Failures {
    /// Counts a failure.
    pub(crate) fn count(&self, error: &StoreError) {
        let counter = match error {
            StoreError::Disconnected(_) => &self.disconnected,
            StoreError::Timeout(_) => &self.timeout,
            StoreError::Overloaded => &self.overloaded,
            StoreError::Refused(_) | StoreError::UnexpectedReply | StoreError::DifferentSlots => {
                &self.refused
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
