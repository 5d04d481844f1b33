//! How the public listeners speak HTTP.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, SizeText};
use super::{duration, size};

/// HTTP on the public listeners: timeouts, compression, batches, HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// How long a client may take to send the head of a request; also how long a connection is kept
    /// on which nothing happens.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = "20s")]
    pub header_timeout: Duration,

    /// How long a client may take to send the body of a request. Later ones are answered with status 408.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = "10s")]
    pub body_timeout: Duration,

    /// How long a client may take nothing at all of what is sent to it. Then the connection, or the
    /// one stream of HTTP/2, is ended.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = "30s")]
    pub stall_timeout: Duration,

    /// How many bytes of responses one connection may leave unread. Above that its further requests wait.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"1MiB", extend("x-minimum" = 1024))]
    pub response_queue_bytes: usize,

    /// How many bytes of responses all connections together may leave unread. Above that connections are closed that
    /// have read nothing for a second, the largest one of the client with the most unread bytes first; above twice as
    /// much, connections are closed whether they read or not.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"256MiB", extend("x-minimum" = 1024))]
    pub response_queue_bytes_total: usize,

    /// How many headers a request may have. More are answered with status 431.
    #[schemars(range(min = 16, max = 1000), example = 64)]
    pub max_headers: u16,

    /// How large the head of a request may be, target and headers together. Larger ones are answered
    /// with status 431.
    // The HTTP library reads through a buffer of this size and wants 8 KiB at least.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16KiB")]
    #[schemars(extend("x-minimum" = 8192))]
    pub max_header_size: usize,

    /// HTTP/2, by ALPN on listeners with TLS, and by prior knowledge (h2c) on those without.
    pub http2: Http2,

    /// Compressed answers. Bodies of requests may be compressed in any case (`content-encoding`);
    /// `limits.body` bounds them before and after.
    pub compression: Compression,

    /// Several operations in one request, as a JSON array.
    pub batching: Batching,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            // A few large responses, or many of the usual size.
            response_queue_bytes: 4 << 20,
            response_queue_bytes_total: 64 << 20,
            // Common servers read a hundred, and rules may pass all of them on to subgraphs, beside those of the router.
            max_headers: 90,
            max_header_size: 64 << 10,
            http2: Http2::default(),
            compression: Compression::default(),
            batching: Batching::default(),
        }
    }
}

/// HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Speak HTTP/2 with clients that want to.
    #[schemars(example = false)]
    pub enabled: bool,

    /// How many requests and event streams may be open on one connection at the same time.
    #[schemars(range(min = 1, max = 10_000), example = 1000)]
    pub max_concurrent_streams: u32,

    /// How often a connection is asked whether its client is still there. It has as long to answer.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = "10s")]
    pub ping_interval: Duration,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            enabled: true,
            // Less than RFC 9113, section 6.5.2, recommends would only make clients open more connections.
            max_concurrent_streams: 100,
            ping_interval: Duration::from_secs(30),
        }
    }
}

/// Compressed answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// Compress answers for clients that take it (`accept-encoding`: zstd, br, gzip or deflate).
    /// Event streams never are.
    #[schemars(example = false)]
    pub enabled: bool,

    /// Smaller answers go as they are. What fits one packet of a network arrives no sooner for being smaller.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"4KiB")]
    pub min_size: usize,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            enabled: true,
            // One segment of TCP on an Ethernet has 1,460 bytes, and the head of an answer needs some.
            min_size: 1400,
        }
    }
}

/// Several operations in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// Answer a JSON array of operations with a JSON array of answers. Queries run at the same time;
    /// where one is a mutation, all run in their order.
    #[schemars(example = true)]
    pub enabled: bool,

    /// How many operations a batch may have.
    #[schemars(range(min = 1, max = 1000), example = 50)]
    pub max_operations: u16,
}

impl Default for Batching {
    fn default() -> Self {
        // Off: one request of a few bytes each would be many operations, and what counts requests on the way
        // would not see it.
        Self { enabled: false, max_operations: 10 }
    }
}
