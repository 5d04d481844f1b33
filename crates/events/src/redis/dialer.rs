//! Attempts to make a connection, one after the other, until one succeeds.

use std::sync::Arc;

use redis::aio::AsyncPushSender;
use redis_connection::{RESPONSE_TIMEOUT, RedisAddress, RedisConnection, ServerSource};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::{ProviderStats, Retry};

/// The settings and state that the dialers of one provider share.
#[derive(Clone)]
pub(super) struct DialerFactory {
    pub(super) provider: Box<str>,
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
            provider: self.provider.clone(),
            purpose,
            source,
            attempts: 0,
            stale_before: Instant::now(),
            backoff: Backoff::new(self.retry),
            not_before: Instant::now(),
            stats: Arc::clone(&self.stats),
            warned_reason: "".into(),
        }
    }
}

/// Makes connections one after the other, each attempt at the next address and not before its time.
pub(super) struct Dialer {
    provider: Box<str>,
    /// The use of the connection, for logs.
    purpose: &'static str,
    source: ServerSource,
    attempts: usize,
    /// The time of the latest failure. Knowledge about the servers from before it is out of date.
    stale_before: Instant,
    backoff: Backoff,
    not_before: Instant,
    stats: Arc<ProviderStats>,
    /// The latest failure that was logged as a warning. Logging it only once keeps an absent broker from filling the
    /// log.
    warned_reason: Box<str>,
}

impl Dialer {
    /// Makes one attempt. The error is the reason why it failed, without credentials.
    pub(super) async fn connect(
        &mut self,
        pushed: Option<impl AsyncPushSender>,
    ) -> Result<RedisConnection, Box<str>> {
        sleep_until(self.not_before).await;
        let (server, result) = match self.source.find_server(self.attempts, self.stale_before).await
        {
            Ok(address) => (address.display_name(), self.open(&address, pushed).await),
            Err(reason) => (String::new(), Err(reason)),
        };
        if let Err(reason) = &result {
            self.stats.record_error(crate::ErrorKind::Connection);
            let (provider, purpose) = (&self.provider, self.purpose);
            if self.warned_reason == *reason {
                tracing::debug!(%provider, purpose, server, %reason, "still no connection to the broker");
            } else {
                tracing::warn!(%provider, purpose, server, %reason, "no connection to the broker; trying again");
                self.warned_reason = reason.clone();
            }
            self.attempts = self.attempts.wrapping_add(1);
            self.on_lost();
        }
        result
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

    /// Resets the delays after a connection has succeeded.
    pub(super) fn on_connected(&mut self) {
        self.backoff.reset();
        self.warned_reason = "".into();
    }

    /// Delays the next attempt after a connection was lost.
    pub(super) fn on_lost(&mut self) {
        self.stale_before = Instant::now();
        self.not_before = self.stale_before + self.backoff.next_delay();
    }
}
