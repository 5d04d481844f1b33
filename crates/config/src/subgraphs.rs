//! Settings of subgraphs and of the requests to them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aws_sigv4::AwsSigv4;
use super::client_tls::ClientTls;
use super::format::{DurationText, SizeText, SubgraphUrlText};
use super::hedge::{HedgeOverride, HedgePolicy};
use super::quantity;
use super::signature::Signature;
use super::subgraph_subscription::{QueryTransport, SubgraphSubscriptionSettings};
use super::timeout_header::TimeoutHeader;

/// Settings of one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphSettings {
    /// The URL of the subgraph. It replaces the URL in the supergraph. A Unix domain socket is written
    /// `unix:///run/reviews.sock?path=/graphql`.
    #[schemars(with = "Option<SubgraphUrlText>", example = &"http://reviews.internal:4001/graphql")]
    pub url: Option<String>,

    /// Certificates for a subgraph whose URL is `https`. The files are watched: connections that are opened after a
    /// change use the new ones.
    pub tls: ClientTls,

    /// Subscriptions that the subgraph serves itself (`docs/subgraph-subscriptions.md`). A graph that has them works
    /// without any of these keys.
    pub subscription: SubgraphSubscriptionSettings,

    /// The transport of queries and mutations. `websocket` uses the connections of the subscriptions.
    #[schemars(example = &"websocket")]
    pub queries_over: QueryTransport,

    /// Signatures by which the subgraph knows that the router asked. Queries and mutations over HTTP have them;
    /// subscriptions and requests for the schema do not.
    pub signature: Signature,

    /// Signatures of AWS (Signature Version 4), for a subgraph behind AWS. They are computed last, over all headers and
    /// the body, and replace the header `authorization`. Queries and mutations over HTTP have them; subscriptions and
    /// requests for the schema do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sigv4: Option<AwsSigv4>,
}

/// Timeouts and bounds of requests to subgraphs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// The settings for every subgraph.
    pub all: TrafficSettings,

    /// Other settings for single subgraphs, by the name they have in the supergraph. Keys that are left out keep the
    /// value of `traffic.all`.
    pub subgraphs: BTreeMap<String, TrafficOverride>,
}

impl Traffic {
    /// Returns the settings of one subgraph.
    pub fn of(&self, subgraph: &str) -> TrafficSettings {
        let mut settings = self.all.clone();
        let Some(special) = self.subgraphs.get(subgraph) else { return settings };
        set(&mut settings.timeout, special.timeout);
        if let Some(header) = &special.deadline_header {
            settings.deadline_header = Some(header.clone());
        }
        set(&mut settings.connect_timeout, special.connect_timeout);
        set(&mut settings.idle_timeout, special.idle_timeout);
        set(&mut settings.max_response_size, special.max_response_size);
        set(&mut settings.max_connections, special.max_connections);
        set(&mut settings.max_waiting, special.max_waiting);
        set(&mut settings.max_in_flight_share, special.max_in_flight_share);
        set(&mut settings.batching, special.batching);
        set(&mut settings.max_aliases, special.max_aliases);
        set(&mut settings.max_representations, special.max_representations);
        set(&mut settings.protocol, special.protocol);
        set(&mut settings.compression, special.compression);
        set(&mut settings.retry.retries, special.retry.retries);
        set(&mut settings.retry.initial, special.retry.initial);
        set(&mut settings.retry.max, special.retry.max);
        set(&mut settings.retry.budget_percent, special.retry.budget_percent);
        set(&mut settings.hedge.enabled, special.hedge.enabled);
        set(&mut settings.hedge.after, special.hedge.after);
        set(&mut settings.hedge.budget_percent, special.hedge.budget_percent);
        let breaker = &special.circuit_breaker;
        set(&mut settings.circuit_breaker.enabled, breaker.enabled);
        set(&mut settings.circuit_breaker.failure_percent, breaker.failure_percent);
        set(&mut settings.circuit_breaker.min_requests, breaker.min_requests);
        set(&mut settings.circuit_breaker.open_for, breaker.open_for);
        settings
    }
}

fn set<T>(setting: &mut T, special: Option<T>) {
    if let Some(special) = special {
        *setting = special;
    }
}

