//! The configuration: one YAML file, environment variables in it, and a few command line flags.
//!
//! The types here are the single source: the file is checked against the JSON Schema generated
//! from them ([`config_schema`]), and the reference page is written from it ([`config_reference`]).
//!
//! How a file becomes a [`Config`], one module a step:
//! `yaml` (text to a tree with places) → `environment` (`${VAR}`) → `check` (tree against the
//! schema, every finding collected) → serde (tree to types) → `consistency` (what one key says
//! about another). `load` strings them together; `secrecy` keeps secrets out of excerpts.
//!
//! What does not live here: reading the supergraph, and anything that acts on a setting.
//! To add a key: add a documented field with a default and an example to the section it belongs
//! to, and honour it. Schema, checks and the reference follow.

mod address;
mod authentication;
mod check;
mod consistency;
mod cursor;
mod disclosure;
mod duration;
mod environment;
mod events;
mod findings;
mod format;
mod format_check;
mod headers;
mod http;
mod limits;
mod listen;
mod live;
mod load;
mod logging;
mod override_labels;
mod reference;
mod schema;
mod secrecy;
mod secret;
mod sharing;
mod shutdown;
mod size;
mod source_tree;
mod subgraphs;
mod threads;
mod trace;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use address::{AddressError, parse_address};
pub use authentication::{Authentication, Jwks, Jwt, JwtAlgorithm, JwtHeader, JwtIssuer};
pub use cursor::Cursor;
pub use disclosure::IncludeSubgraphErrors;
pub use events::{
    BrokerTls, Events, JetStream, KafkaAuthentication, KafkaFetch, KafkaProvider, KafkaTls,
    MemoryProvider, NatsAuthentication, NatsProvider, Providers, RedisAuthentication,
    RedisProvider, RedisSentinel, RedisStreams, Retry, SaslPlain, SaslScram, ScramMechanism,
    UserInfo,
};
pub use headers::{
    ClaimForwarding, HeaderInsertion, HeaderPattern, HeaderRule, HeaderRules, HeaderSelection,
    Headers, Merge, Propagation,
};
pub use http::{Batching, Compression, Http, Http2};
pub use limits::Limits;
pub use listen::{Admin, Cors, Ide, Listener, Supergraph, TlsFiles, UnixSocket};
pub use live::{OverflowPolicy, Subscriptions, WebSocket};
pub use load::{Loaded, Overrides, load, log_settings, parse};
pub use logging::{Log, LogFormat, LogLevel};
pub use override_labels::LabelSetting;
pub use reference::config_reference;
pub use schema::config_schema;
pub use secret::Secret;
pub use sharing::Sharing;
pub use shutdown::Shutdown;
pub use subgraphs::{
    CircuitBreaker, CircuitBreakerOverride, HttpProtocol, RetryOverride, RetryPolicy,
    SubgraphSettings, SubgraphTls, Traffic, TrafficOverride, TrafficSettings,
};
pub use threads::{ReactorThreads, Workers};
pub use trace::Trace;

use format::{LabelSettingText, PathText, ReactorsText, WorkersText};

/// Everything that can be configured.
///
/// [`Config::default`] is what an empty file means. Values are checked when a file is loaded
/// ([`load`]); code that builds a `Config` by hand keeps to the ranges in the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Starling configuration")]
pub struct Config {
    /// Where clients connect: one address, or a list of addresses and sockets.
    ///
    /// An address is `IP:PORT`; `localhost` means `127.0.0.1`. `0.0.0.0` listens on all interfaces by
    /// IPv4, `[::]` by IPv6; list both for both. Port 0 takes a free port, which the log names.
    ///
    /// Every listener speaks HTTP/1.1 and HTTP/2. With `tls` the client chooses by ALPN, without it by
    /// beginning with HTTP/2 (prior knowledge).
    #[serde(with = "listen::listeners")]
    #[schemars(with = "listen::ListenForms")]
    #[schemars(example = &"0.0.0.0:4000", example = ["127.0.0.1:4000", "[::1]:4000"])]
    #[schemars(extend("x-override" = "--listen"))]
    pub listen: Vec<Listener>,

    /// The path of the GraphQL endpoint, for queries, mutations and every subscription transport.
    #[schemars(with = "PathText", example = &"/graphql")]
    pub path: String,

    /// The admin listener: health, metrics, and publishing test events. Keep it away from clients.
    pub admin: Admin,

    /// How many cores serve requests: a number, or `auto` for every CPU that the process may use.
    #[schemars(with = "WorkersText", example = 4)]
    pub workers: Workers,

    /// The number of threads that hold WebSockets and event streams over HTTP/1.1: a number from 1 to 256, or `auto` for
    /// one thread per two workers and at least one.
    #[schemars(with = "ReactorsText", example = 2)]
    pub reactors: ReactorThreads,

