//! The limit on concurrent resolutions. It is one limit for the whole hub: each shard has a few permits of its own, so
//! that it always makes progress, and takes more from a shared pool while some are left. A hot trigger, which lives in
//! one shard, gets most of them.
//!
//! Some resolutions give way to others ([`Yielding`]). They have limits of their own besides ([`YieldingLimit`]), each
//! of half of the permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The divisor for the permits that are reserved for shards; the rest is shared.
const RESERVED_DIVISOR: usize = 4;

/// The part of the permits, one in this number, for each limit of resolutions that give way to others.
const YIELDING_DIVISOR: usize = 2;

/// A kind of resolutions that give way to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yielding {
    /// The current state, for new subscribers: a thousand of them at once must not delay the events of those that are
    /// there.
    State,
    /// Events for groups that came with a cursor and have not caught up yet: thousands of clients that return at once
    /// must not delay the live events of those that are there.
    Resumed,
    /// Resolutions that need a slow subgraph: they must not take the permits of all others.
    SlowSubgraph,
}

impl Yielding {
    /// All kinds, each at the place of its number.
    pub(super) const ALL: [Self; 3] = [Self::State, Self::Resumed, Self::SlowSubgraph];

    /// The number of kinds.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// Returns the limit of the kind.
    fn limit(self) -> YieldingLimit {
        match self {
            Self::State | Self::Resumed => YieldingLimit::Newcomers,
            Self::SlowSubgraph => YieldingLimit::SlowSubgraph,
        }
    }
}

/// A limit of resolutions that give way to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YieldingLimit {
    /// States and events for subscribers that have just come. They share one limit: in a storm some clients come with a
    /// cursor and some without, and with a limit for each they would take all permits together.
    Newcomers,
    /// Resolutions that need a slow subgraph, see [`Yielding::SlowSubgraph`].
    SlowSubgraph,
}

impl YieldingLimit {
    /// The number of limits.
    const COUNT: usize = 2;
}

/// The permits that any shard may take.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    all: Arc<PermitPool>,
    yielding: [Arc<PermitPool>; YieldingLimit::COUNT],
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

/// The permits of one shard, for all resolutions and for each limit of those that give way.
#[derive(Debug)]
pub(super) struct ShardPermits {
    all: TakenPermits,
    yielding: [TakenPermits; YieldingLimit::COUNT],
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
        self.yielding[kind.limit() as usize].has_available()
    }

    /// Takes a permit, for a resolution that gives way or for another one. Returns false if there is none.
    pub(super) fn acquire(&mut self, kind: Option<Yielding>) -> bool {
        let Some(kind) = kind else { return self.all.acquire() };
        let of_limit = &mut self.yielding[kind.limit() as usize];
        if !of_limit.acquire() {
            return false;
        }
        let has_turn = self.all.acquire();
        if !has_turn {
            of_limit.release(1);
        }
        has_turn
    }

    /// Releases permits of resolutions that have ended, and says how many of them were of each kind.
    pub(super) fn release(&mut self, permits: usize, of_kinds: [usize; Yielding::COUNT]) {
        self.all.release(permits);
        for (kind, permits) in Yielding::ALL.into_iter().zip(of_kinds) {
            self.yielding[kind.limit() as usize].release(permits);
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
        let mut limits = Yielding::ALL.map(|kind| kind.limit() as usize).to_vec();
        limits.dedup();
        assert_eq!(limits, Vec::from_iter(0..YieldingLimit::COUNT), "each limit is of some kind");
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
    fn each_limit_of_those_that_give_way_is_half_of_the_permits_of_the_hub() {
        let limit = ConcurrencyLimit::new(16, 1);
        let mut permits = ShardPermits::new(&limit);
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        let taken = [Some(Yielding::State), Some(Yielding::SlowSubgraph), None].map(&mut take_all);
        assert_eq!(taken, [8, 8, 0], "both together are the limit of all");
        permits.release(9, [8, 0, 1]);
        assert!(permits.has_available() && permits.has_room_for(Yielding::SlowSubgraph));
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        let taken = [Some(Yielding::SlowSubgraph), None].map(&mut take_all);
        assert_eq!(taken, [1, 8]);
        assert!(permits.has_room_for(Yielding::State), "but no permit is left");
        assert!(!permits.acquire(Some(Yielding::State)));
        assert!(permits.has_room_for(Yielding::State), "and none was taken");
    }

    #[test]
    fn states_and_events_of_resumed_groups_share_one_half() {
        let limit = ConcurrencyLimit::new(16, 1);
        let mut permits = ShardPermits::new(&limit);
        assert!((0..3).all(|_| permits.acquire(Some(Yielding::State))));
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        let taken = [Some(Yielding::Resumed), Some(Yielding::State), None].map(&mut take_all);
        assert_eq!(taken, [5, 0, 8]);
        permits.release(2, [1, 1, 0]);
        let mut take_all = |kind| (0..).take_while(|_| permits.acquire(kind)).count();
        assert_eq!(take_all(Some(Yielding::Resumed)), 2, "each permit goes to either of them");
    }
}
