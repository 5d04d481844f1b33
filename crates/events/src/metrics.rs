//! The metrics of one provider, and of one topic of it.

use telemetry::{Metric, read};

use crate::provider::Provider;
use crate::provider_stats::{ErrorKind, ProviderState};
use crate::topic_stats::TopicStats;

/// The metrics of one provider. The label that names the provider is added by the caller.
pub const PROVIDER_METRICS: &[Metric<dyn Provider>] = &[
    Metric::gauge("starling_events_provider_connected", "1 if the provider is connected", |it| {
        u64::from(it.is_connected())
    }),
    Metric::counter("starling_events_received", "Events received from providers", |it| {
        read(&it.stats().received)
    }),
    Metric::counter("starling_events_published", "Events published", |it| {
        read(&it.stats().published)
    }),
    Metric::gauges(
        "starling_events_provider_state",
        "1 for the current state of the provider",
        |it, samples| {
            let current = it.stats().state();
            ProviderState::ALL.into_iter().try_for_each(|state| {
                samples.add_labelled(("state", state.as_str()), u64::from(state == current))
            })
        },
    ),
    Metric::counters("starling_events_errors", "Errors of providers, by kind", |it, samples| {
        ErrorKind::ALL.into_iter().try_for_each(|kind| {
            samples.add_labelled(("kind", kind.as_str()), it.stats().errors(kind))
        })
    }),
    Metric::counter("starling_events_reconnects", "Connections opened after the first one", |it| {
        read(&it.stats().reconnects)
    }),
    Metric::counter(
        "starling_events_dropped",
        "Events dropped because the queue of a stream was full",
        |it| read(&it.stats().dropped),
    ),
    Metric::counter("starling_events_gaps", "Gaps that providers announced to streams", |it| {
        read(&it.stats().gaps)
    }),
    Metric::gauge("starling_events_streams", "Open streams of providers", |it| {
        read(&it.stats().streams)
    }),
];

/// The metrics of one topic of a provider. The labels that name both are added by the caller. The number of named
/// topics is bounded by [`TOPICS_NAMED_MAX`](crate::TOPICS_NAMED_MAX).
pub const TOPIC_METRICS: &[Metric<TopicStats>] = &[
    Metric::counter(
        "starling_events_topic_received",
        "Events for streams of a topic, once for each stream",
        |it| read(&it.received),
    ),
    Metric::counter("starling_events_topic_published", "Events published to a topic", |it| {
        read(&it.published)
    }),
    Metric::counter(
        "starling_events_topic_publish_failures",
        "Events that could not be published to a topic",
        |it| read(&it.publish_failures),
    ),
    Metric::counter(
        "starling_events_topic_dropped",
        "Events of a topic dropped because the queue of a stream was full",
        |it| read(&it.dropped),
    ),
    Metric::gauge("starling_events_topic_streams", "Open streams of a topic", |it| {
        read(&it.streams)
    }),
    Metric::gauges(
        "starling_events_topic_lag",
        "Events that the broker stores and the slowest stream of a topic has not read yet, if known",
        |it, samples| it.lag().events.map_or(Ok(()), |events| samples.add(events)),
    ),
    Metric::gauges(
        "starling_events_topic_lag_seconds",
        "Age of the latest event that the slowest stream of a topic has read, if there are more",
        |it, samples| it.lag().time.map_or(Ok(()), |time| samples.add(time)),
    ),
];