/// Timeouts and bounds of requests to subgraphs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSettings {
    /// The time limit of a request to a subgraph, from waiting for a connection to the last byte of the response,
    /// retries included. After that its fields are null, with an error.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub timeout: Duration,

    /// The header in which each request to a subgraph contains the time that is left for its response: the rest of
    /// `timeout`, or of the time of the whole operation (`limits.time`, `limits.deadline_headers`) if that is less. A
    /// subgraph that reads it does no work for which nothing waits any more. A header of this name that rules forward
    /// is replaced. Requests over WebSockets have no such header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_header: Option<TimeoutHeader>,

    /// The time limit for opening a connection, the TLS handshake included.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub connect_timeout: Duration,

    /// The time after which an unused connection is closed. Keep it below the time after which the subgraph, or a load
    /// balancer in front of it, closes connections.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"15s")]
    pub idle_timeout: Duration,

    /// The maximum size of a subgraph's response, both compressed and expanded. The router stops reading there, and the
    /// response counts as failed.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub max_response_size: usize,

    /// The maximum number of open connections to one subgraph, for the whole process. Further requests wait for one
    /// until their timeout, in the order of their arrival. A connection carries one request at a time, over HTTP/2 up
    /// to 100.
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max_connections: u32,

    /// The share of the limit on the work in flight (`admission`), in percent, that operations may hold that need this
    /// subgraph while it is slow, or the share of such operations among those that arrive, if that is greater. Further
    /// operations do without it at once: its fields are null, with the error `OVERLOADED`, and operations that do not
    /// need it are not refused because of it. A subgraph is slow if its requests take more than three times as long as
    /// they usually do, and more than 100 ms. 100: no bound.
    #[schemars(range(min = 1, max = 100), example = 25)]
    pub max_in_flight_share: u32,

    /// Combines several fetches of entities in one request, each under an alias of `_entities`, if an operation needs
    /// them at the same time. If `false`, each fetch is a request of its own. Objects at several places with equal
    /// selections share a request in any case.
    #[schemars(example = false)]
    pub batching: bool,

    /// The maximum number of aliases of `_entities` in one request. More are split over several requests. Subgraphs
    /// have limits on aliases or root fields of their own.
    #[schemars(range(min = 1, max = 1000), example = 5)]
    pub max_aliases: u32,

    /// The maximum number of entities in one request. More are split over several concurrent requests. Subgraphs have
    /// limits on the size of requests: with keys of usual length, 1000 entities stay below the 100 kB that many servers
    /// accept.
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max_representations: u32,

    /// The maximum number of requests that may wait for a connection to one subgraph. Further ones fail at once.
    #[schemars(range(min = 0, max = 1_000_000), example = 500)]
    pub max_waiting: u32,

    /// The version of HTTP for requests to the subgraph.
    #[schemars(example = &"http2")]
    pub protocol: HttpProtocol,

    /// Asks subgraphs for compressed responses. That is worthwhile if bandwidth is more expensive than processors, for
    /// example between regions. Compressed responses (gzip, deflate, br; zstd with the feature `zstd` of the build) are
    /// accepted in any case.
    #[schemars(example = true)]
    pub compression: bool,

    /// The retries of a failed request: if no connection could be opened, if it broke before the response began, and
    /// for the statuses 502, 503 and 504 without `retry-after`. Only queries are retried, and mutations of which
    /// certainly no byte was sent.
    pub retry: RetryPolicy,

    /// Hedging: a query or fetch of entities with a late response is sent a second time, and the first complete
    /// response counts. The other request ends at once: its connection is closed, over HTTP/2 its stream is reset.
    /// Nothing is sent a second time to a subgraph that is slow, fails or has no connection left, or if the response
    /// could not come in time. Mutations, requests with files, subscriptions and requests over WebSockets are never
    /// sent twice.
    pub hedge: HedgePolicy,

    /// The circuit breaker, which stops requests to a failing subgraph, so that no request waits for it and it can
    /// recover.
    pub circuit_breaker: CircuitBreaker,
}

impl Default for TrafficSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            deadline_header: None,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(45),
            max_response_size: 64 << 20,
            max_connections: 1024,
            // Two slow subgraphs at the same time leave nothing to others, one leaves half.
            max_in_flight_share: 50,
            batching: true,
            // The strictest known default limit on aliases or root fields is 15.
            max_aliases: 15,
            max_representations: 1000,
            max_waiting: 4096,
            protocol: HttpProtocol::Auto,
            compression: false,
            retry: RetryPolicy::default(),
            hedge: HedgePolicy::default(),
            circuit_breaker: CircuitBreaker::default(),
        }
    }
}

/// The version of HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HttpProtocol {
    /// Over TLS, the version that both sides prefer (ALPN), HTTP/2 first; otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge (h2c).
    Http2,
}

/// The retries of a failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of retries of one request. 0 turns retries off.
    #[schemars(range(min = 0, max = 10), example = 0)]
    pub retries: u32,

    /// The wait before the first retry. It doubles with each further one, and is shortened at random by up to half.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"100ms")]
    pub initial: Duration,

    /// The longest wait.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub max: Duration,

    /// The number of retries in percent of the number of requests: the maximum load that an outage adds to a subgraph,
    /// apart from a reserve of ten retries, which is refilled by one per second.
    #[schemars(range(min = 0, max = 100), example = 10)]
    pub budget_percent: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            initial: Duration::from_millis(25),
            max: Duration::from_millis(500),
            budget_percent: 20,
        }
    }
}

