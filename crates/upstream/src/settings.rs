//! What the configuration says of one subgraph's traffic.

use std::time::Duration;

/// Which HTTP a subgraph is spoken to in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Over TLS what both sides prefer, agreed by ALPN; else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge (RFC 9113, section 3.3).
    Http2,
}

/// Limits of the traffic to one subgraph. They hold for the whole process, not per core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamSettings {
    /// From sending a request to the end of its answer, connecting, waiting and retries included.
    pub timeout: Duration,
    /// For opening one connection, the TLS handshake included.
    pub connect_timeout: Duration,
    /// Bytes of one answer's body, before and after it is expanded.
    pub max_response_size: u64,
    /// Open connections, idle ones included. What needs more waits in a queue.
    pub max_connections: usize,
    /// Requests that may wait for a connection; more are refused at once.
    pub max_waiting: usize,
    /// How long a connection without requests is kept.
    pub idle_timeout: Duration,
    /// The time for which the first HTTP/1.1 connection is watched for unsolicited bytes before any is used a second
    /// time. Zero switches that off.
    pub probation: Duration,
    /// Which HTTP.
    pub protocol: Protocol,
    /// Ask for compressed answers? Answers that come compressed are read in any case.
    pub compression: bool,
    /// When requests are sent again.
    pub retry: RetrySettings,
    /// When a failing subgraph is left alone; never, if there are none.
    pub breaker: Option<BreakerSettings>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            max_response_size: 64 * 1024 * 1024,
            // What one server process comfortably holds; far below descriptor limits of 20,000.
            max_connections: 1024,
            // At 1,024 answers of 10 ms at once, 4,096 wait some 40 ms: past that it is overload.
            max_waiting: 4096,
            // Below the 60 s after which many servers and load balancers hang up.
            idle_timeout: Duration::from_secs(45),
            // A server that sends one response too many does so with the response or shortly after. Requests that come
            // meanwhile open connections of their own, as those that come at the same time do anyway.
            probation: Duration::from_millis(20),
            protocol: Protocol::Auto,
            // Within one network the bytes are cheaper than the work of both sides.
            compression: false,
            retry: RetrySettings::default(),
            breaker: Some(BreakerSettings::default()),
        }
    }
}

/// When a request that failed is sent again. Queries only, and mutations of which no byte was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrySettings {
    /// How often one request is sent again at most.
    pub retries: u32,
    /// The wait before the first retry; it doubles with each further one.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// Retries that requests earn, in percent of their number.
    pub budget_percent: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            // A restart or a failover is over after the second; more only multiply an outage.
            retries: 2,
            initial: Duration::from_millis(25),
            max: Duration::from_millis(500),
            // An outage of a subgraph sees at most a fifth more requests.
            budget_percent: 20,
        }
    }
}

/// When a subgraph that fails is left alone for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BreakerSettings {
    /// Of the requests of the last ten seconds, how many must have failed.
    pub failure_percent: u32,
    /// With fewer requests than this in ten seconds nothing is concluded.
    pub min_requests: u32,
    /// How long it is left alone before it is tried again.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failure_percent: 50, min_requests: 20, open_for: Duration::from_secs(5) }
    }
}
