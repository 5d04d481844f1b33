//! The metrics of the hub that are read from [`HubStats`].

use std::sync::atomic::AtomicU64;

use hub::HubStats;

/// The name of a metric, its help, and its value.
pub(super) type HubMetric = (&'static str, &'static str, fn(&HubStats) -> &AtomicU64);

/// Gauges of the hub.
pub(super) const HUB_GAUGES: [HubMetric; 7] = [
    ("starling_hub_triggers", "Open triggers", |it| &it.triggers),
    ("starling_hub_groups", "Groups of equal subscribers", |it| &it.groups),
    (
        "starling_hub_groups_catching_up",
        "Groups that read past events from their broker, because of a cursor or because they fell behind",
        |it| &it.catching_up,
    ),
    ("starling_hub_subscribers", "Subscribers that get events", |it| &it.subscribers),
    ("starling_hub_joining", "Subscribers that wait for their source to open", |it| &it.joining),
    (
        "starling_hub_events_waiting",
        "Events that wait in groups until earlier ones are resolved",
        |it| &it.waiting,
    ),
    ("starling_hub_resolving", "Events being resolved", |it| &it.resolving),
];

/// Counters of the hub.
pub(super) const HUB_COUNTERS: [HubMetric; 23] = [
    ("starling_hub_events", "Events that reached triggers", |it| &it.events),
    ("starling_hub_events_too_large", "Events over `events.max_event_size`", |it| {
        &it.events_too_large
    }),
    ("starling_hub_resolutions", "Events resolved, once per group", |it| &it.resolutions),
    (
        "starling_hub_batches",
        "Batches of events that waited in a group and were resolved together",
        |it| &it.batches,
    ),
    ("starling_hub_batched_events", "Events resolved in batches, once per group", |it| {
        &it.batched_events
    }),
    ("starling_hub_resolutions_failed", "Resolutions that failed because of a defect", |it| {
        &it.resolutions_failed
    }),
    ("starling_hub_broadcasts", "Payloads passed to outlets", |it| &it.broadcasts),
    ("starling_hub_deliveries", "Payloads for subscribers", |it| &it.deliveries),
    (
        "starling_hub_positions",
        "Cursors sent to subscribers without a payload for some time",
        |it| &it.positions,
    ),
    ("starling_hub_gaps", "Gaps that reached triggers", |it| &it.gaps),
    ("starling_hub_filters_evaluated", "Filters of groups evaluated for an event", |it| {
        &it.filters_evaluated
    }),
    ("starling_hub_filtered_out", "Events that a filter excluded from a group", |it| {
        &it.filtered_out
    }),
    ("starling_hub_operations_renewed", "Groups of subscribers that moved to a new graph", |it| {
        &it.spliced
    }),
    (
        "starling_hub_operations_moved",
        "Groups of subscribers that moved to a new graph and to another source",
        |it| &it.moved,
    ),
    (
        "starling_hub_groups_ended_by_reload",
        "Groups of subscribers that were not valid on a new graph",
        |it| &it.ended_by_reload,
    ),
    (
        "starling_hub_states",
        "Current states fetched for subscriptions, once for all that joined together",
        |it| &it.states,
    ),
    (
        "starling_hub_states_shared",
        "Subscribers that shared a fetch of the current state that was in flight",
        |it| &it.states_shared,
    ),
    (
        "starling_hub_side_readers",
        "Streams opened at brokers for groups that are behind the kept events",
        |it| &it.side_readers,
    ),
    (
        "starling_hub_events_replayed",
        "Past events passed to groups that have a cursor or fell behind",
        |it| &it.replayed,
    ),
    (
        "starling_hub_groups_fell_behind",
        "Groups that had more than subscriptions.group_queue_events waiting events, and read the rest from their broker",
        |it| &it.fell_behind,
    ),
    (
        "starling_hub_groups_held_back",
        "Times that a group started to hold back results of stored events because a thread that writes to its clients did not keep up",
        |it| &it.held_back,
    ),
    (
        "starling_hub_groups_outrun",
        "Times that a broker had deleted events before a group that had fallen behind read them",
        |it| &it.outrun,
    ),
    (
        "starling_hub_groups_merged",
        "Groups that caught up and were merged with an equal one",
        |it| &it.merged,
    ),
];
