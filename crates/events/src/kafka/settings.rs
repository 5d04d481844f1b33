//! Settings of a Kafka provider, and the configuration of librdkafka made from them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::client_callbacks::OauthToken;
use crate::{BrokerTls, BrokerTlsError, Retry};

/// The maximum number of initial brokers. The other brokers of the cluster are found through them.
const BROKERS_MAX: usize = 100;

/// The name of the group that the library requires for assigning partitions. No group of that name is ever joined and
/// no offset is committed.
const GROUP: &str = "starling";

/// The maximum number of publications that wait in the producer, and their kibibytes. Beyond it a publication is
/// refused rather than held, so that the publisher gets an error.
const PUBLICATIONS_WAITING_MAX: u32 = 10_000;
const PUBLICATIONS_WAITING_KIBIBYTES_MAX: u32 = 64 * 1024;

/// The time for which the producer collects events for one request: about as long as a broker's response takes anyway.
const LINGER: &str = "1";

/// The limits of the library's own ranges: the bytes in a response (less the overhead), the queue, and the wait, which
/// must be shorter than the minute after which a request has failed.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
const QUEUE_KIBIBYTES_MAX: usize = 2_097_151;
const WAIT_MAX: Duration = Duration::from_secs(50);

/// The largest message that the consumer accepts. A broker sends a larger one alone, and the library accepts it
/// regardless of this setting.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Settings of one Kafka provider.
#[derive(Clone)]
pub struct KafkaSettings {
    /// The part of the name after `kafka/`.
    pub id: Box<str>,
    /// The initial brokers as `host:port`.
    pub brokers: Vec<String>,
    /// The credentials. `None` connects without credentials.
    pub authentication: Option<KafkaAuthentication>,
    /// The TLS files. `None` connects without TLS.
    pub tls: Option<BrokerTls>,
    /// The delays between attempts to connect.
    pub retry: Retry,
    /// The interval at which the partitions of the topics are checked.
    pub metadata_refresh: Duration,
    /// The amount that is read ahead.
    pub fetch: KafkaFetch,
    /// The maximum time for a publication.
    pub publish_timeout: Duration,
    /// The number of events that wait in one stream.
    pub queue_events: usize,
}

/// The credentials for brokers (SASL).
#[derive(Clone)]
pub enum KafkaAuthentication {
    /// User and password in plain text. They are secret only with TLS.
    Plain(KafkaUser),
    /// User and password with SCRAM-SHA-256, which never sends the password.
    ScramSha256(KafkaUser),
    /// User and password with SCRAM-SHA-512, which never sends the password.
    ScramSha512(KafkaUser),
    /// OAUTHBEARER with this token.
    Token(Box<str>),
    /// OAUTHBEARER with the token in this file, which is read again every few minutes.
    TokenFile(PathBuf),
}

/// A user and a password.
#[derive(Clone)]
pub struct KafkaUser {
    /// The name of the user.
    pub username: Box<str>,
    /// The password.
    pub password: Box<str>,
}

/// The amount that is read ahead of the streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KafkaFetch {
    /// The time for which a broker waits for events before it sends an empty response.
    pub wait_max: Duration,
    /// The maximum bytes in one response of a broker.
    pub response_bytes: usize,
    /// The maximum bytes in the queue of each consumer.
    pub queue_bytes: usize,
    /// The maximum number of consumers in addition to the shared one, for streams that start in the past or have fallen
    /// behind.
    pub readers: usize,
}

impl Default for KafkaFetch {
    /// Returns the defaults: 16 MiB hold a second of the events that a router can resolve; sixteen dedicated consumers
    /// have 256 MiB at worst.
    fn default() -> Self {
        Self {
            wait_max: Duration::from_millis(500),
            response_bytes: 8 * 1024 * 1024,
            queue_bytes: 16 * 1024 * 1024,
            readers: 16,
        }
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSettings")
            .field("id", &self.id)
            .field("brokers", &self.brokers)
            .field("authentication", &self.authentication)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KafkaAuthentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism())
    }
}

impl fmt::Debug for KafkaUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.username)
    }
}

