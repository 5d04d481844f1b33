//! Settings of the subscriptions that a subgraph with a server serves: the transport, the sharing of upstream
//! operations and connections, and the reconnection. The listener for the callback protocol is in `subscriptions`.

use std::time::Duration;

use execute::ClaimPath;
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    DurationOrZeroText, DurationText, HeaderNameText, MemberPathText, SizeText, SubscriptionUrlText,
};
use super::headers::header_names;
use super::quantity;

/// Subscriptions that a subgraph with a server serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphSubscriptionSettings {
    /// The protocol of the subscriptions. The default is that of the supergraph (`starling compose` takes it from the
    /// composition configuration), or `auto`.
    #[schemars(with = "Option<SubscriptionProtocol>", example = &"graphql_transport_ws")]
    pub protocol: Option<SubscriptionProtocol>,

    /// The URL of the subscriptions: `ws`, `wss`, `http`, `https` or `unix`. For a WebSocket, `http` means `ws` and
    /// `https` means `wss`. The default is that of the supergraph, or else the URL of the subgraph.
    #[schemars(with = "Option<SubscriptionUrlText>", example = &"ws://reviews.internal:4001/subscriptions")]
    pub url: Option<String>,

    /// The headers and claims that decide which clients share an upstream operation and a connection. By default all
    /// forwarded headers decide: a forwarded token then gives each user an operation of its own. With this section only
    /// the listed headers and claims decide, and clients for which they are equal get the events of one operation,
    /// which has the headers of the client that came last. List everything that changes what the subgraph sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-needs-keys" = true))]
    pub share_by: Option<SubscriptionSharing>,

    /// Sends the forwarded headers also as members of the payload of `connection_init`, under their names in lower
    /// case, because many servers read tokens only there. Only for WebSockets.
    #[schemars(example = false)]
    pub init_payload: bool,

    /// The members of `extensions` of the client's request that the subgraph gets with the operation. Clients with
    /// different values share no operation.
    #[schemars(length(max = 64), example = ["region"])]
    pub extensions: Vec<String>,

    /// The time limit for opening a connection, the TLS handshake included. The default is
    /// `traffic.all.connect_timeout`, or the value for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub connect_timeout: Option<Duration>,

    /// The time limit from the opening of a WebSocket to `connection_ack`. For other protocols, that from a request to
    /// the head of its response.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s")]
    pub ack_timeout: Duration,

    /// The time without a message after which the router sends a ping on a WebSocket. If the subgraph stays silent for
    /// the same time again, the connection counts as lost. `0s` sends none.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"15s", extend("x-minimum" = 1000))]
    pub ping_interval: Duration,

    /// The time without a byte after which an event stream (`sse`, `sse_get`, `multipart`) counts as lost. Choose more
    /// than the interval of the subgraph's heartbeats. `0s`: a silent stream stays open.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"45s", extend("x-minimum" = 1000))]
    pub idle_timeout: Duration,

    /// The maximum size of a message from the subgraph. A larger one ends its operation.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1MiB", extend("x-minimum" = 1024))]
    pub max_message_size: usize,

    /// The maximum number of WebSockets to the subgraph: one for each distinct value of `share_by`, and further ones
    /// when `max_operations` is reached. A subscription that needs one more is refused.
    #[schemars(range(min = 1, max = 100_000), example = 256)]
    pub max_connections: u32,

    /// The maximum number of operations on one WebSocket. For other protocols, that of all operations at the subgraph.
    #[schemars(range(min = 1, max = 1_000_000), example = 1000)]
    pub max_operations: u32,

    /// The time after which a WebSocket without operations is closed.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"1m")]
    pub close_after: Duration,

    /// The reconnection after a connection or a stream is lost. The operations are subscribed to again, and the next
    /// event of each has `extensions.gap`.
    pub retry: SubscriptionRetry,
}

impl Default for SubgraphSubscriptionSettings {
    fn default() -> Self {
        Self {
            protocol: None,
            url: None,
            share_by: None,
            init_payload: true,
            extensions: Vec::new(),
            connect_timeout: None,
            // The server may check a token with a third party.
            ack_timeout: Duration::from_secs(10),
            // Equal to the pings of clients.
            ping_interval: Duration::from_secs(30),
            // Not every server sends heartbeats, and a quiet subscription is healthy.
            idle_timeout: Duration::ZERO,
            // Equal to the default of `traffic.all.max_response_size`.
            max_message_size: 64 << 20,
            max_connections: 64,
            // Far more than a graph has different operations, since equal ones are shared.
            max_operations: 10_000,
            // The time that a page takes to load again.
            close_after: Duration::from_secs(5),
            retry: SubscriptionRetry::default(),
        }
    }
}

