//! The configuration: one YAML file, environment variables in it, and a few command line flags.
//!
//! The types here are the single source: the file is checked against the JSON Schema generated from them
//! ([`config_schema`]), and the reference page is written from it ([`config_reference`]).
//!
//! A file becomes a [`Config`] in these steps, one module for each: `yaml` (text to a tree with places) → `environment`
//! (`${VAR}`) → `check` (tree against the schema, every finding collected) → serde (tree to types) → `consistency`
//! (rules between several keys). `load` runs them in order; `secrecy` keeps secrets out of excerpts. [`diagnostic`]
//! draws the messages, also those about supergraphs and command lines. [`parse_document`] reads other YAML files by the
//! same steps, and [`parse_tree`] those of which no type is known.
//!
//! To add a key, add a documented field with a default and an example to its section, and use it. The schema, the
//! checks and the reference page follow. To move a key, add it to `moved_keys`. To add a kind of broker, add a module
//! such as `nats`, a field of [`Providers`], and its rules to `provider_consistency`.
//!
//! Not in this crate: reading the supergraph, everything that applies a setting, and checks that need the graph or the
//! network (`starling check`). The crate knows the lower ones only for the syntax and the defaults of values: claims of
//! tokens, headers of connections, addresses of brokers.

mod access_log;
mod address;
mod admission;
mod apq;
mod authentication;
mod authorization;
mod aws_sigv4;
mod block;
mod build_features;
mod caching;
mod check;
mod client_info;
mod client_tls;
mod collector;
mod complaint;
mod consistency;
mod console;
mod cors;
mod cost;
mod cursor;
pub mod diagnostic;
mod disclosure;
mod document;
mod environment;
mod events;
mod expression;
mod findings;
mod format;
mod format_check;
mod graphs;
mod hardening;
mod headers;
mod hedge;
mod http;
mod introspection;
mod kafka;
mod limits;
mod listen;
mod live_queries;
mod load;
mod logging;
mod memory_limit;
mod metric_export;
mod metrics;
mod moved_keys;
mod nats;
mod override_labels;
mod pattern;
mod persisted_documents;
mod policies;
mod provider_consistency;
mod provider_settings;
mod quantity;
mod rate_limits;
mod redis;
mod reference;
mod schema;
mod schema_facts;
mod secrecy;
mod secret;
mod sharing;
mod shutdown;
mod signature;
mod source_tree;
mod storage_providers;
mod store_consistency;
mod subgraph_subscription;
mod subgraph_subscription_consistency;
mod subgraphs;
mod subscriptions;
mod supergraph;
mod supergraph_download;
mod threads;
mod timeout_header;
mod token_consistency;
mod token_introspection;
mod trace;
mod traces;
mod uploads;
mod warming;
mod web_page_consistency;
mod web_pages;
mod wording;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access_log::{ACCESS_LOG_FIELDS, AccessLog, AccessLogField, AccessLogFormat, RequestId};
pub use address::{AddressError, parse_address};
pub use admission::{
    Admission, AdmissionLimit, AdmissionQueue, AdmissionReadiness, PriorityRule, RequestClass,
};
pub use apq::Apq;
pub use authentication::{
    Authentication, Jwks, Jwt, JwtAlgorithm, JwtHeader, JwtIssuer, OnTokenError, TokenCookie,
    TokenPlace,
};
pub use authorization::{Authorization, AuthorizationErrors, AuthorizationMode};
pub use aws_sigv4::{AwsCredentials, AwsSigv4};
pub use block::{Block, BlockRule};
pub use caching::{
    Caching, FieldTtl, InvalidationTopic, PrivateBy, SubgraphCache, SubgraphCaches, TypeCache,
};
pub use client_info::ClientInfoHeaders;
pub use client_tls::ClientTls;
pub use collector::OtlpProtocol;
pub use console::{ADMIN_PATHS, Console, FlightRecorder};
pub use cors::{Cors, CorsMethod, CorsPolicy, OriginPattern};
pub use cost::{Cost, CostMode, SubgraphCost, SubgraphCosts};
pub use cursor::Cursor;
pub use disclosure::{IncludeSubgraphErrors, MessagePattern, SubgraphErrorRule};
pub use document::{Document, parse_document, parse_tree};
pub use events::{Events, MemoryProvider, Providers};
pub use expression::Expression;
pub use graphs::{DEFAULT_GRAPH, GraphHeader, GraphSettings};
pub use hardening::{hardening_checklist, hardening_items};
pub use headers::{
    ClaimForwarding, ComputedHeader, HeaderInsertion, HeaderPattern, HeaderRule, HeaderRules,
    HeaderSelection, Headers, Merge, Propagation,
};
pub use hedge::{HedgeDelay, HedgeOverride, HedgePolicy};
pub use http::{Batching, Compression, Http, Http2, LoadReport, LoadReportFormat, LoadReportMode};
pub use introspection::Introspection;
pub use kafka::{
    KafkaAuthentication, KafkaFetch, KafkaProvider, KafkaTls, SaslPlain, SaslScram, ScramMechanism,
};
pub use limits::Limits;
pub use listen::{Admin, Listener, TlsFiles, UnixSocket};
pub use live_queries::LiveQueries;
pub use load::{LoadedConfig, Overrides, admin_settings, load, log_settings, parse};
pub use logging::{Log, LogFormat, LogLevel};
pub use memory_limit::MemoryLimit;
pub use metric_export::{MetricExport, MetricTemporality};
pub use metrics::{ClientFigures, FieldUsage, Metrics, OperationFigures};
pub use nats::{JetStream, NatsAuthentication, NatsProvider};
pub use override_labels::LabelSetting;
pub use persisted_documents::{
    DocumentException, DocumentManifest, DocumentManifestFormat, PersistedDocuments,
    PersistedDocumentsMode,
};
pub use policies::{DecisionCache, DecisionPoint, Policies, PolicyInput, Rego};
pub use provider_settings::{Retry, UserInfo};
pub use quantity::{print_bytes, print_duration};
pub use rate_limits::{OnStoreFailure, RateLimit, RateUnit};
pub use redis::{RedisAuthentication, RedisProvider, RedisSentinel, RedisStreams};
pub use reference::config_reference;
pub use schema::config_schema;
pub use secrecy::hide_url_secrets;
pub use secret::Secret;
pub use sharing::Sharing;
pub use shutdown::Shutdown;
pub use signature::{HmacHash, HmacSignature, Signature};
pub use source_tree::{Content, MappingEntry, Scalar, SourceNode};
pub use storage_providers::{RedisStore, StorageProviders};
pub use subgraph_subscription::{
    QueryTransport, SubgraphSubscriptionSettings, SubscriptionProtocol, SubscriptionRetry,
    SubscriptionSharing,
};
pub use subgraphs::{
    CircuitBreaker, CircuitBreakerOverride, HttpProtocol, RetryOverride, RetryPolicy,
    SubgraphSettings, Traffic, TrafficOverride, TrafficSettings,
};
pub use subscriptions::{OverflowPolicy, SubscriptionCallback, Subscriptions, WebSocket};
pub use supergraph::Supergraph;
pub use supergraph_download::{
    DownloadHmac, DownloadMinisign, DownloadSignature, SupergraphDownload,
};
pub use threads::{ReactorCount, WorkerCount};
pub use timeout_header::{TimeoutFormat, TimeoutHeader};
pub use token_introspection::{
    IntrospectedTokens, IntrospectionAuth, IntrospectionCache, TokenIntrospection,
};
pub use trace::{FetchText, Trace, TraceFetches};
pub use traces::{Otlp, SampleRatio, TraceFormat, TraceSampling, TraceSamplingRule, Tracing};
pub use uploads::Uploads;
pub use warming::{Warming, WarmingSource};
pub use web_pages::{Csrf, Ide};
pub use wording::find_similar;