    /// Where the graph comes from.
    pub supergraph: Supergraph,

    /// Which labels of progressive overrides (`@override(from:, label:)`) are on, by label. Labels that
    /// are not listed here are off, but `percent(x)`, which says so itself.
    ///
    /// A percentage is drawn anew for every request. A subscription draws once, and alike for all who
    /// subscribe to the same with the same variables.
    #[schemars(with = "BTreeMap<String, LabelSettingText>")]
    #[schemars(example = serde_json::json!({"new-reviews": "true", "new-stock": "5%"}))]
    pub override_labels: BTreeMap<String, LabelSetting>,

    /// Settings of single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, SubgraphSettings>,

    /// Who clients are: tokens, and whose are accepted (`docs/authentication.md`). By default nobody is asked.
    pub authentication: Authentication,

    /// Which headers of a client's request reach the subgraphs, and which of their answers' reach the
    /// client. By default none do.
    pub headers: Headers,

    /// How much clients see of the errors that subgraphs report, and of the reasons why requests to subgraphs failed.
    ///
    /// The path and the code of an error always reach clients: codes such as `OUT_OF_STOCK` belong to the interface of
    /// a graph. The message reaches them where this section allows it, because messages may hold queries, addresses and
    /// names; otherwise clients see a fixed text. Other `extensions` are dropped unless they are listed.
    /// `starling demo` shows messages. The log has the complete errors: a warning with the first one and the number of
    /// others, at most every ten seconds for each subgraph, and each of them at the level `debug`.
    pub include_subgraph_errors: IncludeSubgraphErrors,

    /// Timeouts and bounds of requests to subgraphs.
    pub traffic: Traffic,

    /// Work that several requests ask for at the same time is done once.
    ///
    /// Two requests share only if everything is equal that a subgraph could see: the operation (or the part of
    /// it that one subgraph answers), the variables, and every forwarded header. Mutations are never shared,
    /// and a query that comes after a mutation never gets an answer that was begun before it. Nobody waits in
    /// order to share. The metrics `starling_sharing_leaders_total` and `starling_sharing_followers_total` tell
    /// how much is shared.
    pub sharing: Sharing,

    /// What a client's operation may cost. Larger ones are refused before they are planned.
    pub limits: Limits,

    /// How the public listeners speak HTTP: timeouts, compression, batches, HTTP/2.
    pub http: Http,

    /// WebSocket connections of clients.
    pub websocket: WebSocket,

    /// Subscriptions of clients, over every transport.
    pub subscriptions: Subscriptions,

    /// Brokers that event subgraphs publish to and subscribe to.
    pub events: Events,

    /// Cursors: a subscriber that comes again with the last one it got goes on after it, with nothing lost.
    ///
    /// Where events come from a broker that keeps them (`docs/events.md` says which), the client sends the cursor back
    /// as `extensions.cursor` of its subscription, or in the header `last-event-id`, as browsers do by themselves.
    pub cursor: Cursor,

    /// Answer introspection queries (`__schema`, `__type`). `__typename` is always answered.
    #[schemars(example = false)]
    pub introspection: bool,

    /// The page for trying out queries in a browser.
    pub ide: Ide,

    /// Which web pages of other origins may use the endpoint (cross-origin resource sharing).
    pub cors: Cors,

    /// What a request cost, told to the client that asks for it.
    ///
    /// `extensions.trace` of the answer has the time of each phase, each request to a subgraph with its sizes,
    /// and what was shared with others.
    pub trace: Trace,

    /// What is logged, and how.
    ///
    /// Logging never delays requests: up to 4 MiB of lines wait for standard error. Lines beyond, and lines that cannot
    /// be written (a full disk, a closed pipe), are dropped and counted (`starling_log_lines_dropped_total`); a later
    /// line gives their number.
    pub log: Log,

    /// How the router ends.
    pub shutdown: Shutdown,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Listener::plain(listen::LISTEN_DEFAULT)],
            path: "/graphql".into(),
            admin: Admin::default(),
            workers: Workers::Auto,
            reactors: ReactorThreads::Auto,
            supergraph: Supergraph::default(),
            override_labels: BTreeMap::new(),
            subgraphs: BTreeMap::new(),
            authentication: Authentication::default(),
            headers: Headers::default(),
            include_subgraph_errors: IncludeSubgraphErrors::default(),
            traffic: Traffic::default(),
            sharing: Sharing::default(),
            limits: Limits::default(),
            http: Http::default(),
            websocket: WebSocket::default(),
            subscriptions: Subscriptions::default(),
            events: Events::default(),
            cursor: Cursor::default(),
            introspection: true,
            ide: Ide::default(),
            cors: Cors::default(),
            trace: Trace::default(),
            log: Log::default(),
            shutdown: Shutdown::default(),
        }
    }
}
