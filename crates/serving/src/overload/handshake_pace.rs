//! The pace of WebSocket handshakes. When a router or a network has failed, all clients return at once: their handshakes
//! and first operations would take all CPU time for seconds. At an even pace they take a part of it, and queries keep
//! their latency.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, OPERATION_BYTES};
use admission::{Pace, Refusal, RefusalReason};
use telemetry::{GaugeGuard, read};

/// The longest wait of a handshake. Clients and load balancers give up after some more seconds, and each one that waits
/// has a connection of HTTP, which needs more memory than one with subscriptions.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The part of the memory for work (one in this number) that handshakes may take while they wait. Each counts as an
/// operation: its connection has the buffers of HTTP, and often those of TLS. The longest wait alone would admit
/// 375 MiB for each core, and a small container would refuse large bodies meanwhile.
const MEMORY_PART: u64 = 8;

/// The pace of handshakes.
#[derive(Debug)]
pub(super) struct HandshakePace {
    pace: Mutex<Pace>,
    started: Instant,
    /// The number that wait now.
    pub(super) waiting: AtomicU64,
    /// The number since the start that were refused because they would have waited for too long, or too many waited.
    pub(super) refused: AtomicU64,
}

impl HandshakePace {
    /// Creates a pace; `None` if there is no bound.
    pub(super) fn new(per_second_and_core: u32, cores: usize) -> Option<Self> {
        let pace = Pace::new(u64::from(per_second_and_core) * cores.max(1) as u64)?;
        Some(Self {
            pace: Mutex::new(pace),
            started: Instant::now(),
            waiting: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Waits for the turn of a handshake, if the memory for work has room for one more that waits.
    ///
    /// # Errors
    /// The handshake is refused, because it would wait for too long, or because too many wait.
    pub(super) async fn wait(&self, memory: &MemoryAccount) -> Result<(), Refusal> {
        let now = self.started.elapsed();
        let turn = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let wait_max = match read(&self.waiting) < waiting_max(memory) {
                true => WAIT_MAX,
                false => Duration::ZERO,
            };
            // Counted under the lock, so that concurrent handshakes never exceed the bound together.
            pace.take(now, wait_max).map(|wait| (wait, GaugeGuard::up(&self.waiting)))
        };
        match turn {
            Some((Duration::ZERO, _)) => Ok(()),
            Some((wait, _waiting)) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let most = WAIT_MAX.as_secs();
                let retry_after_seconds = fastrand::u64(most..=2 * most);
                Err(Refusal { reason: RefusalReason::QueueFull, retry_after_seconds })
            }
        }
    }
}

/// Returns the number of handshakes that may wait at a time.
fn waiting_max(memory: &MemoryAccount) -> u64 {
    memory.for_work() / MEMORY_PART / OPERATION_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_accepted_evenly_and_what_would_wait_too_long_is_refused() {
        let pace = Arc::new(HandshakePace::new(10, 2).expect("a pace"));
        let memory = MemoryAccount::unlimited();
        let began = tokio::time::Instant::now();
        let all = join_all((0..500).map(|_| pace.wait(&memory))).await;
        let accepted = all.iter().filter(|it| it.is_ok()).count();
        // The real clock gives the turns, and may go on while they are taken.
        assert!((200..=210).contains(&accepted), "{accepted}");
        assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
        assert_eq!((read(&pace.waiting), read(&pace.refused)), (0, 500 - accepted as u64));
        let retries = all.iter().filter_map(|it| it.as_ref().err());
        assert!(retries.map(|it| it.retry_after_seconds).all(|it| (10..=20).contains(&it)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_fit_in_a_part_of_the_memory_for_work() {
        let pace = HandshakePace::new(10, 1).expect("a pace");
        let memory = MemoryAccount::new(20 * OPERATION_BYTES * MEMORY_PART);
        let began = tokio::time::Instant::now();
        let all = join_all((0..500).map(|_| pace.wait(&memory))).await;
        let accepted = all.iter().filter(|it| it.is_ok()).count();
        // One at once and 20 that wait; the real clock gives the turns, and may go on while they are taken.
        assert!((21..=25).contains(&accepted), "{accepted}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!((read(&pace.waiting), read(&pace.refused)), (0, 500 - accepted as u64));
    }

    #[test]
    fn without_a_rate_there_is_no_pace() {
        assert!(HandshakePace::new(0, 8).is_none());
    }
}
