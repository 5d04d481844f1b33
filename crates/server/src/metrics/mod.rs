//! The metrics that the server counts itself, and their registration for Prometheus. Names are
//! `starling_<area>_<thing>_<unit>`; labels have few values. Counters of other crates are read when Prometheus collects
//! them (`scrape`).

mod collector;
mod hub_metrics;
mod prometheus_text;
mod subgraph_metrics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use execute::ErrorCode;
use http::StatusCode;
use plan::OperationKind;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use collector::MetricsCollector;
pub(crate) use prometheus_text::prometheus_text;

/// The counters of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    answers: Family<StatusLabel, Counter>,
    /// The counter of status 200 in `answers`: looking it up takes a lock that all workers share.
    answers_ok: Counter,
    operations: Family<OperationLabel, Counter>,
    operation_seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    /// The counters of queries without errors in `operations` and `operation_seconds`, for the same reason.
    queries_ok: (Counter, Histogram),
    refused: Family<CodeLabel, Counter>,
    /// Refused clients, by the reason.
    unauthenticated: Family<ReasonLabel, Counter>,
    subscriptions: Family<TransportLabel, Gauge>,
    reloads: Family<ReloadLabel, Counter>,
    streams: Family<TransportLabel, Gauge>,
    /// Messages dropped or sockets closed because a subscriber read too slowly, by policy.
    pub(crate) slow_subscribers: Family<PolicyLabel, Counter>,
    /// Failed `accept` calls, most likely because no descriptor was free.
    pub(crate) accept_failures: AtomicU64,
    /// Failed TLS handshakes.
    tls_failures: AtomicU64,
    /// Batches, and operations in them.
    batches: AtomicU64,
    batched_operations: AtomicU64,
    timeouts: Family<TimeoutLabel, Counter>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct TimeoutLabel {
    phase: TimeoutPhase,
}

