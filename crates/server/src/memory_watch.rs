//! Measures the memory of the process for the memory budget, more often when less of it is free. When memory is short,
//! the allocator returns free memory, idle connections are closed, slow clients lose their waiting events, and caches
//! become smaller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::memory::{MemoryAccount, MemoryKind};
use clients::client_limits::ClientLimits;
use live::queue_total::QueueTotal;
use serving::caching::ProcessCaches;
use serving::serving::Serving;
use tokio::sync::watch;

use crate::cache_share::{BoundedCaches, CacheShare};

/// The time between two measurements when little memory is free. Memory that is not counted grows by some 10 MiB
/// meanwhile, in a storm of small requests.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The time between two measurements when much memory is free. A measurement by a thread that has slept takes some
/// 300 µs with everything that it wakes: ten in a second are 4 % of what sending 10,000 messages takes.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Four times the bytes by which memory that is not counted grows in a second, in a storm of small requests.
const GROWTH_MAX: u64 = 400 << 20;

/// The part of the budget (one in this number) from which the allocator returns free memory. Below it, keeping the memory
/// costs less.
const RELEASE_PART: u64 = 2;

/// The part of the budget (one in this number) by which uncounted memory must have grown for the allocator to return free
/// memory: most likely, much was released that it keeps. To return it takes about 1 ms for each 10 MiB.
const GROWN_PART: u64 = 32;

/// The time after which free memory is returned again while memory is short and has not grown.
const RELEASE_INTERVAL: Duration = Duration::from_secs(2);

/// The part of all unread responses (one in this number) that clients that read nothing lose when memory was refused.
const UNREAD_PART: u64 = 2;

/// The part of the budget (one in this number) that queues of events may take also while memory is short.
const QUEUES_PART: u64 = 32;

/// The time without refusals after which a shortage of memory is over, for the log.
const CALM: Duration = Duration::from_secs(10);

/// Measures the memory until the router ends. Returns at once if there is no budget.
pub(crate) async fn watch_memory(
    serving: Arc<Serving>,
    queues: Arc<QueueTotal>,
    mut stop: watch::Receiver<bool>,
) {
    let limits: &ClientLimits = &serving.limits;
    let memory = &limits.memory;
    let Some(budget) = memory.budget() else { return };
    tracing::info!(budget_bytes = budget, "the memory budget (`limits.memory`)");
    let (mut log, mut caches) = (ShortageLog::default(), CacheShare::default());
    let mut bounded = BoundedCaches::default();
    let mut released: Option<Instant> = None;
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        pause = INTERVAL_MIN;
        let Some(mut resident) = profile::private_resident_bytes() else { continue };
        let now = Instant::now();
        let has_grown = memory.uncounted_of(resident) > memory.uncounted() + budget / GROWN_PART;
        // A lasting shortage leaves little to release each time.
        let is_due = released.is_none_or(|at| now.duration_since(at) >= RELEASE_INTERVAL);
        if resident > budget / RELEASE_PART && (has_grown || (memory.excess() > 0 && is_due)) {
            released = Some(now);
            // A panic there was reported by its own hook; the memory is measured as it is.
            let _ = tokio::task::spawn_blocking(profile::release_free_memory).await;
            resident = profile::private_resident_bytes().unwrap_or(resident);
        }
        let has_refused = memory.measure(resident);
        // Both begin with the largest holders, so that few clients lose something.
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // Clients that do not read have no right to the memory that others are refused.
        let unread = if has_refused { memory.held(MemoryKind::Responses) / UNREAD_PART } else { 0 };
        let unread = unread.max(memory.excess_of_work()).max(memory.excess());
        limits.response_bytes.shed(bytes(unread));
        if limits.served.relieve() > 0 {
            // Otherwise the next measurement would still find their memory, and more would be closed.
            released = None;
        }
        // Small queues are not the reason of a shortage, and dropping them would not end it.
        let queued = (queues.bytes() as u64).saturating_sub(budget / QUEUES_PART);
        queues.shed(bytes(memory.excess().min(queued)));
        let halvings = caches.update(memory, now);
        shrink_caches(&serving, halvings, &mut bounded).await;
        log.note(memory, now);
        // Refusals are forgotten by the number of measurements.
        pause = if has_refused { INTERVAL_MIN } else { time_to_next(budget, resident) };
    }
}