/// The circuit breaker of a subgraph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Turns the circuit breaker on.
    #[schemars(example = false)]
    pub enabled: bool,

    /// The share of failed requests in the last ten seconds, in percent, that opens the breaker. Failures are requests
    /// without a response in time, responses that are not HTTP, and statuses from 500; errors in a GraphQL response are
    /// not. If the request may be the reason, the router sends `{ __typename }` before it opens the breaker.
    #[schemars(range(min = 1, max = 100), example = 80)]
    pub failure_percent: u32,

    /// The minimum number of requests in ten seconds. With fewer requests the breaker stays closed.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub min_requests: u32,

    /// The time for which the breaker stays open. Then one request at a time is sent; after three successful responses
    /// all are sent, and after a failure the breaker opens again for the same time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub open_for: Duration,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self {
            enabled: true,
            failure_percent: 50,
            min_requests: 20,
            open_for: Duration::from_secs(5),
        }
    }
}

/// The settings that are different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficOverride {
    /// The value of `traffic.all.timeout` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub timeout: Option<Duration>,

    /// The value of `traffic.all.deadline_header` for this subgraph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_header: Option<TimeoutHeader>,

    /// The value of `traffic.all.connect_timeout` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"1s")]
    pub connect_timeout: Option<Duration>,

    /// The value of `traffic.all.idle_timeout` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"4s")]
    pub idle_timeout: Option<Duration>,

    /// The value of `traffic.all.max_response_size` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<SizeText>", example = &"256MiB")]
    pub max_response_size: Option<usize>,

    /// The value of `traffic.all.max_connections` for this subgraph.
    #[schemars(range(min = 1, max = 100_000), example = 50)]
    pub max_connections: Option<u32>,

    /// The value of `traffic.all.max_in_flight_share` for this subgraph.
    #[schemars(range(min = 1, max = 100), example = 25)]
    pub max_in_flight_share: Option<u32>,

    /// The value of `traffic.all.batching` for this subgraph.
    #[schemars(example = false)]
    pub batching: Option<bool>,

    /// The value of `traffic.all.max_aliases` for this subgraph.
    #[schemars(range(min = 1, max = 1000), example = 1)]
    pub max_aliases: Option<u32>,

    /// The value of `traffic.all.max_representations` for this subgraph.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub max_representations: Option<u32>,

    /// The value of `traffic.all.max_waiting` for this subgraph.
    #[schemars(range(min = 0, max = 1_000_000), example = 100)]
    pub max_waiting: Option<u32>,

    /// The value of `traffic.all.protocol` for this subgraph.
    #[schemars(with = "HttpProtocol", example = &"http2")]
    pub protocol: Option<HttpProtocol>,

    /// The value of `traffic.all.compression` for this subgraph.
    #[schemars(example = true)]
    pub compression: Option<bool>,

    /// The values of `traffic.all.retry` for this subgraph, key by key.
    pub retry: RetryOverride,

    /// The values of `traffic.all.hedge` for this subgraph, key by key.
    pub hedge: HedgeOverride,

    /// The values of `traffic.all.circuit_breaker` for this subgraph, key by key.
    pub circuit_breaker: CircuitBreakerOverride,
}

/// The retry settings that are different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOverride {
    /// The value of `traffic.all.retry.retries` for this subgraph.
    #[schemars(range(min = 0, max = 10), example = 0)]
    pub retries: Option<u32>,

    /// The value of `traffic.all.retry.initial` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"100ms")]
    pub initial: Option<Duration>,

    /// The value of `traffic.all.retry.max` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub max: Option<Duration>,

    /// The value of `traffic.all.retry.budget_percent` for this subgraph.
    #[schemars(range(min = 0, max = 100), example = 10)]
    pub budget_percent: Option<u32>,
}

/// The circuit breaker settings that are different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerOverride {
    /// The value of `traffic.all.circuit_breaker.enabled` for this subgraph.
    #[schemars(example = false)]
    pub enabled: Option<bool>,

    /// The value of `traffic.all.circuit_breaker.failure_percent` for this subgraph.
    #[schemars(range(min = 1, max = 100), example = 80)]
    pub failure_percent: Option<u32>,

    /// The value of `traffic.all.circuit_breaker.min_requests` for this subgraph.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub min_requests: Option<u32>,

    /// The value of `traffic.all.circuit_breaker.open_for` for this subgraph.
    #[serde(with = "quantity::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"10s")]
    pub open_for: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subgraph_inherits_the_settings_that_it_does_not_set() {
        let mut traffic = Traffic::default();
        traffic.subgraphs.insert(
            "slow".into(),
            TrafficOverride {
                timeout: Some(Duration::from_secs(90)),
                retry: RetryOverride { retries: Some(0), ..Default::default() },
                ..Default::default()
            },
        );
        assert_eq!(traffic.of("other"), traffic.all);
        assert_eq!(
            traffic.of("slow"),
            TrafficSettings {
                timeout: Duration::from_secs(90),
                retry: RetryPolicy { retries: 0, ..Default::default() },
                ..Default::default()
            }
        );
    }
}
