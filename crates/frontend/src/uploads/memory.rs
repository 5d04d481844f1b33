//! The memory of requests with files: each byte counts from its arrival until its last copy is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admission::memory::{MemoryAccount, MemoryCharge, MemoryKind};
use bytes::Bytes;

use super::stats::UploadStats;

/// The bytes of one request that are in memory. What is left is given back when it is dropped.
pub(super) struct ReservedMemory {
    stats: Arc<UploadStats>,
    bytes: AtomicUsize,
    /// The same bytes, as a part of the memory of the process.
    charge: Mutex<MemoryCharge>,
}

impl ReservedMemory {
    pub(super) fn new(stats: &Arc<UploadStats>, process: &Arc<MemoryAccount>) -> Arc<Self> {
        Arc::new(Self {
            stats: Arc::clone(stats),
            bytes: AtomicUsize::new(0),
            charge: Mutex::new(MemoryCharge::empty(process, MemoryKind::Uploads)),
        })
    }

    /// Counts bytes that have arrived. False if all requests together have more than `bytes_max` with them, or the
    /// memory of the process is used up.
    pub(super) fn add(&self, bytes: usize, bytes_max: usize) -> bool {
        let fits = self.charge().try_grow(bytes as u64).is_ok();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        fits && before.saturating_add(bytes) <= bytes_max
    }

    /// Returns a piece of a file that gives its bytes back when it is dropped.
    pub(super) fn release_with(self: &Arc<Self>, piece: Bytes) -> Bytes {
        Bytes::from_owner(CountedPiece { piece, memory: Arc::clone(self) })
    }

    fn subtract(&self, bytes: usize) {
        self.charge().shrink(bytes as u64);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.stats.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn charge(&self) -> MutexGuard<'_, MemoryCharge> {
        // A charge is changed in one step.
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.stats.bytes.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// A piece of a file, counted before.
struct CountedPiece {
    piece: Bytes,
    memory: Arc<ReservedMemory>,
}

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for CountedPiece {
    fn drop(&mut self) {
        self.memory.subtract(self.piece.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_last_copy_is_dropped() {
        let stats = Arc::new(UploadStats::default());
        let held = || stats.bytes.load(Ordering::Relaxed);
        let process = MemoryAccount::new(32);
        let memory = ReservedMemory::new(&stats, &process);
        assert!(memory.add(8, 10));
        let piece = memory.release_with(Bytes::from_static(b"12345"));
        let copy = piece.slice(1..3);
        drop(piece);
        assert_eq!(held(), 8);
        drop(copy);
        assert_eq!(held(), 3);
        assert!(!memory.add(8, 10));
        drop(memory);
        assert_eq!((held(), process.held_total()), (0, 0));
        let process = MemoryAccount::new(32);
        let memory = ReservedMemory::new(&stats, &process);
        assert!(memory.add(24, 100), "three quarters of the memory of the process");
        assert!(!memory.add(1, 100));
    }
}
