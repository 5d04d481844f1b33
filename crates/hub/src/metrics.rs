//! The metrics of the hub that are not plain counters; those are beside the counters in `stats`.

use telemetry::{Metric, read};

use crate::hub::Hub;

/// The metrics of the hub with labels, and those that are computed.
pub const HUB_METRICS: &[Metric<Hub>] = &[
    Metric::gauge(
        "starling_hub_memo_bytes",
        "Bytes of subgraph responses kept while the groups of a trigger resolve their event",
        |it| it.memo_bytes() as u64,
    ),
    Metric::gauge(
        "starling_hub_ring_bytes",
        "Bytes of events kept for subscribers that resume with a cursor",
        |it| it.ring_bytes() as u64,
    ),
    Metric::histogram(
        "starling_hub_resolve_duration_seconds",
        "Time to resolve an event for a group",
        |it| it.stats().resolve_durations.read(),
    ),
    Metric::counters(
        "starling_hub_dropped",
        "Events not delivered to a group, by reason",
        |it, samples| {
            let stats = it.stats();
            samples.add_labelled(("reason", "group_behind"), read(&stats.dropped_group_behind))?;
            samples.add_labelled(("reason", "group_left"), read(&stats.dropped_group_left))
        },
    ),
    Metric::counters(
        "starling_hub_resumed",
        "Subscriptions with a cursor, by what served them: a new group from kept events or from a side reader, or a \
         group that other subscribers with a cursor had created",
        |it, samples| {
            let stats = it.stats();
            samples.add_labelled(("reason", "ring"), read(&stats.resumed_from_ring))?;
            samples.add_labelled(("reason", "reader"), read(&stats.resumed_from_reader))?;
            samples.add_labelled(("reason", "shared"), read(&stats.resumed_shared))
        },
    ),
    Metric::counters(
        "starling_hub_cursors_refused",
        "Cursors refused, by reason",
        |it, samples| {
            let stats = it.stats();
            samples.add_labelled(("reason", "invalid"), read(&stats.cursors_invalid))?;
            samples.add_labelled(("reason", "foreign"), read(&stats.cursors_foreign))?;
            samples.add_labelled(("reason", "expired"), read(&stats.cursors_expired))
        },
    ),
    Metric::counters("starling_hub_refused", "Subscriptions refused, by reason", |it, samples| {
        let stats = it.stats();
        samples.add_labelled(("reason", "provider"), read(&stats.refused_provider))?;
        samples.add_labelled(("reason", "overload"), read(&stats.refused_overload))
    }),
];