/// Settings that can never work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KafkaSettingsError {
    /// A broker is not written as `host:port`.
    #[error("broker {0:?} is not written as `host:port`")]
    Broker(String),
    /// There is no broker, or there are too many.
    #[error("one to {BROKERS_MAX} brokers are needed")]
    Brokers,
    /// The files for TLS cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] BrokerTlsError),
}

impl KafkaAuthentication {
    fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::ScramSha256(_) => "SCRAM-SHA-256",
            Self::ScramSha512(_) => "SCRAM-SHA-512",
            Self::Token(_) | Self::TokenFile(_) => "OAUTHBEARER",
        }
    }

    /// Returns the source of the token, if the method needs one.
    pub(super) fn token(&self) -> Option<OauthToken> {
        match self {
            Self::Token(token) => Some(OauthToken::Fixed(token.clone())),
            Self::TokenFile(path) => Some(OauthToken::File(path.clone())),
            Self::Plain(_) | Self::ScramSha256(_) | Self::ScramSha512(_) => None,
        }
    }
}

impl KafkaSettings {
    /// Checks that the settings can work at all.
    pub(super) fn check(&self) -> Result<(), KafkaSettingsError> {
        if !(1..=BROKERS_MAX).contains(&self.brokers.len()) {
            return Err(KafkaSettingsError::Brokers);
        }
        if let Some(broker) = self.brokers.iter().find(|broker| !is_kafka_broker(broker)) {
            return Err(KafkaSettingsError::Broker(broker.clone()));
        }
        Ok(self.tls.as_ref().map_or(Ok(()), BrokerTls::check_files)?)
    }

    /// Returns the configuration that consumers and producers have in common.
    fn common_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        // Failures are logged by the callbacks, once each.
        config.set_log_level(RDKafkaLogLevel::Error);
        config
            .set("client.id", "starling")
            .set("bootstrap.servers", self.brokers.join(","))
            .set("reconnect.backoff.ms", milliseconds(self.retry.initial))
            .set("reconnect.backoff.max.ms", milliseconds(self.retry.max.max(self.retry.initial)))
            .set("topic.metadata.refresh.interval.ms", milliseconds(self.metadata_refresh))
            .set("socket.keepalive.enable", "true")
            .set("log.connection.close", "false");
        let protocol = match (&self.tls, &self.authentication) {
            (None, None) => "plaintext",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), None) => "ssl",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(tls) = &self.tls {
            let trusted = match &tls.ca {
                Some(path) => path.display().to_string(),
                // The same order as for the router's other clients: the variable, then the usual places of systems.
                None => std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| "probe".into()),
            };
            config.set("ssl.ca.location", trusted);
            if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
                config
                    .set("ssl.certificate.location", certificate.display().to_string())
                    .set("ssl.key.location", key.display().to_string());
            }
        }
        if let Some(authentication) = &self.authentication {
            config.set("sasl.mechanisms", authentication.mechanism());
            match authentication {
                KafkaAuthentication::Plain(user)
                | KafkaAuthentication::ScramSha256(user)
                | KafkaAuthentication::ScramSha512(user) => {
                    config
                        .set("sasl.username", &*user.username)
                        .set("sasl.password", &*user.password);
                }
                KafkaAuthentication::Token(_) | KafkaAuthentication::TokenFile(_) => {}
            }
        }
        config
    }

    /// Returns the configuration of a consumer.
    pub(super) fn consumer_config(&self) -> ClientConfig {
        let mut config = self.common_config();
        let queue_kibibytes = (self.fetch.queue_bytes / 1024).clamp(1, QUEUE_KIBIBYTES_MAX);
        let response_bytes = self.fetch.response_bytes.clamp(1, ANSWER_BYTES_MAX);
        config
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // If the next offset does not exist, the router announces a gap instead of continuing elsewhere silently.
            .set("auto.offset.reset", "error")
            .set("allow.auto.create.topics", "false")
            .set("fetch.wait.max.ms", milliseconds(self.fetch.wait_max.min(WAIT_MAX)))
            .set("fetch.max.bytes", response_bytes.max(MESSAGE_BYTES_MAX).to_string())
            .set("max.partition.fetch.bytes", response_bytes.to_string())
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
            // The overhead around the events in a response is added.
            .set("receive.message.max.bytes", (response_bytes + 2 * MESSAGE_BYTES_MAX).to_string())
            .set("queued.max.messages.kbytes", queue_kibibytes.to_string())
            // A queue that was full is fetched for again soon, not after a second.
            .set("fetch.queue.backoff.ms", "20");
        config
    }

    /// Returns the configuration of the consumer that probes whether topics may be read.
    pub(super) fn prober_config(&self) -> ClientConfig {
        let mut config = self.consumer_config();
        config
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "10")
            // An event that happens to arrive is ignored.
            .set("fetch.message.max.bytes", "1024");
        config
    }

    /// Returns the configuration of the producer.
    pub(super) fn producer_config(&self) -> ClientConfig {
        let mut config = self.common_config();
        config
            // With these settings a retry never writes twice and never out of order.
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", milliseconds(self.publish_timeout))
            // A missing topic is refused after this time, not at the end of the attempt.
            .set("topic.metadata.propagation.max.ms", "1000")
            .set("linger.ms", LINGER)
            .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
            .set("queue.buffering.max.messages", PUBLICATIONS_WAITING_MAX.to_string())
            .set("queue.buffering.max.kbytes", PUBLICATIONS_WAITING_KIBIBYTES_MAX.to_string())
            // The same as for Java's producers, so that every publisher assigns a key to the same partition.
            .set("partitioner", "murmur2_random");
        config
    }
}

