//! The metrics of the hub.

use telemetry::{Metric, read};

use crate::hub::Hub;

/// The metrics of the hub.
pub const HUB_METRICS: &[Metric<Hub>] = &[
    Metric::gauge("starling_hub_triggers", "Open triggers", |it| read(&it.stats().triggers)),
    Metric::gauge("starling_hub_groups", "Groups of equal subscribers", |it| {
        read(&it.stats().groups)
    }),
    Metric::gauge(
        "starling_hub_groups_catching_up",
        "Groups that read past events from their broker, because of a cursor or because they fell behind",
        |it| read(&it.stats().catching_up),
    ),
    Metric::gauge("starling_hub_subscribers", "Subscribers that get events", |it| {
        read(&it.stats().subscribers)
    }),
    Metric::gauge("starling_hub_joining", "Subscribers that wait for their source to open", |it| {
        read(&it.stats().joining)
    }),
    Metric::gauge(
        "starling_hub_events_waiting",
        "Events that wait in groups until earlier ones are resolved",
        |it| read(&it.stats().waiting),
    ),
    Metric::gauge("starling_hub_resolving", "Events being resolved", |it| {
        read(&it.stats().resolving)
    }),
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
    Metric::counter("starling_hub_events", "Events that reached triggers", |it| {
        read(&it.stats().events)
    }),
    Metric::counter("starling_hub_events_too_large", "Events over `events.max_event_size`", |it| {
        read(&it.stats().events_too_large)
    }),
    Metric::counter("starling_hub_resolutions", "Events resolved, once per group", |it| {
        read(&it.stats().resolutions)
    }),
    Metric::counter(
        "starling_hub_batches",
        "Batches of events that waited in a group and were resolved together",
        |it| read(&it.stats().batches),
    ),
    Metric::counter(
        "starling_hub_batched_events",
        "Events resolved in batches, once per group",
        |it| read(&it.stats().batched_events),
    ),
    Metric::counter(
        "starling_hub_resolutions_failed",
        "Resolutions that failed because of a defect",
        |it| read(&it.stats().resolutions_failed),
    ),
    Metric::counter("starling_hub_broadcasts", "Payloads passed to outlets", |it| {
        read(&it.stats().broadcasts)
    }),
    Metric::counter("starling_hub_deliveries", "Payloads for subscribers", |it| {
        read(&it.stats().deliveries)
    }),
    Metric::counter(
        "starling_hub_positions",
        "Cursors sent to subscribers without a payload for some time",
        |it| read(&it.stats().positions),
    ),
    Metric::counter("starling_hub_gaps", "Gaps that reached triggers", |it| read(&it.stats().gaps)),
    Metric::counter(
        "starling_hub_filters_evaluated",
        "Filters of groups evaluated for an event",
        |it| read(&it.stats().filters_evaluated),
    ),
    Metric::counter(
        "starling_hub_filtered_out",
        "Events that a filter excluded from a group",
        |it| read(&it.stats().filtered_out),
    ),
    Metric::counter(
        "starling_hub_operations_renewed",
        "Groups of subscribers that moved to a new graph",
        |it| read(&it.stats().spliced),
    ),
    Metric::counter(
        "starling_hub_operations_moved",
        "Groups of subscribers that moved to a new graph and to another source",
        |it| read(&it.stats().moved),
    ),
    Metric::counter(
        "starling_hub_groups_ended_by_reload",
        "Groups of subscribers that were not valid on a new graph",
        |it| read(&it.stats().ended_by_reload),
    ),
    Metric::counter(
        "starling_hub_states",
        "Current states fetched for subscriptions, once for all that joined together",
        |it| read(&it.stats().states),
    ),
    Metric::counter(
        "starling_hub_states_shared",
        "Subscribers that shared a fetch of the current state that was in flight",
        |it| read(&it.stats().states_shared),
    ),
    Metric::counter(
        "starling_hub_side_readers",
        "Streams opened at brokers for groups that are behind the kept events",
        |it| read(&it.stats().side_readers),
    ),
    Metric::counter(
        "starling_hub_events_replayed",
        "Past events passed to groups that have a cursor or fell behind",
        |it| read(&it.stats().replayed),
    ),
    Metric::counter(
        "starling_hub_groups_fell_behind",
        "Groups that had more than subscriptions.group_queue_events waiting events, and read the rest from their broker",
        |it| read(&it.stats().fell_behind),
    ),
    Metric::counter(
        "starling_hub_groups_held_back",
        "Times that a group started to hold back results of stored events because a thread that writes to its clients did not keep up",
        |it| read(&it.stats().held_back),
    ),
    Metric::counter(
        "starling_hub_groups_outrun",
        "Times that a broker had deleted events before a group that had fallen behind read them",
        |it| read(&it.stats().outrun),
    ),
    Metric::counter(
        "starling_hub_groups_merged",
        "Groups that caught up and were merged with an equal one",
        |it| read(&it.stats().merged),
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
