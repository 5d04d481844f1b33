//! Attempts to make a connection, one after the other, until one succeeds.

use std::sync::Arc;

use redis::aio::AsyncPushSender;
use redis_connection::{RESPONSE_TIMEOUT, RedisAddress, RedisConnection, ServerSource};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::provider_log::{LoggedConnection, ProviderLog};
use crate::{ProviderStats, Retry};

/// The settings and state that the dialers of one provider share.
#[derive(Clone)]
pub(super) struct DialerFactory {
    pub(super) log: Arc<ProviderLog>,
    /// The servers, for a dialer that may connect to any of them.
    pub(super) source: ServerSource,
    pub(super) retry: Retry,
    pub(super) stats: Arc<ProviderStats>,
}

impl DialerFactory {
    /// Makes a dialer for any of the servers.
    pub(super) fn dialer(&self, purpose: &'static str) -> Dialer {
        self.dialer_for(purpose, self.source.clone())
    }

    /// Makes a dialer that finds its server in `source`.
    pub(super) fn dialer_for(&self, purpose: &'static str, source: ServerSource) -> Dialer {
        Dialer {
            log: Arc::clone(&self.log),
            purpose,
            source,
            server: String::new(),
            attempts: 0,
            stale_before: Instant::now(),
            backoff: Backoff::new(self.retry),
            not_before: Instant::now(),
            stats: Arc::clone(&self.stats),
        }
    }
}

/// Makes connections one after the other, each attempt at the next address and not before its time.
pub(super) struct Dialer {
    log: Arc<ProviderLog>,
    /// The use of the connection, for logs.
    purpose: &'static str,
    source: ServerSource,
    /// The server of the latest attempt. Empty if none was found.
    server: String,
    attempts: usize,
    /// The time of the latest failure. Knowledge about the servers from before it is out of date.
    stale_before: Instant,
    backoff: Backoff,
    not_before: Instant,
    stats: Arc<ProviderStats>,
}

impl Dialer {
    /// Makes one attempt. The error is the reason why it failed, without credentials.
    pub(super) async fn connect(
        &mut self,
        pushed: Option<impl AsyncPushSender>,
    ) -> Result<RedisConnection, Box<str>> {
        sleep_until(self.not_before).await;
        let found = self.source.find_server(self.attempts, self.stale_before).await;
        self.server = found.as_ref().map(RedisAddress::display_name).unwrap_or_default();
        let result = match found {
            Ok(address) => self.open(&address, pushed).await,
            Err(reason) => Err(reason),
        };
        if let Err(reason) = &result {
            self.on_failed_attempt(reason);
        }
        result
    }

    /// Logs an attempt that has failed, and delays the next one, which is at the next address.
    pub(super) fn on_failed_attempt(&mut self, reason: &str) {
        self.stats.record_error(crate::ErrorKind::Connection);
        self.log.log_failed_attempt(self.logged_connection(), reason);
        self.attempts = self.attempts.wrapping_add(1);
        self.delay_next_attempt();
    }

    async fn open(
        &self,
        address: &RedisAddress,
        pushed: Option<impl AsyncPushSender>,
    ) -> Result<RedisConnection, Box<str>> {
        let mut connection = RedisConnection::open(address, pushed, RESPONSE_TIMEOUT).await?;
        if self.source.is_master()
            && let Err(reason) = connection.confirm_master().await
        {
            connection.close().await;
            return Err(reason);
        }
        Ok(connection)
    }

    /// Logs a connection, and resets the delays.
    pub(super) fn on_connected(&mut self) {
        self.backoff.reset();
        self.log.log_connected(self.logged_connection());
    }

    /// Logs that the connection was lost, with the number of streams that used it, and delays the next attempt.
    pub(super) fn on_lost(&mut self, reason: &str, streams: Option<usize>) {
        self.log.log_lost(self.logged_connection(), reason, streams);
        self.delay_next_attempt();
    }

    fn logged_connection(&self) -> LoggedConnection<'_> {
        LoggedConnection { purpose: Some(self.purpose), server: &self.server }
    }

    fn delay_next_attempt(&mut self) {
        self.stale_before = Instant::now();
        self.not_before = self.stale_before + self.backoff.next_delay();
    }
}
