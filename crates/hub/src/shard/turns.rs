//! The limit on concurrent resolutions. It is one limit for the whole hub: each shard has a few permits of its own, so
//! that it always makes progress, and takes more from a shared pool while some are left. A hot trigger, which lives in
//! one shard, gets most of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The divisor for the permits that are reserved for shards; the rest is shared.
const OWN_PART: usize = 4;

/// The permits that any shard may take.
#[derive(Debug)]
pub(crate) struct SharedTurns {
    own: usize,
    free: AtomicUsize,
}

impl SharedTurns {
    /// Creates the limit for `shards` shards, with `most` permits in all.
    pub(crate) fn new(most: usize, shards: usize) -> Self {
        let own = (most / OWN_PART / shards).max(1);
        Self { own, free: AtomicUsize::new(most.saturating_sub(own * shards)) }
    }
}

/// The permits of one shard. A shard that waits for a shared permit of another shard has resolutions in flight itself,
/// and tries again when one of them is done.
#[derive(Debug)]
pub(super) struct Turns {
    taken: usize,
    shared: Arc<SharedTurns>,
}

impl Turns {
    pub(super) fn new(shared: Arc<SharedTurns>) -> Self {
        Self { taken: 0, shared }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn may_take(&self) -> bool {
        self.taken < self.shared.own || self.shared.free.load(Relaxed) > 0
    }

    /// Takes a permit. Returns false if there is none.
    pub(super) fn take(&mut self) -> bool {
        let has_turn = self.taken < self.shared.own || {
            let one_fewer = |free: usize| free.checked_sub(1);
            self.shared.free.fetch_update(Relaxed, Relaxed, one_fewer).is_ok()
        };
        self.taken += usize::from(has_turn);
        has_turn
    }

    pub(super) fn give_back(&mut self, turns: usize) {
        let shared = |taken: usize| taken.saturating_sub(self.shared.own);
        let left = self.taken.saturating_sub(turns);
        self.shared.free.fetch_add(shared(self.taken) - shared(left), Relaxed);
        self.taken = left;
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_gets_nearly_all_permits_and_the_others_still_make_progress() {
        let shared = Arc::new(SharedTurns::new(16, 2));
        let [mut one, mut two] = [(), ()].map(|()| Turns::new(Arc::clone(&shared)));
        while one.take() {}
        assert_eq!(one.taken(), 14);
        assert!(two.take() && two.take() && !two.take(), "its own two");
        one.give_back(3);
        assert!(two.may_take() && two.take());
        one.give_back(11);
        two.give_back(3);
        assert_eq!((one.taken(), two.taken()), (0, 0));
        while two.take() {}
        assert_eq!(two.taken(), 14);
        drop(two);
        while one.take() {}
        assert_eq!(one.taken(), 14, "a dropped shard leaves its permits to the others");
    }

    #[test]
    fn every_shard_has_a_permit_however_few_there_are() {
        let shared = Arc::new(SharedTurns::new(1, 3));
        for _ in 0..3 {
            let mut turns = Turns::new(Arc::clone(&shared));
            assert!(turns.take() && !turns.take());
        }
    }
}
