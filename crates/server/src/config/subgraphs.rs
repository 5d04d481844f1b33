//! Settings of subgraphs and of the requests that go to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{DurationText, FileText, SizeText, SubgraphUrlText};
use super::{duration, size};

/// Settings of one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphSettings {
    /// Where the subgraph is; replaces the URL that the supergraph gives. A unix socket is written
    /// `unix:///run/reviews.sock?path=/graphql`.
    #[schemars(with = "Option<SubgraphUrlText>", example = &"http://reviews.internal:4001/graphql")]
    pub url: Option<String>,

    /// Certificates for a subgraph whose URL is `https`. The files are followed: connections that are
    /// opened after a change use the new ones.
    pub tls: SubgraphTls,
}

/// Certificates for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubgraphTls {
    /// The authorities that the subgraph's certificate may be signed by, in PEM, instead of those that
    /// the system trusts.
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The router's own certificate for subgraphs that want to know their clients (mutual TLS), in PEM,
    /// followed by those between it and the root.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.pem")]
    pub certificate: Option<PathBuf>,

    /// The private key of `certificate`, in PEM, not encrypted.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.key")]
    pub key: Option<PathBuf>,
}

impl SubgraphTls {
    /// Lets relative paths count from `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.ca, &mut self.certificate, &mut self.key].into_iter().flatten() {
            *path = folder.join(&path);
        }
    }
}

/// Timeouts and bounds of requests to subgraphs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// What holds for every subgraph.
    pub all: TrafficSettings,

    /// What is different for single subgraphs, by the name they have in the supergraph. Keys that
    /// are left out keep the value of `traffic.all`.
    pub subgraphs: BTreeMap<String, TrafficOverride>,
}

impl Traffic {
    /// What holds for one subgraph.
    pub fn of(&self, subgraph: &str) -> TrafficSettings {
        let mut settings = self.all.clone();
        let Some(special) = self.subgraphs.get(subgraph) else { return settings };
        set(&mut settings.timeout, special.timeout);
        set(&mut settings.connect_timeout, special.connect_timeout);
        set(&mut settings.idle_timeout, special.idle_timeout);
        set(&mut settings.max_response_size, special.max_response_size);
        set(&mut settings.max_connections, special.max_connections);
        set(&mut settings.max_waiting, special.max_waiting);
        set(&mut settings.batching, special.batching);
        set(&mut settings.max_aliases, special.max_aliases);
        set(&mut settings.max_representations, special.max_representations);
        set(&mut settings.protocol, special.protocol);
        set(&mut settings.compression, special.compression);
        set(&mut settings.retry.retries, special.retry.retries);
        set(&mut settings.retry.initial, special.retry.initial);
        set(&mut settings.retry.max, special.retry.max);
        set(&mut settings.retry.budget_percent, special.retry.budget_percent);
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

/// How requests to subgraphs are bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSettings {
    /// How long a request to a subgraph may take, from waiting for a connection to the last byte of the
    /// answer, retries included. After that its fields are null, with an error.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub timeout: Duration,

    /// How long opening a connection may take, the TLS handshake included.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub connect_timeout: Duration,

    /// How long a connection is kept that no request needs. Keep it below the time after which the
    /// subgraph, or a balancer before it, hangs up.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"15s")]
    pub idle_timeout: Duration,

    /// How large an answer of a subgraph may be, compressed and expanded. Reading stops there, and the
    /// answer counts as failed.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub max_response_size: usize,

    /// How many connections to one subgraph may be open at a time, for the whole process. Further
    /// requests wait for one until their timeout, in the order in which they came. A connection carries
    /// one request at a time, over HTTP/2 up to 100.
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max_connections: u32,

    /// Whether one request may ask for entities in several ways, each under an alias of `_entities`,
    /// when an operation needs that at one time. If not, each way is a request of its own. Objects
    /// at several places that are asked for alike share a request in any case.
    #[schemars(example = false)]
    pub batching: bool,

    /// How many aliases of `_entities` one request may have; what is more goes into further requests.
    /// Subgraphs have limits on aliases or root fields of their own.
    #[schemars(range(min = 1, max = 1000), example = 5)]
    pub max_aliases: u32,

    /// How many entities one request may ask for; more are asked for by several requests at the same
    /// time. Subgraphs have limits on the size of requests: with keys of usual length, 1000 entities
    /// stay below the 100 kB that many servers take.
    #[schemars(range(min = 1, max = 100_000), example = 200)]
    pub max_representations: u32,

    /// How many requests may wait for a connection to one subgraph; more fail at once.
    #[schemars(range(min = 0, max = 1_000_000), example = 500)]
    pub max_waiting: u32,

    /// Which HTTP a subgraph is spoken to in.
    #[schemars(example = &"http2")]
    pub protocol: HttpProtocol,

    /// Ask subgraphs for compressed answers. That pays where bytes are dearer than processors, such as
    /// between regions. Answers that come compressed (gzip, deflate, br, zstd) are read in any case.
    #[schemars(example = true)]
    pub compression: bool,

    /// When a request that failed is sent again: where no connection could be opened, where it broke
    /// before the answer began, and on the statuses 502, 503 and 504 without `retry-after`. Queries
    /// only, and mutations of which certainly no byte was sent.
    pub retry: RetryPolicy,

    /// When a subgraph that fails is left alone, so that nobody waits for it and it can recover.
    pub circuit_breaker: CircuitBreaker,
}

impl TrafficSettings {
    /// How requests for entities may be put together.
    pub(crate) fn batch_limits(&self) -> plan::BatchLimits {
        plan::BatchLimits {
            aliases: if self.batching { self.max_aliases } else { 1 },
            representations: self.max_representations,
        }
    }
}

impl Default for TrafficSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(45),
            max_response_size: 64 << 20,
            max_connections: 1024,
            batching: true,
            max_aliases: plan::BatchLimits::default().aliases,
            max_representations: plan::BatchLimits::default().representations,
            max_waiting: 4096,
            protocol: HttpProtocol::Auto,
            compression: false,
            retry: RetryPolicy::default(),
            circuit_breaker: CircuitBreaker::default(),
        }
    }
}

