//! Counters of the costs of operations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::CostHistogram;

/// The bounds of costs.
const COST_BOUNDS: &[u64] =
    &[0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 100_000, 1_000_000];

/// The bounds of ratios, in hundredths.
const RATIO_BOUNDS: &[u64] =
    &[25, 50, 75, 90, 99, 100, 110, 125, 150, 200, 300, 500, 1_000, 10_000, 100_000];

/// The number of parts of the ratio 1.
const RATIO_PARTS: u64 = 100;

/// The costs of operations since the process started.
#[derive(Debug)]
pub struct CostStats {
    /// Estimated costs, by request.
    pub estimated: CostHistogram,
    /// Costs of responses, by execution: equal requests at the same time share one, and each event of a subscription
    /// is one.
    pub actual: CostHistogram,
    /// Ratios of the estimated to the actual cost, by execution.
    pub ratio: CostHistogram,
    /// Operations with an estimated cost above a maximum.
    pub exceeded: AtomicU64,
}

impl Default for CostStats {
    fn default() -> Self {
        Self {
            estimated: CostHistogram::new(COST_BOUNDS, 1),
            actual: CostHistogram::new(COST_BOUNDS, 1),
            ratio: CostHistogram::new(RATIO_BOUNDS, RATIO_PARTS),
            exceeded: AtomicU64::new(0),
        }
    }
}

impl CostStats {
    /// Records the estimated cost of a request.
    pub fn record_estimate(&self, estimated: u64, is_exceeded: bool) {
        self.estimated.add(estimated);
        if is_exceeded {
            self.exceeded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the cost of a response.
    pub(crate) fn record_actual(&self, estimated: u64, actual: u64) {
        self.actual.add(actual);
        // Nothing estimated and nothing found is an exact estimate.
        let ratio = match (estimated, actual) {
            (0, 0) => RATIO_PARTS,
            (estimated, actual) => estimated.saturating_mul(RATIO_PARTS) / actual.max(1),
        };
        self.ratio.add(ratio);
    }
}
