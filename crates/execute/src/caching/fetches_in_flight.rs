//! The entries that requests in flight will store, so that an entry that many operations miss at the same time is
//! fetched once, also if their requests differ in other entries.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{CacheKey, Sequence};
use foldhash::fast::RandomState;
use tokio::sync::watch;

/// The number of independent maps, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// The maximum number of entries in flight for each shard. Further ones are fetched by each operation that misses them.
const ENTRIES_MAX: usize = 8_192;

/// The entries in flight. Belongs to the process; share it by `Arc`.
#[derive(Debug, Default)]
pub struct FetchesInFlight {
    shards: [Mutex<KeyMap>; SHARDS],
    hasher: RandomState,
}

type KeyMap = HashMap<CacheKey, Flight, RandomState>;

/// The request that will store an entry.
#[derive(Clone, Debug)]
struct Flight {
    end: InFlight,
    /// Taken before the request was sent. Its response is stale if the entry was invalidated after that.
    began: Sequence,
}

/// The end of the request that will store an entry.
pub(crate) type InFlight = watch::Receiver<()>;

/// The entries that one request will store. When it is dropped, operations that wait for them look again.
#[derive(Debug)]
pub(crate) struct FlightGuard {
    flights: Arc<FetchesInFlight>,
    keys: Vec<CacheKey>,
    // Dropping it wakes all that wait.
    end: watch::Sender<()>,
}

impl FetchesInFlight {
    /// Begins a request without entries.
    pub(crate) fn begin(self: &Arc<Self>) -> FlightGuard {
        FlightGuard { flights: Arc::clone(self), keys: Vec::new(), end: watch::channel(()).0 }
    }

    /// Waits until the request of each of these entries has ended.
    pub(crate) async fn wait(all: Vec<InFlight>) {
        for mut in_flight in all {
            // An error is the end: no value is ever sent.
            while in_flight.changed().await.is_ok() {}
        }
    }

    fn lock_shard(&self, key: CacheKey) -> MutexGuard<'_, KeyMap> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        // A map is consistent at any time, so the map behind a poisoned lock is sound.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlightGuard {
    /// Adds an entry whose request begins at `now`. Returns the other request that will store it already, if there is
    /// one and `is_valid` accepts the time at which that began: the response to an older one would not be stored.
    pub(crate) fn add_or_join(
        &mut self,
        key: CacheKey,
        now: Sequence,
        is_valid: impl FnOnce(Sequence) -> bool,
    ) -> Option<InFlight> {
        let end = self.end.subscribe();
        let mut shard = self.flights.lock_shard(key);
        match shard.get(&key) {
            Some(known) if known.end.same_channel(&end) => {}
            Some(known) if is_valid(known.began) => return Some(known.end.clone()),
            // The new request takes the place of the older one.
            Some(_) => self.keys.push(key),
            None if shard.len() >= ENTRIES_MAX => return None,
            None => self.keys.push(key),
        }
        shard.insert(key, Flight { end, began: now });
        None
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let own = self.end.subscribe();
        for &key in &self.keys {
            let mut shard = self.flights.lock_shard(key);
            // A later request may have taken the place.
            if shard.get(&key).is_some_and(|flight| flight.end.same_channel(&own)) {
                shard.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cache::{HashDomain, KeyBase, KeySecret};

    use super::*;

    fn key(number: u32) -> CacheKey {
        let base = KeyBase::new(&KeySecret::from_bytes([0; 16]), HashDomain::Entity);
        base.keys_of(&number.to_le_bytes()).public
    }

    /// Adds or joins an entry that was invalidated before `now` and not later.
    fn join(guard: &mut FlightGuard, number: u32, now: u64) -> Option<InFlight> {
        guard.add_or_join(key(number), Sequence(now), |began| began.0 >= now)
    }

    #[test]
    fn a_request_from_before_an_invalidation_is_not_joined_and_ends_no_later_one() {
        let flights = Arc::<FetchesInFlight>::default();
        let (mut first, mut second, mut third) =
            (flights.begin(), flights.begin(), flights.begin());
        assert!(join(&mut first, 1, 0).is_none());
        assert!(join(&mut second, 1, 5).is_none(), "its response would be stale");
        drop(first);
        assert!(join(&mut third, 1, 5).is_some(), "the second one is in flight");
        drop(second);
        assert!(join(&mut third, 1, 5).is_none());
    }

    #[tokio::test]
    async fn the_second_request_waits_for_the_end_of_the_first() {
        let flights = Arc::<FetchesInFlight>::default();
        let (mut first, mut second) = (flights.begin(), flights.begin());
        assert!(join(&mut first, 1, 0).is_none());
        assert!(join(&mut second, 2, 0).is_none());
        let waiting = join(&mut second, 1, 0).expect("the first request");
        let mut ended = Box::pin(FetchesInFlight::wait(vec![waiting]));
        assert!(futures_util::poll!(&mut ended).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut ended).is_ready());
        assert!(join(&mut second, 1, 0).is_none(), "no request fetches it now");
        drop(second);
        assert!(flights.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let flights = Arc::<FetchesInFlight>::default();
        let mut first = flights.begin();
        let count = 2 * (SHARDS * ENTRIES_MAX) as u32;
        assert!((0..count).all(|number| join(&mut first, number, 0).is_none()));
        assert_eq!(first.keys.len(), SHARDS * ENTRIES_MAX);
    }
}