use format::{LabelSettingText, PathText, ReactorsText, WorkersText};

/// The whole configuration.
///
/// [`Config::default`] is the meaning of an empty file. Values are checked when a file is loaded ([`load()`]); code
/// that builds a `Config` itself must keep to the ranges in the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Starling configuration")]
pub struct Config {
    /// The addresses where clients connect: one address, or a list of addresses and sockets.
    ///
    /// An address is `IP:PORT`; `localhost` means `127.0.0.1`. `0.0.0.0` listens on all interfaces by IPv4, `[::]` by
    /// IPv6; list both for both. Port 0 takes a free port, which the log names.
    ///
    /// Every listener supports HTTP/1.1 and HTTP/2. With `tls` the client selects the version by ALPN, without it by
    /// starting with HTTP/2 (prior knowledge).
    #[serde(with = "listen::listeners")]
    #[schemars(with = "listen::ListenForms")]
    #[schemars(example = &"0.0.0.0:4000", example = ["127.0.0.1:4000", "[::1]:4000"])]
    #[schemars(extend("x-override" = "--listen"))]
    pub listen: Vec<Listener>,

    /// The path of the GraphQL endpoint, for queries, mutations and every subscription transport.
    #[schemars(with = "PathText", example = &"/graphql")]
    pub path: String,

