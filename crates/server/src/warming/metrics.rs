//! The metrics of the start of a router.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use telemetry::Metric;

use super::Warming;

/// The metrics of the start of a router.
pub(crate) const WARMING_METRICS: &[Metric<Warming>] = &[
    Metric::gauge(
        "starling_warming",
        "1 while the router prepares operations before it is ready",
        |it| u64::from(!it.is_over.load(Relaxed)),
    ),
    Metric::gauges(
        "starling_warming_seconds",
        "Time from the start to readiness; 0 before that",
        |it, samples| samples.add(Duration::from_micros(it.counts.micros.load(Relaxed))),
    ),
    Metric::counters(
        "starling_warming_operations",
        "Operations of `warming.operations`, by result: prepared, or not valid on the graph",
        |it, samples| {
            samples.add_labelled(("result", "prepared"), it.counts.prepared.load(Relaxed))?;
            samples.add_labelled(("result", "invalid"), it.counts.invalid.load(Relaxed))
        },
    ),
    Metric::counter(
        "starling_warming_source_failures",
        "Times that the operations of `warming.operations` could not be read",
        |it| it.counts.source_failures.load(Relaxed),
    ),
    Metric::gauges(
        "starling_warming_share",
        "The share of the load that the router takes, from 0.1 to 1 (`warming.ramp`)",
        |it, samples| samples.add(it.share()),
    ),
];
