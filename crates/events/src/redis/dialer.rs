//! Attempts to make a connection, one after the other, until one succeeds.

use std::sync::Arc;

use redis::Value;
use redis::aio::AsyncPushSender;
use tokio::time::{Instant, sleep_until};

use super::address::Address;
use super::session::{RESPONSE_TIMEOUT, Session, said};
use super::targets::Targets;
use crate::backoff::Backoff;
use crate::{ProviderStats, Retry};

/// The settings and state that the dialers of one provider share.
#[derive(Clone)]
pub(super) struct Dialing {
    pub(super) provider: Box<str>,
    /// The servers, for a dialer that may connect to any of them.
    pub(super) targets: Targets,
    pub(super) retry: Retry,
    pub(super) stats: Arc<ProviderStats>,
}

impl Dialing {
    pub(super) fn dialer(&self, purpose: &'static str) -> Dialer {
        self.dialer_to(purpose, self.targets.clone())
    }

    pub(super) fn dialer_to(&self, purpose: &'static str, targets: Targets) -> Dialer {
        Dialer {
            provider: self.provider.clone(),
            purpose,
            targets,
            attempts: 0,
            stale_before: Instant::now(),
            backoff: Backoff::new(self.retry),
            not_before: Instant::now(),
            stats: Arc::clone(&self.stats),
            warned_of: "".into(),
        }
    }
}

/// Makes connections one after the other, each attempt at the next address and not before its time.
pub(super) struct Dialer {
    provider: Box<str>,
    /// The use of the connection, for logs.
    purpose: &'static str,
    targets: Targets,
    attempts: usize,
    /// The time of the latest failure. What was known of the servers before it is out of date.
    stale_before: Instant,
    backoff: Backoff,
    not_before: Instant,
    stats: Arc<ProviderStats>,
    /// Last failure that was logged as a warning, so that an absent broker fills no log.
    warned_of: Box<str>,
}

impl Dialer {
    /// One attempt; the error says why it failed, without credentials.
    pub(super) async fn attempt(
        &mut self,
        pushed: Option<impl AsyncPushSender>,
    ) -> Result<Session, Box<str>> {
        sleep_until(self.not_before).await;
        let (server, result) = match self.targets.next(self.attempts, self.stale_before).await {
            Ok(address) => (address.for_logs(), self.open(&address, pushed).await),
            Err(reason) => (String::new(), Err(reason)),
        };
        if let Err(reason) = &result {
            self.stats.record_error(crate::ErrorKind::Connection);
            let (provider, purpose) = (&self.provider, self.purpose);
            if self.warned_of == *reason {
                tracing::debug!(%provider, purpose, server, %reason, "still no connection to the broker");
            } else {
                tracing::warn!(%provider, purpose, server, %reason, "no connection to the broker; trying again");
                self.warned_of = reason.clone();
            }
            self.attempts = self.attempts.wrapping_add(1);
            self.was_lost();
        }
        result
    }

    async fn open(
        &self,
        address: &Address,
        pushed: Option<impl AsyncPushSender>,
    ) -> Result<Session, Box<str>> {
        let mut session = Session::open(address, pushed, RESPONSE_TIMEOUT).await?;
        if self.targets.is_master() {
            // Sentinels may not have noticed yet that it is one no more.
            let role = redis::cmd("ROLE");
            let answer = session.connection.send_packed_command(&role).await;
            let is_master = match answer.map_err(|error| said(&error))? {
                Value::Array(parts) => {
                    parts.first().is_some_and(|role| *role == Value::BulkString(b"master".into()))
                }
                _ => false,
            };
            if !is_master {
                session.close().await;
                return Err("the server is not the master".into());
            }
        }
        Ok(session)
    }

    /// The connection works: failures start anew.
    pub(super) fn succeeded(&mut self) {
        self.backoff.reset();
        self.warned_of = "".into();
    }

    /// The connection was lost: the next attempt waits a little.
    pub(super) fn was_lost(&mut self) {
        self.stale_before = Instant::now();
        self.not_before = self.stale_before + self.backoff.next_delay();
    }
}
