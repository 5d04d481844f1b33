//! The metrics of subgraphs that are read from [`UpstreamStats`].

use std::sync::atomic::AtomicU64;

use upstream::UpstreamStats;

/// The name of a metric, its help, and its value.
pub(super) type SubgraphMetric = (&'static str, &'static str, fn(&UpstreamStats) -> &AtomicU64);

/// Counters, by subgraph.
pub(super) const SUBGRAPH_COUNTERS: [SubgraphMetric; 12] = [
    ("starling_subgraph_requests", "Requests to subgraphs, without retries", |it| &it.requests),
    ("starling_subgraph_retries", "Retries after a failure", |it| &it.retries),
    (
        "starling_subgraph_retries_refused",
        "Retries not sent because the budget was used up",
        |it| &it.retries_refused,
    ),
    (
        "starling_subgraph_requests_taken_apart",
        "Requests with several aliases that failed as a whole and were repeated once, in parts",
        |it| &it.taken_apart,
    ),
    (
        "starling_subgraph_reconnects",
        "Requests repeated at once because a reused connection was closed",
        |it| &it.reconnects,
    ),
    (
        "starling_subgraph_unsolicited_responses",
        "Times a subgraph sent a response over HTTP/1.1 without a request; its connections are not reused for a while",
        |it| &it.unsolicited,
    ),
    ("starling_subgraph_connections_opened", "Connections opened to subgraphs", |it| {
        &it.connections_opened
    }),
    ("starling_subgraph_requests_queued", "Requests that had to wait for a connection", |it| {
        &it.queued
    }),
    ("starling_subgraph_sent_bytes", "Bytes of HTTP sent, before TLS", |it| &it.bytes_sent),
    (
        "starling_subgraph_received_bytes",
        "Bytes of HTTP received, before they are expanded",
        |it| &it.bytes_received,
    ),
    ("starling_subgraph_breaker_opened", "Times that the circuit breaker has opened", |it| {
        &it.breaker_opened
    }),
    (
        "starling_subgraph_breaker_checks",
        "Times that the circuit breaker sent a query of its own to find out whether the subgraph fails or only certain requests do",
        |it| &it.breaker_checks,
    ),
];

/// Gauges, by subgraph.
pub(super) const SUBGRAPH_GAUGES: [SubgraphMetric; 4] = [
    ("starling_subgraph_connections", "Open connections to subgraphs", |it| &it.connections),
    ("starling_subgraph_connections_idle", "Idle connections over HTTP/1.1", |it| {
        &it.connections_idle
    }),
    ("starling_subgraph_requests_in_flight", "Requests in flight", |it| &it.in_flight),
    ("starling_subgraph_requests_waiting", "Requests that wait for a connection", |it| &it.waiting),
];
