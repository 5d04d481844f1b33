//! The generic cell rate algorithm (GCRA, ITU-T I.371) for many keys, with a bounded number of them.
//!
//! A key has one number, the time at which its whole burst is available again. An operation moves that time by its
//! weight, and is refused if the time would be further away than the burst allows. A key whose time has passed equals
//! one that was never used, so nothing else has to be kept.
//!
//! Keys are in two maps, the current and the previous one. A key that is used moves to the current map. The maps rotate
//! when the time of a whole burst has passed, so that those that are dropped are idle; and when the current one is
//! full, so that those that were not used for the longest time start again. The crate `governor` has the same
//! algorithm, but its store of keys has no bound, and can only be searched as a whole for idle ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of parts of a store, each with a lock of its own, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// A rate for many keys.
#[derive(Debug)]
pub(crate) struct KeyedRate {
    /// The nanoseconds in which one unit becomes available.
    interval: u64,
    /// The nanoseconds in which the whole burst becomes available.
    window: u64,
    /// The maximum number of keys in one map of a shard.
    keys_max: usize,
    shards: [Mutex<Shard>; SHARDS],
    /// Randomly seeded: clients cannot choose keys with equal hashes.
    hasher: RandomState,
    started: Instant,
    /// The number of keys in use that were dropped because there were too many.
    pub(crate) evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    current: HashMap<u64, u64>,
    previous: HashMap<u64, u64>,
    /// The time of the last rotation.
    rotated: u64,
}

/// The reason why an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// The units that are available now.
    pub(crate) remaining: u64,
    /// The time after which the operation would be admitted; the longest time if its weight is over the burst.
    pub(crate) retry_after: Duration,
}

impl KeyedRate {
    /// Creates a store for a rate of `rate` units in each `per`, and at most `burst` units at once.
    pub(crate) fn new(rate: u32, per: Duration, burst: u32, keys_max: u32) -> Self {
        let nanos = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        // A rate over one unit per nanosecond is no limit.
        let interval = (nanos / u64::from(rate.max(1))).max(1);
        Self {
            interval,
            window: interval.saturating_mul(u64::from(burst.max(1))),
            keys_max: (keys_max as usize / SHARDS / 2).max(1),
            shards: Default::default(),
            hasher: RandomState::new(),
            started: Instant::now(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Takes `weight` units of a key.
    ///
    /// # Errors
    /// They are not available. Nothing is taken.
    pub(crate) fn take(&self, key: &str, weight: u64, now: Instant) -> Result<(), Exceeded> {
        let now = self.nanos(now);
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        self.rotate_idle(&mut shard, now);
        let known = shard.current.get(&hash).or_else(|| shard.previous.get(&hash)).copied();
        let full_at = known.unwrap_or(now).max(now);
        let next = full_at.saturating_add(self.interval.saturating_mul(weight));
        let latest = now.saturating_add(self.window);
        if next > latest {
            let remaining = latest.saturating_sub(full_at) / self.interval;
            return Err(Exceeded { remaining, retry_after: Duration::from_nanos(next - latest) });
        }
        if shard.current.len() >= self.keys_max && !shard.current.contains_key(&hash) {
            self.rotate_full(&mut shard, now);
        }
        shard.previous.remove(&hash);
        shard.current.insert(hash, next);
        Ok(())
    }

    /// Returns units of an operation that was refused for another reason.
    pub(crate) fn give_back(&self, key: &str, weight: u64) {
        let hash = self.hasher.hash_one(key);
        if let Some(full_at) = self.shard(hash).current.get_mut(&hash) {
            *full_at = full_at.saturating_sub(self.interval.saturating_mul(weight));
        }
    }

    /// Returns the time in which the whole burst becomes available.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        let keys = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.current.len() + shard.previous.len()
        });
        keys.sum::<usize>() as u64
    }