    /// The admin listener: health, metrics, and publishing test events. It must not be reachable for clients.
    pub admin: Admin,

    /// The number of worker threads that serve requests, or `auto` for one per CPU that the process may use.
    #[schemars(with = "WorkersText", example = 4)]
    pub workers: WorkerCount,

    /// The number of threads that hold WebSockets and event streams over HTTP/1.1: a number from 1 to 256, or `auto`
    /// for one thread per two workers and at least one.
    #[schemars(with = "ReactorsText", example = 2)]
    pub reactors: ReactorCount,

    /// The source of the graph.
    pub supergraph: Supergraph,

    /// Further graphs that this process serves (`docs/several-graphs.md`): variants of the graph behind a feature flag,
    /// or other graphs at other paths and hosts. All graphs share the other settings: brokers, connections to
    /// subgraphs, limits and caches.
    #[schemars(length(max = 32))]
    pub graphs: Vec<GraphSettings>,

    /// The state of the labels of progressive overrides (`@override(from:, label:)`), by label. Labels that are not
    /// listed are off, except for `percent(x)`, which contains its own percentage.
    ///
    /// A percentage is drawn for every request. A subscription draws once, with the same result for all subscriptions
    /// with the same operation and variables.
    #[schemars(with = "BTreeMap<String, LabelSettingText>")]
    #[schemars(example = serde_json::json!({"new-reviews": "true", "new-stock": "5%"}))]
    pub override_labels: BTreeMap<String, LabelSetting>,

    /// Settings of single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, SubgraphSettings>,

    /// Authentication of clients by tokens (`docs/authentication.md`). By default the router does not check tokens.
    pub authentication: Authentication,

    /// The authorization of fields and types by `@authenticated`, `@requiresScopes` and `@policy` in the supergraph.
    ///
    /// Only the outcome of a requirement distinguishes two clients, never their tokens: clients that meet the same
    /// requirements share plans, subscriptions and requests.
    pub authorization: Authorization,
    /// The headers in which applications state their name and version, for rules that tell applications apart.
    pub client_info: ClientInfoHeaders,

    /// Rules for the headers of a client's request that reach the subgraphs, and the headers of subgraph responses that
    /// reach the client. By default none do.
    pub headers: Headers,

    /// The operations that are refused, by kind and by condition (`docs/rate-limits.md`). They are refused before their
    /// variables are read and before anything is fetched, on every transport, with the code `OPERATION_BLOCKED`.
    pub block: Block,

    /// Limits on the rate of operations (`docs/rate-limits.md`). An operation that exceeds one of them is refused
    /// before anything is fetched, with the code `RATE_LIMITED` and the status 429. The limits are those of this
    /// process, or with `store` those of all routers.
    #[schemars(length(max = 32))]
    pub rate_limits: Vec<RateLimit>,

