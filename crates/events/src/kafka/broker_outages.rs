//! The brokers of a cluster that cannot be reached while others respond, and the end of each such outage.
//!
//! The library reports each failure of a connection, but never that a broker is back. So a broker counts as back when
//! the library has reported no failure for a while and the broker accepts a connection. A broker that has left the
//! cluster never does: it is forgotten when the library has not tried to reach it for long. [`BrokerOutages`] decides;
//! [`watch`] connects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};

use super::client_callbacks::ConnectionHealth;

/// The interval in which the library reports an equal failure of one broker only once (librdkafka,
/// `rd_kafka_broker_set_error`).
const EQUAL_FAILURES_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a connection that shows whether a broker is back.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time without a reported failure after which a broker that cannot be reached is forgotten. The repair of a
/// machine takes less than a day, and until then an attempt costs nearly nothing.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The maximum number of brokers that are watched. Large clusters have some hundred.
const BROKERS_MAX: usize = 1_000;

/// The maximum number of brokers that are checked at the same time: each needs a socket.
const CHECKS_AT_ONCE: usize = 64;

/// The brokers that are away. A state machine without a clock.
#[derive(Debug)]
pub(super) struct BrokerOutages {
    /// The time without a reported failure after which a broker is checked. The library tries again within it.
    quiet_time: Duration,
    /// The outages by the addresses of the brokers.
    by_server: BTreeMap<Box<str>, BrokerOutage>,
}

/// The outage of one broker.
#[derive(Debug)]
struct BrokerOutage {
    /// The number of failures that the library has reported.
    failures: u64,
    /// The time of the last one.
    failed_at: Instant,
    /// The time of the next check.
    check_at: Instant,
}

/// The end of the outage of one broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BrokerRecovery {
    /// The number of failures that the library has reported.
    pub(super) failures: u64,
    /// True if no other broker is away.
    pub(super) is_last: bool,
}

impl BrokerOutages {
    /// Creates the state without an outage. `reconnect_max` is the longest pause between two attempts of the library.
    pub(super) fn new(reconnect_max: Duration) -> Self {
        let quiet_time = EQUAL_FAILURES_INTERVAL + reconnect_max + CONNECT_TIMEOUT;
        Self { quiet_time, by_server: BTreeMap::new() }
    }

    /// Notes that the library could not reach a broker. An empty address is unknown.
    pub(super) fn record_failure(&mut self, server: &str, now: Instant) {
        let check_at = now + self.quiet_time;
        if let Some(outage) = self.by_server.get_mut(server) {
            *outage = BrokerOutage { failures: outage.failures + 1, failed_at: now, check_at };
        } else if self.by_server.len() < BROKERS_MAX && !server.is_empty() {
            let outage = BrokerOutage { failures: 1, failed_at: now, check_at };
            self.by_server.insert(server.into(), outage);
        }
    }

    /// Returns the time of the next check; `None` if no broker is away.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.by_server.values().map(|outage| outage.check_at).min()
    }

    /// Returns the brokers to check now.
    pub(super) fn due(&self, now: Instant) -> Vec<Box<str>> {
        let due = self.by_server.iter().filter(|(_, outage)| outage.check_at <= now);
        due.map(|(server, _)| server.clone()).collect()
    }

    /// Notes that a broker accepts no connection. It is checked again later, or forgotten.
    pub(super) fn record_unreachable(&mut self, server: &str, now: Instant) {
        let Some(outage) = self.by_server.get_mut(server) else { return };
        if now.saturating_duration_since(outage.failed_at) < FORGET_AFTER {
            outage.check_at = now + self.quiet_time;
        } else {
            self.by_server.remove(server);
        }
    }

    /// Notes that a broker accepts connections. Returns the end of its outage. `None` if there was none, or if the
    /// broker has failed since its check was due, so that it is still away.
    pub(super) fn record_reached(&mut self, server: &str, now: Instant) -> Option<BrokerRecovery> {
        let failures = self.by_server.get(server).filter(|it| it.check_at <= now)?.failures;
        self.by_server.remove(server);
        Some(BrokerRecovery { failures, is_last: self.by_server.is_empty() })
    }

    /// Forgets all outages, because the connection to the whole cluster was lost and works again, which is logged on
    /// its own. The library reports the brokers that are still away.
    pub(super) fn clear(&mut self) {
        self.by_server.clear();
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
        let due = health.due_checks(Instant::now());
        check_brokers(&health, &due, accepts_connection).await;
    }
}

