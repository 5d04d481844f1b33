//! The parts that reports of all kinds share: latencies and failures.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// A summary of latencies, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencySummary {
    /// The shortest latency.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 75th percentile.
    pub p75_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest latency.
    pub max_us: f64,
}

/// The number of failures with one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The reason.
    pub what: String,
    /// The number of failures.
    pub count: u64,
}

impl LatencySummary {
    /// Summarises a histogram.
    pub fn from_histogram(histogram: &Histogram) -> Self {
        let at = |share: f64| histogram.quantile(share) as f64 / 1e3;
        Self {
            min_us: histogram.min() as f64 / 1e3,
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}
