//! Settings of WebSockets and of subscriptions.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    AddressText, CallbackUrlText, DurationOrZeroText, DurationText, HeaderNameText, PathText,
    SizeText,
};
use super::headers::header_names;
use super::listen::optional_address;
use super::quantity;

/// WebSocket connections of clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocket {
    /// The time limit from connecting to `connection_init`. After that the connection is closed with code 4408.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub init_timeout: Duration,

    /// The time without a message after which the router sends a ping. If the client stays silent for the same time
    /// again, the connection is closed.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"15s", extend("x-minimum" = 1000))]
    pub ping_interval: Duration,

    /// The maximum size of a client's message. A larger one closes the connection with code 1009.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"256KiB", extend("x-minimum" = 1024))]
    pub max_message_size: usize,

    /// The maximum size of a client's message before its `connection_init` is acknowledged, also after it is expanded.
    /// A larger one closes the connection with code 1009, and messages of four times this size together with code 1008.
    /// The value must fit the largest token that clients send in the payload of `connection_init`.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"32KiB", extend("x-minimum" = 1024))]
    pub max_init_message_size: usize,

    /// The maximum number of operations that may be open at the same time on one connection.
    #[schemars(range(min = 1, max = 1_000_000), example = 50)]
    pub max_subscriptions_per_connection: u32,

    /// The headers that a client may send in the payload of `connection_init`, because browsers cannot set headers for
    /// a WebSocket: as members of the payload, or of an object `headers` in it. They replace those of the handshake for
    /// all operations of the connection, and rules (`headers`) apply to them. Do not list headers that a proxy in front
    /// of the router checks or sets. If tokens are verified, the header of tokens (`authentication.jwt.header`) is an
    /// exception: it gets the token of the payload once that is verified, and never another text.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", example = ["authorization", "apollographql-client-name"])]
    pub init_payload_headers: Vec<HeaderName>,

    /// Compression of messages for clients that offer it (`permessage-deflate`, RFC 7692).
    pub compression: MessageCompression,
}

impl Default for WebSocket {
    fn default() -> Self {
        Self {
            init_timeout: Duration::from_secs(3),
            ping_interval: Duration::from_secs(30),
            // Equal to `limits.body`, so that every operation that fits over HTTP fits here.
            max_message_size: 2 << 20,
            // The payload replaces headers, which are usually limited to this size.
            max_init_message_size: 16 << 10,
            max_subscriptions_per_connection: 1000,
            init_payload_headers: Vec::new(),
            compression: MessageCompression::default(),
        }
    }
}

/// Compression of messages on WebSockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageCompression {
    /// Negotiates compression with clients that offer it. Each message is compressed independently
    /// (`no_context_takeover` in both directions), so an event is compressed once for all its subscribers, and an idle
    /// connection keeps no window.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The minimum size of a compressed message. Smaller messages are sent uncompressed: a message that fits one
    /// network packet does not arrive sooner if it is smaller.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"4KiB")]
    pub min_size: usize,
}

impl Default for MessageCompression {
    fn default() -> Self {
        Self {
            enabled: true,
            // Equal to the default for responses over HTTP.
            min_size: 1400,
        }
    }
}

