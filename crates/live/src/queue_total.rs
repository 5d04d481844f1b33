//! The memory of events that wait for all slow connections together. When it is full, the connection that holds the
//! most must drop events, not the connection that needs the room: a client that reads, even slowly, holds little.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use telemetry::Metric;

/// The size from which a queue is tracked, unless the limit of the total is small itself. Smaller queues are not
/// considered when room is made.
const TRACKED_BYTES_MIN: usize = 16 << 10;

/// The divisor of a queue that yields how much it must drop at once, so that the next search comes later.
const SHED_PART: usize = 2;

/// The bytes of events that wait for all connections. A payload that several connections wait for counts for each.
#[derive(Debug)]
pub struct QueueTotal {
    bytes: AtomicUsize,
    /// The number of bytes that connections have been asked to drop and still hold.
    leaving: AtomicUsize,
    max: usize,
    /// The number of events that found no room here although their own queue had room.
    refused: AtomicU64,
    /// The queues that are large, or were large at the last search.
    tracked: Mutex<Vec<Weak<QueueShare>>>,
}

/// The metrics of the bytes that wait for all connections.
pub const QUEUE_METRICS: &[Metric<QueueTotal>] = &[
    Metric::gauge(
        "starling_subscriptions_queue_bytes",
        "Bytes of events that wait for slow clients; an event that waits for several counts for each",
        |it| it.bytes() as u64,
    ),
    Metric::counter(
        "starling_subscriptions_queue_full",
        "Events that exceeded subscriptions.queue_bytes_total, so that the policy applied",
        QueueTotal::refused,
    ),
];

