//! Settings of a Kafka provider. They are plain data, also in a build without the Kafka client: the configuration takes
//! its defaults and rules from here.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::{BrokerTls, BrokerTlsError, Retry};

/// The maximum number of initial brokers. The other brokers of the cluster are found through them.
const BROKERS_MAX: usize = 100;

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
    /// This build of the router has no Kafka client.
    #[error("this build has no Kafka client (feature `kafka`)")]
    NoClient,
}

impl KafkaAuthentication {
    /// Returns the name of the SASL mechanism.
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::ScramSha256(_) => "SCRAM-SHA-256",
            Self::ScramSha512(_) => "SCRAM-SHA-512",
            Self::Token(_) | Self::TokenFile(_) => "OAUTHBEARER",
        }
    }
}

impl KafkaSettings {
    /// Checks that the settings can work at all.
    ///
    /// # Errors
    /// The list of brokers or the files for TLS cannot be used.
    pub(crate) fn check(&self) -> Result<(), KafkaSettingsError> {
        if !(1..=BROKERS_MAX).contains(&self.brokers.len()) {
            return Err(KafkaSettingsError::Brokers);
        }
        if let Some(broker) = self.brokers.iter().find(|broker| !is_kafka_broker(broker)) {
            return Err(KafkaSettingsError::Broker(broker.clone()));
        }
        Ok(self.tls.as_ref().map_or(Ok(()), BrokerTls::check_files)?)
    }
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
pub(crate) mod tests {
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
    fn a_missing_file_is_named() {
        let tls = BrokerTls { ca: Some("/nowhere/ca.pem".into()), ..BrokerTls::default() };
        let settings = KafkaSettings { tls: Some(tls), ..settings(&["k:1"]) };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with("tls: cannot read /nowhere/ca.pem: "), "{error}");
    }
}
