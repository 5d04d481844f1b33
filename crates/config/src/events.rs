//! Settings of events: the brokers that event subgraphs publish to and subscribe to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_tls::ClientTls;
use super::format::{
    DurationText, FileText, InstanceText, KafkaBrokerText, NatsUrlText, ProviderIdText,
    RedisUrlText, SecretText, SizeText, UserNameText,
};
use super::quantity;
use super::secret::Secret;

/// The id of the provider that a directive without `providerId` uses.
const PROVIDER_ID_DEFAULT: &str = "default";

/// Brokers and how the router uses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Refuses to start while a provider cannot be reached. If `false`, the router starts and keeps trying, and only
    /// the fields of that provider fail.
    #[schemars(example = true)]
    pub require_all: bool,

    /// The maximum payload size of an event, and of a response to a request over a broker. In place of a larger event,
    /// subscribers get an error, and the subscription continues.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"4MiB")]
    pub max_event_size: usize,

    /// The default time limit of a mutation that publishes an event, until the broker has accepted the event, and of a
    /// field that sends a request over a broker, until the response arrives. The directive of the field can set another
    /// one.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub publish_timeout: Duration,

    /// The name of this router among the routers that share a broker. It becomes part of the names of the consumers
    /// that brokers store, so it must be unique for each router and stay the same after a restart. By default, the name
    /// of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    // An absent name is not serialized, because no check would accept `null` as a name. Therefore the schema states the
    // default itself.
    #[schemars(
        with = "Option<InstanceText>",
        extend("default" = serde_json::Value::Null),
        example = &"router-1"
    )]
    pub instance: Option<String>,

    /// The brokers, by kind. A directive names a provider by `providerId`: `kind/id`, or the id alone if only one kind
    /// uses it.
    pub providers: Providers,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            require_all: false,
            max_event_size: 1 << 20,
            publish_timeout: Duration::from_secs(5),
            instance: None,
            providers: Providers::default(),
        }
    }
}

/// The brokers, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Providers {
    /// Brokers inside this process. One named `default` exists even if it is not listed.
    // The schema has no default here: the provider `default` is added to any list, not replaced by it.
    #[serde(deserialize_with = "with_default_memory")]
    #[schemars(extend("default" = []), length(max = 100))]
    pub memory: Vec<MemoryProvider>,

    /// NATS servers.
    #[schemars(length(max = 100))]
    pub nats: Vec<NatsProvider>,

    /// Kafka clusters, and other servers with its protocol. They need a build with the feature `kafka`.
    #[schemars(length(max = 100))]
    pub kafka: Vec<KafkaProvider>,

    /// Redis servers, and other servers with its protocol (RESP3).
    #[schemars(length(max = 100))]
    pub redis: Vec<RedisProvider>,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            memory: vec![MemoryProvider::default()],
            nats: Vec::new(),
            kafka: Vec::new(),
            redis: Vec::new(),
        }
    }
}

impl Providers {
    /// True if a provider outside this process is configured. All kinds are named here, so that a new one cannot be
    /// forgotten.
    pub fn has_brokers(&self) -> bool {
        let Self { memory: _, nats, kafka, redis } = self;
        !(nats.is_empty() && kafka.is_empty() && redis.is_empty())
    }
}

/// A broker inside this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The number of recent events of each topic that are kept for subscribers that join late.
    #[serde(default = "ring_events_default")]
    #[schemars(range(min = 1, max = 1_000_000), example = 100)]
    pub ring_events: u32,
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self { id: PROVIDER_ID_DEFAULT.into(), ring_events: ring_events_default() }
    }
}

/// A connection to NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatsProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The server: `nats://HOST:PORT`, or `tls://HOST:PORT`. Several URLs with commas between them are servers of one
    /// cluster, tried in turn. Credentials in a single URL (`nats://USER:PASSWORD@HOST`, `nats://TOKEN@HOST`) count as
    /// `authentication`.
    #[schemars(with = "NatsUrlText", example = &"nats://nats.internal:4222")]
    pub url: String,

    /// The credentials of the router. By default it connects without credentials.
    #[serde(default)]
    #[schemars(with = "Option<NatsAuthenticationKeys>")]
    pub authentication: Option<NatsAuthentication>,

    /// Certificates for `tls://`, and for `nats://` if the server requires TLS. If one of the files is set, the router
    /// never connects without TLS. The files are read again for each new connection.
    #[serde(default)]
    pub tls: ClientTls,

    /// Settings of JetStream that directives do not contain.
    #[serde(default)]
    pub jetstream: JetStream,

    /// The waiting times between attempts to reconnect.
    #[serde(default)]
    pub retry: Retry,
}

