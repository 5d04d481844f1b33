//! The metrics of a preparer.

use std::time::Duration;

use telemetry::{Metric, read};

use crate::preparer::Preparer;

/// The metrics of a preparer. They begin anew with each graph.
pub const PREPARER_METRICS: &[Metric<Preparer>] = &[
    Metric::gauge("starling_operations_prepared", "Prepared operations in the cache", |it| {
        it.len() as u64
    }),
    Metric::counter(
        "starling_operations_prepared_hits",
        "Operations found in the cache, since the graph was loaded",
        |it| read(&it.stats().hits),
    ),
    Metric::counter(
        "starling_operations_prepared_misses",
        "Operations that had to be prepared, since the graph was loaded",
        |it| read(&it.stats().misses),
    ),
    Metric::counter(
        "starling_operations_limited",
        "Operations refused by a limit, since the graph was loaded",
        |it| read(&it.stats().limited),
    ),
    Metric::counter(
        "starling_operations_plans_shared",
        "Operations prepared without planning, because another text differed in literals or spelling only, \
             since the graph was loaded",
        |it| read(&it.stats().plans_shared),
    ),
    Metric::counter(
        "starling_operations_evicted",
        "Prepared operations evicted from the cache, since the graph was loaded",
        |it| read(&it.stats().evicted),
    ),
    Metric::gauge(
        "starling_operations_preparing_waiting",
        "Operations that wait to be prepared (limits.preparing_waiting)",
        |it| read(&it.stats().waiting),
    ),
    Metric::counter(
        "starling_operations_preparing_overloaded",
        "Operations refused because too many waited to be prepared, since the graph was loaded",
        |it| read(&it.stats().overloaded),
    ),
    Metric::counter(
        "starling_introspection_schemas_filtered",
        "Schemas made for the rights of clients (introspection.filter), since the graph was loaded; 32 are kept",
        |it| read(&it.stats().schemas_filtered),
    ),
    Metric::counter(
        "starling_planning_greedy",
        "Operations planned greedily because comparing all choices would take too many steps, since the graph was loaded",
        |it| read(&it.stats().greedy),
    ),
    Metric::counter(
        "starling_planning_steps",
        "Planning steps, since the graph was loaded; an operation may take four million",
        |it| read(&it.stats().planning_steps),
    ),
    Metric::histogram(
        "starling_planning_duration_seconds",
        "Time to plan an operation, since the graph was loaded",
        |it| it.stats().planning.read(),
    ),
    Metric::counters(
        "starling_operations_preparing_seconds",
        "Time spent preparing operations, since the graph was loaded",
        |it, samples| samples.add(Duration::from_micros(read(&it.stats().micros))),
    ),
];
