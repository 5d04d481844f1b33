//! A histogram of latencies in the manner of HdrHistogram: every value from a nanosecond to hours keeps its first two
//! digits, in 45 kB for runs of any length.

use serde::{Deserialize, Serialize};

/// The number of buckets for each power of two; the error of a value is below 1/128.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 7;

/// The largest recorded time, 39 hours; longer ones count as this.
const NANOS_MAX: u64 = (1 << 47) - 1;

/// The length of the count array: `STEPS` for the small values, and as many for each power of two above.
const BUCKETS: usize = ((47 - STEP_BITS as usize) + 1) << STEP_BITS;

/// Counts of times in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum_nanos: u128,
    min: u64,
    max: u64,
}

/// A histogram in a report: the upper ends of the buckets in microseconds, and their counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Buckets(pub Vec<(f64, u64)>);

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum_nanos: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Records one time.
    // hot path: some ns for each request of the load generator.
    pub fn record(&mut self, nanos: u64) {
        let nanos = nanos.min(NANOS_MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.sum_nanos += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the time that `share` of all times did not exceed, in nanoseconds; zero if nothing was recorded.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(index).min(self.max);
            }
        }
        0
    }

    /// Returns the mean in nanoseconds; zero if nothing was recorded.
    pub fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum_nanos as f64 / self.total as f64 }
    }

    /// Returns the shortest time in nanoseconds; zero if nothing was recorded.
    pub fn min(&self) -> u64 {
        if self.total == 0 { 0 } else { self.min }
    }

    /// Returns the longest time in nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Removes all recorded times.
    pub fn clear(&mut self) {
        if self.total > 0 {
            self.counts.fill(0);
            (self.total, self.sum_nanos, self.min, self.max) = (0, 0, u64::MAX, 0);
        }
    }

    /// Returns the non-empty buckets.
    pub fn buckets(&self) -> Buckets {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Buckets(
            filled
                .map(|(index, count)| (upper_end(index).min(self.max) as f64 / 1e3, *count))
                .collect(),
        )
    }
}

impl Buckets {
    /// Returns for each bucket the share of all times that did not exceed it, and its upper end in microseconds.
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let total: u64 = self.0.iter().map(|(_, count)| count).sum();
        let mut seen = 0;
        self.0
            .iter()
            .map(|(upper, count)| {
                seen += count;
                (seen as f64 / total as f64, *upper)
            })
            .collect()
    }
}

fn bucket(nanos: u64) -> usize {
    let power = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (u64::from(power) * STEPS + (nanos >> power)) as usize
}

/// Returns the largest value of a bucket.
fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    let power = (index / STEPS).saturating_sub(1);
    let step = index - power * STEPS;
    ((step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_less_than_one_percent_wide() {
        let mut value: u64 = 1;
        while value < NANOS_MAX {
            for value in [value - 1, value, value + 1] {
                let index = bucket(value);
                let upper = upper_end(index);
                assert!(value <= upper && upper - value <= value / 128, "{value}: {upper}");
                assert!(index == 0 || upper_end(index - 1) < value, "{value}");
            }
            value += value / 3 + 1;
        }
        assert_eq!(bucket(NANOS_MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.min(), histogram.max()), (0, 0, 0));
        for value in (1..=1000).rev() {
            histogram.record(value * 1000);
        }
        for (share, expected) in
            [(0.0, 1_000), (0.5, 500_000), (0.9, 900_000), (0.999, 999_000), (1.0, 1_000_000)]
        {
            let found = histogram.quantile(share);
            assert!(found >= expected && found <= expected + expected / 100, "{share}: {found}");
        }
        assert_eq!(histogram.mean(), 500_500.0);
        assert_eq!(histogram.buckets().cumulative().last(), Some(&(1.0, 1000.0)));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(0.99)), (0, 0));
    }
}
