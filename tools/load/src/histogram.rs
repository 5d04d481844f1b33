//! A histogram of latencies: every value from a nanosecond to hours keeps its first two digits, in 45 kB for runs of
//! any length. The counts are those of HdrHistogram; the smallest and the largest value and the mean are exact.

use serde::{Deserialize, Serialize};

/// The largest recorded time, 39 hours; longer ones count as this.
const NANOS_MAX: u64 = (1 << 47) - 1;

/// Two decimal digits, for which HdrHistogram has 128 buckets for each power of two.
const DIGITS: u8 = 2;

/// Counts of times in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum_nanos: u128,
    min: u64,
    max: u64,
}

/// A histogram in a report: the upper ends of the buckets in microseconds, and their counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Buckets(pub Vec<(f64, u64)>);

impl Default for Histogram {
    fn default() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, NANOS_MAX, DIGITS);
        Self {
            counts: counts.expect("constant bounds are valid"),
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
        self.counts.saturating_record(nanos);
        self.sum_nanos += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the time that `share` of all times did not exceed, in nanoseconds; zero if nothing was recorded.
    pub fn quantile(&self, share: f64) -> u64 {
        self.counts.value_at_quantile(share).min(self.max)
    }

    /// Returns the mean in nanoseconds; zero if nothing was recorded.
    pub fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_nanos as f64 / self.count() as f64 }
    }

    /// Returns the shortest time in nanoseconds; zero if nothing was recorded.
    pub fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }

    /// Returns the longest time in nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Removes all recorded times.
    pub fn clear(&mut self) {
        if self.count() > 0 {
            self.counts.reset();
            (self.sum_nanos, self.min, self.max) = (0, u64::MAX, 0);
        }
    }

    /// Returns the non-empty buckets.
    pub fn buckets(&self) -> Buckets {
        let filled = self.counts.iter_recorded().map(|bucket| {
            let upper = bucket.value_iterated_to().min(self.max);
            (upper as f64 / 1e3, bucket.count_at_value())
        });
        Buckets(filled.collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_less_than_one_percent_wide() {
        let mut value: u64 = 1;
        while value < NANOS_MAX {
            for value in [value - 1, value, value + 1] {
                let mut histogram = Histogram::default();
                histogram.record(value);
                histogram.record(NANOS_MAX);
                let upper = histogram.quantile(0.5);
                assert!(value <= upper && upper - value <= value / 128, "{value}: {upper}");
            }
            value += value / 3 + 1;
        }
    }

    #[test]
    fn times_over_the_maximum_count_as_the_maximum() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!((histogram.count(), histogram.max()), (1, NANOS_MAX));
        assert_eq!(histogram.buckets(), Buckets(vec![(NANOS_MAX as f64 / 1e3, 1)]));
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
