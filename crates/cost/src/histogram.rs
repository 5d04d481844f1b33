//! Histograms of costs, and of ratios of costs.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::HistogramReading;

/// The maximum number of bounds.
const BOUNDS_MAX: usize = 15;

/// A histogram of whole numbers with the given bounds, divided by `PER_UNIT` when it is read.
#[derive(Debug)]
pub struct CostHistogram {
    bounds: &'static [u64],
    per_unit: f64,
    /// The number of observations above the bound before and up to this bound; the bucket after the last bound has no
    /// bound of its own, the ones after it are unused.
    counts: [AtomicU64; BOUNDS_MAX + 1],
    sum: AtomicU64,
}

/// The largest value that adds to a sum. An estimate without a limit would make the sum useless.
const SUMMED_MAX: u64 = 1 << 40;

impl CostHistogram {
    /// Creates a histogram with ascending bounds, in parts of which `per_unit` are one unit.
    pub(crate) fn new(bounds: &'static [u64], per_unit: u64) -> Self {
        debug_assert!(bounds.len() <= BOUNDS_MAX, "a histogram has room for 15 bounds");
        let counts = Default::default();
        Self { bounds, per_unit: per_unit as f64, counts, sum: AtomicU64::new(0) }
    }

    /// Adds one observation.
    pub(crate) fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value).min(BOUNDS_MAX);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value.min(SUMMED_MAX), Ordering::Relaxed);
    }

    /// Returns the current observations.
    pub fn read(&self) -> HistogramReading {
        let unit = |value: u64| value as f64 / self.per_unit;
        let bounds = self.bounds.iter().copied().map(unit).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        HistogramReading {
            sum: unit(self.sum.load(Ordering::Relaxed)),
            buckets: bounds.zip(counts).collect(),
            exemplars: Vec::new(),
        }
    }
}
