//! The limit on concurrent resolutions. It is one limit for the whole hub: each shard has a few permits of its own, so
//! that it always makes progress, and takes more from a shared pool while some are left. A hot trigger, which lives in
//! one shard, gets most of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The divisor for the permits that are reserved for shards; the rest is shared.
const RESERVED_DIVISOR: usize = 4;

/// The permits that any shard may take.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    own: usize,
    free: AtomicUsize,
}

impl ConcurrencyLimit {
    /// Creates the limit for `shards` shards, with `most` permits in all.
    pub(crate) fn new(most: usize, shards: usize) -> Self {
        let own = (most / RESERVED_DIVISOR / shards).max(1);
        Self { own, free: AtomicUsize::new(most.saturating_sub(own * shards)) }
    }
}

/// The permits of one shard. A shard that waits for a shared permit of another shard has resolutions in flight itself,
/// and tries again when one of them is done.
#[derive(Debug)]
pub(super) struct ShardPermits {
    taken: usize,
    shared: Arc<ConcurrencyLimit>,
}

impl ShardPermits {
    pub(super) fn new(shared: Arc<ConcurrencyLimit>) -> Self {
        Self { taken: 0, shared }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn has_available(&self) -> bool {
        self.taken < self.shared.own || self.shared.free.load(Relaxed) > 0
    }

    /// Takes a permit. Returns false if there is none.
    pub(super) fn acquire(&mut self) -> bool {
        let has_turn = self.taken < self.shared.own || {
            let one_fewer = |free: usize| free.checked_sub(1);
            self.shared.free.fetch_update(Relaxed, Relaxed, one_fewer).is_ok()
        };
        self.taken += usize::from(has_turn);
        has_turn
    }

    pub(super) fn release(&mut self, permits: usize) {
        let shared = |taken: usize| taken.saturating_sub(self.shared.own);
        let left = self.taken.saturating_sub(permits);
        self.shared.free.fetch_add(shared(self.taken) - shared(left), Relaxed);
        self.taken = left;
    }
}

impl Drop for ShardPermits {
    fn drop(&mut self) {
        self.release(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_gets_nearly_all_permits_and_the_others_still_make_progress() {
        let shared = Arc::new(ConcurrencyLimit::new(16, 2));
        let [mut one, mut two] = [(), ()].map(|()| ShardPermits::new(Arc::clone(&shared)));
        while one.acquire() {}
        assert_eq!(one.taken(), 14);
        assert!(two.acquire() && two.acquire() && !two.acquire(), "its own two");
        one.release(3);
        assert!(two.has_available() && two.acquire());
        one.release(11);
        two.release(3);
        assert_eq!((one.taken(), two.taken()), (0, 0));
        while two.acquire() {}
        assert_eq!(two.taken(), 14);
        drop(two);
        while one.acquire() {}
        assert_eq!(one.taken(), 14, "a dropped shard leaves its permits to the others");
    }

    #[test]
    fn every_shard_has_a_permit_however_few_there_are() {
        let shared = Arc::new(ConcurrencyLimit::new(1, 3));
        for _ in 0..3 {
            let mut permits = ShardPermits::new(Arc::clone(&shared));
            assert!(permits.acquire() && !permits.acquire());
        }
    }
}
