//! Callbacks of librdkafka: its log, failures of connections, and requests for a token. They become log lines, counters
//! and two signals, [`ConnectionHealth::down`] and [`ConnectionHealth::failed`].

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

use super::broker_outages::{BrokerOutages, BrokerRecovery};
use crate::provider_log::{LoggedConnection, ProviderLog};
use crate::{ErrorKind, ProviderStats};

/// The lifetime of a token as reported to the library. The library requests a new one after four fifths of this time,
/// so that a file that is replaced every few minutes, as the tokens of Kubernetes are, is read in time.
const TOKEN_LIFETIME: Duration = Duration::from_secs(300);

/// The maximum size of a token file. Signed tokens have a few kilobytes.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// The source of the token for OAUTHBEARER.
#[derive(Clone)]
pub(super) enum OauthToken {
    Fixed(Box<str>),
    File(PathBuf),
}

impl OauthToken {
    fn read(&self) -> Result<String, String> {
        match self {
            Self::Fixed(token) => Ok(token.to_string()),
            Self::File(path) => {
                let name = path.display();
                let length = std::fs::metadata(path).map_err(|error| format!("{name}: {error}"))?;
                if length.len() > TOKEN_BYTES_MAX {
                    return Err(format!("{name} is longer than 64 KiB"));
                }
                let text =
                    std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
                Ok(text.trim().to_owned())
            }
        }
    }
}

/// A failure of the connection to a broker, without credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BrokerFailure {
    /// The address of the broker. Empty if it is unknown.
    pub(super) server: Box<str>,
    pub(super) reason: Box<str>,
}

impl BrokerFailure {
    /// Parses a reason of the library, such as `ssl://host:9093/bootstrap: Connection refused (after 2ms in state
    /// CONNECT)`. Durations and counters, which differ each time, are left out.
    fn parse(text: &str) -> Self {
        let text = text.split(" (after ").next().unwrap_or(text);
        let (server, reason) = match text.split_once(": ") {
            Some((name, reason)) => match broker_address(name) {
                Some(server) => (server, reason),
                None => ("", text),
            },
            None => ("", text),
        };
        Self { server: server.into(), reason: reason.into() }
    }
}

/// Returns the address in a broker's name of the library, such as `ssl://host:9093/bootstrap` or `host:9092/1`.
fn broker_address(name: &str) -> Option<&str> {
    let (address, _) = name.rsplit_once('/')?;
    let address = address.rsplit_once("://").map_or(address, |(_, address)| address);
    let (_, port) = address.rsplit_once(':')?;
    port.parse::<u16>().is_ok().then_some(address)
}

/// The health of the connections of one provider.
pub(super) struct ConnectionHealth {
    pub(super) log: Arc<ProviderLog>,
    pub(super) stats: Arc<ProviderStats>,
    /// The latest failure since a broker responded.
    latest_failure: Mutex<Option<BrokerFailure>>,
    /// Notified when no broker can be reached.
    pub(super) down: Notify,
    /// The brokers that are away.
    outages: Mutex<BrokerOutages>,
    /// Notified when a broker could not be reached.
    pub(super) failed: Notify,
}

impl ConnectionHealth {
    /// `reconnect_max` is the longest pause between two attempts of the library to reach a broker.
    pub(super) fn new(provider: &str, stats: Arc<ProviderStats>, reconnect_max: Duration) -> Self {
        Self {
            log: ProviderLog::new(provider, Arc::clone(&stats)),
            stats,
            latest_failure: Mutex::new(None),
            down: Notify::new(),
            outages: Mutex::new(BrokerOutages::new(reconnect_max)),
            failed: Notify::new(),
        }
    }

    /// Returns the latest failure since a broker responded.
    pub(super) fn latest_failure(&self) -> Option<BrokerFailure> {
        self.lock_latest_failure().clone()
    }

    /// Forgets all failures, because a broker has responded after none did. The log says so for the whole cluster.
    pub(super) fn forget_failures(&self) {
        *self.lock_latest_failure() = None;
        self.lock_outages().clear();
    }

    /// Counts and logs a failure of a connection.
    pub(super) fn record_failure(&self, reason: &str) {
        self.stats.record_error(ErrorKind::Connection);
        let failure = BrokerFailure::parse(reason);
        let connection = LoggedConnection { purpose: None, server: &failure.server };
        self.log.log_failed_attempt(connection, &failure.reason);
        self.lock_outages().record_failure(&failure.server, Instant::now());
        *self.lock_latest_failure() = Some(failure);
        self.failed.notify_one();
    }

    /// Returns the time at which a broker that was away is checked next; `None` if all are there.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.lock_outages().next_check()
    }

    /// Returns the brokers to check now.
    pub(super) fn due_checks(&self, now: Instant) -> Vec<Box<str>> {
        self.lock_outages().due(now)
    }

    /// Notes that a broker that was checked accepts no connection.
    pub(super) fn record_unreachable(&self, server: &str, now: Instant) {
        self.lock_outages().record_unreachable(server, now);
    }

    /// Notes that a broker that was checked accepts connections, and logs the end of its outage.
    pub(super) fn record_reached(&self, server: &str, now: Instant) {
        let recovery = self.lock_outages().record_reached(server, now);
        if let Some(BrokerRecovery { failures, is_last }) = recovery {
            let provider = self.log.provider();
            tracing::info!(provider, server, failures, "the connection to the broker works again");
            if is_last {
                self.log.forget_connection_failures(now);
            }
        }
    }

    /// Locks the outages. No code panics under this lock, so a poisoned lock holds a valid value.
    fn lock_outages(&self) -> MutexGuard<'_, BrokerOutages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the latest failure. No code panics under this lock, so a poisoned lock holds a valid value.
    fn lock_latest_failure(&self) -> MutexGuard<'_, Option<BrokerFailure>> {
        self.latest_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callbacks of one client of the library.
