//! Histograms of durations, in buckets that a scrape can read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use telemetry::HistogramReading;

/// Upper bounds of the buckets in microseconds: from a small operation to one that exhausts its
/// budget.
const BUCKETS_MICROS: [u64; 10] =
    [250, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// Counts of the buckets: one more than there are bounds, because the last has none.
    counts: [AtomicU64; BUCKETS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl DurationHistogram {
    /// Adds one observation.
    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.partition_point(|&bound| bound < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the current observations.
    pub fn read(&self) -> HistogramReading {
        let bounds =
            BUCKETS_MICROS.iter().map(|&micros| Duration::from_micros(micros).as_secs_f64());
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let sum = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        HistogramReading { sum, buckets: bounds.chain([f64::INFINITY]).zip(counts).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let durations = DurationHistogram::default();
        for micros in [0, 250, 251, 1_000, 2_000_000, 2_000_001] {
            durations.add(Duration::from_micros(micros));
        }
        let HistogramReading { sum, buckets } = durations.read();
        let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert!((sum - 4.001_502).abs() < 1e-9, "{sum}");
    }
}
