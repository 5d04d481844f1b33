//! Settings of Kafka.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_tls::ClientTls;
use super::format::{
    DurationText, FileText, KafkaBrokerText, ProviderIdText, SecretText, SizeText, UserNameText,
};
use super::provider_settings::Retry;
use super::quantity;
use super::secret::Secret;

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
