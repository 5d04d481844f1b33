//! Brokers that event subgraphs publish to and subscribe to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{
    DurationText, FileText, InstanceText, KafkaBrokerText, NatsUrlText, ProviderIdText,
    RedisUrlText, SecretText, SizeText, UserNameText,
};
use super::secret::Secret;
use super::{duration, size};

/// The id of a provider that a directive without `providerId` means.
const PROVIDER_ID_DEFAULT: &str = "default";

/// Brokers and how they are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Refuse to start while a provider cannot be reached. Otherwise the router starts, keeps
    /// trying, and only the fields of that provider fail.
    #[schemars(example = true)]
    pub require_all: bool,

    /// Largest payload of an event, and largest answer to a request over a broker. In the place of a larger event
    /// subscribers get an error, and the subscription goes on.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"4MiB")]
    pub max_event_size: usize,

    /// How long a mutation waits until a broker has taken an event, and a field that asks over a broker for its
    /// answer, where its directive names no timeout.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"2s")]
    pub publish_timeout: Duration,

    /// The name of this router among those that share a broker: it becomes part of the names of the consumers
    /// that brokers keep for it, so it must be another one for each router, and the same after a restart.
    /// Without it, the name of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    // Nothing is written for nothing, which no check takes for a name; the schema says so itself.
    #[schemars(
        with = "Option<InstanceText>",
        extend("default" = serde_json::Value::Null),
        example = &"router-1"
    )]
    pub instance: Option<String>,

    /// The brokers, by kind. A directive names one by `providerId`: `kind/id`, or the id alone
    /// where only one kind uses it.
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
    /// Events inside this process. One named `default` exists even if it is not listed.
    // The default is left out of the schema: `default` is added to any list, not replaced by one.
    #[serde(deserialize_with = "with_default_memory")]
    #[schemars(extend("default" = []), length(max = 100))]
    pub memory: Vec<MemoryProvider>,

    /// NATS servers.
    #[schemars(length(max = 100))]
    pub nats: Vec<NatsProvider>,

    /// Kafka clusters, and others that speak its protocol.
    #[schemars(length(max = 100))]
    pub kafka: Vec<KafkaProvider>,

    /// Redis servers, and others that speak its protocol (RESP3).
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

/// A broker inside this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryProvider {
    /// What `providerId` calls it.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// How many recent events of each topic are kept for subscribers that join late.
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
    /// What `providerId` calls it.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The server: `nats://HOST:PORT`, or `tls://HOST:PORT`. Several, with commas between them, are
    /// servers of one cluster, tried in turn. Credentials in a single one
    /// (`nats://USER:PASSWORD@HOST`, `nats://TOKEN@HOST`) count as `authentication`.
    #[schemars(with = "NatsUrlText", example = &"nats://nats.internal:4222")]
    pub url: String,

    /// How the router proves who it is. Without it, it connects without credentials.
    #[serde(default)]
    #[schemars(with = "Option<NatsAuthenticationKeys>")]
    pub authentication: Option<NatsAuthentication>,

    /// Certificates for `tls://`, and for `nats://` where the server wants TLS. With one of them named, a
    /// connection without TLS is never made.
    #[serde(default)]
    pub tls: BrokerTls,

    /// What the router asks of JetStream beside what directives say.
    #[serde(default)]
    pub jetstream: JetStream,

    /// How often a lost connection is tried again.
    #[serde(default)]
    pub retry: Retry,
}

/// What the router asks of JetStream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JetStream {
    /// Whether publishing waits until a stream has stored the event. Publishing to a subject that no stream
    /// has fails then. Without it, an event counts as published when it has left for the server.
    #[schemars(example = true)]
    pub publish_ack: bool,
}

/// TLS to a broker, all files in PEM. They are read again for each new connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerTls {
    /// The authorities that the broker's certificate may be signed by, instead of those that the system
    /// trusts.
    #[schemars(with = "Option<FileText>", example = &"certificates/internal-ca.pem")]
    pub ca: Option<PathBuf>,

    /// The router's own certificate for brokers that want to know their clients (mutual TLS), followed by
    /// those between it and the root.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.pem")]
    pub certificate: Option<PathBuf>,

    /// The private key of `certificate`, not encrypted.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.key")]
    pub key: Option<PathBuf>,
}

impl BrokerTls {
    /// Paths in the file are relative to it.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.ca, &mut self.certificate, &mut self.key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// As providers take it; none: nothing is configured.
    pub(crate) fn settings(&self) -> Option<events::BrokerTls> {
        let Self { ca, certificate, key } = self.clone();
        (*self != Self::default()).then_some(events::BrokerTls { ca, certificate, key })
    }
}

