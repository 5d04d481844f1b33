//! The entries that requests in flight will store, so that an entry that many operations miss at the same time is
//! fetched once, also if their requests differ in other entries.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::CacheKey;
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

type KeyMap = HashMap<CacheKey, InFlight, RandomState>;

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
    /// Adds an entry. Returns the other request that will store it already, if there is one.
    pub(crate) fn add_or_join(&mut self, key: CacheKey) -> Option<InFlight> {
        let mut shard = self.flights.lock_shard(key);
        if let Some(known) = shard.get(&key) {
            let is_own = known.same_channel(&self.end.subscribe());
            return (!is_own).then(|| known.clone());
        }
        if shard.len() < ENTRIES_MAX {
            shard.insert(key, self.end.subscribe());
            drop(shard);
            self.keys.push(key);
        }
        None
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        for &key in &self.keys {
            self.flights.lock_shard(key).remove(&key);
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

    #[tokio::test]
    async fn the_second_request_waits_for_the_end_of_the_first() {
        let flights = Arc::<FetchesInFlight>::default();
        let (mut first, mut second) = (flights.begin(), flights.begin());
        assert!(first.add_or_join(key(1)).is_none());
        assert!(second.add_or_join(key(2)).is_none());
        let waiting = second.add_or_join(key(1)).expect("the first request");
        let mut ended = Box::pin(FetchesInFlight::wait(vec![waiting]));
        assert!(futures_util::poll!(&mut ended).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut ended).is_ready());
        assert!(second.add_or_join(key(1)).is_none(), "no request fetches it now");
        drop(second);
        assert!(flights.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let flights = Arc::<FetchesInFlight>::default();
        let mut first = flights.begin();
        let count = 2 * (SHARDS * ENTRIES_MAX) as u32;
        assert!((0..count).all(|number| first.add_or_join(key(number)).is_none()));
        assert_eq!(first.keys.len(), SHARDS * ENTRIES_MAX);
    }
}
