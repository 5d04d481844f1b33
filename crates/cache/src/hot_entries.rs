//! The entries that are found most often, from a sample of the lookups.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entry_label::EntryLabel;
use crate::heavy_hitters::HeavyHitters;
use crate::keys::CacheKey;
use crate::time::{Timestamp, millis};

/// One of this many hits is counted, by the bits of its random number that nothing else uses. A power of two.
pub(crate) const HITS_PER_SAMPLE: u64 = 64;

/// The number of counters. With their labels they take at most 800 KiB.
const COUNTERS: usize = 1024;

/// The time after which counts are halved.
const HALVING_TIME: Duration = Duration::from_secs(60);

/// True if a hit is counted. `random` is the number that was given to the lookup.
///
/// Hot path: the only cost of a lookup that is not counted.
pub fn is_sampled(random: u64) -> bool {
    random.is_multiple_of(HITS_PER_SAMPLE)
}

/// The counters of the entries that are found most often.
#[derive(Debug)]
pub(crate) struct HotEntries(Mutex<Counters>);

#[derive(Debug)]
struct Counters {
    hitters: HeavyHitters<CacheKey, EntryLabel>,
    /// The time of the last halving, or of the first sample.
    since: Option<Timestamp>,
    /// The time to which the counts belong that are older than `since`, in milliseconds and halved as they are.
    weighted_time: u64,
}

/// An entry that is found often.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HotKey {
    pub(crate) key: CacheKey,
    pub(crate) label: EntryLabel,
    /// The estimated number of hits; those of earlier minutes count half for each minute.
    pub(crate) hits: u64,
    /// The most by which the number is too large, apart from the error of sampling.
    pub(crate) error: u64,
    pub(crate) per_second: f64,
}

impl HotEntries {
    /// Counts a hit of the sample.
    pub(crate) fn record(&self, key: CacheKey, now: Timestamp, label: impl FnOnce() -> EntryLabel) {
        let mut counters = self.lock();
        counters.age_to(now);
        counters.hitters.add(key, label);
    }

    /// Returns the entries that are found most often, the first one most often.
    pub(crate) fn sorted(&self, now: Timestamp) -> Vec<HotKey> {
        let mut counters = self.lock();
        counters.age_to(now);
        let since = counters.since.unwrap_or(now);
        // A first sample would else be a rate per millisecond.
        let time = (counters.weighted_time + millis(now.since(since))).max(1_000);
        let hot = counters.hitters.sorted().into_iter().filter(|it| it.count > 0).map(|it| {
            let hits = it.count * HITS_PER_SAMPLE;
            HotKey {
                key: it.key,
                label: it.label.clone(),
                hits,
                error: it.error * HITS_PER_SAMPLE,
                per_second: hits as f64 * 1_000.0 / time as f64,
            }
        });
        hot.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        // A panic while counters move could lose some of them, which makes a wrong count and nothing worse.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HotEntries {
    fn default() -> Self {
        let hitters = HeavyHitters::new(COUNTERS);
        Self(Mutex::new(Counters { hitters, since: None, weighted_time: 0 }))
    }
}

impl Counters {
    /// Halves the counts once for each period that has passed.
    fn age_to(&mut self, now: Timestamp) {
        let since = *self.since.get_or_insert(now);
        let period = millis(HALVING_TIME);
        let periods = millis(now.since(since)) / period;
        // After as many halvings as a count has bits, all counts are 0.
        for _ in 0..periods.min(u64::BITS.into()) {
            self.hitters.halve();
            self.weighted_time = (self.weighted_time + period) / 2;
        }
        self.since = Some(Timestamp(since.0 + periods * period));
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

    fn label(number: u32) -> EntryLabel {
        EntryLabel::new(None, "Product", &[("id", &*number.to_string())], false)
    }

    #[test]
    fn one_of_64_lookups_is_counted() {
        let mut random = fastrand::Rng::with_seed(1);
        let sampled = (0..640_000).filter(|_| is_sampled(random.u64(..))).count();
        assert!((9_500..10_500).contains(&sampled), "{sampled}");
    }

    #[test]
    fn rates_follow_the_load_of_the_last_minutes() {
        let hot = HotEntries::default();
        // For five minutes, one sample of the first entry every 100 ms, and of the second every second.
        for tick in 0..3_000 {
            let now = Timestamp(1_000 + tick * 100);
            hot.record(key(1), now, || label(1));
            if tick % 10 == 0 {
                hot.record(key(2), now, || label(2));
            }
            let [first, ..] = &hot.sorted(now)[..] else { panic!("a counted entry") };
            assert_eq!(first.label, label(1));
            if tick > 100 {
                assert!((600.0..700.0).contains(&first.per_second), "{tick}: {}", first.per_second);
            }
        }
        let end = Timestamp(301_000);
        let all = hot.sorted(end);
        assert!((60.0..70.0).contains(&all[1].per_second), "{}", all[1].per_second);
        // Ten minutes later another entry is the hottest at once.
        for tick in 0..10 {
            hot.record(key(3), Timestamp(901_000 + tick * 100), || label(3));
        }
        assert_eq!(hot.sorted(Timestamp(902_000))[0].label, label(3));
        assert_eq!(hot.sorted(Timestamp(u64::MAX / 2)), []);
    }

    #[test]
    fn the_counters_are_small() {
        let texts = 4 * crate::entry_label::LABEL_BYTES_MAX;
        let counter = size_of::<crate::heavy_hitters::HeavyKey<CacheKey, EntryLabel>>();
        // Hash tables have room for twice as many.
        let place = 2 * (size_of::<(CacheKey, usize)>() + 1);
        assert!(COUNTERS * (texts + counter + place) < 850 << 10);
    }
}
