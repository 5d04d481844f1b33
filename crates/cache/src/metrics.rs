//! The metrics of a store that are not plain counters; those are beside the counters in `stats`.

use telemetry::Metric;

use crate::store::Store;

/// The metrics of one store that are not plain counters. The label that names the level is added by the caller.
pub const STORE_METRICS: &[Metric<Store>] = &[
    Metric::counter(
        "starling_cache_invalidations_forgotten",
        "Invalidated tags forgotten because of the size of their table; entries become stale early",
        |it| it.invalidations().forgotten(),
    ),
    Metric::counter(
        "starling_cache_refreshes_refused",
        "Refreshes not begun because too many were in progress; the entries were served as they are",
        Store::refreshes_refused,
    ),
];
