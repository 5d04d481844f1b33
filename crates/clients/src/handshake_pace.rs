//! The pace of WebSocket handshakes. When a router or a network has failed, all clients return at once: their handshakes
//! and first operations would take all CPU time for seconds. At an even pace they take a part of it, and queries keep
//! their latency.
//!
//! A handshake that waits has a connection of HTTP, with memory and CPU time of its own. So only a few wait here: while
//! they do, listeners accept further connections slowly, and the rest wait in the kernel, which is cheap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, OPERATION_BYTES};
use admission::{Pace, Refusal, RefusalReason};
use config::Admission;
use telemetry::{GaugeGuard, Metric, read};

/// The longest wait of a handshake. Clients and load balancers give up after some more seconds, and each one that waits
/// has a connection of HTTP, which needs more memory than one with subscriptions.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The part of the memory for work (one in this number) that handshakes may take while they wait. Each counts as an
/// operation: its connection has the buffers of HTTP, and often those of TLS. The longest wait alone would admit
/// 375 MiB for each core, and a small container would refuse large bodies meanwhile.
const MEMORY_PART: u64 = 8;

/// The part of a second (one in this number) whose handshakes may wait before listeners accept slowly. Enough that the
/// turns never lack a handshake while the others are accepted.
const WAITING_PART: u64 = 8;

/// The connections that each core accepts in a second while many handshakes wait: some of them may be for requests, and
/// a low pace of handshakes must not keep those out.
const ACCEPTED_PER_CORE_MIN: u64 = 600;

/// The metrics of the pace of handshakes.
pub const HANDSHAKE_METRICS: &[Metric<HandshakePace>] = &[
    Metric::gauge(
        "starling_admission_handshakes_waiting",
        "WebSocket handshakes that wait for their turn",
        |it| read(&it.waiting),
    ),
    Metric::counter(
        "starling_admission_handshakes_refused",
        "WebSocket handshakes refused because they would have waited too long for their turn, or too many waited",
        |it| read(&it.refused),
    ),
];

/// The pace of handshakes.
#[derive(Debug)]
pub struct HandshakePace {
    pace: Mutex<Pace>,
    started: Instant,
    /// The number that wait now.
    waiting: AtomicU64,
    /// The number that may wait before listeners accept slowly.
    waiting_enough: u64,
    /// The pace at which listeners accept then.
    accepting: Mutex<Pace>,
    /// The number since the start that were refused because they would have waited for too long, or too many waited.
    refused: AtomicU64,
}

impl HandshakePace {
    /// Creates the pace of a configuration; `None` if there is no bound.
    pub fn new(admission: &Admission, cores: usize) -> Option<Self> {
        let cores = cores.max(1) as u64;
        let per_core = if admission.enabled { admission.handshakes_per_core } else { 0 };
        let per_second = u64::from(per_core) * cores;
        Some(Self {
            pace: Mutex::new(Pace::new(per_second)?),
            started: Instant::now(),
            waiting: AtomicU64::new(0),
            waiting_enough: per_second / WAITING_PART,
            accepting: Mutex::new(Pace::new(ACCEPTED_PER_CORE_MIN * cores)?),
            refused: AtomicU64::new(0),
        })
    }

    /// True if a listener may accept one more connection: unless enough handshakes wait, or at a low pace.
    pub fn may_accept(&self) -> bool {
        if read(&self.waiting) <= self.waiting_enough {
            return true;
        }
        let mut accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        accepting.take(self.started.elapsed(), Duration::ZERO).is_some()
    }

    /// Waits for the turn of a handshake, if the memory for work has room for one more that waits.
    ///
    /// # Errors
    /// The handshake is refused, because it would wait for too long, or because too many wait.
    pub async fn wait(&self, memory: &MemoryAccount) -> Result<(), Refusal> {
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

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    fn pace(handshakes_per_core: u32, cores: usize) -> Option<HandshakePace> {
        let admission = Admission { enabled: true, handshakes_per_core, ..Admission::default() };
        HandshakePace::new(&admission, cores)
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_accepted_evenly_and_what_would_wait_too_long_is_refused() {
        let pace = Arc::new(pace(10, 2).expect("a pace"));
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
        let pace = pace(10, 1).expect("a pace");
        let memory = MemoryAccount::new(20 * OPERATION_BYTES * MEMORY_PART);
        let began = tokio::time::Instant::now();
        let all = join_all((0..500).map(|_| pace.wait(&memory))).await;
        let accepted = all.iter().filter(|it| it.is_ok()).count();
        // One at once and 20 that wait; the real clock gives the turns, and may go on while they are taken.
        assert!((21..=25).contains(&accepted), "{accepted}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!((read(&pace.waiting), read(&pace.refused)), (0, 500 - accepted as u64));
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_accept_slowly_while_many_wait() {
        let pace = pace(80, 1).expect("a pace");
        assert!((0..1000).all(|_| pace.may_accept()), "nothing waits");
        let memory = MemoryAccount::unlimited();
        // The first of them have their turns at once, and some more may while the real clock goes on.
        let mut waits: Vec<_> = (0..20).map(|_| Box::pin(pace.wait(&memory))).collect();
        waits.retain_mut(|it| it.now_or_never().is_none());
        assert!(read(&pace.waiting) > pace.waiting_enough, "{pace:?}");
        let accepted = (0..1000).filter(|_| pace.may_accept()).count();
        assert!((60..1000).contains(&accepted), "a tenth of a second, {accepted}");
        join_all(waits).await;
        assert!((0..1000).all(|_| pace.may_accept()), "nothing waits any more");
    }

    #[test]
    fn without_a_rate_there_is_no_pace() {
        assert!(pace(0, 8).is_none());
        assert!(
            HandshakePace::new(&Admission { enabled: false, ..Admission::default() }, 8).is_none()
        );
    }
}