/// Connects to brokers at the same time, because each that is away takes as long as the time limit, and notes the
/// outcomes.
async fn check_brokers<F: Future<Output = bool>>(
    health: &ConnectionHealth,
    servers: &[Box<str>],
    connect: impl Fn(Box<str>) -> F,
) {
    for servers in servers.chunks(CHECKS_AT_ONCE) {
        let checks =
            servers.iter().map(|server| record_check(health, server, connect(server.clone())));
        join_all(checks).await;
    }
}

async fn record_check(
    health: &ConnectionHealth,
    server: &str,
    connecting: impl Future<Output = bool>,
) {
    match connecting.await {
        true => health.record_reached(server, Instant::now()),
        false => health.record_unreachable(server, Instant::now()),
    }
}

/// True if a broker accepts a connection in time.
async fn accepts_connection(server: Box<str>) -> bool {
    matches!(timeout(CONNECT_TIMEOUT, TcpStream::connect(&*server)).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;

    use super::*;

    const NOT_LAST: Option<BrokerRecovery> = Some(BrokerRecovery { failures: 1, is_last: false });

    fn servers(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn the_outage_of_each_broker_ends_when_it_is_reached_and_has_not_failed_for_a_while() {
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
        assert_eq!(outages.record_reached("b1:9092", at(40)), NOT_LAST);
        outages.record_failure("b2:9092", at(30));
        assert_eq!(outages.record_reached("b2:9092", at(41)), None, "it has failed meanwhile");
        assert_eq!(outages.due(at(70)), servers(&["b2:9092"]));
        let last = BrokerRecovery { failures: 2, is_last: true };
        assert_eq!(outages.record_reached("b2:9092", at(70)), Some(last));
        assert_eq!(outages.record_reached("b2:9092", at(71)), None, "the end is reported once");
        assert_eq!(outages.next_check(), None);
    }

    #[test]
    fn a_broker_that_is_still_away_is_checked_again() {
        let start = Instant::now();
        let mut outages = BrokerOutages::new(Duration::from_secs(5));
        outages.record_failure("b1:9092", start);
        let first = outages.next_check().expect("a check");
        outages.record_unreachable("b1:9092", first);
        let second = first + Duration::from_secs(40);
        assert_eq!(outages.next_check(), Some(second));
        let last = BrokerRecovery { failures: 1, is_last: true };
        assert_eq!(outages.record_reached("b1:9092", second), Some(last), "a check is no failure");
    }

    #[test]
    fn a_broker_that_has_left_the_cluster_is_forgotten_and_hides_no_recovery() {
        let start = Instant::now();
        let mut outages = BrokerOutages::new(Duration::from_secs(5));
        outages.record_failure("gone:9092", start);
        outages.record_failure("b1:9092", start);
        let soon = start + Duration::from_secs(40);
        outages.record_unreachable("gone:9092", soon);
        assert_eq!(outages.record_reached("b1:9092", soon), NOT_LAST);
        // The library still tries to reach it.
        let later = start + FORGET_AFTER;
        outages.record_failure("gone:9092", later);
        outages.record_unreachable("gone:9092", later + Duration::from_secs(40));
        assert!(outages.next_check().is_some());
        // The library knows it no longer.
        outages.record_unreachable("gone:9092", later + FORGET_AFTER);
        assert_eq!(outages.next_check(), None);
    }

    #[tokio::test]
    async fn brokers_are_checked_at_the_same_time() {
        let health = ConnectionHealth::new("kafka/default", Arc::default(), Duration::ZERO);
        let (both, reached) = (Arc::new(Barrier::new(2)), servers(&["b1:9092", "b2:9092"]));
        let connect = |_: Box<str>| {
            let both = Arc::clone(&both);
            async move {
                both.wait().await;
                true
            }
        };
        let checked = timeout(CONNECT_TIMEOUT, check_brokers(&health, &reached, connect)).await;
        assert!(checked.is_ok(), "the second check begins before the end of the first one");
    }
}
