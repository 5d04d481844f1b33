//! Settings of servers for state that several routers share: rate limits, automatic persisted queries.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_tls::ClientTls;
use super::format::{DurationText, ProviderIdText, RedisUrlText, StoreNamespaceText};
use super::provider_settings::Retry;
use super::quantity;
use super::redis::{RedisAuthentication, RedisSentinel, separate_credentials};

/// Servers for state that several routers share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageProviders {
    /// Redis, Valkey and compatible servers.
    #[schemars(length(max = 16))]
    pub redis: Vec<RedisStore>,
}

/// A Redis for shared state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisStore {
    /// The id by which other sections name this Redis, for example `rate_limits[].store`.
    #[schemars(with = "ProviderIdText", example = &"shared")]
    pub id: String,

    /// The servers: `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, or `unix:///PATH` for a Unix domain socket;
    /// `/3` at the end selects database 3. Several are nodes of one cluster, or servers of which one that responds is
    /// used; with `sentinel`, they are the sentinels. Credentials in a URL count as `authentication`.
    #[schemars(with = "Vec<RedisUrlText>", length(min = 1, max = 100), example = &["redis://redis.internal:6379"])]
    pub urls: Vec<String>,

    /// Treats the servers as a cluster. The router finds the other nodes through those in `urls`.
    #[serde(default)]
    #[schemars(example = true)]
    pub cluster_enabled: bool,

    /// Sentinels that know the current master.
    #[serde(default)]
    pub sentinel: Option<RedisSentinel>,

    /// The credentials of the router. By default it connects without credentials.
    #[serde(default)]
    pub authentication: Option<RedisAuthentication>,

    /// Certificates for `rediss://`.
    #[serde(default)]
    pub tls: ClientTls,

    /// The beginning of every key. Routers with equal namespaces share their state.
    #[serde(default = "namespace_default")]
    #[schemars(with = "StoreNamespaceText", example = &"shop-production")]
    pub namespace: String,

    /// The time limit of each access. What happens then depends on the feature; a request never waits longer.
    #[serde(default = "timeout_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"5ms", extend("x-minimum" = 1))]
    pub timeout: Duration,

    /// The maximum number of commands that wait for a reply. Further ones fail at once.
    #[serde(default = "max_in_flight_default")]
    #[schemars(range(min = 1, max = 1_000_000), example = 20_000)]
    pub max_in_flight: u32,

    /// The waiting times between attempts to reconnect.
    #[serde(default)]
    pub retry: Retry,
}

impl StorageProviders {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for store in &mut self.redis {
            store.tls.resolve(folder);
        }
    }

    /// Moves credentials from the URLs to `authentication`, so that logs may show the URLs.
    pub(super) fn separate_credentials(&mut self) {
        for store in &mut self.redis {
            separate_credentials(&mut store.urls, &mut store.authentication);
        }
    }

    /// Returns the ids of all stores.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.redis.iter().map(|it| it.id.as_str())
    }
}

fn namespace_default() -> String {
    "starling".into()
}

fn timeout_default() -> Duration {
    Duration::from_millis(10)
}

fn max_in_flight_default() -> u32 {
    10_000
}
