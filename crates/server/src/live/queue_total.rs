//! The events that wait for all slow connections together. When there is no room for one more, the connection that
//! holds the most gives way, not the one that needs the room: a client that reads, if slowly, holds little.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Queues with fewer bytes are not searched for the one that holds the most, unless the bound is small itself.
const TRACKED_BYTES_MIN: usize = 16 << 10;

/// The part of a queue that gives way at once, so that the next search comes later.
const SHED_PART: usize = 2;

/// The bytes of events that wait for all connections. Payloads that several wait for count for each.
#[derive(Debug)]
pub(crate) struct QueueTotal {
    bytes: AtomicUsize,
    /// How many of them the connections that were told to give way have yet to drop.
    leaving: AtomicUsize,
    max: usize,
    /// How often an event found no room here that had some in its own queue.
    refused: AtomicU64,
    /// The queues that hold more than a little, or have since the last search.
    tracked: Mutex<Vec<Weak<QueueShare>>>,
}

/// The part of one connection.
pub(crate) struct QueueShare {
    total: Arc<QueueTotal>,
    bytes: AtomicUsize,
    /// How many of them have to go, to make room for others.
    to_shed: AtomicUsize,
    is_tracked: AtomicBool,
    /// Has the connection look at `to_shed`.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for QueueShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueShare").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl QueueTotal {
    /// At most `max` bytes. While connections that were told to give way have not done so, up to twice as many.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            max,
            refused: AtomicU64::new(0),
            tracked: Mutex::default(),
        }
    }

    /// The number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The bound while connections give way. The bytes that they have yet to drop are not asked of them again:
    /// otherwise a connection that needs room several times before they run would have them promise everything, and
    /// then give way itself.
    fn max_now(&self) -> usize {
        self.max.saturating_add(self.leaving.load(Ordering::SeqCst)).min(self.max_meanwhile())
    }

    /// The bound that nothing exceeds.
    fn max_meanwhile(&self) -> usize {
        self.max.saturating_mul(2)
    }

    fn count_in(&self, size: usize, max: usize) -> bool {
        let counted = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
            bytes.checked_add(size).filter(|bytes| *bytes <= max)
        });
        counted.is_ok()
    }

    /// Tells the connection that holds the most, and more than `own` bytes, to give way. False: there is none.
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
        let to_shed = size.max(bytes / SHED_PART);
        // In this order, so that no more is counted out than has been counted in.
        self.leaving.fetch_add(to_shed, Ordering::SeqCst);
        share.to_shed.fetch_add(to_shed, Ordering::SeqCst);
        if let Some(wake) = share.wake.get() {
            wake();
        }
        true
    }

    fn tracked_bytes_min(&self) -> usize {
        TRACKED_BYTES_MIN.min(self.max / 64).max(1)
    }

    /// Nothing panics under this lock, so a poisoned one holds a sound list.
    fn tracked(&self) -> MutexGuard<'_, Vec<Weak<QueueShare>>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueShare {
    /// Nothing waits for the connection.
    pub(super) fn new(total: Arc<QueueTotal>) -> Arc<Self> {
        Arc::new(Self {
            total,
            bytes: AtomicUsize::new(0),
            to_shed: AtomicUsize::new(0),
            is_tracked: AtomicBool::new(false),
            wake: OnceLock::new(),
        })
    }

    /// Calls `wake` from now on, on any thread, when the connection has to give way.
    pub(super) fn on_shed(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.wake.set(wake).is_ok();
        debug_assert!(is_first, "a connection has one writer");
    }

    /// Counts in `size` bytes. False: there is no room, and this connection is the one to give way.
    pub(super) fn take(self: &Arc<Self>, size: usize) -> bool {
        let Self { total, bytes, is_tracked, .. } = &**self;
        if !total.count_in(size, total.max_now()) {
            total.refused.fetch_add(1, Ordering::Relaxed);
            let own = bytes.load(Ordering::SeqCst) + size;
            // A single event over the bound is no reason to take from anyone.
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

    /// Counts out `size` bytes.
    pub(super) fn give_back(&self, size: usize) {
        self.bytes.fetch_sub(size, Ordering::SeqCst);
        self.total.bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// How many bytes have to go. They do when this returns.
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
    fn a_connection_gets_its_part_before_the_greedy_one_has_run() {
        let total = Arc::new(QueueTotal::new(100));
        let (greedy, reader) =
            (QueueShare::new(Arc::clone(&total)), QueueShare::new(Arc::clone(&total)));
        assert!(greedy.take(100));
        // Ten times without a chance for the greedy one to drop anything: it is told once, to drop half.
        for event in 0..10 {
            assert!(reader.take(5), "event {event}");
        }
        assert_eq!(total.refused(), 1);
        // The reader holds as much as the greedy one is left with, so the reader is the one to give way now.
        assert!(!reader.take(5));
        let to_shed = greedy.take_to_shed();
        assert_eq!(to_shed, 50);
        greedy.give_back(to_shed);
        assert_eq!(total.bytes(), 100);
    }

    #[test]
    fn a_connection_that_ends_before_it_gave_way_leaves_no_bound_raised() {
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
