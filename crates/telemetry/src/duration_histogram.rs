//! Histograms of durations, in buckets that can be read at any time.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metric::HistogramReading;

/// The upper bounds of the buckets of a histogram. A type of its own for each set of bounds, so that counters with a
/// histogram have a default.
pub trait Buckets {
    /// The bounds in microseconds, ascending, at most [`BOUNDS_MAX`].
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
        const { Self::BOUNDS_FIT };
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = B::BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the current observations.
    pub fn read(&self) -> HistogramReading {
        let seconds = |micros| Duration::from_micros(micros).as_secs_f64();
        let bounds = B::BOUNDS_MICROS.iter().copied().map(seconds).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let sum = seconds(self.micros.load(Ordering::Relaxed));
        HistogramReading { sum, buckets: bounds.zip(counts).collect() }
    }
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
        let HistogramReading { sum, buckets } = durations.read();
        let counts: Vec<_> = buckets.iter().map(|it| it.1).collect();
        assert_eq!(counts, [2, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((buckets[0].0, buckets[10].0), (0.000_25, f64::INFINITY));
        assert!((sum - 4.001_502).abs() < 1e-9, "{sum}");
    }
}
