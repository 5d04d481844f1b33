//! The metrics of a store that need more than its counters: its servers, and failures by reason.

use telemetry::{Metric, read};

use crate::store::Store;

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
            samples.add_labelled(("reason", "disconnected"), read(&failures.disconnected))?;
            samples.add_labelled(("reason", "timeout"), read(&failures.timeout))?;
            samples.add_labelled(("reason", "overloaded"), read(&failures.overloaded))?;
            samples.add_labelled(("reason", "refused"), read(&failures.refused))
        },
    ),
    Metric::histogram(
        "starling_store_duration_seconds",
        "Times from sending commands to a store to the last reply or failure",
        |store| store.stats().durations.read(),
    ),
];