/// The share of one connection.
pub struct QueueShare {
    total: Arc<QueueTotal>,
    bytes: AtomicUsize,
    /// The number of bytes that the connection must drop to make room for others.
    to_shed: AtomicUsize,
    is_tracked: AtomicBool,
    /// The callback that makes the connection look at `to_shed`.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for QueueShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueShare").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl QueueTotal {
    /// Makes a total of at most `max` bytes. While connections that must drop events have not done so, it may reach
    /// twice as much.
    pub fn new(max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            max,
            refused: AtomicU64::new(0),
            tracked: Mutex::default(),
        }
    }

    /// Returns the number of waiting bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of events that found no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the limit while connections drop events. It grows by the bytes that they still have to drop: otherwise a
    /// connection that needs room several times before they run would make them promise everything, and then drop
    /// events itself.
    fn max_now(&self) -> usize {
        self.max.saturating_add(self.leaving.load(Ordering::SeqCst)).min(self.max_meanwhile())
    }

    /// Returns the limit that is never exceeded.
    fn max_meanwhile(&self) -> usize {
        self.max.saturating_mul(2)
    }

    fn count_in(&self, size: usize, max: usize) -> bool {
        let counted = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
            bytes.checked_add(size).filter(|bytes| *bytes <= max)
        });
        counted.is_ok()
    }

    /// Asks the connection that holds the most, and more than `own` bytes, to drop events. Returns false if there is
    /// none.
    fn shed_of_greediest(&self, own: usize, size: usize) -> bool {
        let mut greediest: Option<(usize, Arc<QueueShare>)> = None;
        let min = self.tracked_bytes_min();
        self.tracked().retain(|share| {
            let Some(share) = share.upgrade() else { return false };
            let bytes = share.bytes.load(Ordering::SeqCst);
            if bytes < min {
                share.is_tracked.store(false, Ordering::SeqCst);
                return false;
            }
            let stays = bytes.saturating_sub(share.to_shed.load(Ordering::SeqCst));
            if stays > own && greediest.as_ref().is_none_or(|(most, _)| stays > *most) {
                greediest = Some((stays, share));
            }
            true
        });
        let Some((bytes, share)) = greediest else { return false };
        self.ask_to_drop(&share, size.max(bytes / SHED_PART).max(1));
        true
    }

    /// Asks a connection to drop so many bytes of events.
    fn ask_to_drop(&self, share: &QueueShare, bytes: usize) {
        // In this order, so that no more is counted out than was counted in.
        self.leaving.fetch_add(bytes, Ordering::SeqCst);
        share.to_shed.fetch_add(bytes, Ordering::SeqCst);
        if let Some(wake) = share.wake.get() {
            wake();
        }
    }

    /// Asks the connections that hold the most to drop events, until so many bytes will be dropped. For use when the
    /// memory of the process is short.
    pub fn shed(&self, bytes: usize) {
        let is_enough = || self.leaving.load(Ordering::SeqCst) >= bytes.min(self.bytes());
        if is_enough() {
            return;
        }
        let min = self.tracked_bytes_min();
        let mut shares: Vec<Arc<QueueShare>> =
            self.tracked().iter().filter_map(Weak::upgrade).collect();
        shares.retain(|share| share.bytes.load(Ordering::SeqCst) >= min);
        let stays = |share: &QueueShare| {
            let to_shed = share.to_shed.load(Ordering::SeqCst);
            share.bytes.load(Ordering::SeqCst).saturating_sub(to_shed)
        };
        let mut largest: BinaryHeap<(usize, usize)> =
            shares.iter().enumerate().map(|(index, share)| (stays(share), index)).collect();
        while !is_enough() {
            let Some((bytes, index)) = largest.pop().filter(|(bytes, _)| *bytes > 0) else {
                return;
            };
            let part = (bytes / SHED_PART).max(1);
            self.ask_to_drop(&shares[index], part);
            largest.push((bytes - part, index));
        }
    }

    fn tracked_bytes_min(&self) -> usize {
        TRACKED_BYTES_MIN.min(self.max / 64).max(1)
    }

    /// Locks the list. Nothing panics under this lock, so a poisoned lock holds a valid list.
    fn tracked(&self) -> MutexGuard<'_, Vec<Weak<QueueShare>>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueShare {
    /// Makes the share of a connection with an empty queue.
    pub(super) fn new(total: Arc<QueueTotal>) -> Arc<Self> {
        Arc::new(Self {
            total,
            bytes: AtomicUsize::new(0),
            to_shed: AtomicUsize::new(0),
            is_tracked: AtomicBool::new(false),
            wake: OnceLock::new(),
        })
    }

    /// Sets a callback that is called, on any thread, when the connection must drop events.
    pub(super) fn on_shed(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.wake.set(wake).is_ok();
        debug_assert!(is_first, "a connection has one writer");
    }

    /// Counts `size` bytes in. Returns false if there is no room and this connection is the one that must drop events.
    pub(super) fn take(self: &Arc<Self>, size: usize) -> bool {
        let Self { total, bytes, is_tracked, .. } = &**self;
        if !total.count_in(size, total.max_now()) {
            total.refused.fetch_add(1, Ordering::Relaxed);
            let own = bytes.load(Ordering::SeqCst) + size;
            // A single event that exceeds the limit must not take the memory of others.
            let makes_room = size <= total.max && total.shed_of_greediest(own, size);
            if !makes_room || !total.count_in(size, total.max_meanwhile()) {
                return false;
            }
        }
        let now = bytes.fetch_add(size, Ordering::SeqCst) + size;
        if now >= total.tracked_bytes_min() && !is_tracked.swap(true, Ordering::SeqCst) {
            total.tracked().push(Arc::downgrade(self));
        }
        true
    }

    /// Counts `size` bytes out.
    pub(super) fn give_back(&self, size: usize) {
        self.bytes.fetch_sub(size, Ordering::SeqCst);
        self.total.bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// Returns the number of bytes that the connection must drop. The caller must drop them.
    pub(super) fn take_to_shed(&self) -> usize {
        let to_shed = self.to_shed.swap(0, Ordering::SeqCst);
        self.total.leaving.fetch_sub(to_shed, Ordering::SeqCst);
        to_shed
    }
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.take_to_shed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_gets_its_share_before_the_greedy_one_has_run() {
        let total = Arc::new(QueueTotal::new(100));
        let (greedy, reader) =
            (QueueShare::new(Arc::clone(&total)), QueueShare::new(Arc::clone(&total)));
        assert!(greedy.take(100));
        // Ten events without a chance for the greedy connection to drop anything: it is asked once, to drop half.
        for event in 0..10 {
            assert!(reader.take(5), "event {event}");
        }
        assert_eq!(total.refused(), 1);
        // The reader holds as much as the greedy connection will keep, so the reader must drop events now.
        assert!(!reader.take(5));
        let to_shed = greedy.take_to_shed();
        assert_eq!(to_shed, 50);
        greedy.give_back(to_shed);
        assert_eq!(total.bytes(), 100);
    }

    #[test]
    fn the_largest_queues_are_shortened_when_the_memory_of_the_process_is_short() {
        let total = Arc::new(QueueTotal::new(1000));
        let queues = [100, 40, 10].map(|bytes| {
            let share = QueueShare::new(Arc::clone(&total));
            assert!(share.take(bytes));
            share
        });
        total.shed(0);
        total.shed(80);
        let to_shed = queues.each_ref().map(|it| it.take_to_shed());
        assert_eq!(to_shed, [75, 20, 0]);
        total.shed(1_000_000);
        let to_shed: usize = queues.iter().map(|it| it.take_to_shed()).sum();
        assert_eq!(to_shed, 140, "small queues stay");
    }

    #[test]
    fn a_connection_that_ends_before_it_drops_events_leaves_the_limit_as_it_was() {
        let total = Arc::new(QueueTotal::new(100));
        let (greedy, reader) =
            (QueueShare::new(Arc::clone(&total)), QueueShare::new(Arc::clone(&total)));
        assert!(greedy.take(100) && reader.take(10));
        assert_eq!(total.max_now(), 150);
        greedy.give_back(100);
        drop(greedy);
        assert_eq!(total.max_now(), 100);
    }
}