impl NatsProvider {
    /// Whether the URL names a user, as in `nats://user:password@host`.
    pub(super) fn has_credentials_in_url(&self) -> bool {
        self.url.contains('@')
    }

    /// Moves credentials from the URL to `authentication`, so that the URL may be shown.
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

/// What stands between `://` and `@`, and the URL without it.
fn split_credentials(url: &str) -> Option<(&str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, host) = rest.rsplit_once('@')?;
    Some((credentials, format!("{scheme}://{host}")))
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// How the router proves to NATS who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatsAuthentication {
    /// By a token.
    Token(Secret),
    /// By user name and password.
    UserInfo(UserInfo),
    /// By the seed of an nkey.
    Nkey(Secret),
    /// By a file of credentials: a JWT and the seed of its nkey.
    CredentialsFile(PathBuf),
}

impl NatsAuthentication {
    /// Paths in the file are relative to it.
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
    /// What `providerId` calls it.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// Some of the cluster's brokers, as `HOST:PORT`. The others are found through them.
    #[schemars(with = "Vec<KafkaBrokerText>", length(min = 1, max = 100), example = &["kafka.internal:9092"])]
    pub brokers: Vec<String>,

    /// How the router proves who it is (SASL). Without it, it connects without credentials.
    #[serde(default)]
    #[schemars(with = "Option<KafkaAuthenticationKeys>")]
    pub authentication: Option<KafkaAuthentication>,

    /// Connect with TLS: `tls: {}` trusts the authorities that the system trusts.
    #[serde(default)]
    pub tls: Option<KafkaTls>,

    /// How much is read ahead.
    #[serde(default)]
    pub fetch: KafkaFetch,

    /// How often new partitions and deleted topics are looked for.
    #[serde(default = "metadata_refresh_default", with = "duration::text")]
    #[schemars(with = "DurationText", example = &"10s")]
    pub metadata_refresh: Duration,

    /// How often a lost connection is tried again.
    #[serde(default)]
    pub retry: Retry,
}

impl KafkaProvider {
    /// Lets relative paths count from `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(KafkaAuthentication::OauthTokenFile(path)) = &mut self.authentication {
            *path = folder.join(&path);
        }
        let Some(tls) = &mut self.tls else { return };
        for path in [&mut tls.ca, &mut tls.certificate, &mut tls.key].into_iter().flatten() {
            *path = folder.join(&path);
        }
    }
}

/// How the router proves to Kafka who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaAuthentication {
    /// User name and password, sent as they are.
    SaslPlain(SaslPlain),
    /// User name and password, proven without being sent.
    SaslScram(SaslScram),
    /// By a token (OAUTHBEARER).
    OauthToken(Secret),
    /// By a token in a file.
    OauthTokenFile(PathBuf),
}

/// How the router proves who it is: exactly one of these keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "describes the shape for the schema; never built")]
pub(super) struct KafkaAuthenticationKeys {
    /// A user name and a password, sent as they are: use it with `tls`.
    sasl_plain: Option<SaslPlain>,
    /// A user name and a password, proven without being sent.
    sasl_scram: Option<SaslScram>,
    /// A token for OAUTHBEARER. Messages and logs never show it.
    #[schemars(with = "Option<SecretText>", example = &"${KAFKA_TOKEN}")]
    oauth_token: Option<Secret>,
    /// A file with the token for OAUTHBEARER. It is read again every four minutes, so that something beside the
    /// router can renew it.
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

/// A user name and a password for Kafka, and how they are proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaslScram {
    /// The user name.
    #[schemars(with = "UserNameText", example = &"starling")]
    pub username: String,
    /// The password. Messages and logs never show it.
    #[schemars(with = "SecretText", example = &"${KAFKA_PASSWORD}")]
    pub password: Secret,
    /// The hash that the brokers have of the password.
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

/// TLS to Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaTls {
    /// Whether it is used.
    #[schemars(example = true)]
    pub enabled: bool,
    /// The authorities that the brokers' certificates may be signed by, in PEM, instead of those that the
    /// system trusts.
    #[schemars(with = "Option<FileText>", example = &"certificates/kafka-ca.pem")]
    pub ca: Option<PathBuf>,
    /// The router's own certificate for brokers that want to know their clients (mutual TLS), in PEM,
    /// followed by those between it and the root.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.pem")]
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`, in PEM, not encrypted.
    #[schemars(with = "Option<FileText>", example = &"certificates/router.key")]
    pub key: Option<PathBuf>,
}

impl Default for KafkaTls {
    fn default() -> Self {
        Self { enabled: true, ca: None, certificate: None, key: None }
    }
}

/// How much is read ahead of what subscriptions take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaFetch {
    /// How long a broker waits for events before it answers that there are none.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"500ms")]
    pub max_wait: Duration,
    /// How much of a partition a broker sends at once.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"8MiB")]
    pub max_bytes: usize,
    /// How much waits in the queue of each reader.
    #[serde(with = "size::text")]
    #[schemars(with = "SizeText", example = &"16MiB")]
    pub queue_bytes: usize,
    /// How many readers there may be beside the one that all live subscriptions share: for those that start in
    /// the past, and those that have fallen behind.
    #[schemars(range(min = 1, max = 1000), example = 16)]
    pub readers: usize,
}

impl Default for KafkaFetch {
    fn default() -> Self {
        let fetch = events::KafkaFetch::default();
        Self {
            max_wait: fetch.wait_max,
            max_bytes: fetch.answer_bytes,
            queue_bytes: fetch.queue_bytes,
            readers: fetch.readers,
        }
    }
}

/// Often enough that a new partition is noticed while someone watches, and one small request.
fn metadata_refresh_default() -> Duration {
    Duration::from_secs(30)
}

/// A connection to Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisProvider {
    /// What `providerId` calls it.
    #[schemars(with = "ProviderIdText", example = &"default")]
    pub id: String,

    /// The servers: `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, or `unix:///PATH` for a socket of
    /// this machine. Several are nodes of one cluster, tried in this order until one answers; with
    /// `sentinel`, they are the sentinels. Credentials in a URL (`redis://USER:PASSWORD@HOST`,
    /// `redis://:PASSWORD@HOST`) count as `authentication`.
    #[schemars(with = "Vec<RedisUrlText>", length(min = 1, max = 100), example = &["redis://redis.internal:6379"])]
    pub urls: Vec<String>,

