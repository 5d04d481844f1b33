//! Settings of Redis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_tls::ClientTls;
use super::format::{ProviderIdText, RedisUrlText, SecretText, UserNameText};
use super::provider_settings::{Retry, decoded, split_credentials};
use super::secret::Secret;

/// A connection to Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The servers: `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, or `unix:///PATH` for a Unix domain socket.
    /// Several are nodes of one cluster, tried in this order until one responds; with `sentinel`, they are the
    /// sentinels. Credentials in a URL (`redis://USER:PASSWORD@HOST`, `redis://:PASSWORD@HOST`) count as
    /// `authentication`.
    #[schemars(with = "Vec<RedisUrlText>", length(min = 1, max = 100), example = &["redis://redis.internal:6379"])]
    pub urls: Vec<String>,

    /// Treats the servers as a cluster: Redis Streams are read and written at the node that has the key. The router
    /// finds the other nodes through those in `urls`. Pub/Sub reaches all nodes in either case.
    #[serde(default)]
    #[schemars(example = true)]
    pub cluster_enabled: bool,

    /// Uses sharded channels (`SSUBSCRIBE`, `SPUBLISH`; Redis 7): the events of a channel go through the node that has
    /// its slot, rather than through all nodes. Patterns are not available then. It requires `cluster_enabled`.
    #[serde(default)]
    #[schemars(example = true)]
    pub sharded_channels: bool,

    /// Sentinels that know the current master. The router asks them for each new connection.
    #[serde(default)]
    pub sentinel: Option<RedisSentinel>,

    /// The credentials of the router. By default it connects without credentials.
    #[serde(default)]
    pub authentication: Option<RedisAuthentication>,

    /// Certificates for `rediss://`.
    #[serde(default)]
    pub tls: ClientTls,

    /// Redis Streams: topics whose events the server stores.
    #[serde(default)]
    pub streams: RedisStreams,

    /// The waiting times between attempts to reconnect.
    #[serde(default)]
    pub retry: Retry,
}

impl RedisProvider {
    /// True if the URL contains a user or a password, as in `redis://user:password@host`.
    pub(super) fn has_credentials(url: &str) -> bool {
        split_credentials(url).is_some()
    }

    /// Moves credentials from the URLs to `authentication`, so that logs may show the URLs.
    pub(super) fn separate_credentials(&mut self) {
        separate_credentials(&mut self.urls, &mut self.authentication);
    }
}

/// Moves credentials from URLs to `authentication`.
pub(super) fn separate_credentials(
    urls: &mut [String],
    authentication: &mut Option<RedisAuthentication>,
) {
    for url in urls {
        let Some((credentials, without)) = split_credentials(url) else { continue };
        let (username, password) = credentials.split_once(':').unwrap_or(("", credentials));
        *authentication = Some(RedisAuthentication {
            username: Some(decoded(username)).filter(|username| !username.is_empty()),
            password: Secret::new(decoded(password)),
        });
        *url = without;
    }
}

/// Sentinels of Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisSentinel {
    /// The name of the master, as the sentinels know it.
    #[schemars(with = "UserNameText", example = &"mymaster")]
    pub master: String,
    /// The credentials of the router at the sentinels. Those for the master are in `authentication` of the provider.
    #[serde(default)]
    pub authentication: Option<RedisAuthentication>,
}

/// Settings of Redis Streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisStreams {
    /// The approximate number of events that each stream keeps when the router publishes to it (`MAXLEN ~`). 0 keeps
    /// all of them.
    #[schemars(range(max = 1_000_000_000), example = 100_000)]
    pub max_len: u64,
}

impl Default for RedisStreams {
    fn default() -> Self {
        Self { max_len: events::RedisSettings::STREAM_ENTRIES_MAX }
    }
}

/// Credentials of the router at Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisAuthentication {
    /// A user of the access control list. By default, the password is that of the user `default`.
    #[serde(default)]
    #[schemars(with = "Option<UserNameText>", example = &"starling")]
    pub username: Option<String>,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${REDIS_PASSWORD}")]
    pub password: Secret,
}
