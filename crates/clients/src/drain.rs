//! The schedule by which connections are closed when the router drains: not all at once, because their clients
//! reconnect to the next instance in the same order, each with a handshake and its subscriptions.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// The number of connections that may close at once without harm.
const AT_ONCE_MAX: usize = 100;

/// The number of clients that a next instance accepts per second, a cautious estimate.
const PER_SECOND: f64 = 1_000.0;

/// The number of batches in which the connections of a reactor are closed.
pub const DRAIN_BATCHES: u32 = 64;

/// The time over which connections are closed. Set before the router begins to drain.
#[derive(Debug, Default)]
pub struct DrainSchedule(AtomicU64);

impl DrainSchedule {
    /// Computes the time for this number of connections. Half of the period remains for clients that are slow to close.
    pub fn plan(&self, connections: usize, drain_period: Duration) -> Duration {
        let spread = if connections <= AT_ONCE_MAX {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(connections as f64 / PER_SECOND).min(drain_period / 2)
        };
        // Half of a period that the configuration bounds.
        self.0.store(spread.as_millis() as u64, Ordering::SeqCst);
        spread
    }

    /// Waits until one connection is to be closed, at some time after `shutdown` became true.
    pub async fn turn(&self, mut shutdown: watch::Receiver<bool>) {
        // If the sender is dropped, the wait ends as well.
        let _ = shutdown.wait_for(|stop| *stop).await;
        let spread = Duration::from_millis(self.0.load(Ordering::SeqCst));
        // Any random number is good enough, and each of these hashers has another key.
        let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        tokio::time::sleep(spread.mul_f64(chance)).await;
    }
}

/// Returns the batch ([`DRAIN_BATCHES`]) in which a connection of a reactor is closed.
pub fn batch_of(connection: u64) -> u32 {
    // Multiplying by an odd number with bits all over separates neighbours; the upper bits are the best mixed ones.
    let mixed = connection.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (mixed % u64::from(DRAIN_BATCHES)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_close_at_once_and_many_within_half_of_the_drain_period() {
        let plan =
            |connections| DrainSchedule::default().plan(connections, Duration::from_secs(30));
        assert_eq!(plan(0), Duration::ZERO);
        assert_eq!(plan(AT_ONCE_MAX), Duration::ZERO);
        assert_eq!(plan(5_000), Duration::from_secs(5));
        assert_eq!(plan(1_000_000), Duration::from_secs(15));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_close_evenly_over_the_time() {
        let farewell = DrainSchedule::default();
        let spread = farewell.plan(4_000, Duration::from_secs(30));
        let (stop, shutdown) = watch::channel(false);
        let began = tokio::time::Instant::now();
        let turns = (0..400).map(|_| async {
            farewell.turn(shutdown.clone()).await;
            began.elapsed()
        });
        let stopping = async { stop.send_replace(true) };
        let (asked, _) = tokio::join!(futures_util::future::join_all(turns), stopping);
        for quarter in 0..4 {
            let (from, to) = (spread * quarter / 4, spread * (quarter + 1) / 4);
            let count = asked.iter().filter(|it| (from..=to).contains(*it)).count();
            assert!((40..200).contains(&count), "{count} in quarter {quarter}");
        }
    }

    #[test]
    fn neighbours_close_in_different_batches() {
        let mut portions = [0_u32; DRAIN_BATCHES as usize];
        (0..6_400).for_each(|connection| portions[batch_of(connection) as usize] += 1);
        assert!(portions.iter().all(|count| (50..150).contains(count)), "{portions:?}");
    }
}
