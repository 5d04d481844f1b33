//! Estimates how often names were used that have no row in a table, in a fixed amount of memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of counters that count each name.
const DEPTH: usize = 4;

/// The number of counters for each row of the table, before rounding up to a power of two.
const COUNTERS_FOR_A_ROW: usize = 16;

/// The bounds of the number of counters of one depth. 16 bits of a hash choose one, so there cannot be more than 2^16.
const WIDTH_MIN: usize = 256;
const WIDTH_MAX: usize = 8_192;

/// A count-min sketch with conservative updates. A counter that many names share is higher than the uses of each of
/// them, by the average of all counters or less. An estimate is what remains without this average and a quarter of it
/// (two standard deviations at an average of 64), so a name that is used once is estimated at about nothing, however
/// many such names come.
#[derive(Debug)]
pub(super) struct UseSketch {
    counters: [Box<[AtomicU32]>; DEPTH],
    /// The number of uses, halved as the counters are.
    uses: AtomicU64,
}

impl UseSketch {
    /// Creates the sketch of a table with at most this many rows.
    pub(super) fn new(rows_max: usize) -> Self {
        let width = rows_max.saturating_mul(COUNTERS_FOR_A_ROW).clamp(WIDTH_MIN, WIDTH_MAX);
        let width = width.next_power_of_two();
        let counters = std::array::from_fn(|_| {
            std::iter::repeat_with(AtomicU32::default).take(width).collect()
        });
        Self { counters, uses: AtomicU64::new(0) }
    }

    /// Counts one use of a name, and returns the estimated number of its uses.
    pub(super) fn count(&self, hash: u64) -> u64 {
        let least = self.least_count(hash).saturating_add(1);
        self.counters_of(hash).for_each(|counter| {
            counter.fetch_max(least, Ordering::Relaxed);
        });
        self.uses.fetch_add(1, Ordering::Relaxed);
        u64::from(least).saturating_sub(self.noise())
    }

    /// Returns the estimated number of uses of a name.
    pub(super) fn estimate(&self, hash: u64) -> u64 {
        u64::from(self.least_count(hash)).saturating_sub(self.noise())
    }

    /// Raises the estimate of a name to that number of uses.
    pub(super) fn raise(&self, hash: u64, uses: u64) {
        let count = u32::try_from(uses.saturating_add(self.noise())).unwrap_or(u32::MAX / 2);
        self.counters_of(hash).for_each(|counter| {
            counter.fetch_max(count, Ordering::Relaxed);
        });
    }

    /// Halves all counts.
    pub(super) fn halve(&self) {
        for counter in self.counters.iter().flatten() {
            // A count of another thread between both steps may get lost: this is an estimate.
            counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
        self.uses.store(self.uses.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// The part of a count that is likely to be that of other names.
    fn noise(&self) -> u64 {
        let average = self.uses.load(Ordering::Relaxed) / self.counters[0].len() as u64;
        average + average / 4
    }

    fn least_count(&self, hash: u64) -> u32 {
        let counts = self.counters_of(hash).map(|counter| counter.load(Ordering::Relaxed));
        counts.min().unwrap_or_default()
    }

    fn counters_of(&self, hash: u64) -> impl Iterator<Item = &AtomicU32> {
        self.counters.iter().enumerate().map(move |(depth, counters)| {
            let bits = (hash >> (16 * depth)) as usize;
            &counters[bits & (counters.len() - 1)]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_used_once_are_estimated_at_nothing_however_many_come() {
        let (sketch, mut random) = (UseSketch::new(500), fastrand::Rng::with_seed(7));
        let frequent = random.u64(..);
        let mut highest = 0;
        for number in 0..400_000 {
            if number % 1_000 == 0 {
                sketch.count(frequent);
            }
            highest = highest.max(sketch.count(random.u64(..)));
        }
        assert!(highest <= 2, "{highest}");
        assert!(sketch.estimate(frequent) > 300, "{}", sketch.estimate(frequent));
    }

    #[test]
    fn few_names_are_counted_exactly_until_their_counts_are_halved() {
        let (sketch, mut random) = (UseSketch::new(1), fastrand::Rng::with_seed(3));
        let names: Vec<u64> = (0..20).map(|_| random.u64(..)).collect();
        for name in &names {
            (1..=4).for_each(|uses| assert_eq!(sketch.count(*name), uses));
        }
        sketch.raise(names[0], 8);
        sketch.halve();
        let estimates: Vec<_> = names.iter().map(|name| sketch.estimate(*name)).collect();
        assert_eq!((estimates[0], estimates[1..].iter().all(|it| *it == 2)), (4, true));
    }
}
