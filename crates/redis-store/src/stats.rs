//! The counters of a store.

use telemetry::{Buckets, DurationHistogram, Metric};

use crate::reply::StoreError;
use crate::store::Store;

telemetry::counters! {
    /// Counts since the start.
    pub struct StoreStats;
    /// The metrics of these counters. The label that names the store is added by the caller.
    pub const STORE_COUNTERS;
    {
        counter commands = "starling_store_commands": "Commands to Redis as a store, also those that failed";
        counter breaker_opened = "starling_store_breaker_opened":
            "Times that a connection to a store was closed because the server did not respond in time";
        counter connected = "starling_store_connections_opened": "Connections to servers of a store";
        counter connection_failures = "starling_store_connection_failures": "Failed attempts to connect to a store";
        gauge in_flight = "starling_store_commands_in_flight": "Commands that wait for a reply of a store";
    }
    /// Commands that failed, by reason.
    pub(crate) failures: Failures,
    /// The durations of runs, also of those that failed.
    pub(crate) durations: DurationHistogram<CommandBuckets>,
}

/// The metrics of a store with labels of their own.
pub const STORE_METRICS: &[Metric<Store>] = &[
    Metric::gauge("starling_store_servers", "Servers of a store that the router knows", |store| {
        store.server_counts().0
    }),
    Metric::gauge(
        "starling_store_breaker_open",
        "Servers of a store to which there is no usable connection: commands for them fail at once",
        |store| store.server_counts().1,
    ),
    Metric::counters(
        "starling_store_failures",
        "Commands without a reply, by reason: disconnected, timeout, overloaded (max_in_flight), refused",
        |store, samples| {
            let failures = &store.stats().failures;
            samples.add_labelled(
                ("reason", "disconnected"),
                telemetry::read(&failures.disconnected),
            )?;
            samples.add_labelled(("reason", "timeout"), telemetry::read(&failures.timeout))?;
            samples
                .add_labelled(("reason", "overloaded"), telemetry::read(&failures.overloaded))?;
            samples.add_labelled(("reason", "refused"), telemetry::read(&failures.refused))
        },
    ),
    Metric::histogram(
        "starling_store_duration_seconds",
        "Times from sending commands to a store to the last reply or failure",
        |store| store.stats().durations.read(),
    ),
];

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
    disconnected: std::sync::atomic::AtomicU64,
    timeout: std::sync::atomic::AtomicU64,
    overloaded: std::sync::atomic::AtomicU64,
    refused: std::sync::atomic::AtomicU64,
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
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