/// Settings of JetStream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JetStream {
    /// Makes publishing wait until a stream has stored the event; then publishing to a subject without a stream fails.
    /// If `false`, an event counts as published when it has been sent to the server.
    #[schemars(example = true)]
    pub publish_ack: bool,
}

impl NatsProvider {
    /// True if the URL contains credentials, as in `nats://user:password@host`.
    pub(super) fn has_credentials_in_url(&self) -> bool {
        self.url.contains('@')
    }

    /// Moves credentials from the URL to `authentication`, so that logs may show the URL.
    pub(super) fn separate_credentials(&mut self) {
        let Some((credentials, url)) = split_credentials(&self.url) else { return };
        self.authentication = Some(match credentials.split_once(':') {
            Some((username, password)) => NatsAuthentication::UserInfo(UserInfo {
                username: decoded(username),
                password: Secret::new(decoded(password)),
            }),
            None => NatsAuthentication::Token(Secret::new(decoded(credentials))),
        });
        self.url = url;
    }
}

/// Splits a URL into the credentials between `://` and `@`, and the URL without them.
fn split_credentials(url: &str) -> Option<(&str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, host) = rest.rsplit_once('@')?;
    Some((credentials, format!("{scheme}://{host}")))
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Credentials of the router at NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatsAuthentication {
    /// A token.
    Token(Secret),
    /// A user name and a password.
    UserInfo(UserInfo),
    /// The seed of an nkey.
    Nkey(Secret),
    /// A file of credentials: a JWT and the seed of its nkey.
    CredentialsFile(PathBuf),
}

impl NatsAuthentication {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Self::CredentialsFile(path) = self {
            *path = folder.join(&*path);
        }
    }
}

/// A Kafka cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaProvider {
    /// The id by which `providerId` names this provider.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// Some of the cluster's brokers, as `HOST:PORT`. The router finds the others through them.
    #[schemars(with = "Vec<KafkaBrokerText>", length(min = 1, max = 100), example = &["kafka.internal:9092"])]
    pub brokers: Vec<String>,

    /// The credentials of the router (SASL). By default it connects without credentials.
    #[serde(default)]
    #[schemars(with = "Option<KafkaAuthenticationKeys>")]
    pub authentication: Option<KafkaAuthentication>,

    /// Connects with TLS. `tls: {}` trusts the authorities that the system trusts.
    #[serde(default)]
    pub tls: Option<KafkaTls>,

    /// The amount of data that the router reads ahead.
    #[serde(default)]
    pub fetch: KafkaFetch,

    /// The interval at which the router looks for new partitions and deleted topics.
    #[serde(default = "metadata_refresh_default", with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub metadata_refresh: Duration,

    /// The waiting times between attempts to reconnect.
    #[serde(default)]
    pub retry: Retry,
}

impl KafkaProvider {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(KafkaAuthentication::OauthTokenFile(path)) = &mut self.authentication {
            *path = folder.join(&path);
        }
        if let Some(tls) = &mut self.tls {
            tls.files.resolve(folder);
        }
    }
}

/// Credentials of the router at Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaAuthentication {
    /// A user name and a password, sent in plain text.
    SaslPlain(SaslPlain),
    /// A user name and a password, verified without sending the password.
    SaslScram(SaslScram),
    /// A token (OAUTHBEARER).
    OauthToken(Secret),
    /// A file that contains a token.
    OauthTokenFile(PathBuf),
}

/// The credentials of the router: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct KafkaAuthenticationKeys {
    /// A user name and a password, sent in plain text: use it with `tls`.
    sasl_plain: Option<SaslPlain>,
    /// A user name and a password, verified without sending the password.
    sasl_scram: Option<SaslScram>,
    /// A token for OAUTHBEARER. Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${KAFKA_TOKEN}")]
    oauth_token: Option<Secret>,
    /// A file with the token for OAUTHBEARER. The router reads it every four minutes, so that another program can renew
    /// the token.
    #[schemars(with = "Option<FileText>", example = &"/var/run/secrets/kafka/token")]
    oauth_token_file: Option<PathBuf>,
}