fn milliseconds(duration: Duration) -> String {
    // The range of the library's numbers; an hour is more than any of these settings needs.
    duration.as_millis().clamp(1, 3_600_000).to_string()
}

/// True if the text is `host:port`.
pub fn is_kafka_broker(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(plain),
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn settings(brokers: &[&str]) -> KafkaSettings {
        KafkaSettings {
            id: "a".into(),
            brokers: brokers.iter().map(|&broker| broker.to_owned()).collect(),
            authentication: None,
            tls: None,
            retry: Retry::default(),
            metadata_refresh: Duration::from_secs(30),
            fetch: KafkaFetch::default(),
            publish_timeout: Duration::from_secs(5),
            queue_events: 16,
        }
    }

    #[test]
    fn brokers_are_hosts_with_ports() {
        for good in ["kafka:9092", "10.0.0.1:1", "[::1]:9092", "b-1.msk_x.amazonaws.com:9096"] {
            assert_eq!(settings(&[good]).check(), Ok(()), "{good}");
        }
        for bad in
            ["kafka", "kafka:", "kafka:0", "kafka:70000", ":9092", "SSL://k:1", "a,b:1", "::1:9"]
        {
            let expected = Err(KafkaSettingsError::Broker(bad.to_owned()));
            assert_eq!(settings(&[bad]).check(), expected, "{bad}");
        }
        assert_eq!(settings(&[]).check(), Err(KafkaSettingsError::Brokers));
    }

    #[test]
    fn the_library_knows_every_setting() {
        let user = KafkaUser { username: "u".into(), password: "hunter2".into() };
        let ways = [
            None,
            Some(KafkaAuthentication::Plain(user.clone())),
            Some(KafkaAuthentication::ScramSha256(user.clone())),
            Some(KafkaAuthentication::ScramSha512(user)),
            Some(KafkaAuthentication::Token("t".into())),
        ];
        for (authentication, tls) in ways
            .into_iter()
            .flat_map(|way| [(way.clone(), None), (way, Some(BrokerTls::default()))])
        {
            let settings = KafkaSettings { authentication, tls, ..settings(&["k:1"]) };
            assert!(!format!("{settings:?}").contains("hunter2"));
            for config in
                [settings.consumer_config(), settings.prober_config(), settings.producer_config()]
            {
                config.create_native_config().unwrap();
            }
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let tls = BrokerTls { ca: Some("/nowhere/ca.pem".into()), ..BrokerTls::default() };
        let settings = KafkaSettings { tls: Some(tls), ..settings(&["k:1"]) };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with("tls: cannot read /nowhere/ca.pem: "), "{error}");
    }
}
