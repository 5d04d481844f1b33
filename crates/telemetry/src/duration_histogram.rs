//! Histograms of durations, in buckets that can be read at any time.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metric::HistogramReading;

/// The upper bounds of the buckets of a histogram. A type of its own for each set of bounds, so that counters with a
/// histogram have a default.
pub trait Buckets {
    /// The bounds in microseconds, ascending, at most 15.
    const BOUNDS_MICROS: &'static [u64];
}

/// Bounds for work inside the router: from a small operation to one that exhausts its budget.
#[derive(Debug, Default)]
pub struct WorkBuckets;

impl Buckets for WorkBuckets {
    const BOUNDS_MICROS: &'static [u64] =
        &[250, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000];
}

/// The maximum number of bounds.
const BOUNDS_MAX: usize = 15;

/// A histogram of durations.
#[derive(Debug)]
pub struct DurationHistogram<B = WorkBuckets> {
    /// The number of observations above the bound before and up to this bound. The bucket after the last bound has no
    /// bound of its own, the ones after it are unused.
    counts: [AtomicU64; BOUNDS_MAX + 1],
    micros: AtomicU64,
    buckets: PhantomData<B>,
}

impl<B> Default for DurationHistogram<B> {
    fn default() -> Self {
        Self { counts: Default::default(), micros: AtomicU64::new(0), buckets: PhantomData }
    }
}

impl<B: Buckets> DurationHistogram<B> {
    const BOUNDS_FIT: () = assert!(B::BOUNDS_MICROS.len() <= BOUNDS_MAX);

    /// Adds one observation.
    pub fn add(&self, duration: Duration) {
        self.counts[Self::bucket(duration)].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros(duration), Ordering::Relaxed);
    }

    /// Returns the index of the bucket that a duration belongs to.
    pub fn bucket(duration: Duration) -> usize {
        const { Self::BOUNDS_FIT };
        let micros = micros(duration);
        B::BOUNDS_MICROS.partition_point(|&bound| bound < micros)
    }

    /// Adds all observations of another histogram.
    pub fn add_all(&self, other: &Self) {
        for (count, more) in self.counts.iter().zip(&other.counts) {
            count.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.micros.fetch_add(other.micros.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the current observations.
    pub fn read(&self) -> HistogramReading {
        let seconds = |micros| Duration::from_micros(micros).as_secs_f64();
        let bounds = B::BOUNDS_MICROS.iter().copied().map(seconds).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let sum = seconds(self.micros.load(Ordering::Relaxed));
        HistogramReading { sum, buckets: bounds.zip(counts).collect(), exemplars: Vec::new() }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_belongs_to_the_first_bound_that_is_not_below_it() {
        let durations: DurationHistogram = DurationHistogram::default();
        for micros in [0, 250, 251, 1_000, 2_000_000, 2_000_001] {
            durations.add(Duration::from_micros(micros));
        }
        let HistogramReading { sum, buckets, .. } = durations.read();
        let counts: Vec<_> = buckets.iter().map(|it| it.1).collect();
        assert_eq!(counts, [2, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((buckets[0].0, buckets[10].0), (0.000_25, f64::INFINITY));
        assert!((sum - 4.001_502).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn the_observations_of_two_histograms_are_added() {
        let (one, other): (DurationHistogram, DurationHistogram) = Default::default();
        one.add(Duration::from_micros(200));
        other.add(Duration::from_micros(300));
        other.add(Duration::from_secs(9));
        one.add_all(&other);
        let HistogramReading { sum, buckets, .. } = one.read();
        let counts: Vec<_> = buckets.iter().map(|it| it.1).collect();
        assert_eq!((one.count(), counts), (3, vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert!((sum - 9.000_5).abs() < 1e-9, "{sum}");
    }
}