/// The phase in which a client took too long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum TimeoutPhase {
    /// The TLS handshake.
    handshake,
    /// The body of a request.
    body,
    /// The client read nothing of the data sent to it.
    stall,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OperationLabel {
    kind: OperationType,
    outcome: OperationOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabel {
    kind: OperationType,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
enum OperationType {
    query,
    mutation,
    subscription,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
enum OperationOutcome {
    ok,
    errors,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReloadLabel {
    result: ReloadResult,
}

/// The result of loading a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum ReloadResult {
    /// The graph serves now.
    loaded,
    /// The graph did not load; the previous one stays.
    refused,
    /// The graph is equal to the one that serves.
    unchanged,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct TransportLabel {
    transport: Transport,
}

/// A transport of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum Transport {
    /// graphql-transport-ws and graphql-ws.
    websocket,
    /// GraphQL over SSE.
    sse,
    /// `multipart/mixed`.
    multipart,
    /// `?once`: a response without a stream.
    once,
}

impl Transport {
    /// Returns the transport of a stream of this kind.
    pub(crate) fn of(kind: wire::result_stream::StreamFormat) -> Self {
        match kind {
            wire::result_stream::StreamFormat::EventStream => Self::sse,
            wire::result_stream::StreamFormat::Multipart(_) => Self::multipart,
        }
    }
}

/// The label of the action on a slow subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct PolicyLabel {
    pub(crate) policy: Policy,
}

/// The action on a slow subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum Policy {
    /// Its connection was closed.
    disconnect,
    /// Its oldest waiting payload was dropped.
    drop_oldest,
    /// All but its newest payload were dropped.
    latest,
}

/// An open stream or subscription, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenGauge(Gauge);

impl OpenGauge {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Policy {
    /// Returns the action of a configured policy.
    pub(crate) fn of(policy: config::OverflowPolicy) -> Self {
        match policy {
            config::OverflowPolicy::Disconnect => Self::disconnect,
            config::OverflowPolicy::DropOldest => Self::drop_oldest,
            config::OverflowPolicy::Latest => Self::latest,
        }
    }
}

/// Bucket bounds of durations, in seconds: 0.5 ms to 30 s.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

impl Metrics {
    /// Creates the counters. Those with few labels exist from the start, because an alert on a metric that does not
    /// exist yet never fires.
    pub(crate) fn new() -> Self {
        let answers = Family::<StatusLabel, Counter>::default();
        let operations = Family::<OperationLabel, Counter>::default();
        let operation_seconds: Family<KindLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let query_ok = OperationLabel { kind: OperationType::query, outcome: OperationOutcome::ok };
        let metrics = Self {
            answers_ok: answers.get_or_create_owned(&StatusLabel { status: 200 }),
            queries_ok: (
                operations.get_or_create_owned(&query_ok),
                operation_seconds.get_or_create_owned(&KindLabel { kind: OperationType::query }),
            ),
            answers,
            operations,
            operation_seconds,
            refused: Family::default(),
            unauthenticated: Family::default(),
            subscriptions: Family::default(),
            reloads: Family::default(),
            streams: Family::default(),
            slow_subscribers: Family::default(),
            accept_failures: AtomicU64::new(0),
            tls_failures: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batched_operations: AtomicU64::new(0),
            timeouts: Family::default(),
        };
        for phase in [TimeoutPhase::handshake, TimeoutPhase::body, TimeoutPhase::stall] {
            drop(metrics.timeouts.get_or_create(&TimeoutLabel { phase }));
        }
        for kind in [OperationType::query, OperationType::mutation, OperationType::subscription] {
            for outcome in [OperationOutcome::ok, OperationOutcome::errors] {
                drop(metrics.operations.get_or_create(&OperationLabel { kind, outcome }));
            }
            drop(metrics.operation_seconds.get_or_create(&KindLabel { kind }));
        }
        for result in [ReloadResult::loaded, ReloadResult::refused, ReloadResult::unchanged] {
            drop(metrics.reloads.get_or_create(&ReloadLabel { result }));
        }
        for transport in [Transport::websocket, Transport::sse] {
            drop(metrics.streams.get_or_create(&TransportLabel { transport }));
            drop(metrics.subscriptions.get_or_create(&TransportLabel { transport }));
        }
        for policy in [Policy::disconnect, Policy::drop_oldest, Policy::latest] {
            drop(metrics.slow_subscribers.get_or_create(&PolicyLabel { policy }));
        }
        metrics
    }

    /// Counts an HTTP response.
    pub(crate) fn count_response(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.answers_ok.inc();
            return;
        }
        self.answers.get_or_create(&StatusLabel { status: status.as_u16() }).inc();
    }

    /// Counts a client that took too long.
    pub(crate) fn timeout(&self, phase: TimeoutPhase) {
        self.timeouts.get_or_create(&TimeoutLabel { phase }).inc();
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn tls_failed(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a batch of this number of operations.
    pub(crate) fn batch(&self, operations: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batched_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }

    /// Counts a finished query or mutation, or a started subscription.
    pub(crate) fn operation(&self, kind: OperationKind, errors: bool, took: Duration) {
        if kind == OperationKind::Query && !errors {
            self.queries_ok.0.inc();
            self.queries_ok.1.observe(took.as_secs_f64());
            return;
        }
        let kind = match kind {
            OperationKind::Query => OperationType::query,
            OperationKind::Mutation => OperationType::mutation,
            OperationKind::Subscription => OperationType::subscription,
        };
        let outcome = if errors { OperationOutcome::errors } else { OperationOutcome::ok };
        self.operations.get_or_create(&OperationLabel { kind, outcome }).inc();
        self.operation_seconds.get_or_create(&KindLabel { kind }).observe(took.as_secs_f64());
    }

    /// Counts an operation that was refused before it ran.
    pub(crate) fn refused(&self, code: ErrorCode) {
        self.refused.get_or_create(&CodeLabel { code: code.as_str() }).inc();
    }

    /// Counts a client that was refused for this reason.
    pub(crate) fn unauthenticated(&self, reason: &'static str) {
        self.unauthenticated.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts an open WebSocket connection or event stream.
    pub(crate) fn stream(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.streams.get_or_create_owned(&TransportLabel { transport }))
    }

    /// Counts a live subscription.
    pub(crate) fn subscription(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.subscriptions.get_or_create_owned(&TransportLabel { transport }))
    }

    /// Counts an attempt to load a graph.
    pub(crate) fn reload(&self, result: ReloadResult) {
        self.reloads.get_or_create(&ReloadLabel { result }).inc();
    }

    /// Registers all metrics for Prometheus.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "starling_http_answers",
            "HTTP responses on the public listeners, by status",
            self.answers.clone(),
        );
        registry.register(
            "starling_http_timeouts",
            "Connections closed because the client took too long, by phase",
            self.timeouts.clone(),
        );
        registry.register(
            "starling_operations",
            "Operations run, by kind and by whether the response had errors",
            self.operations.clone(),
        );
        registry.register_with_unit(
            "starling_operation_duration",
            "Time from the prepared operation to its printed response, or to the live subscription, by kind",
            Unit::Seconds,
            self.operation_seconds.clone(),
        );
        registry.register(
            "starling_operations_refused",
            "Operations refused before they ran, by code of the first error",
            self.refused.clone(),
        );
        registry.register(
            "starling_authentication_refused",
            "Clients refused, and connections closed, by what was wrong with their token",
            self.unauthenticated.clone(),
        );
        registry.register(
            "starling_subscriptions_open",
            "Live subscriptions of clients, by transport",
            self.subscriptions.clone(),
        );
        registry.register(
            "starling_graph_loads",
            "Attempts to load a graph, by result",
            self.reloads.clone(),
        );
        registry.register(
            "starling_streams_open",
            "Open WebSocket connections and event streams, by transport",
            self.streams.clone(),
        );
        registry.register(
            "starling_subscribers_slow",
            "Events dropped, or connections closed, because their client read too slowly, by policy",
            self.slow_subscribers.clone(),
        );
    }

    /// Failed TLS handshakes, batches, and operations in batches.
    pub(crate) fn http_counters(&self) -> [u64; 3] {
        [&self.tls_failures, &self.batches, &self.batched_operations]
            .map(|it| it.load(Ordering::Relaxed))
    }

    /// Failed `accept` calls.
    pub(crate) fn accept_failures(&self) -> u64 {
        self.accept_failures.load(Ordering::Relaxed)
    }
}
