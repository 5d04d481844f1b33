//! Counters of streams and subscriptions of clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hub::TransportId;
use telemetry::{LabelledCounters, Metric, read};

/// Counters of streams and subscriptions of clients.
#[derive(Debug)]
pub struct SubscriptionMetrics {
    subscriptions: LabelledCounters,
    streams: LabelledCounters,
    /// Messages dropped or sockets closed because a subscriber read too slowly.
    slow_subscribers: LabelledCounters,
    /// Subscribers with a watched history.
    watched: AtomicU64,
    /// Refused requests to watch one.
    not_watched: AtomicU64,
}

/// The metrics of streams and subscriptions of clients.
pub const SUBSCRIPTION_METRICS: &[Metric<SubscriptionMetrics>] = &[
    Metric::gauges(
        "starling_subscriptions_open",
        "Live subscriptions of clients, by transport",
        |it, samples| it.subscriptions.write("transport", samples),
    ),
    Metric::gauges(
        "starling_streams_open",
        "Open WebSocket connections and event streams, by transport",
        |it, samples| it.streams.write("transport", samples),
    ),
    Metric::counters(
        "starling_subscribers_slow",
        "Events dropped, or connections closed, because their client read too slowly, by policy",
        |it, samples| it.slow_subscribers.write("policy", samples),
    ),
    Metric::gauge(
        "starling_subscribers_watched",
        "Subscribers whose history an operator watches on the console",
        |it| read(&it.watched),
    ),
    Metric::counter(
        "starling_subscribers_not_watched",
        "Requests of operators to watch a subscriber that were refused because too many are watched",
        |it| read(&it.not_watched),
    ),
];

/// A transport of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// graphql-transport-ws and graphql-ws.
    WebSocket,
    /// GraphQL over SSE.
    Sse,
    /// `multipart/mixed`.
    Multipart,
    /// `?once`: a response without a stream.
    Once,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::WebSocket, Self::Sse, Self::Multipart, Self::Once];

    /// Returns the number under which the hub counts subscribers.
    pub const fn id(self) -> TransportId {
        TransportId::new(self as u8)
    }

    /// Returns the name in metrics, in the access log and on the console.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
            Self::Multipart => "multipart",
            Self::Once => "once",
        }
    }

    /// Returns the transport of a stream of this kind.
    pub fn of(kind: wire::result_stream::StreamFormat) -> Self {
        match kind {
            wire::result_stream::StreamFormat::EventStream => Self::Sse,
            wire::result_stream::StreamFormat::Multipart(_) => Self::Multipart,
        }
    }
}

// The hub tells so many apart.
const _: () = assert!(Transport::ALL.len() <= TransportId::COUNT_MAX);

/// The action on a slow subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Its connection was closed.
    Disconnect,
    /// Its oldest waiting payload was dropped.
    DropOldest,
    /// All but its newest payload were dropped.
    Latest,
}

impl Policy {
    const ALL: [Self; 3] = [Self::Disconnect, Self::DropOldest, Self::Latest];

    fn name(self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::DropOldest => "drop_oldest",
            Self::Latest => "latest",
        }
    }

    /// Returns the action of a configured policy.
    pub fn of(policy: config::OverflowPolicy) -> Self {
        match policy {
            config::OverflowPolicy::Disconnect => Self::Disconnect,
            config::OverflowPolicy::DropOldest => Self::DropOldest,
            config::OverflowPolicy::Latest => Self::Latest,
        }
    }
}

/// An open stream or subscription, counted until this is dropped.
#[derive(Debug)]
pub struct OpenGauge(Arc<AtomicU64>);

impl OpenGauge {
    fn new(gauge: Arc<AtomicU64>) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for SubscriptionMetrics {
    /// Creates the counters. Those of the usual transports and of all policies exist from the start, because an alert
    /// on a metric that does not exist yet never fires.
    fn default() -> Self {
        let usual = [Transport::WebSocket, Transport::Sse].map(Transport::name);
        Self {
            subscriptions: LabelledCounters::with_values(usual),
            streams: LabelledCounters::with_values(usual),
            slow_subscribers: LabelledCounters::with_values(Policy::ALL.map(Policy::name)),
            watched: AtomicU64::new(0),
            not_watched: AtomicU64::new(0),
        }
    }
}

impl SubscriptionMetrics {
    /// Counts an open WebSocket connection or event stream.
    pub fn open_stream(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.streams.counter(transport.name()))
    }

    /// Counts a live subscription.
    pub(crate) fn open_subscription(&self, transport: Transport) -> OpenGauge {
        OpenGauge::new(self.subscriptions.counter(transport.name()))
    }

    /// Sets the number of watched subscribers, of all graphs.
    pub fn set_watched(&self, count: usize) {
        self.watched.store(count as u64, Ordering::Relaxed);
    }

    /// Counts a refused request to watch a subscriber.
    pub(crate) fn count_not_watched(&self) {
        self.not_watched.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts events that were dropped, or connections that were closed, because their clients read too slowly.
    pub(crate) fn count_slow(&self, policy: Policy, count: u64) {
        self.slow_subscribers.add(policy.name(), count);
    }
}
