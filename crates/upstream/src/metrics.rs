//! The metrics of one subgraph.

use std::time::Duration;

use telemetry::{Metric, read};

use crate::stats::FailureKind;
use crate::upstream::Upstream;

/// The metrics of one subgraph. The label that names the subgraph is added by the caller.
pub const UPSTREAM_METRICS: &[Metric<Upstream>] = &[
    Metric::counter("starling_subgraph_requests", "Requests to subgraphs, without retries", |it| {
        read(&it.stats().requests)
    }),
    Metric::counter("starling_subgraph_retries", "Retries after a failure", |it| {
        read(&it.stats().retries)
    }),
    Metric::counter(
        "starling_subgraph_retries_refused",
        "Retries not sent because the budget was used up",
        |it| read(&it.stats().retries_refused),
    ),
    Metric::counter(
        "starling_subgraph_requests_taken_apart",
        "Requests with several aliases that failed as a whole and were repeated once, in parts",
        |it| read(&it.stats().taken_apart),
    ),
    Metric::counter(
        "starling_subgraph_reconnects",
        "Requests repeated at once because a reused connection was closed",
        |it| read(&it.stats().reconnects),
    ),
    Metric::counter(
        "starling_subgraph_unsolicited_responses",
        "Times a subgraph sent a response over HTTP/1.1 without a request; its connections are not reused for a while",
        |it| read(&it.stats().unsolicited),
    ),
    Metric::counter(
        "starling_subgraph_connections_opened",
        "Connections opened to subgraphs",
        |it| read(&it.stats().connections_opened),
    ),
    Metric::counter(
        "starling_subgraph_requests_queued",
        "Requests that had to wait for a connection",
        |it| read(&it.stats().queued),
    ),
    Metric::counter("starling_subgraph_sent_bytes", "Bytes of HTTP sent, before TLS", |it| {
        read(&it.stats().bytes_sent)
    }),
    Metric::counter(
        "starling_subgraph_received_bytes",
        "Bytes of HTTP received, before they are expanded",
        |it| read(&it.stats().bytes_received),
    ),
    Metric::counter(
        "starling_subgraph_breaker_opened",
        "Times that the circuit breaker has opened",
        |it| read(&it.stats().breaker_opened),
    ),
    Metric::counter(
        "starling_subgraph_breaker_checks",
        "Times that the circuit breaker sent a query of its own to find out whether the subgraph fails or only certain requests do",
        |it| read(&it.stats().breaker_checks),
    ),
    Metric::gauge("starling_subgraph_connections", "Open connections to subgraphs", |it| {
        read(&it.stats().connections)
    }),
    Metric::gauge("starling_subgraph_connections_idle", "Idle connections over HTTP/1.1", |it| {
        read(&it.stats().connections_idle)
    }),
    Metric::gauge("starling_subgraph_requests_in_flight", "Requests in flight", |it| {
        read(&it.stats().in_flight)
    }),
    Metric::gauge(
        "starling_subgraph_requests_waiting",
        "Requests that wait for a connection",
        |it| read(&it.stats().waiting),
    ),
    Metric::gauge(
        "starling_subgraph_breaker_state",
        "Circuit breaker: 0 closed, 1 half-open, 2 open",
        |it| it.breaker() as u64,
    ),
    Metric::counters(
        "starling_subgraph_queue_seconds",
        "Time that requests waited for a connection",
        |it, samples| samples.add(Duration::from_micros(read(&it.stats().queued_micros))),
    ),
    Metric::histogram(
        "starling_subgraph_request_duration_seconds",
        "Time from the first attempt to the end of the response or the failure",
        |it| it.stats().seconds.read(),
    ),
    Metric::counters(
        "starling_subgraph_failures",
        "Requests to subgraphs that failed, by kind",
        |it, samples| {
            FailureKind::ALL.into_iter().try_for_each(|kind| {
                samples.add_labelled(("kind", kind.as_str()), it.stats().failures(kind))
            })
        },
    ),
];