    /// Whether the servers are a cluster. Then Redis Streams are read and written at the node that has
    /// the key; the others are found through those in `urls`. Pub/Sub reaches all nodes either way.
    #[serde(default)]
    #[schemars(example = true)]
    pub cluster_enabled: bool,

    /// Whether channels are sharded (`SSUBSCRIBE`, `SPUBLISH`; Redis 7): the events of a channel go through the
    /// node that has its slot, rather than through all nodes. There are no patterns then. It needs
    /// `cluster_enabled`.
    #[serde(default)]
    #[schemars(example = true)]
    pub sharded_channels: bool,

    /// Sentinels that know which server is the master. They are asked for each new connection.
    #[serde(default)]
    pub sentinel: Option<RedisSentinel>,

    /// How the router proves who it is. Without it, it connects without credentials.
    #[serde(default)]
    pub authentication: Option<RedisAuthentication>,

    /// Certificates for `rediss://`.
    #[serde(default)]
    pub tls: BrokerTls,

    /// Redis Streams: topics whose events the server keeps.
    #[serde(default)]
    pub streams: RedisStreams,

    /// How often a lost connection is tried again.
    #[serde(default)]
    pub retry: Retry,
}

impl RedisProvider {
    /// Whether the URL names a user or a password, as in `redis://user:password@host`.
    pub(super) fn has_credentials(url: &str) -> bool {
        split_credentials(url).is_some()
    }

    /// Moves credentials from the URLs to `authentication`, so that the URLs may be shown.
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
    /// How the router proves to the sentinels who it is; for the master there is `authentication` beside.
    #[serde(default)]
    pub authentication: Option<RedisAuthentication>,
}

/// How Redis Streams are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisStreams {
    /// How many events of each stream are kept when the router publishes to it, about (`MAXLEN ~`). 0 keeps
    /// all of them.
    #[schemars(range(max = 1_000_000_000), example = 100_000)]
    pub max_len: u64,
}

impl Default for RedisStreams {
    fn default() -> Self {
        Self { max_len: events::RedisSettings::STREAM_ENTRIES_MAX }
    }
}

/// How the router proves to Redis who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisAuthentication {
    /// A user of the access control list. Without it, the password is that of the user `default`.
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

/// Waiting times between attempts; each is about twice the one before, with jitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// The first waiting time.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"250ms")]
    pub initial: Duration,
    /// The longest waiting time.
    #[serde(with = "duration::text")]
    #[schemars(with = "DurationText", example = &"30s")]
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// How the router proves who it is: exactly one of these keys.
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
    /// A file of credentials as `nsc` writes it (`.creds`): a JWT and the seed of its nkey. It is read again
    /// for each new connection.
    #[schemars(with = "Option<FileText>", example = &"nats/starling.creds")]
    credentials_file: Option<PathBuf>,
}

/// A thousand events of 1 KB are 1 MB a topic: little, and enough to bridge a reconnect.
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