/// The protocol of a subgraph's subscriptions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionProtocol {
    /// A WebSocket with the subprotocol that the subgraph chooses: graphql-transport-ws if it has it, or else
    /// graphql-ws.
    #[default]
    Auto,
    /// A WebSocket with the subprotocol graphql-transport-ws, of npm's `graphql-ws`.
    GraphqlTransportWs,
    /// A WebSocket with the older subprotocol graphql-ws, of npm's `subscriptions-transport-ws`.
    GraphqlWs,
    /// Server-sent events in the response to a POST request.
    Sse,
    /// Server-sent events in the response to a GET request.
    SseGet,
    /// A multipart response over HTTP: `multipart/mixed` with `subscriptionSpec=1.0`, or with `deferSpec`.
    Multipart,
    /// Apollo's HTTP callback protocol 1.0. Needs `subscriptions.callback`.
    Callback,
}

impl SubscriptionProtocol {
    /// Every protocol.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::GraphqlTransportWs,
        Self::GraphqlWs,
        Self::Sse,
        Self::SseGet,
        Self::Multipart,
        Self::Callback,
    ];

    /// Returns the name in the configuration and in supergraphs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::GraphqlTransportWs => "graphql_transport_ws",
            Self::GraphqlWs => "graphql_ws",
            Self::Sse => "sse",
            Self::SseGet => "sse_get",
            Self::Multipart => "multipart",
            Self::Callback => "callback",
        }
    }

    /// Returns the protocol of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// True for the protocols over a WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Auto | Self::GraphqlTransportWs | Self::GraphqlWs)
    }

    /// True if the protocol can use a URL: over HTTP there is no `ws` and no `wss`.
    pub fn accepts_url(self, url: &str) -> bool {
        self.is_websocket() || !(url.starts_with("ws:") || url.starts_with("wss:"))
    }
}

/// The headers and claims that decide which clients share an upstream operation and a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionSharing {
    /// The names of headers as the subgraph gets them. A header that is not forwarded does not distinguish clients.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", length(max = 32), example = ["x-tenant"])]
    pub headers: Vec<HeaderName>,

    /// The claims of the client's token: a name, or several with points between them.
    #[schemars(with = "Vec<MemberPathText>", length(max = 8), example = ["org"])]
    pub claims: Vec<String>,
}

impl SubscriptionSharing {
    /// Returns the claims that distinguish clients.
    pub fn claim_paths(&self) -> Vec<ClaimPath> {
        // Each path has been checked, so none is dropped here.
        self.claims.iter().filter_map(|it| ClaimPath::parse(it)).collect()
    }
}

/// The reconnection to a subgraph after a connection or a stream was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionRetry {
    /// The wait before the first attempt. It doubles with each further one, and is shortened at random.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"250ms")]
    pub initial: Duration,

    /// The longest wait.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"30s")]
    pub max: Duration,

    /// The maximum number of attempts in a row. After the last one, each subscription gets an error and ends, and the
    /// connections of clients stay open. `0`: no reconnection.
    #[schemars(range(min = 0, max = 1_000_000), example = 20)]
    pub attempts: u32,
}

impl Default for SubscriptionRetry {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(5),
            // Half a minute with the waits above: a restart of the subgraph.
            attempts: 10,
        }
    }
}

/// The transport of queries and mutations to a subgraph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryTransport {
    /// A request over HTTP for each.
    #[default]
    Http,
    /// The WebSocket of the subscriptions, which is opened if there is none.
    Websocket,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_protocol_is_the_word_in_the_configuration() {
        for protocol in SubscriptionProtocol::ALL {
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.name());
            assert_eq!(SubscriptionProtocol::from_name(protocol.name()), Some(protocol));
        }
        assert_eq!(SubscriptionProtocol::from_name("sse_post"), None);
    }

    #[test]
    fn only_websockets_have_the_schemes_of_websockets() {
        for (url, is_for_streams) in [
            ("ws://r/", false),
            ("wss://r/", false),
            ("http://r/", true),
            ("https://r/", true),
            ("unix:///r.sock", true),
        ] {
            for protocol in SubscriptionProtocol::ALL {
                let is_accepted = protocol.is_websocket() || is_for_streams;
                assert_eq!(protocol.accepts_url(url), is_accepted, "{protocol:?} {url}");
            }
        }
    }
}
