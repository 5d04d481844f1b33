//! Refreshing of entries before and after they expire: when a refresh begins, and that one caller does it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::keys::CacheKey;
use crate::time::Timestamp;

/// The number of independent maps, so that callers on different workers seldom wait for each other.
const SHARDS: usize = 16;

/// The maximum number of refreshes in progress for each shard. Further ones are not begun, and the entries are served
/// as they are.
const CLAIMS_MAX: usize = 4096;

/// The largest value of `-ln(random)` that [`is_due_early`] can draw: `random` has 2^-53 at least.
const DRAW_MAX: f64 = 36.8;

/// True if an entry should be refreshed although it is fresh for `left`, by probabilistic early expiration ("XFetch",
/// Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, VLDB 2015).
///
/// The chance grows towards expiry, and is the larger the longer the fetch took. Entries that are requested often are
/// refreshed about one duration of a fetch before they expire, entries that are requested seldom are not. Routers that
/// share a store draw different numbers, so they seldom refresh together.
pub(crate) fn is_due_early(left: Duration, fetch_took: Duration, random: u64) -> bool {
    let (left, took) = (left.as_secs_f64(), fetch_took.as_secs_f64());
    // Hot path: most entries have more time left than any draw can bridge.
    if left > took * DRAW_MAX {
        return false;
    }
    // In (0, 1]: 53 bits are exact in a float.
    let random = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    left <= took * -random.ln()
}

/// The refreshes in progress. Each entry is refreshed by one caller at a time.
#[derive(Debug)]
pub(crate) struct RefreshClaims {
    shards: [Mutex<HashMap<CacheKey, Claimed>>; SHARDS],
    /// The time after which a claim is given to another caller.
    time_max: Duration,
    /// Claims that were not given because of [`CLAIMS_MAX`].
    refused: AtomicU64,
}

#[derive(Debug)]
struct Claimed {
    until: Timestamp,
    number: u64,
}

/// The right to refresh one entry. Dropping it lets the next caller refresh.
///
/// It ends by itself after a while, so a caller that hangs does not keep an entry stale.
#[derive(Debug)]
pub struct RefreshClaim {
    claims: Arc<RefreshClaims>,
    key: CacheKey,
    number: u64,
}

impl RefreshClaims {
    pub(crate) fn new(time_max: Duration) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, time_max, refused: AtomicU64::new(0) }
    }

    /// The number of claims that were not given because too many refreshes were in progress.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Claims the refresh of an entry. `None` if another caller has it, or if too many refreshes are in progress.
    pub(crate) fn claim(self: &Arc<Self>, key: CacheKey, now: Timestamp) -> Option<RefreshClaim> {
        let mut shard = self.lock_shard(key);
        if shard.get(&key).is_some_and(|claimed| claimed.until > now) {
            return None;
        }
        if shard.len() >= CLAIMS_MAX {
            shard.retain(|_, claimed| claimed.until > now);
            if shard.len() >= CLAIMS_MAX {
                self.refused.fetch_add(1, Relaxed);
                return None;
            }
        }
        // Distinguishes this claim from an older one of the same entry, which may be dropped later.
        let number = shard.get(&key).map_or(0, |claimed| claimed.number + 1);
        shard.insert(key, Claimed { until: now.plus(self.time_max), number });
        drop(shard);
        Some(RefreshClaim { claims: Arc::clone(self), key, number })
    }

    fn lock_shard(&self, key: CacheKey) -> MutexGuard<'_, HashMap<CacheKey, Claimed>> {
        let shard = &self.shards[key.words()[1] as usize % SHARDS];
        // A map is consistent at any time, so the map behind a poisoned lock is sound.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RefreshClaim {
    fn drop(&mut self) {
        let mut shard = self.claims.lock_shard(self.key);
        if shard.get(&self.key).is_some_and(|claimed| claimed.number == self.number) {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{HashDomain, KeyBase, KeySecret};

    fn key(number: u32) -> CacheKey {
        let base = KeyBase::new(&KeySecret::from_bytes([0; 16]), HashDomain::Entity);
        base.keys_of(&number.to_le_bytes()).public
    }

    #[test]
    fn one_caller_refreshes_until_it_is_done_or_too_slow() {
        let claims = Arc::new(RefreshClaims::new(Duration::from_secs(5)));
        let now = Timestamp(1_000);
        let first = claims.claim(key(1), now).expect("a claim");
        assert!(claims.claim(key(1), now).is_none());
        assert!(claims.claim(key(2), now).is_some(), "another entry");
        let late = now.plus(Duration::from_secs(5));
        let second = claims.claim(key(1), late).expect("the first one took too long");
        drop(first);
        assert!(claims.claim(key(1), late).is_none(), "the second one still refreshes");
        drop(second);
        assert!(claims.claim(key(1), late).is_some());
    }

    #[test]
    fn the_number_of_claims_is_bounded() {
        let claims = Arc::new(RefreshClaims::new(Duration::from_secs(5)));
        let count = 2 * (SHARDS * CLAIMS_MAX) as u32;
        let held: Vec<_> =
            (0..count).filter_map(|it| claims.claim(key(it), Timestamp(0))).collect();
        assert_eq!(held.len(), SHARDS * CLAIMS_MAX);
        assert_eq!(claims.refused(), u64::from(count) - held.len() as u64);
        assert!(claims.claim(key(count), Timestamp(0)).is_none());
        assert!(claims.claim(key(count), Timestamp(5_000)).is_some(), "old claims have ended");
        drop(held);
        assert!(claims.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn entries_are_refreshed_early_the_more_often_the_nearer_their_end_is() {
        let took = Duration::from_millis(50);
        let share = |left: u64| {
            let mut random = fastrand::Rng::with_seed(1);
            let draws = 100_000;
            let due = |_: &u32| is_due_early(Duration::from_millis(left), took, random.u64(..));
            f64::from((0..draws).filter(due).count() as u32) / f64::from(draws)
        };
        assert_eq!(share(0), 1.0);
        // The chance is e^(-left / took).
        assert!((share(50) - 0.368).abs() < 0.01, "{}", share(50));
        assert!((share(150) - 0.050).abs() < 0.01, "{}", share(150));
        assert_eq!(share(2_000), 0.0);
        assert!(is_due_early(Duration::ZERO, Duration::ZERO, 0));
    }
}
