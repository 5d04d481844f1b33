//! Settings of the traffic to one subgraph.

use std::time::Duration;

use crate::{AwsSigner, RequestSigner, TimeoutHeader};

/// The HTTP version of a subgraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Over TLS the version that both sides prefer, agreed by ALPN; else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge (RFC 9113, section 3.3).
    Http2,
}

/// Limits of the traffic to one subgraph. They hold for the whole process, not per worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamSettings {
    /// Time from sending a request to the end of its response, with connecting, waiting and
    /// retries.
    pub timeout: Duration,
    /// Time for opening one connection, with the TLS handshake.
    pub connect_timeout: Duration,
    /// Maximum size of the body of a response, before and after it is expanded.
    pub max_response_size: u64,
    /// Maximum number of open connections, with idle ones. Requests that need more wait in a queue.
    pub max_connections: usize,
    /// Requests that may wait for a connection; more are refused at once.
    pub max_waiting: usize,
    /// Time for which a connection without requests is kept.
    pub idle_timeout: Duration,
    /// The time for which the first HTTP/1.1 connection is watched for unsolicited bytes before any is used a second
    /// time. Zero switches that off.
    pub probation: Duration,
    /// The HTTP version.
    pub protocol: Protocol,
    /// True if compressed responses are requested. Compressed responses are read in any case.
    pub compression: bool,
    /// Conditions under which requests are sent again.
    pub retry: RetrySettings,
    /// Conditions under which a late request is sent a second time; never, if there are none.
    pub hedge: Option<HedgeSettings>,
    /// Conditions under which a failing subgraph receives no requests; never, if there are none.
    pub breaker: Option<BreakerSettings>,
    /// The header in which requests contain the time that is left for them; none, if there is no such header.
    pub deadline_header: Option<TimeoutHeader>,
    /// Signs each request, if the subgraph is to verify them.
    pub signer: Option<RequestSigner>,
    /// Signs each request for AWS, if the subgraph is behind it.
    pub aws: Option<AwsSigner>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            max_response_size: 64 * 1024 * 1024,
            // One server process holds this many easily; it is far below descriptor limits of
            // 20,000.
            max_connections: 1024,
            // With 1,024 responses of 10 ms at once, 4,096 requests wait some 40 ms; longer queues
            // are overload.
            max_waiting: 4096,
            // Below the 60 s after which many servers and load balancers close connections.
            idle_timeout: Duration::from_secs(45),
            // A server that sends one response too many does so with the response or shortly after.
            // Requests that come meanwhile open connections of their own, as requests that come at
            // the same time do anyway.
            probation: Duration::from_millis(20),
            protocol: Protocol::Auto,
            // Within one network the bytes are cheaper than the work of both sides.
            compression: false,
            retry: RetrySettings::default(),
            hedge: None,
            breaker: Some(BreakerSettings::default()),
            deadline_header: None,
            signer: None,
            aws: None,
        }
    }
}

impl UpstreamSettings {
    /// True if requests have a signature of the whole body, which must be complete before the first byte is sent.
    pub(crate) fn signs_bodies(&self) -> bool {
        self.signer.is_some() || self.aws.is_some()
    }
}

/// Conditions under which a failed request is sent again. Applies to queries, and to mutations of
/// which no byte was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrySettings {
    /// Maximum number of times that one request is sent again.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each further one.
    pub initial: Duration,
    /// The longest pause.
    pub max: Duration,
    /// Retries that requests earn, in percent of their number.
    pub budget_percent: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            // A restart or a failover is over after the second retry; more only multiply an outage.
            retries: 2,
            initial: Duration::from_millis(25),
            max: Duration::from_millis(500),
            // A subgraph in an outage receives at most a fifth more requests.
            budget_percent: 20,
        }
    }
}

/// Conditions under which a query with a late response is sent a second time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HedgeSettings {
    /// The time without a response after which the second request is sent.
    pub after: HedgeDelay,
    /// Second requests in percent of the number of requests.
    pub budget_percent: u32,
}

/// The time without a response after which a request is sent a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HedgeDelay {
    /// This time.
    Fixed(Duration),
    /// The time in which this percentage of the recent requests to the subgraph had their response.
    Percentile(u8),
}

/// Conditions under which a failing subgraph receives no requests for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BreakerSettings {
    /// Percentage of the requests of the last ten seconds that must have failed.
    pub failure_percent: u32,
    /// Minimum number of requests in ten seconds for a conclusion.
    pub min_requests: u32,
    /// Time for which the subgraph receives no requests before it is tried again.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failure_percent: 50, min_requests: 20, open_for: Duration::from_secs(5) }
    }
}
