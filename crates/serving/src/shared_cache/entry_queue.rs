//! The entries on their way to the shared store, bounded in number and size.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cache::SharedKey;
use redis_store::Command;
use tokio::sync::mpsc;

/// The maximum number of writes that wait. Further ones are dropped: another response will be written.
const WRITES_MAX: usize = 4_096;

/// The maximum size of all entries that wait to be written.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// The writes on their way to the store.
#[derive(Debug)]
pub(super) struct EntryQueue {
    queue: mpsc::Sender<EntryWrite>,
    bytes: AtomicUsize,
    /// Taken by the task that writes.
    waiting: Mutex<Option<mpsc::Receiver<EntryWrite>>>,
}

/// One write.
#[derive(Debug)]
pub(super) enum EntryWrite {
    Entry {
        key: SharedKey,
        bytes: Vec<u8>,
        ttl: Duration,
    },
    /// Gives back the right to fetch an entry. It goes through the same queue, so that the entry comes first.
    Unlock(Command),
}

impl Default for EntryQueue {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(WRITES_MAX);
        Self { queue, bytes: AtomicUsize::new(0), waiting: Mutex::new(Some(waiting)) }
    }
}

impl EntryQueue {
    /// Returns the sender of the writes, for the guards of locks.
    pub(super) fn sender(&self) -> &mpsc::Sender<EntryWrite> {
        &self.queue
    }

    /// Adds an entry. False if there is no room for it.
    pub(super) fn push(&self, key: SharedKey, bytes: Vec<u8>, ttl: Duration) -> bool {
        let size = bytes.len();
        if self.bytes.fetch_add(size, Relaxed) + size > WRITE_BYTES_MAX
            || self.queue.try_send(EntryWrite::Entry { key, bytes, ttl }).is_err()
        {
            self.bytes.fetch_sub(size, Relaxed);
            return false;
        }
        true
    }

    /// Takes the receiver of the writes; `None` if it was taken.
    pub(super) fn take_waiting(&self) -> Option<mpsc::Receiver<EntryWrite>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that entries of this size do not wait any more.
    pub(super) fn note_written(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_wait_are_bounded() {
        let queue = EntryQueue::default();
        let push = |size| queue.push(SharedKey([0; 32]), vec![0; size], Duration::from_secs(1));
        assert!(push(WRITE_BYTES_MAX - 1));
        assert!(!push(2));
        assert!(push(1));
        let queue = EntryQueue::default();
        let push = || queue.push(SharedKey([0; 32]), Vec::new(), Duration::from_secs(1));
        assert_eq!((0..=WRITES_MAX).filter(|_| push()).count(), WRITES_MAX);
    }
}
