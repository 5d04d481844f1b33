//! The metrics of live queries that are not plain counters.

use telemetry::Metric;

use super::query_table::LiveQueries;

/// The metrics of live queries that are not plain counters.
pub const LIVE_QUERY_METRICS: &[Metric<LiveQueries>] = &[
    Metric::histogram(
        "starling_live_query_duration_seconds",
        "Time to execute a live query",
        |it| it.stats.durations.read(),
    ),
    Metric::gauge("starling_live_query_tags", "Tags that live queries watch", |it| {
        it.watched().0 as u64
    }),
    Metric::gauge(
        "starling_live_queries_unbounded",
        "Live queries with too many tags, which every invalidation makes stale",
        |it| it.watched().1 as u64,
    ),
];