/// Which HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HttpProtocol {
    /// Over TLS what both sides prefer (ALPN), HTTP/2 first; otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge (h2c).
    Http2,
}

/// When a request is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// How often one request is sent again at most. 0 turns retries off.
    #[schemars(range(min = 0, max = 10), example = 0)]
    pub retries: u32,

    /// The wait before the first retry. It doubles with each further one, and is shortened at random by
    /// up to half.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"100ms")]
    pub initial: Duration,

    /// The longest wait.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub max: Duration,

    /// Retries that requests earn, in percent of their number: what an outage adds to the load of a
    /// subgraph at most, beside a reserve of ten that comes back by one a second.
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

/// When a subgraph is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Whether it ever is.
    #[schemars(example = false)]
    pub enabled: bool,

    /// How many requests of the last ten seconds must have failed, in percent. Failures are requests
    /// without an answer in time, answers that are no HTTP, and statuses from 500; errors that the
    /// subgraph reports in GraphQL are not. Where the request may be the reason, the router asks
    /// `{ __typename }` before it concludes anything.
    #[schemars(range(min = 1, max = 100), example = 80)]
    pub failure_percent: u32,

    /// With fewer requests than this in ten seconds nothing is concluded.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub min_requests: u32,

    /// How long it is left alone. Then one request at a time is let through; after three good answers
    /// all are, after a failure none is for as long again.
    #[serde(with = "duration::text")]
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

/// What is different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficOverride {
    /// As `traffic.all.timeout`, for this subgraph.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub timeout: Option<Duration>,

    /// As `traffic.all.connect_timeout`, for this subgraph.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"1s")]
    pub connect_timeout: Option<Duration>,

    /// As `traffic.all.idle_timeout`, for this subgraph.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"4s")]
    pub idle_timeout: Option<Duration>,

    /// As `traffic.all.max_response_size`, for this subgraph.
    #[serde(with = "size::optional_text")]
    #[schemars(with = "Option<SizeText>", example = &"256MiB")]
    pub max_response_size: Option<usize>,

    /// As `traffic.all.max_connections`, for this subgraph.
    #[schemars(range(min = 1, max = 100_000), example = 50)]
    pub max_connections: Option<u32>,

    /// As `traffic.all.batching`, for this subgraph.
    #[schemars(example = false)]
    pub batching: Option<bool>,

    /// As `traffic.all.max_aliases`, for this subgraph.
    #[schemars(range(min = 1, max = 1000), example = 1)]
    pub max_aliases: Option<u32>,

    /// As `traffic.all.max_representations`, for this subgraph.
    #[schemars(range(min = 1, max = 100_000), example = 100)]
    pub max_representations: Option<u32>,

    /// As `traffic.all.max_waiting`, for this subgraph.
    #[schemars(range(min = 0, max = 1_000_000), example = 100)]
    pub max_waiting: Option<u32>,

    /// As `traffic.all.protocol`, for this subgraph.
    #[schemars(with = "HttpProtocol", example = &"http2")]
    pub protocol: Option<HttpProtocol>,

    /// As `traffic.all.compression`, for this subgraph.
    #[schemars(example = true)]
    pub compression: Option<bool>,

    /// As `traffic.all.retry`, for this subgraph, key by key.
    pub retry: RetryOverride,

    /// As `traffic.all.circuit_breaker`, for this subgraph, key by key.
    pub circuit_breaker: CircuitBreakerOverride,
}

/// What of the retries is different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOverride {
    /// As `traffic.all.retry.retries`.
    #[schemars(range(min = 0, max = 10), example = 0)]
    pub retries: Option<u32>,

    /// As `traffic.all.retry.initial`.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"100ms")]
    pub initial: Option<Duration>,

    /// As `traffic.all.retry.max`.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"2s")]
    pub max: Option<Duration>,

    /// As `traffic.all.retry.budget_percent`.
    #[schemars(range(min = 0, max = 100), example = 10)]
    pub budget_percent: Option<u32>,
}

/// What of the circuit breaker is different for one subgraph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerOverride {
    /// As `traffic.all.circuit_breaker.enabled`.
    #[schemars(example = false)]
    pub enabled: Option<bool>,

    /// As `traffic.all.circuit_breaker.failure_percent`.
    #[schemars(range(min = 1, max = 100), example = 80)]
    pub failure_percent: Option<u32>,

    /// As `traffic.all.circuit_breaker.min_requests`.
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub min_requests: Option<u32>,

    /// As `traffic.all.circuit_breaker.open_for`.
    #[serde(with = "duration::optional_text")]
    #[schemars(with = "Option<DurationText>", example = &"10s")]
    pub open_for: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_subgraph_does_not_set_holds_for_all() {
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

    #[test]
    fn without_batching_a_request_has_one_alias() {
        let mut traffic = Traffic::default();
        traffic.all.max_aliases = 7;
        traffic.subgraphs.insert(
            "alone".into(),
            TrafficOverride {
                batching: Some(false),
                max_representations: Some(10),
                ..Default::default()
            },
        );
        let limits = |subgraph| traffic.of(subgraph).batch_limits();
        assert_eq!(limits("alone"), plan::BatchLimits { aliases: 1, representations: 10 });
        assert_eq!((limits("other").aliases, traffic.of("alone").max_aliases), (7, 7));
    }
}
