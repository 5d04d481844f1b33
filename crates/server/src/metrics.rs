//! What is counted, and how it is told to Prometheus. Names are `starling_<area>_<thing>_<unit>`;
//! labels have few values. Counters of other crates are read when someone asks.

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

/// Everything the server itself counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    answers: Family<StatusLabel, Counter>,
    /// Of `answers`, those with status 200: looking one up takes a lock that all cores share.
    answers_ok: Counter,
    operations: Family<OperationLabel, Counter>,
    operation_seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    /// Of `operations` and `operation_seconds`, queries without errors, for the same reason.
    queries_ok: (Counter, Histogram),
    refused: Family<CodeLabel, Counter>,
    /// Clients that were turned away, by what was wrong with their token.
    unauthenticated: Family<ReasonLabel, Counter>,
    subscriptions: Family<TransportLabel, Gauge>,
    reloads: Family<ReloadLabel, Counter>,
    streams: Family<TransportLabel, Gauge>,
    /// Messages dropped or sockets closed because a subscriber read too slowly, by policy.
    pub(crate) slow_subscribers: Family<PolicyLabel, Counter>,
    /// `accept` calls that failed, most likely for want of descriptors.
    pub(crate) accept_failures: AtomicU64,
    /// Handshakes that came to nothing.
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

/// What a client was given up over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum TimeoutPhase {
    /// The TLS handshake.
    handshake,
    /// The body of a request.
    body,
    /// It took nothing of what was sent to it.
    stall,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OperationLabel {
    kind: Kind,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabel {
    kind: Kind,
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
enum Kind {
    query,
    mutation,
    subscription,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
enum Outcome {
    ok,
    errors,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReloadLabel {
    result: ReloadResult,
}

/// How loading a graph ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum ReloadResult {
    /// It serves now.
    loaded,
    /// It did not load; the one before stays.
    refused,
    /// It is the one that serves already.
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
    /// graphql-transport-ws and graphql-ws
    websocket,
    /// GraphQL over SSE
    sse,
    /// `multipart/mixed`
    multipart,
    /// `?once`: a plain answer
    once,
}

impl Transport {
    /// Of a stream of that kind.
    pub(crate) fn of(kind: wire::result_stream::Kind) -> Self {
        match kind {
            wire::result_stream::Kind::EventStream => Self::sse,
            wire::result_stream::Kind::Multipart(_) => Self::multipart,
        }
    }
}

/// What was done to a slow subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct PolicyLabel {
    pub(crate) policy: Policy,
}

/// See [`PolicyLabel`].
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

/// Something that is open, counted until dropped.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Policy {
    /// As configured.
    pub(crate) fn of(policy: crate::config::OverflowPolicy) -> Self {
        match policy {
            crate::config::OverflowPolicy::Disconnect => Self::disconnect,
            crate::config::OverflowPolicy::DropOldest => Self::drop_oldest,
            crate::config::OverflowPolicy::Latest => Self::latest,
        }
    }
}

/// Bucket bounds of durations, in seconds: 0.5 ms to 30 s.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

impl Metrics {
    /// Fresh counters. Those with few labels are there from the start: an alert on a metric that does not
    /// exist yet never fires.
    pub(crate) fn new() -> Self {
        let answers = Family::<StatusLabel, Counter>::default();
        let operations = Family::<OperationLabel, Counter>::default();
        let operation_seconds: Family<KindLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let query_ok = OperationLabel { kind: Kind::query, outcome: Outcome::ok };
        let metrics = Self {
            answers_ok: answers.get_or_create_owned(&StatusLabel { status: 200 }),
            queries_ok: (
                operations.get_or_create_owned(&query_ok),
                operation_seconds.get_or_create_owned(&KindLabel { kind: Kind::query }),
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
        for kind in [Kind::query, Kind::mutation, Kind::subscription] {
            for outcome in [Outcome::ok, Outcome::errors] {
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

    /// An HTTP answer was made.
    pub(crate) fn answer(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.answers_ok.inc();
            return;
        }
        self.answers.get_or_create(&StatusLabel { status: status.as_u16() }).inc();
    }

    /// A client took too long.
    pub(crate) fn timeout(&self, phase: TimeoutPhase) {
        self.timeouts.get_or_create(&TimeoutLabel { phase }).inc();
    }

    /// A TLS handshake failed.
    pub(crate) fn tls_failed(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A batch of so many operations came.
    pub(crate) fn batch(&self, operations: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batched_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }

    /// A query or mutation ran to its end, or a subscription began.
    pub(crate) fn operation(&self, kind: OperationKind, errors: bool, took: Duration) {
        if kind == OperationKind::Query && !errors {
            self.queries_ok.0.inc();
            self.queries_ok.1.observe(took.as_secs_f64());
            return;
        }
        let kind = match kind {
            OperationKind::Query => Kind::query,
            OperationKind::Mutation => Kind::mutation,
            OperationKind::Subscription => Kind::subscription,
        };
        let outcome = if errors { Outcome::errors } else { Outcome::ok };
        self.operations.get_or_create(&OperationLabel { kind, outcome }).inc();
        self.operation_seconds.get_or_create(&KindLabel { kind }).observe(took.as_secs_f64());
    }

    /// An operation was refused before it ran.
    pub(crate) fn refused(&self, code: ErrorCode) {
        self.refused.get_or_create(&CodeLabel { code: code.as_str() }).inc();
    }

    /// Somebody was turned away for that reason.
    pub(crate) fn unauthenticated(&self, reason: &'static str) {
        self.unauthenticated.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A WebSocket connection or event stream is open.
    pub(crate) fn stream(&self, transport: Transport) -> Open {
        Open::new(self.streams.get_or_create_owned(&TransportLabel { transport }))
    }

    /// A subscription is live.
    pub(crate) fn subscription(&self, transport: Transport) -> Open {
        Open::new(self.subscriptions.get_or_create_owned(&TransportLabel { transport }))
    }

    /// A graph was loaded, or not.
    pub(crate) fn reload(&self, result: ReloadResult) {
        self.reloads.get_or_create(&ReloadLabel { result }).inc();
    }

    /// Names everything for Prometheus.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "starling_http_answers",
            "HTTP answers on the public listeners, by status",
            self.answers.clone(),
        );
        registry.register(
            "starling_http_timeouts",
            "Clients given up because they took too long, by what for",
            self.timeouts.clone(),
        );
        registry.register(
            "starling_operations",
            "Operations run, by kind and by whether the answer had errors",
            self.operations.clone(),
        );
        registry.register_with_unit(
            "starling_operation_duration",
            "Time from the prepared operation to its printed answer, or to the live subscription, by kind",
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
            "Clients turned away, and connections ended, by what was wrong with their token",
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

    /// TLS handshakes that failed, batches, and operations in batches.
    pub(crate) fn http_counters(&self) -> [u64; 3] {
        [&self.tls_failures, &self.batches, &self.batched_operations]
            .map(|it| it.load(Ordering::Relaxed))
    }

    /// `accept` calls that failed.
    pub(crate) fn accept_failures(&self) -> u64 {
        self.accept_failures.load(Ordering::Relaxed)
    }
}
