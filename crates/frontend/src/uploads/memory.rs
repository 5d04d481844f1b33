//! The memory of requests with files: each byte counts from its arrival until its last copy is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::metrics::UploadMetrics;

/// The bytes of one request that are in memory. What is left is given back when it is dropped.
pub(super) struct ReservedMemory {
    metrics: Arc<UploadMetrics>,
    bytes: AtomicUsize,
}

impl ReservedMemory {
    pub(super) fn new(metrics: &Arc<UploadMetrics>) -> Arc<Self> {
        Arc::new(Self { metrics: Arc::clone(metrics), bytes: AtomicUsize::new(0) })
    }

    /// Counts bytes that have arrived. False if all requests together have more than `bytes_max` with them.
    pub(super) fn add(&self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.metrics.bytes.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= bytes_max
    }

    /// Returns a piece of a file that gives its bytes back when it is dropped.
    pub(super) fn release_with(self: &Arc<Self>, piece: Bytes) -> Bytes {
        Bytes::from_owner(CountedPiece { piece, memory: Arc::clone(self) })
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.metrics.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.metrics.bytes.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
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
        let metrics = Arc::new(UploadMetrics::default());
        let held = || metrics.bytes.load(Ordering::Relaxed);
        let memory = ReservedMemory::new(&metrics);
        assert!(memory.add(8, 10));
        let piece = memory.release_with(Bytes::from_static(b"12345"));
        let copy = piece.slice(1..3);
        drop(piece);
        assert_eq!(held(), 8);
        drop(copy);
        assert_eq!(held(), 3);
        assert!(!memory.add(8, 10));
        drop(memory);
        assert_eq!(held(), 0);
    }
}