pub(super) struct ClientCallbacks {
    pub(super) health: Arc<ConnectionHealth>,
    pub(super) token: Option<OauthToken>,
}

impl ClientContext for ClientCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // Everything that an operator must know is also reported as an error. This log is for developers.
        tracing::debug!(
            provider = self.health.log.provider(),
            severity = ?level,
            facility,
            text = message,
            "librdkafka"
        );
    }

    fn error(&self, error: KafkaError, reason: &str) {
        use RDKafkaErrorCode as Code;
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => self.health.down.notify_one(),
            Some(
                Code::BrokerTransportFailure
                | Code::Resolve
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::SSL
                | Code::OperationTimedOut,
            ) => self.health.record_failure(reason),
            // The router does not use consumer groups, so errors about groups do not matter.
            Some(
                Code::GroupAuthorizationFailed
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::PartitionEOF,
            ) => {}
            // The consumer loop handles these errors.
            _ => {
                self.health.stats.record_error(ErrorKind::Other);
                let provider = self.health.log.provider();
                tracing::debug!(provider, %error, reason, "the library reports");
            }
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let token = self.token.as_ref().ok_or("no token is configured")?.read();
        let token = token.inspect_err(|reason| self.health.record_failure(reason))?;
        let until = SystemTime::now() + TOKEN_LIFETIME;
        let until = until.duration_since(UNIX_EPOCH)?.as_millis();
        Ok(OAuthToken {
            token,
            principal_name: "starling".into(),
            lifetime_ms: i64::try_from(until)?,
        })
    }
}

impl ConsumerContext for ClientCallbacks {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider_log::tests::captured;

    #[test]
    fn the_broker_and_the_reason_are_parsed_from_the_librarys_text() {
        let parse = |text| {
            let BrokerFailure { server, reason } = BrokerFailure::parse(text);
            (server.to_string(), reason.to_string())
        };
        let expected = |server: &str, reason: &str| (server.to_owned(), reason.to_owned());
        for (text, server, reason) in [
            (
                "b1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused \
                 (after 2ms in state CONNECT, 3 identical error(s) suppressed)",
                "b1:9092",
                "Connect to ipv4#127.0.0.1:9092 failed: Connection refused",
            ),
            (
                "sasl_ssl://b1:9093/1: SASL authentication failed",
                "b1:9093",
                "SASL authentication failed",
            ),
            ("[::1]:9092/2: Disconnected", "[::1]:9092", "Disconnected"),
            ("GroupCoordinator: Disconnected", "", "GroupCoordinator: Disconnected"),
            ("/run/token: No such file or directory", "", "/run/token: No such file or directory"),
            ("no token is configured", "", "no token is configured"),
        ] {
            assert_eq!(parse(text), expected(server, reason), "{text}");
        }
    }

    #[test]
    fn failures_are_forgotten_when_a_broker_has_responded() {
        let health = ConnectionHealth::new("kafka/default", Arc::default(), Duration::ZERO);
        health.record_failure("b1:9092/1: Connection refused (after 2ms in state CONNECT)");
        let failure =
            BrokerFailure { server: "b1:9092".into(), reason: "Connection refused".into() };
        assert_eq!(health.latest_failure(), Some(failure));
        health.forget_failures();
        assert_eq!(health.latest_failure(), None);
        assert_eq!(health.next_check(), None);
    }

    #[test]
    fn a_broker_that_has_failed_is_checked_later_until_it_is_reached() {
        let health = ConnectionHealth::new("kafka/default", Arc::default(), Duration::ZERO);
        assert_eq!(health.next_check(), None);
        health.record_failure("b1:9092/1: Connection refused (after 2ms in state CONNECT)");
        let due = health.next_check().expect("a check");
        assert_eq!(health.due_checks(due), [Box::<str>::from("b1:9092")]);
        health.record_unreachable("b1:9092", due);
        let due = health.next_check().filter(|next| *next > due).expect("a later check");
        health.record_reached("b1:9092", due);
        assert_eq!(health.next_check(), None);
    }

    #[test]
    fn the_recovery_of_each_broker_is_logged_with_its_own_failures() {
        let health = ConnectionHealth::new("kafka/default", Arc::default(), Duration::ZERO);
        health.record_failure("b1:9092/1: Disconnected");
        health.record_failure("b2:9092/2: Disconnected");
        health.record_failure("b2:9092/2: Connection refused");
        health.record_failure("b3:9092/3: Disconnected");
        let due = Instant::now() + Duration::from_secs(60);
        let lines = captured(|| {
            health.record_unreachable("b3:9092", due);
            health.record_reached("b1:9092", due);
            health.record_reached("b2:9092", due);
        });
        let line = |server: &str, failures: u64| {
            format!(
                "INFO the connection to the broker works again provider=\"kafka/default\" \
                 server=\"{server}\" failures={failures}"
            )
        };
        assert_eq!(lines, [line("b1:9092", 1), line("b2:9092", 2)]);
    }
}
