//! The brokers of a cluster that cannot be reached while others respond, and the end of such an outage.
//!
//! The library reports each failure of a connection, but never that a broker is back. So a broker counts as back when
//! the library has reported no failure for a while and the broker accepts a connection. [`BrokerOutages`] decides;
//! [`watch`] connects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};

use super::client_callbacks::ConnectionHealth;

/// The interval in which the library reports an equal failure of one broker only once (librdkafka,
/// `rd_kafka_broker_set_error`).
const EQUAL_FAILURES_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a connection that shows whether a broker is back.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of brokers that are watched. Large clusters have some hundred.
const BROKERS_MAX: usize = 1_000;

/// The brokers that are away. A state machine without a clock.
#[derive(Debug)]
pub(super) struct BrokerOutages {
    /// The time without a reported failure after which a broker is checked. The library tries again within it.
    quiet_time: Duration,
    /// The time of the check of each broker that is away, by its address.
    checks: BTreeMap<Box<str>, Instant>,
}

impl BrokerOutages {
    /// Creates the state without an outage. `reconnect_max` is the longest pause between two attempts of the library.
    pub(super) fn new(reconnect_max: Duration) -> Self {
        let quiet_time = EQUAL_FAILURES_INTERVAL + reconnect_max + CONNECT_TIMEOUT;
        Self { quiet_time, checks: BTreeMap::new() }
    }

    /// Notes that a broker could not be reached, or is still away. An empty address is unknown.
    pub(super) fn record_failure(&mut self, server: &str, now: Instant) {
        let has_room = self.checks.len() < BROKERS_MAX || self.checks.contains_key(server);
        if has_room && !server.is_empty() {
            self.checks.insert(server.into(), now + self.quiet_time);
        }
    }

    /// Returns the time of the next check; `None` if no broker is away.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.checks.values().min().copied()
    }

    /// Returns the brokers to check now.
    pub(super) fn due(&self, now: Instant) -> Vec<Box<str>> {
        let due = self.checks.iter().filter(|(_, at)| **at <= now);
        due.map(|(server, _)| server.clone()).collect()
    }

    /// Notes that a broker accepts connections. True if it was the last one that was away. A broker that has failed
    /// since its check was due is still away.
    pub(super) fn record_reached(&mut self, server: &str, now: Instant) -> bool {
        match self.checks.get(server) {
            Some(at) if *at <= now => {
                self.checks.remove(server);
                self.checks.is_empty()
            }
            _ => false,
        }
    }
}

/// Ends a task when it is dropped.
pub(super) struct WatchTask(AbortHandle);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the task that notices the end of outages. Must be called inside a Tokio runtime.
pub(super) fn start_watching(health: &Arc<ConnectionHealth>) -> WatchTask {
    WatchTask(tokio::spawn(watch(Arc::clone(health))).abort_handle())
}

/// Connects to brokers that are away when their checks are due. Never returns. Without an outage it only waits.
async fn watch(health: Arc<ConnectionHealth>) {
    loop {
        let Some(at) = health.next_check() else {
            health.failed.notified().await;
            continue;
        };
        sleep_until(at.into()).await;
        for server in health.due_checks(Instant::now()) {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(&*server)).await {
                Ok(Ok(_)) => health.record_reached(&server, Instant::now()),
                Ok(Err(_)) | Err(_) => health.record_away(&server, Instant::now()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn an_outage_ends_when_the_last_broker_is_reached_and_has_not_failed_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outages = BrokerOutages::new(Duration::from_secs(5));
        assert_eq!(outages.next_check(), None);
        outages.record_failure("", at(0));
        outages.record_failure("b1:9092", at(0));
        outages.record_failure("b2:9092", at(1));
        assert_eq!(outages.next_check(), Some(at(40)));
        assert_eq!(outages.due(at(39)), servers(&[]));
        assert_eq!(outages.due(at(40)), servers(&["b1:9092"]));
        assert!(!outages.record_reached("b1:9092", at(40)), "the other broker is still away");
        outages.record_failure("b2:9092", at(30));
        assert!(!outages.record_reached("b2:9092", at(41)), "it has failed meanwhile");
        assert_eq!(outages.due(at(70)), servers(&["b2:9092"]));
        assert!(outages.record_reached("b2:9092", at(70)));
        assert!(!outages.record_reached("b2:9092", at(71)), "the end is reported once");
        assert_eq!(outages.next_check(), None);
    }

    #[test]
    fn a_broker_that_is_still_away_is_checked_again() {
        let start = Instant::now();
        let mut outages = BrokerOutages::new(Duration::from_secs(5));
        outages.record_failure("b1:9092", start);
        let first = outages.next_check().expect("a check");
        outages.record_failure("b1:9092", first);
        assert_eq!(outages.next_check(), Some(first + Duration::from_secs(40)));
    }
}
