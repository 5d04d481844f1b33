//! The limit on concurrent resolutions. It is one limit for the whole hub: each shard has a few permits of its own, so
//! that it always makes progress, and takes more from a shared pool while some are left. A hot trigger, which lives in
//! one shard, gets most of them.
//!
//! Some resolutions give way to others ([`Yielding`]). Each kind of them has a limit of its own besides: half of the
//! permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The divisor for the permits that are reserved for shards; the rest is shared.
const RESERVED_DIVISOR: usize = 4;

/// The part of the permits, one in this number, for each kind of resolutions that give way to others.
const YIELDING_DIVISOR: usize = 2;

/// A kind of resolutions that give way to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yielding {
    /// The current state, for new subscribers: a thousand of them at once must not delay the events of those that are
    /// there.
    State,
    /// Resolutions that need a slow subgraph: they must not take the permits of all others.
    SlowSubgraph,
}

impl Yielding {
    /// All kinds, each at the place of its number.
    pub(super) const ALL: [Self; 2] = [Self::State, Self::SlowSubgraph];

    /// The number of kinds.
    pub(super) const COUNT: usize = Self::ALL.len();
}

/// The permits that any shard may take.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    all: Arc<PermitPool>,
    yielding: [Arc<PermitPool>; Yielding::COUNT],
}

impl ConcurrencyLimit {
    /// Creates the limit for `shards` shards, with `most` permits in all.
    pub(crate) fn new(most: usize, shards: usize) -> Self {
        let pool = |most| Arc::new(PermitPool::new(most, shards));
        Self {
            all: pool(most),
            yielding: std::array::from_fn(|_| pool((most / YIELDING_DIVISOR).max(1))),
        }
    }
}

/// Permits that any shard may take, beyond those of its own.
#[derive(Debug)]
struct PermitPool {
    own: usize,
    free: AtomicUsize,
}

impl PermitPool {
    fn new(most: usize, shards: usize) -> Self {
        let own = (most / RESERVED_DIVISOR / shards).max(1);
        Self { own, free: AtomicUsize::new(most.saturating_sub(own * shards)) }
    }
}

/// The permits of one shard, for all resolutions and for each kind of those that give way.
#[derive(Debug)]
pub(super) struct ShardPermits {
    all: TakenPermits,
    yielding: [TakenPermits; Yielding::COUNT],
}

impl ShardPermits {
    pub(super) fn new(limit: &ConcurrencyLimit) -> Self {
        let taken = |pool: &Arc<PermitPool>| TakenPermits::new(Arc::clone(pool));
        Self { all: taken(&limit.all), yielding: limit.yielding.each_ref().map(taken) }
    }

    pub(super) fn taken(&self) -> usize {
        self.all.taken
    }

    pub(super) fn has_available(&self) -> bool {
        self.all.has_available()
    }

    /// True if the limit of a kind leaves room.
    pub(super) fn has_room_for(&self, kind: Yielding) -> bool {
        self.yielding[kind as usize].has_available()
    }

    /// Takes a permit, for a resolution that gives way or for another one. Returns false if there is none.
    pub(super) fn acquire(&mut self, kind: Option<Yielding>) -> bool {
        let Some(kind) = kind else { return self.all.acquire() };
        let of_kind = &mut self.yielding[kind as usize];
        if !of_kind.acquire() {
            return false;
        }
        let has_turn = self.all.acquire();
        if !has_turn {
            of_kind.release(1);
        }
        has_turn
    }

    /// Releases permits of resolutions that have ended, and says how many of them were of each kind.
    pub(super) fn release(&mut self, permits: usize, of_kinds: [usize; Yielding::COUNT]) {
        self.all.release(permits);
        for (taken, permits) in self.yielding.iter_mut().zip(of_kinds) {
            taken.release(permits);
        }
    }
}

/// Permits of a pool that one shard has taken. A shard that waits for a shared permit of another shard has resolutions
/// in flight itself, and tries again when one of them is done.
#[derive(Debug)]
struct TakenPermits {
    taken: usize,
    shared: Arc<PermitPool>,
}

impl TakenPermits {
    fn new(shared: Arc<PermitPool>) -> Self {
        Self { taken: 0, shared }
    }

    fn has_available(&self) -> bool {
        self.taken < self.shared.own || self.shared.free.load(Relaxed) > 0
    }

    /// Takes a permit. Returns false if there is none.
    fn acquire(&mut self) -> bool {
        let has_turn = self.taken < self.shared.own || {
            let one_fewer = |free: usize| free.checked_sub(1);
            self.shared.free.fetch_update(Relaxed, Relaxed, one_fewer).is_ok()
        };
        self.taken += usize::from(has_turn);
        has_turn
    }

    fn release(&mut self, permits: usize) {
        let shared = |taken: usize| taken.saturating_sub(self.shared.own);
        let left = self.taken.saturating_sub(permits);
        self.shared.free.fetch_add(shared(self.taken) - shared(left), Relaxed);
        self.taken = left;
    }
}

impl Drop for TakenPermits {
    fn drop(&mut self) {
        self.release(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_gets_nearly_all_permits_and_the_others_still_make_progress() {
        let shared = Arc::new(PermitPool::new(16, 2));
        let [mut one, mut two] = [(), ()].map(|()| TakenPermits::new(Arc::clone(&shared)));
        while one.acquire() {}
        assert_eq!(one.taken, 14);
        assert!(two.acquire() && two.acquire() && !two.acquire(), "its own two");
        one.release(3);
        assert!(two.has_available() && two.acquire());
        one.release(11);
        two.release(3);
        assert_eq!((one.taken, two.taken), (0, 0));
        while two.acquire() {}
        assert_eq!(two.taken, 14);
        drop(two);
        while one.acquire() {}
        assert_eq!(one.taken, 14, "a dropped shard leaves its permits to the others");
    }

    #[test]
    fn each_kind_is_at_the_place_of_its_number() {
        assert!(Yielding::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }

    #[test]
    fn every_shard_has_a_permit_however_few_there_are() {
        let limit = ConcurrencyLimit::new(1, 3);
        let kinds = Yielding::ALL.map(Some);
        for kind in kinds.into_iter().chain([None]) {
            let mut permits = ShardPermits::new(&limit);
            assert!(permits.acquire(kind) && !permits.acquire(kind));
        }
    }

    #[test]
    fn each_kind_that_gives_way_has_half_of_the_permits_of_the_hub() {
        let limit = ConcurrencyLimit::new(16, 1);
        let mut permits = ShardPermits::new(&limit);
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        let taken = [Some(Yielding::State), Some(Yielding::SlowSubgraph), None].map(&mut take_all);
        assert_eq!(taken, [8, 8, 0], "both together are the limit of all");
        permits.release(9, [8, 1]);
        assert!(permits.has_available() && permits.has_room_for(Yielding::SlowSubgraph));
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        let taken = [Some(Yielding::SlowSubgraph), None].map(&mut take_all);
        assert_eq!(taken, [1, 8]);
        assert!(permits.has_room_for(Yielding::State), "but no permit is left");
        assert!(!permits.acquire(Some(Yielding::State)));
        assert!(permits.has_room_for(Yielding::State), "and none was taken");
    }
}
