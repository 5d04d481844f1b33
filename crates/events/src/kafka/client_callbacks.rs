//! Callbacks of librdkafka: its log, failures of connections, and requests for a token. They become log lines, counters
//! and one signal, [`ConnectionHealth::down`].

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

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

/// The health of the connections of one provider.
pub(super) struct ConnectionHealth {
    pub(super) provider: Box<str>,
    pub(super) stats: Arc<ProviderStats>,
    /// The latest failure, without credentials.
    latest_failure: Mutex<Box<str>>,
    /// Notified when no broker can be reached.
    pub(super) down: Notify,
}

impl ConnectionHealth {
    pub(super) fn new(provider: Box<str>, stats: Arc<ProviderStats>) -> Self {
        Self {
            provider,
            stats,
            latest_failure: Mutex::new("not connected yet".into()),
            down: Notify::new(),
        }
    }

    /// Returns the latest failure.
    pub(super) fn reason(&self) -> Box<str> {
        self.latest_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a failure of a connection, and logs it as a warning if it is a new one.
    pub(super) fn record_failure(&self, reason: &str) {
        self.stats.record_error(ErrorKind::Connection);
        // The same failure has different durations and counters each time.
        let reason = reason.split(" (after ").next().unwrap_or(reason);
        let mut latest_failure = self.latest_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if **latest_failure == *reason {
            tracing::debug!(provider = %self.provider, %reason, "still no connection to the broker");
        } else {
            tracing::warn!(provider = %self.provider, %reason, "no connection to the broker; trying again");
            *latest_failure = reason.into();
        }
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
        tracing::debug!(provider = %self.health.provider, ?level, facility, message, "librdkafka");
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
                tracing::debug!(provider = %self.health.provider, %error, reason, "the library reports");
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