    /// Overload protection (`docs/overload.md`): how much work is in flight at the same time, and which requests are
    /// refused beyond that, with the code `OVERLOADED` and the status 503. It is on by default.
    ///
    /// Each operation that a client sends is admitted before it is parsed, on every transport. Events of live
    /// subscriptions and the admin listener are not concerned.
    pub admission: Admission,

    /// The start of a router that takes load from others (`docs/scaling.md`): operations that are prepared before it is
    /// ready (`/health/ready` of the admin listener), and the time within which it takes its full share of the load.
    pub warming: Warming,

    /// The parts of subgraph errors that clients see, also of errors in requests to subgraphs.
    ///
    /// The path and the code of an error always reach clients: codes such as `OUT_OF_STOCK` belong to the interface of
    /// a graph. The message reaches them if this section allows it, because messages may contain queries, addresses and
    /// names; otherwise clients see a fixed text. Other `extensions` are dropped unless they are listed. `starling
    /// demo` shows messages. The log has a warning with the code and the path of the first error and the number of all,
    /// at most every ten seconds for each subgraph. Messages may repeat values of requests, so only the level `debug`
    /// has them.
    pub include_subgraph_errors: IncludeSubgraphErrors,

    /// Timeouts and bounds of requests to subgraphs.
    pub traffic: Traffic,

    /// Sharing of equal work that several requests need at the same time.
    ///
    /// Two requests share work only if everything is equal that a subgraph could see: the operation (or the part of it
    /// that one subgraph resolves), the variables, and every forwarded header. Mutations are never shared, and a query
    /// that arrives after a mutation never gets a response that was started before it. No request is delayed in order
    /// to share. The metrics `starling_sharing_leaders_total` and `starling_sharing_followers_total` show how much is
    /// shared.
    pub sharing: Sharing,

    /// The caches of responses (`docs/caching.md`). By default nothing is stored.
    ///
    /// Only responses are stored that something gives a time to live: `cache-control` of the subgraph, the header
    /// `ttl_header`, or this section. An invalidation makes stale what it names at once.
    pub cache: Caching,

    /// Live queries (`docs/live-queries.md`): the result of a query now, and again whenever something that it was made
    /// of is invalidated or expires.
    pub live_queries: LiveQueries,

    /// Limits on the cost of a client's operation. Larger operations are refused before they are planned.
    pub limits: Limits,

    /// The cost of operations by `@cost` and `@listSize` (`docs/cost.md`). By default it is not computed.
    pub cost: Cost,
    /// Persisted documents (`docs/persisted-documents.md`): operations that are known before clients send them, so that
    /// clients send an id in place of the text, or so that no others run.
    pub persisted_documents: PersistedDocuments,

    /// Automatic persisted queries: clients send the SHA-256 of an operation in place of its text, and the text once if
    /// the router does not know the hash.
    ///
    /// Only texts of valid operations are stored, in the memory of each router, and with `store` in Redis for all
    /// routers. They survive a reload of the graph.
    pub apq: Apq,

    /// Redis for state that several routers share (`docs/shared-state.md`). Other sections name it by its id:
    /// `rate_limits[].store`, `apq.store`. The router serves without it, as those sections say.
    pub storage_providers: StorageProviders,

    /// HTTP on the public listeners: limits on connections, timeouts, compression, batches, HTTP/2.
    pub http: Http,

    /// WebSocket connections of clients.
    pub websocket: WebSocket,

    /// Subscriptions of clients, over every transport.
    pub subscriptions: Subscriptions,

    /// Brokers that event subgraphs publish to and subscribe to.
    pub events: Events,

    /// Cursors: a subscriber that sends its last cursor when it reconnects resumes after it and loses no event.
    ///
    /// If events come from a broker that stores them (see `docs/events.md`), the client sends the cursor back as
    /// `extensions.cursor` of its subscription, or in the header `last-event-id`, as browsers do automatically.
    pub cursor: Cursor,

    /// Introspection queries (`__schema`, `__type`): `true` and `false` allow and refuse them, and the keys below say
    /// more. `__typename` is always available.
    #[serde(with = "introspection::forms")]
    #[schemars(with = "introspection::IntrospectionForms", example = false)]
    pub introspection: Introspection,

