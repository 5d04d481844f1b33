//! Counters of streams and subscriptions of clients.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Metric;

/// Counters of streams and subscriptions of clients.
#[derive(Debug)]
pub struct SubscriptionMetrics {
    subscriptions: Family<TransportLabel, Gauge>,
    streams: Family<TransportLabel, Gauge>,
    /// Messages dropped or sockets closed because a subscriber read too slowly.
    slow_subscribers: Family<PolicyLabel, Counter>,
}

/// The metrics of streams and subscriptions of clients.
pub const SUBSCRIPTION_METRICS: &[Metric<SubscriptionMetrics>] = &[
    Metric::handle(
        "starling_subscriptions_open",
        "Live subscriptions of clients, by transport",
        |it| &it.subscriptions,
    ),
    Metric::handle(
        "starling_streams_open",
        "Open WebSocket connections and event streams, by transport",
        |it| &it.streams,
    ),
    Metric::handle(
        "starling_subscribers_slow",
        "Events dropped, or connections closed, because their client read too slowly, by policy",
        |it| &it.slow_subscribers,
    ),
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct TransportLabel {
    transport: Transport,
}

/// A transport of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub enum Transport {
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
    /// Returns the name in metrics and in the access log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::websocket => "websocket",
            Self::sse => "sse",
            Self::multipart => "multipart",
            Self::once => "once",
        }
    }

    /// Returns the transport of a stream of this kind.
    pub fn of(kind: wire::result_stream::StreamFormat) -> Self {
        match kind {
            wire::result_stream::StreamFormat::EventStream => Self::sse,
            wire::result_stream::StreamFormat::Multipart(_) => Self::multipart,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PolicyLabel {
    policy: Policy,
}

/// The action on a slow subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub enum Policy {
    /// Its connection was closed.
    disconnect,
    /// Its oldest waiting payload was dropped.
    drop_oldest,
    /// All but its newest payload were dropped.
    latest,
}

impl Policy {
    /// Returns the action of a configured policy.
    pub fn of(policy: config::OverflowPolicy) -> Self {
        match policy {
            config::OverflowPolicy::Disconnect => Self::disconnect,
            config::OverflowPolicy::DropOldest => Self::drop_oldest,
            config::OverflowPolicy::Latest => Self::latest,
        }
    }
}

/// An open stream or subscription, counted until this is dropped.
#[derive(Debug)]
pub struct OpenGauge(Gauge);

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

impl Default for SubscriptionMetrics {
    /// Creates the counters. Those of the usual transports and of all policies exist from the start, because an alert
    /// on a metric that does not exist yet never fires.
    fn default() -> Self {
        let metrics = Self {
            subscriptions: Family::default(),
            streams: Family::default(),
            slow_subscribers: Family::default(),
        };
        for transport in [Transport::websocket, Transport::sse] {
            drop(metrics.streams.get_or_create(&TransportLabel { transport }));
            drop(metrics.subscriptions.get_or_create(&TransportLabel { transport }));
        }
        for policy in [Policy::disconnect, Policy::drop_oldest, Policy::latest] {
            drop(metrics.slow_subscribers.get_or_create(&PolicyLabel { policy }));
        }
        metrics
    }
}

impl SubscriptionMetrics {
    /// Counts an open WebSocket connection or event stream.
    pub fn open_stream(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.streams.get_or_create_owned(&TransportLabel { transport }))
    }

    /// Counts a live subscription.
    pub(crate) fn open_subscription(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.subscriptions.get_or_create_owned(&TransportLabel { transport }))
    }

    /// Counts events that were dropped, or connections that were closed, because their clients read too slowly.
    pub(crate) fn count_slow(&self, policy: Policy, count: u64) {
        self.slow_subscribers.get_or_create(&PolicyLabel { policy }).inc_by(count);
    }
}