/// Returns the time to the next measurement.
fn time_to_next(budget: u64, resident: u64) -> Duration {
    let free = budget.saturating_sub(resident);
    let until_full = Duration::from_millis(free.saturating_mul(1000) / GROWTH_MAX);
    until_full.clamp(INTERVAL_MIN, INTERVAL_MAX)
}

/// Bounds the caches to their configured memory, halved so many times, unless they are.
async fn shrink_caches(
    serving: &Serving,
    halvings: u32,
    bounded: &mut BoundedCaches<ProcessCaches>,
) {
    let graph = serving.current();
    let Some(caching) = &graph.caching else { return };
    if !bounded.update(&caching.process, halvings) {
        return;
    }
    tracing::info!(
        percent = 100 >> halvings,
        "the caches may use a part of their memory, because that of the process is short or has room again"
    );
    let caches = Arc::clone(&caching.process);
    // Evicting many entries takes a while. A panic there was reported by its own hook.
    let _ = tokio::task::spawn_blocking(move || {
        caches.entities.shrink(halvings);
        caches.responses.shrink(halvings);
    })
    .await;
}

/// Logs the beginning and the end of shortages.
#[derive(Default, Debug)]
struct ShortageLog {
    refused: u64,
    /// The time of the last refusal that was noticed, during a shortage.
    last_refusal: Option<Instant>,
}

/// A change that is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShortageChange {
    Begun,
    Ended,
}

impl ShortageLog {
    fn note(&mut self, memory: &MemoryAccount, now: Instant) {
        let refused = MemoryKind::ALL.into_iter().map(|kind| memory.refused(kind)).sum();
        match self.update(refused, now) {
            None => {}
            Some(ShortageChange::Begun) => tracing::warn!(
                used_bytes = memory.used(),
                budget_bytes = memory.budget(),
                "the memory budget is used up: requests are refused, and slow clients lose what waits for them \
                 (`limits.memory`)"
            ),
            Some(ShortageChange::Ended) => tracing::info!(
                used_bytes = memory.used(),
                refused,
                "the memory budget is sufficient again"
            ),
        }
    }

    fn update(&mut self, refused: u64, now: Instant) -> Option<ShortageChange> {
        if std::mem::replace(&mut self.refused, refused) != refused {
            let is_new = self.last_refusal.replace(now).is_none();
            return is_new.then_some(ShortageChange::Begun);
        }
        let last = self.last_refusal?;
        if now.duration_since(last) < CALM {
            return None;
        }
        self.last_refusal = None;
        Some(ShortageChange::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_measured_more_often_the_less_of_it_is_free() {
        let milliseconds =
            |budget: u64, resident: u64| time_to_next(budget << 20, resident << 20).as_millis();
        assert_eq!(milliseconds(20_000, 100), 1000);
        assert_eq!(milliseconds(512, 112), 1000);
        assert_eq!(milliseconds(512, 312), 500);
        assert_eq!(milliseconds(128, 120), 100);
        assert_eq!(milliseconds(128, 200), 100);
    }

    #[test]
    fn a_shortage_is_logged_once_when_it_begins_and_once_when_it_has_ended() {
        let (mut log, start) = (ShortageLog::default(), Instant::now());
        let mut changes = Vec::new();
        for second in 0..60 {
            // Refusals in the seconds 10 to 20.
            let refused = u64::clamp(second, 9, 20) - 9;
            if let Some(change) = log.update(refused, start + Duration::from_secs(second)) {
                changes.push((second, change));
            }
        }
        assert_eq!(changes, [(10, ShortageChange::Begun), (30, ShortageChange::Ended)]);
    }
}
