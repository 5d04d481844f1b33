//! Quantiles of durations that were counted in buckets.

use crate::HistogramReading;

/// The quantiles of a history.
pub const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Returns the quantiles of the durations in buckets: upper bounds in seconds, ascending, each with the number of
/// durations below it that are above the bound before. `None` without durations. Within a bucket durations count as
/// evenly distributed; those above the last bound count as that bound, as Prometheus does.
pub fn quantiles(buckets: &[(f64, u64)]) -> [Option<f64>; QUANTILES.len()] {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    QUANTILES.map(|quantile| {
        let rank = quantile * all as f64;
        let (mut below, mut lower) = (0_u64, 0.0);
        for &(upper, count) in buckets {
            let reached = below + count;
            if count > 0 && reached as f64 >= rank {
                let share = (rank - below as f64) / count as f64;
                return Some(if upper.is_finite() {
                    lower + (upper - lower) * share
                } else {
                    lower
                });
            }
            (below, lower) = (reached, if upper.is_finite() { upper } else { lower });
        }
        None
    })
}

/// Returns the buckets of the durations that were added since `before`. A histogram that is smaller than before began
/// anew.
pub(super) fn added(before: Option<&HistogramReading>, now: &HistogramReading) -> Vec<(f64, u64)> {
    let Some(before) = before else { return now.buckets.clone() };
    let pairs = now.buckets.iter().zip(&before.buckets);
    let differences =
        pairs.map(|((bound, now), (_, before))| Some((*bound, now.checked_sub(*before)?)));
    let is_same = before.buckets.len() == now.buckets.len();
    let differences: Option<Vec<_>> = differences.collect();
    differences.filter(|_| is_same).unwrap_or_else(|| now.buckets.clone())
}
