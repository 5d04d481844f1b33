//! Connections that stay, and the subscriptions on them.

use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationOrZeroText, DurationText, HeaderNameText, SizeText};
use super::headers::header_names;
use super::{duration, size};

/// WebSocket connections of clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocket {
    /// How long a client may take from connecting to `connection_init`. After that the connection
    /// is closed with code 4408.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub init_timeout: Duration,

    /// How long a connection may be quiet before its client is asked by a ping whether it still lives. If
    /// it stays quiet for as long again, it is given up.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"15s", extend("x-minimum" = 1000))]
    pub ping_interval: Duration,

    /// How large a message of a client may be. A larger one closes the connection with code 1009.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"256KiB", extend("x-minimum" = 1024))]
    pub max_message_size: usize,

    /// How large a message of a client may be before its `connection_init` is acknowledged, also after it is expanded.
    /// A larger one closes the connection with code 1009, and messages of four times this size together with code
    /// 1008. Make room here for the largest token that clients send in the payload of `connection_init`.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"32KiB", extend("x-minimum" = 1024))]
    pub max_init_message_size: usize,

    /// How many operations may be open at a time on one connection.
    #[schemars(range(min = 1, max = 1_000_000), example = 50)]
    pub max_subscriptions_per_connection: u32,

    /// Headers that a client may give in the payload of `connection_init`, since browsers cannot set any for a
    /// WebSocket: as members of the payload, or of an object `headers` in it. They take the place of those of the
    /// handshake for all operations of the connection, and rules (`headers`) see them so. Name nothing here that a
    /// proxy before the router checks or sets. Where tokens are verified, the header of tokens
    /// (`authentication.jwt.header`) is an exception: it gets the token of the payload once that is verified, and never
    /// another text.
    #[serde(with = "header_names")]
    #[schemars(with = "Vec<HeaderNameText>", example = ["authorization", "apollographql-client-name"])]
    pub init_payload_headers: Vec<HeaderName>,

    /// Compressed messages, for clients that offer it (`permessage-deflate`, RFC 7692).
    pub compression: MessageCompression,
}

impl Default for WebSocket {
    fn default() -> Self {
        Self {
            init_timeout: Duration::from_secs(3),
            ping_interval: Duration::from_secs(30),
            // As `limits.body`: what fits over HTTP fits here.
            max_message_size: 2 << 20,
            // The payload takes the place of headers, which are usually limited to this size.
            max_init_message_size: 16 << 10,
            max_subscriptions_per_connection: 1000,
            init_payload_headers: Vec::new(),
            compression: MessageCompression::default(),
        }
    }
}

/// Compressed messages on WebSockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageCompression {
    /// Agree on compression with clients that offer it. Each message is compressed for itself
    /// (`no_context_takeover` both ways), so an event is compressed once for all who get it, and an
    /// idle connection keeps no window.
    #[schemars(example = false)]
    pub enabled: bool,

    /// Smaller messages go as they are. What fits one packet of a network arrives no sooner for being
    /// smaller.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"4KiB")]
    pub min_size: usize,
}

impl Default for MessageCompression {
    fn default() -> Self {
        Self {
            enabled: true,
            // As for answers over HTTP.
            min_size: 1400,
        }
    }
}

