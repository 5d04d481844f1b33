//! Settings of the subscriptions of one subgraph.

use std::time::Duration;

use events::Retry;
use upstream::Protocol;

/// The protocol by which a subgraph serves subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SubscriptionProtocol {
    /// WebSocket; the subgraph chooses between `graphql-transport-ws` and `graphql-ws`.
    #[default]
    Auto,
    /// WebSocket with `graphql-transport-ws`.
    GraphqlTransportWs,
    /// WebSocket with `graphql-ws`, the older protocol.
    GraphqlWs,
    /// Server-sent events in response to a POST request.
    Sse,
    /// Server-sent events in response to a GET request.
    SseGet,
    /// `multipart/mixed` in response to a POST request.
    Multipart,
    /// The HTTP callback protocol 1.0.
    Callback,
}

impl SubscriptionProtocol {
    /// True if many operations share a WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Auto | Self::GraphqlTransportWs | Self::GraphqlWs)
    }

    /// True if the subgraph sends results as requests to the router.
    pub fn is_callback(self) -> bool {
        self == Self::Callback
    }
}

/// The attempts to connect again after a connection was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReconnectSettings {
    /// The delays between attempts.
    pub delays: Retry,
    /// The number of attempts in a row; 0 turns reconnecting off.
    pub attempts: u32,
}

impl ReconnectSettings {
    /// Returns the time after which a connection works, even if it had no results. A server that is starting, and one
    /// that fails because of an operation, lose connections sooner.
    pub(crate) fn stable_after(&self) -> Duration {
        self.delays.max
    }
}

impl Default for ReconnectSettings {
    fn default() -> Self {
        // About half a minute in total, which a restart or a failover takes.
        Self { delays: Retry::default(), attempts: 10 }
    }
}

/// Limits of the subscriptions of one subgraph. They hold for the whole process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionSettings {
    /// The protocol.
    pub protocol: SubscriptionProtocol,
    /// The HTTP version of response streams and of requests for callbacks.
    pub http: Protocol,
    /// True if the payload of `connection_init` contains the forwarded headers.
    pub init_payload: bool,
    /// The time limit for opening a connection, with the TLS handshake.
    pub connect_timeout: Duration,
    /// The time limit for the acknowledgement of a WebSocket connection, and for the head of an HTTP response.
    pub ack_timeout: Duration,
    /// The interval of pings on a WebSocket; `None`: no pings.
    pub ping_interval: Option<Duration>,
    /// The silence after which a response stream counts as lost; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// The maximum size of a message in bytes.
    pub message_bytes_max: usize,
    /// The maximum number of WebSocket connections.
    pub connections_max: usize,
    /// The maximum number of operations on one WebSocket connection, and of all operations by HTTP.
    pub operations_max: usize,
    /// The time after which an unused WebSocket connection is closed.
    pub close_after: Duration,
    /// The attempts to connect again.
    pub reconnect: ReconnectSettings,
}

impl Default for SubscriptionSettings {
    fn default() -> Self {
        Self {
            protocol: SubscriptionProtocol::default(),
            http: Protocol::default(),
            init_payload: true,
            connect_timeout: Duration::from_secs(5),
            // The subgraph may check a token with a third party.
            ack_timeout: Duration::from_secs(10),
            ping_interval: Some(Duration::from_secs(30)),
            idle_timeout: None,
            message_bytes_max: 64 * 1024 * 1024,
            // One for each distinct partition; more mean that tokens of users are part of it.
            connections_max: 64,
            operations_max: 10_000,
            // Clients that reload a page find the connection open.
            close_after: Duration::from_secs(5),
            reconnect: ReconnectSettings::default(),
        }
    }
}