    /// Drops the keys that have not been used for a whole window, if that time has come.
    fn rotate_idle(&self, shard: &mut Shard, now: u64) {
        if now.saturating_sub(shard.rotated) < self.window {
            return;
        }
        // After two windows the keys of both maps are idle.
        if now.saturating_sub(shard.rotated) / 2 >= self.window {
            shard.current = HashMap::new();
        }
        shard.previous = std::mem::take(&mut shard.current);
        shard.rotated = now;
    }

    /// Drops the keys that were not used for the longest time, because there are too many.
    fn rotate_full(&self, shard: &mut Shard, now: u64) {
        let dropped = std::mem::replace(&mut shard.previous, std::mem::take(&mut shard.current));
        let used = dropped.values().filter(|full_at| **full_at > now).count();
        self.evicted.fetch_add(used as u64, Ordering::Relaxed);
        shard.rotated = now;
    }

    fn nanos(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.started).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Locks the shard of a key. No code panics under this lock, so a poisoned lock holds valid numbers.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The low bits choose the place in the map.
        let index = (hash >> 60) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = KeyedRate::new(10, 1000 * MS, 3, 1000);
        let start = rate.started;
        for _ in 0..3 {
            assert_eq!(rate.take("a", 1, start), Ok(()));
        }
        let refused = Err(Exceeded { remaining: 0, retry_after: 100 * MS });
        assert_eq!(rate.take("a", 1, start), refused);
        assert_eq!(rate.take("b", 1, start), Ok(()), "another key");
        assert_eq!(rate.take("a", 1, start + 99 * MS).map_err(|it| it.retry_after), Err(MS));
        assert_eq!(rate.take("a", 1, start + 100 * MS), Ok(()));
        // A refused operation costs nothing.
        let passed = (1..=10_000).filter(|ms| rate.take("a", 1, start + (100 + ms) * MS).is_ok());
        assert_eq!(passed.count(), 100);
    }

    #[test]
    fn an_operation_takes_its_weight_and_gets_it_back() {
        let rate = KeyedRate::new(10, 1000 * MS, 10, 1000);
        let start = rate.started;
        assert_eq!(rate.take("a", 7, start), Ok(()));
        let refused = Err(Exceeded { remaining: 3, retry_after: 100 * MS });
        assert_eq!(rate.take("a", 4, start), refused);
        rate.give_back("a", 7);
        assert_eq!(rate.take("a", 10, start), Ok(()));
        assert!(rate.take("b", 11, start).is_err(), "more than the burst is never admitted");
        assert!(rate.take("b", u64::MAX, start).is_err());
    }

    #[test]
    fn idle_keys_are_forgotten_and_active_ones_are_not() {
        let rate = KeyedRate::new(10, 1000 * MS, 10, 100_000);
        let start = rate.started;
        for key in 0..1000 {
            assert_eq!(rate.take(&key.to_string(), 1, start), Ok(()));
        }
        assert_eq!(rate.keys(), 1000);
        assert_eq!(rate.take("active", 10, start + 900 * MS), Ok(()));
        for key in 0..200 {
            // Some keys in each shard, so that each rotates.
            let _ = rate.take(&format!("x{key}"), 1, start + 1100 * MS);
        }
        assert!(rate.take("active", 2, start + 1050 * MS).is_err());
        for key in 0..200 {
            let _ = rate.take(&format!("y{key}"), 1, start + 2200 * MS);
        }
        assert!(rate.keys() <= 401, "{}", rate.keys());
        assert_eq!(rate.evicted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let rate = KeyedRate::new(1, 1000 * MS, 1, 1000);
        let start = rate.started;
        for key in 0..50_000 {
            assert_eq!(rate.take(&key.to_string(), 1, start), Ok(()));
        }
        assert!(rate.keys() <= 1000, "{}", rate.keys());
        assert!(rate.evicted.load(Ordering::Relaxed) >= 49_000);
        assert!(rate.take("49999", 1, start).is_err(), "the last key is still known");
    }
}
