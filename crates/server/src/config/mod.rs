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
mod check;
mod consistency;
mod duration;
mod environment;
mod events;
mod format;
mod headers;
mod limits;
mod listen;
mod live;
mod load;
mod logging;
mod reference;
mod schema;
mod secrecy;
mod secret;
mod size;
mod subgraphs;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use address::{AddressError, parse_address};
pub use events::{
    Events, MemoryProvider, NatsAuthentication, NatsProvider, Providers, Retry, UserInfo,
};
pub use headers::{
    HeaderInsertion, HeaderPattern, HeaderRule, HeaderRules, HeaderSelection, Headers,
};
pub use limits::Limits;
pub use listen::{Admin, Cors, Ide, Listener, Supergraph, Workers};
pub use live::{OverflowPolicy, Subscriptions, WebSocket};
pub use load::{Loaded, Overrides, load, parse};
pub use logging::{Log, LogFormat, LogLevel};
pub use reference::config_reference;
pub use schema::config_schema;
pub use secret::Secret;
pub use subgraphs::{SubgraphSettings, Traffic, TrafficOverride, TrafficSettings};

use format::{PathText, WorkersText};

/// Everything that can be configured.
///
/// [`Config::default`] is what an empty file means. Values are checked when a file is loaded
/// ([`load`]); code that builds a `Config` by hand keeps to the ranges in the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Starling configuration")]
pub struct Config {
    /// Where clients connect: one address, or a list of addresses.
    ///
    /// An address is `IP:PORT`; `localhost` means `127.0.0.1`. `0.0.0.0` listens on all interfaces by
    /// IPv4, `[::]` by IPv6; list both for both. Port 0 takes a free port, which the log names.
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

    /// Where the graph comes from.
    pub supergraph: Supergraph,

    /// Settings of single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, SubgraphSettings>,

    /// Which headers of a client's request reach the subgraphs. By default none do.
    pub headers: Headers,

    /// Timeouts and bounds of requests to subgraphs.
    pub traffic: Traffic,

    /// What a client's operation may cost. Larger ones are refused before they are planned.
    pub limits: Limits,

    /// WebSocket connections of clients.
    pub websocket: WebSocket,

    /// Subscriptions of clients, over every transport.
    pub subscriptions: Subscriptions,

    /// Brokers that event subgraphs publish to and subscribe to.
    pub events: Events,

    /// Answer introspection queries (`__schema`, `__type`). `__typename` is always answered.
    #[schemars(example = false)]
    pub introspection: bool,

    /// The page for trying out queries in a browser.
    pub ide: Ide,

    /// Which web pages of other origins may use the endpoint (cross-origin resource sharing).
    pub cors: Cors,

    /// What is logged, and how.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Listener { address: listen::LISTEN_DEFAULT }],
            path: "/graphql".into(),
            admin: Admin::default(),
            workers: Workers::Auto,
            supergraph: Supergraph::default(),
            subgraphs: BTreeMap::new(),
            headers: Headers::default(),
            traffic: Traffic::default(),
            limits: Limits::default(),
            websocket: WebSocket::default(),
            subscriptions: Subscriptions::default(),
            events: Events::default(),
            introspection: true,
            ide: Ide::default(),
            cors: Cors::default(),
            log: Log::default(),
        }
    }
}