    /// The page for trying out queries in a browser.
    pub ide: Ide,

    /// Web pages of other origins that may use the endpoint (cross-origin resource sharing).
    pub cors: Cors,

    /// Protection against requests that foreign pages make browsers send (cross-site request forgery).
    ///
    /// Without any setting, a GET that names a foreign page (`origin`, `sec-fetch-site`) is refused, and a POST must be
    /// JSON, which browsers send across origins only after a preflight. `docs/browsers.md` says what that leaves open.
    pub csrf: Csrf,

    /// Files in requests, which one subgraph takes (GraphQL multipart request specification; `docs/uploads.md`).
    pub uploads: Uploads,

    /// The metrics of single operations and clients (`docs/metrics.md`): requests, errors by code, durations, CPU time,
    /// requests to subgraphs, costs and sizes of responses.
    ///
    /// Clients choose these names. The number of names with metrics of their own is bounded, and names that are made up
    /// do not take the place of those in use. `metrics.otlp` exports all metrics of the router to a collector.
    pub metrics: Metrics,

    /// The cost of a request, for clients that ask for it.
    ///
    /// `extensions.trace` of the response contains the plan, the time of each phase, each request to a subgraph with
    /// its text and its sizes, the work that was shared with other requests, and what came from memory and how old it
    /// was (`docs/caching.md`).
    pub trace: Trace,

    /// Traces of requests, and their export to a collector by OTLP (`docs/tracing.md`): the request, the steps of
    /// preparing its operation, each request to a subgraph, each message to a broker, and the printing of the response.
    ///
    /// Exporting never delays a request: if the collector is slow or does not respond, a bounded number of traces waits,
    /// and further ones are dropped and counted.
    pub tracing: Tracing,

    /// The level and the format of the log.
    ///
    /// Logging never delays requests: up to 4 MiB of lines wait for standard error. Further lines, and lines that
    /// cannot be written (a full disk, a closed pipe), are dropped and counted (`starling_log_lines_dropped_total`); a
    /// later line contains their number.
    pub log: Log,

    /// The access log (`docs/access-log.md`): a line for each request, each operation on a WebSocket, and the beginning
    /// and the end of each subscription.
    ///
    /// Writing never delays a request: up to 8 MiB of lines wait. Further lines, and lines that cannot be written, are
    /// dropped and counted (`starling_access_log_lines_dropped_total`).
    pub access_log: AccessLog,

    /// Ids of requests: in the access log, in responses and in requests to subgraphs.
    pub request_id: RequestId,

    /// The end of the process.
    pub shutdown: Shutdown,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Listener::plain(listen::LISTEN_DEFAULT)],
            path: "/graphql".into(),
            admin: Admin::default(),
            workers: WorkerCount::Auto,
            reactors: ReactorCount::Auto,
            supergraph: Supergraph::default(),
            graphs: Vec::new(),
            override_labels: BTreeMap::new(),
            subgraphs: BTreeMap::new(),
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            client_info: ClientInfoHeaders::default(),
            headers: Headers::default(),
            block: Block::default(),
            rate_limits: Vec::new(),
            admission: Admission::default(),
            warming: Warming::default(),
            include_subgraph_errors: IncludeSubgraphErrors::default(),
            traffic: Traffic::default(),
            sharing: Sharing::default(),
            limits: Limits::default(),
            cache: Caching::default(),
            live_queries: LiveQueries::default(),
            cost: Cost::default(),
            persisted_documents: PersistedDocuments::default(),
            apq: Apq::default(),
            storage_providers: StorageProviders::default(),
            http: Http::default(),
            websocket: WebSocket::default(),
            subscriptions: Subscriptions::default(),
            events: Events::default(),
            cursor: Cursor::default(),
            introspection: Introspection::default(),
            ide: Ide::default(),
            cors: Cors::default(),
            csrf: Csrf::default(),
            uploads: Uploads::default(),
            metrics: Metrics::default(),
            trace: Trace::default(),
            tracing: Tracing::default(),
            log: Log::default(),
            access_log: AccessLog::default(),
            request_id: RequestId::default(),
            shutdown: Shutdown::default(),
        }
    }
}

