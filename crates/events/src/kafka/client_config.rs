//! The configuration of librdkafka, made from the settings of a provider.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::client_callbacks::OauthToken;
use crate::kafka_settings::{KafkaAuthentication, KafkaSettings};

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
const RESPONSE_BYTES_MAX: usize = 512 * 1024 * 1024;
const QUEUE_KIBIBYTES_MAX: usize = 2_097_151;
const WAIT_MAX: Duration = Duration::from_secs(50);

/// The largest message that the consumer accepts. A broker sends a larger one alone, and the library accepts it
/// regardless of this setting.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

impl KafkaAuthentication {
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
        let response_bytes = self.fetch.response_bytes.clamp(1, RESPONSE_BYTES_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerTls;
    use crate::kafka_settings::KafkaUser;
    use crate::kafka_settings::tests::settings;

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
}