/// A user name and a password for Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaslPlain {
    /// The user name.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub username: String,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${KAFKA_PASSWORD}")]
    pub password: Secret,
}

/// A user name and a password for Kafka, verified by SCRAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaslScram {
    /// The user name.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub username: String,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${KAFKA_PASSWORD}")]
    pub password: Secret,
    /// The hash of the password that the brokers store.
    #[serde(default)]
    #[schemars(example = &"SCRAM-SHA-256")]
    pub mechanism: ScramMechanism,
}

/// Hashes for SCRAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScramMechanism {
    /// SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    Sha256,
    /// SHA-512.
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    Sha512,
}

/// Settings of TLS to Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// Unknown keys are refused by the schema alone: serde cannot do it together with `flatten`.
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct KafkaTls {
    /// Turns TLS on.
    #[schemars(example = true)]
    pub enabled: bool,
    /// The certificates.
    #[serde(flatten)]
    pub files: ClientTls,
}

impl Default for KafkaTls {
    fn default() -> Self {
        Self { enabled: true, files: ClientTls::default() }
    }
}

/// The amount of data that the router reads ahead of its subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaFetch {
    /// The time that a broker waits for events before it sends an empty response.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"500ms")]
    pub max_wait: Duration,
    /// The maximum amount of data of a partition that a broker sends at once.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"8MiB")]
    pub max_bytes: usize,
    /// The maximum amount of data that waits in the queue of each consumer.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub queue_bytes: usize,
    /// The maximum number of consumers in addition to the one that all live subscriptions share: for subscriptions that
    /// start in the past, and for those that have fallen behind.
    #[schemars(range(min = 1, max = 1000), example = 16)]
    pub readers: usize,
}

impl Default for KafkaFetch {
    fn default() -> Self {
        let fetch = events::KafkaFetch::default();
        Self {
            max_wait: fetch.wait_max,
            max_bytes: fetch.response_bytes,
            queue_bytes: fetch.queue_bytes,
            readers: fetch.readers,
        }
    }
}

/// The default interval: short enough that an operator who adds a partition sees it, and the cost is one small request.
fn metadata_refresh_default() -> Duration {
    Duration::from_secs(30)
}

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
        for url in &mut self.urls {
            let Some((credentials, without)) = split_credentials(url) else { continue };
            let (username, password) = credentials.split_once(':').unwrap_or(("", credentials));
            self.authentication = Some(RedisAuthentication {
                username: Some(decoded(username)).filter(|username| !username.is_empty()),
                password: Secret::new(decoded(password)),
            });
            *url = without;
        }
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

/// A user name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserInfo {
    /// The user name.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub username: String,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${NATS_PASSWORD}")]
    pub password: Secret,
}

/// Waiting times between attempts; each is about twice the previous one, with jitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// The first waiting time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"250ms")]
    pub initial: Duration,
    /// The longest waiting time.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationText", example = &"30s")]
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// The credentials of the router: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct NatsAuthenticationKeys {
    /// A token. Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${NATS_TOKEN}")]
    token: Option<Secret>,
    /// A user name and a password.
    user_info: Option<UserInfo>,
    /// The seed of a user's nkey (`SU…`). Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${NATS_NKEY_SEED}")]
    nkey: Option<Secret>,
    /// A file of credentials as `nsc` writes it (`.creds`): a JWT and the seed of its nkey. It is read again for each
    /// new connection.
    #[schemars(with = "Option<FileText>", example = &"nats/starling.creds")]
    credentials_file: Option<PathBuf>,
}

/// The default number of recent events. A thousand events of 1 KB are 1 MB for each topic: little, and enough to bridge
/// a reconnect.
fn ring_events_default() -> u32 {
    1024
}

fn with_default_memory<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<MemoryProvider>, D::Error> {
    let mut providers = Vec::<MemoryProvider>::deserialize(deserializer)?;
    if providers.iter().all(|provider| provider.id != PROVIDER_ID_DEFAULT) {
        providers.push(MemoryProvider::default());
    }
    Ok(providers)
}