/// Subscriptions of clients, over every transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Subscriptions {
    /// How many bytes of events may wait for one connection whose client reads too slowly.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"256KiB", extend("x-minimum" = 1024))]
    pub queue_bytes: usize,

    /// How many bytes of events may wait for all slow connections together. An event that many wait for
    /// counts for each of them. When there is no more room, `policy` decides about the connection that has the
    /// most waiting.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"1GiB", extend("x-minimum" = 1024))]
    pub queue_bytes_total: usize,

    /// How many bytes of texts and variables the live subscriptions of one connection may keep. They are kept as long
    /// as the subscription lives, without white space, comments and variables that are not declared. A subscription for
    /// which there is no room is refused with the code `OVERLOADED`.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"1MiB", extend("x-minimum" = 1024))]
    pub max_operation_bytes: usize,

    /// How many bytes the system queues for one connection before the router does. What waits there is
    /// beyond the reach of `policy`; less makes it act sooner and costs throughput on long ways. Linux takes
    /// twice as much, for its bookkeeping.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16KiB", extend("x-minimum" = 4096))]
    pub kernel_queue_bytes: usize,

    /// How many events may wait for one subscription whose client reads too slowly.
    #[schemars(range(min = 1, max = 1_000_000), example = 64)]
    pub queue_events: u32,

    /// How many events may wait for one group of equal subscribers while earlier ones are resolved. With one more, the
    /// group leaves the live events if the broker stores them (JetStream, Kafka, Redis Streams), and reads the
    /// following ones from the broker at its own pace; nothing is lost. A group of a source that stores nothing drops
    /// the oldest event, and `extensions.lost` says how many it has dropped. With `policy: latest` one event waits, and
    /// older ones are always dropped.
    #[schemars(range(min = 1, max = 1_000_000), example = 256)]
    pub group_queue_events: u32,

    /// What happens when a queue is full.
    #[schemars(example = &"latest")]
    pub policy: OverflowPolicy,

    /// How many connections of clients may be open at a time, whatever they are used for; more are
    /// answered 503 and closed. 0 takes seven eighths of the number of files that the process may open (`ulimit -n`):
    /// the rest is kept for health checks, metrics, subgraphs and brokers.
    #[schemars(range(min = 0, max = 100_000_000), example = 50_000)]
    pub max_connections: u32,

    /// How many connections one client address may have at a time; more are answered 429 and closed. The
    /// 2^64 addresses of an IPv6 network with the same first 64 bits count as one. Behind a proxy all
    /// clients have its address. 0 sets no bound.
    #[schemars(range(min = 0, max = 100_000_000), example = 1000)]
    pub max_connections_per_ip: u32,

    /// How many topics of brokers the live subscriptions of one connection may listen to. A subscription that needs
    /// more is refused with the code `OVERLOADED`.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub max_topics_per_connection: u32,

    /// In how many different ways one client may subscribe to one source: with other fields, aliases, variables or
    /// forwarded headers. An event is resolved once for each. Subscriptions with a filter, which get only some of the
    /// events, may be ten times as many. Equal subscriptions count once. A client is the subject of a token, or else a
    /// connection with all of its streams of HTTP/2. One more is refused with the code `OVERLOADED`.
    #[schemars(range(min = 1, max = 1_000_000), example = 20)]
    pub max_groups_per_client: u32,

    /// How many event streams one client may reserve (`PUT`) without opening them; more are answered 503. A client is
    /// an address, or the subject of a token. Reservations end after 30 seconds. All clients together may have 10,000;
    /// for one more, the client that has the most loses its oldest.
    #[schemars(range(min = 1, max = 10_000), example = 100)]
    pub max_reserved_streams_per_client: u32,

    /// How often a quiet stream carries a sign of life, so that proxies keep it open: a comment in
    /// server-sent events, `ka` on WebSockets with the subprotocol graphql-ws (whose npm client gives
    /// up after 30 seconds without).
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"5s", extend("x-minimum" = 1000))]
    pub heartbeat: Duration,

    /// How long requests and connections may take to end when the router shuts down. Subscribers are
    /// asked to reconnect elsewhere, a thousand in a second, or more if half of this time would not do;
    /// what is left after this time is cut off. `0s` cuts
    /// everything off at once.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationOrZeroText", example = &"5s")]
    pub drain_period: Duration,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            queue_bytes: 1 << 20,
            // A few hundred clients that read nothing at all, or a moment in which none of a hundred thousand does.
            queue_bytes_total: 256 << 20,
            // A thousand subscriptions of four kilobytes.
            max_operation_bytes: 4 << 20,
            kernel_queue_bytes: 64 << 10,
            queue_events: 256,
            group_queue_events: 64,
            policy: OverflowPolicy::Disconnect,
            max_connections: 0,
            max_connections_per_ip: 0,
            // Twice as many as a connection may have subscriptions.
            max_topics_per_connection: 2000,
            // A page asks for some fields of an event in some places.
            max_groups_per_client: 100,
            // All anonymous clients behind a proxy have one address.
            max_reserved_streams_per_client: 1000,
            // Proxies commonly cut what is silent for 15 to 60 seconds.
            heartbeat: Duration::from_secs(12),
            drain_period: Duration::from_secs(30),
        }
    }
}

/// What happens to a subscription whose queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverflowPolicy {
    /// The connection ends, a WebSocket with code 4410, a stream with an error; the client may subscribe
    /// again.
    Disconnect,
    /// The oldest waiting event is dropped; the client is told how many it lost.
    DropOldest,
    /// Only the newest event of each subscription waits, always; the client is told how many it lost.
    Latest,
}
