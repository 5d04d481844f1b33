//! Settings of HTTP on the public listeners.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, SizeText};
use super::quantity;

/// HTTP on the public listeners: limits on connections, timeouts, compression, batches, HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The maximum number of client connections that may be open at the same time, for any purpose. Further ones get
    /// status 503 and are closed. 0 takes seven eighths of the number of files that the process may open (`ulimit -n`):
    /// the rest is kept for health checks, metrics, subgraphs and brokers.
    #[schemars(range(min = 0, max = 100_000_000), example = 50_000)]
    pub max_connections: u32,

    /// The maximum number of connections of one client address at the same time. Further ones get status 429 and are
    /// closed. The 2^64 addresses of an IPv6 network with the same first 64 bits count as one. Behind a proxy, all
    /// clients have the proxy's address. 0 sets no bound.
    #[schemars(range(min = 0, max = 100_000_000), example = 1000)]
    pub max_connections_per_ip: u32,

    /// The time limit for the head of a request. It is also the time after which an idle connection is closed.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = "20s")]
    pub header_timeout: Duration,

    /// The time limit for the body of a request. A later body gets status 408.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = "10s")]
    pub body_timeout: Duration,

    /// The time limit for a client that reads nothing of the data sent to it. After that the connection, or the one
    /// stream of HTTP/2, is closed.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = "30s")]
    pub stall_timeout: Duration,

    /// The maximum number of response bytes that one connection may leave unread. Beyond it, further requests of the
    /// connection wait.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1MiB", extend("x-minimum" = 1024))]
    pub response_queue_bytes: usize,

    /// The maximum number of response bytes that all connections together may leave unread. Beyond it, the router
    /// closes connections that have read nothing for a second: first the largest one of the client with the most unread
    /// bytes. Beyond twice this number, it closes connections whether they read or not.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"256MiB", extend("x-minimum" = 1024))]
    pub response_queue_bytes_total: usize,

    /// The maximum number of headers of a request. More get status 431.
    #[schemars(range(min = 16, max = 1000), example = 64)]
    pub max_headers: u16,

    /// The maximum size of a request's head, target and headers together. A larger one gets status 431.
    // The HTTP library reads through a buffer of this size and needs at least 8 KiB.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16KiB")]
    #[schemars(extend("x-minimum" = 8192))]
    pub max_header_size: usize,

    /// HTTP/2, by ALPN on listeners with TLS, and by prior knowledge (h2c) on those without.
    pub http2: Http2,

    /// Compression of responses. Bodies of requests may be compressed in any case (`content-encoding`); `limits.body`
    /// bounds them before and after they are expanded.
    pub compression: Compression,

    /// Several operations in one request, as a JSON array.
    pub batching: Batching,

    /// The load of the router in a header of its responses, for load balancers that weigh routers by it (ORCA; Envoy's
    /// `client_side_weighted_round_robin`).
    pub load_report: LoadReport,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            max_connections: 0,
            max_connections_per_ip: 0,
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            // A few large responses, or many of the usual size.
            response_queue_bytes: 4 << 20,
            response_queue_bytes_total: 64 << 20,
            // Common servers read a hundred headers, and rules may pass all of them on to subgraphs, in addition to
            // those of the router.
            max_headers: 90,
            max_header_size: 64 << 10,
            http2: Http2::default(),
            compression: Compression::default(),
            batching: Batching::default(),
            load_report: LoadReport::default(),
        }
    }
}

/// The load of the router in a header of its responses (`endpoint-load-metrics`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadReport {
    /// The responses that have the header. It tells clients how busy the router is: let the load balancer remove it.
    #[schemars(example = &"always")]
    pub send: LoadReportMode,

    /// The format, where a request does not name one in its header `endpoint-load-metrics-format` (`TEXT` or `JSON`).
    #[schemars(example = &"json")]
    pub format: LoadReportFormat,
}

/// The responses that have a load report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadReportMode {
    /// None.
    #[default]
    Never,
    /// Those to requests with the header `endpoint-load-metrics-format`.
    OnRequest,
    /// All.
    Always,
}

/// The format of a load report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadReportFormat {
    /// Names and values: `TEXT cpu_utilization=0.250,rps_fractional=100.000`.
    #[default]
    Text,
    /// A JSON object: `JSON {"cpu_utilization":0.250,"rps_fractional":100.000}`.
    Json,
}

/// HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http2 {
    /// Supports HTTP/2 for clients that request it.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The maximum number of requests and event streams that may be open on one connection at the same time.
    #[schemars(range(min = 1, max = 10_000), example = 1000)]
    pub max_concurrent_streams: u32,

    /// The interval of pings on a connection. The client must respond within the same time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = "10s")]
    pub ping_interval: Duration,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            enabled: true,
            // Fewer streams than RFC 9113, section 6.5.2, recommends would only make clients open more connections.
            max_concurrent_streams: 100,
            ping_interval: Duration::from_secs(30),
        }
    }
}

/// Compression of responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// Compresses responses for clients that accept it (`accept-encoding`: zstd, br, gzip or deflate; zstd needs a
    /// build with the feature `zstd`). Event streams are never compressed.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The minimum size of a compressed response. Smaller responses are sent uncompressed: a response that fits one
    /// network packet does not arrive sooner if it is smaller.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"4KiB")]
    pub min_size: usize,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            enabled: true,
            // One segment of TCP on an Ethernet has 1,460 bytes, and the head of a response needs some of them.
            min_size: 1400,
        }
    }
}

/// Several operations in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// Accepts a JSON array of operations and responds with a JSON array of results. Queries run concurrently; if one
    /// operation is a mutation, all run in order.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The maximum number of operations in a batch.
    #[schemars(range(min = 1, max = 1000), example = 50)]
    pub max_operations: u16,
}

impl Default for Batching {
    fn default() -> Self {
        // Off by default: one request of a few bytes each would be many operations, and rate limits in front of the
        // router would not see that.
        Self { enabled: false, max_operations: 10 }
    }
}