/// Subscriptions of clients, over every transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Subscriptions {
    /// The maximum number of event bytes that may wait for one connection with a slow client.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"256KiB", extend("x-minimum" = 1024))]
    pub queue_bytes: usize,

    /// The maximum number of event bytes that may wait for all slow connections together. An event that waits for
    /// several connections counts for each of them. If there is no more room, `policy` applies to the connection with
    /// the most waiting bytes.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1GiB", extend("x-minimum" = 1024))]
    pub queue_bytes_total: usize,

    /// The maximum number of bytes of texts and variables that the live subscriptions of one connection may keep. They
    /// are kept as long as the subscription lives, without white space, comments and undeclared variables. A
    /// subscription that does not fit is refused with the code `OVERLOADED`.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1MiB", extend("x-minimum" = 1024))]
    pub max_operation_bytes: usize,

    /// The number of bytes that the system queues for one connection before the router does. `policy` does not apply to
    /// these bytes; a smaller number makes it apply sooner and costs throughput on connections with a long round trip.
    /// Linux takes twice as much, for its bookkeeping.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16KiB", extend("x-minimum" = 4096))]
    pub kernel_queue_bytes: usize,

    /// The maximum number of events that may wait for one subscription with a slow client.
    #[schemars(range(min = 1, max = 1_000_000), example = 64)]
    pub queue_events: u32,

    /// The maximum number of events that may wait for one group of equal subscribers while earlier ones are resolved.
    /// With one more, the group leaves the live events if the broker stores them (JetStream, Kafka, Redis Streams), and
    /// reads the following ones from the broker at its own pace; no event is lost. A group of a source that stores
    /// nothing drops the oldest event, and `extensions.lost` contains the number of dropped events. With `policy:
    /// latest` one event waits, and older ones are always dropped.
    #[schemars(range(min = 1, max = 1_000_000), example = 256)]
    pub group_queue_events: u32,

    /// The action when a queue is full.
    #[schemars(example = &"latest")]
    pub policy: OverflowPolicy,

    /// The maximum number of broker topics that the live subscriptions of one connection may listen to. A subscription
    /// that needs more is refused with the code `OVERLOADED`.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub max_topics_per_connection: u32,

    /// The maximum number of different ways in which one client may subscribe to one source: with other fields,
    /// aliases, variables or forwarded headers. An event is resolved once for each. For subscriptions with a filter,
    /// which get only some of the events, the maximum is ten times as high. Equal subscriptions count once. A client is
    /// the subject of a token, or else a connection with all of its HTTP/2 streams. Further ones are refused with the
    /// code `OVERLOADED`.
    #[schemars(range(min = 1, max = 1_000_000), example = 20)]
    pub max_groups_per_client: u32,

    /// The maximum number of event streams that one client may reserve (`PUT`) without opening them. Further ones get
    /// status 503. A client is an address, or the subject of a token. Reservations end after 30 seconds. All clients
    /// together may have 10,000; for one more, the client with the most reservations loses its oldest.
    #[schemars(range(min = 1, max = 10_000), example = 100)]
    pub max_reserved_streams_per_client: u32,

    /// The interval of heartbeats on a quiet stream, which make proxies keep it open: a comment in server-sent events,
    /// `ka` on WebSockets with the subprotocol graphql-ws (whose npm client closes the connection after 30 seconds
    /// without one).
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5s", extend("x-minimum" = 1000))]
    pub heartbeat: Duration,

    /// The time that requests and connections have to end when the router shuts down. The router asks subscribers to
    /// reconnect elsewhere, a thousand per second, or more if that would take longer than half of this time. After this
    /// time it closes the remaining connections. `0s` closes everything at once.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"5s")]
    pub drain_period: Duration,

    /// The endpoint for subgraphs that send events by requests to the router (`subgraphs.<name>.subscription.protocol:
    /// callback`, Apollo's HTTP callback protocol 1.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-needs-keys" = true))]
    pub callback: Option<SubscriptionCallback>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            queue_bytes: 1 << 20,
            // A few hundred clients that read nothing at all, or a moment in which none of a hundred thousand clients
            // reads.
            queue_bytes_total: 256 << 20,
            // A thousand subscriptions of four kilobytes.
            max_operation_bytes: 4 << 20,
            kernel_queue_bytes: 64 << 10,
            queue_events: 256,
            group_queue_events: 64,
            policy: OverflowPolicy::Disconnect,
            // Twice the number of subscriptions that a connection may have.
            max_topics_per_connection: 2000,
            // A page subscribes to different fields of an event in a few places.
            max_groups_per_client: 100,
            // All anonymous clients behind a proxy have one address.
            max_reserved_streams_per_client: 1000,
            // Proxies commonly close connections that are silent for 15 to 60 seconds.
            heartbeat: Duration::from_secs(12),
            drain_period: Duration::from_secs(30),
            callback: None,
        }
    }
}

/// The action for a subscription with a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverflowPolicy {
    /// Closes the connection, a WebSocket with code 4410, a stream with an error. The client may subscribe again.
    Disconnect,
    /// Drops the oldest waiting event. The client gets the number of lost events.
    DropOldest,
    /// Keeps only the newest event of each subscription in the queue, always. The client gets the number of lost
    /// events.
    Latest,
}

/// The endpoint to which subgraphs send events by requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionCallback {
    /// The URL under which subgraphs reach the endpoint. The router appends `/` and the id of the subscription. Each
    /// router needs a URL of its own: an event that reaches another router is lost.
    #[schemars(with = "CallbackUrlText", example = &"http://router.internal:4000/callback")]
    pub public_url: String,

    /// The address of a listener for these requests alone. By default the main listener serves them at `path`, where
    /// clients can reach them too; requests without the secret of a subscription are refused there.
    #[serde(default, with = "optional_address", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AddressText>", example = &"127.0.0.1:4100")]
    #[schemars(extend("default" = null))]
    pub listen: Option<SocketAddr>,

    /// The path of the endpoint on its listener. It is equal to the path of `public_url`, unless a proxy between them
    /// changes it.
    #[serde(default = "callback_path_default")]
    #[schemars(with = "PathText", example = &"/callback")]
    pub path: String,

    /// The interval at which subgraphs send a sign of life for each subscription. After several without one the
    /// subscription counts as lost. `0s` requests none.
    #[serde(default = "heartbeat_interval_default", with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"10s", extend("x-minimum" = 1000))]
    pub heartbeat_interval: Duration,
}

fn callback_path_default() -> String {
    "/callback".into()
}

/// Five seconds, as in the example of the specification. Some servers ignore the value and use this one.
fn heartbeat_interval_default() -> Duration {
    Duration::from_secs(5)
}