impl Config {
    /// True if clients may send live queries.
    pub fn has_live_queries(&self) -> bool {
        self.live_queries.enabled && self.cache.enabled
    }

    /// Iterates over the expressions that read facts of requests, each with its scope and the type of its result.
    /// Connections that have left HTTP keep the headers that these expressions read.
    pub fn request_expressions(
        &self,
    ) -> impl Iterator<Item = (&Expression, expressions::Scope, expressions::Expected)> {
        use expressions::{Expected, Scope};
        let rules = std::iter::once(&self.headers.all).chain(self.headers.subgraphs.values());
        let headers = rules.flat_map(|rules| &rules.request).filter_map(|rule| match rule {
            HeaderRule::Set(it) => Some((&it.expression, Scope::COSTED_OPERATION, Expected::Text)),
            _ => None,
        });
        let blocks = self.block.conditions();
        let blocks = blocks.map(|(_, it)| (it, Scope::OPERATION, Expected::Condition));
        let introspection = self.introspection.when.iter();
        let introspection = introspection.map(|it| (it, Scope::OPERATION, Expected::Condition));
        let keys = self.rate_limits.iter();
        let keys = keys.filter_map(|it| Some((it.key.as_ref()?, it.scope(), Expected::Text)));
        let limited = self.rate_limits.iter();
        let limited =
            limited.filter_map(|it| Some((it.when.as_ref()?, it.scope(), Expected::Condition)));
        let exceptions = self.persisted_documents.exceptions.iter();
        let exceptions = exceptions.map(|it| (&it.when, Scope::REQUEST, Expected::Condition));
        let classes = self.admission.priority.iter();
        let classes = classes.map(|it| (&it.when, Scope::REQUEST, Expected::Condition));
        let fair_by = self.admission.fair_by.iter();
        let fair_by = fair_by.map(|it| (it, Scope::REQUEST, Expected::Text));
        let policies = self.authorization.policies.expressions.values();
        let policies = policies.map(|it| (it, Scope::OPERATION, Expected::Condition));
        let logged = self.access_log.expressions();
        let sampled = self.tracing.sample.conditions().filter(|_| self.tracing.enabled);
        let sampled = sampled.map(|(_, it)| (it, Scope::OPERATION, Expected::Condition));
        let traced = self.trace.when.iter().filter(|_| self.trace.enabled);
        let traced = traced.map(|it| (it, Scope::OPERATION, Expected::Condition));
        let others = introspection.chain(exceptions).chain(classes).chain(fair_by);
        let recorded = self.admin.console.recorder_condition().into_iter();
        let recorded = recorded.map(|it| (it, Scope::OPERATION, Expected::Condition));
        let others = others.chain(policies).chain(logged).chain(sampled);
        let others = others.chain(traced).chain(recorded);
        headers.chain(blocks).chain(keys).chain(limited).chain(others)
    }

    /// Iterates over the subgraphs that sections name, each with the path of the section.
    pub fn named_subgraphs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let in_section = |section, names: Vec<_>| {
            names.into_iter().map(move |name: &String| (section, name.as_str()))
        };
        in_section("subgraphs", self.subgraphs.keys().collect())
            .chain(in_section("headers.subgraphs", self.headers.subgraphs.keys().collect()))
            .chain(in_section("traffic.subgraphs", self.traffic.subgraphs.keys().collect()))
            .chain(in_section(
                "include_subgraph_errors.subgraphs",
                self.include_subgraph_errors.subgraphs.keys().collect(),
            ))
            .chain(in_section(
                "include_subgraph_errors.rules.subgraphs",
                self.include_subgraph_errors.rules.iter().flat_map(|it| &it.subgraphs).collect(),
            ))
            .chain(in_section(
                "cost.subgraphs.subgraphs",
                self.cost.subgraphs.subgraphs.keys().collect(),
            ))
            .chain(in_section(
                "cache.subgraphs.subgraphs",
                self.cache.subgraphs.subgraphs.keys().collect(),
            ))
    }
}
