//! The pieces of a load. The machine does not keep its speed for minutes, so a load is sent in pieces, and what it is
//! compared with is measured in between.

use super::bounds::{Bound, Bounds};
use super::stage::p99_ms;
use crate::setup::Bench;
use crate::statistics::Samples;
use serde_json::Value;

/// The maximum seconds of one piece.
pub(super) const PIECE_SECONDS: u32 = 20;

/// Returns the seconds of each piece of a load that lasts for `seconds`.
fn piece_seconds(seconds: u32) -> Vec<u32> {
    let pieces = seconds.div_ceil(PIECE_SECONDS).max(1);
    (0..pieces).map(|piece| seconds / pieces + u32::from(piece < seconds % pieces)).collect()
}

/// Returns the settings of a benchmark for each piece of its time, with the number of the piece.
pub(super) fn pieces_of(bench: &Bench) -> impl Iterator<Item = (usize, Bench)> {
    let pieces = piece_seconds(bench.seconds).into_iter().map(|it| bench.within_seconds(it));
    (1..).zip(pieces)
}

/// The rises of a p99 in percent, each between two pieces of which the second follows the first at once.
#[derive(Debug, Default)]
pub(super) struct Rises(Vec<f64>);

impl Rises {
    /// Adds the rise between the reports of two pieces, or of classes in them.
    pub(super) fn add(&mut self, before: &Value, during: &Value) {
        self.0.push(100.0 * (p99_ms(during) / p99_ms(before) - 1.0));
    }

    /// Checks the median of the rises.
    pub(super) fn check(&self, what: &str, percent_max: f64, bounds: &mut Bounds) {
        let all: Vec<String> = self.0.iter().map(|rise| format!("{rise:.0}")).collect();
        let what = format!("rise of {what}, median of {} %", all.join(", "));
        bounds.check(what, self.median(), Bound::AtMost(percent_max), " %");
    }

    /// Returns the median; not a number if a piece has no p99.
    fn median(&self) -> f64 {
        if self.0.is_empty() || self.0.iter().any(|rise| rise.is_nan()) {
            return f64::NAN;
        }
        let mut samples = Samples::default();
        self.0.iter().for_each(|&rise| samples.push(rise));
        samples.median()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_load_is_cut_into_equal_pieces() {
        for (seconds, pieces) in
            [(1, &[1][..]), (20, &[20]), (25, &[13, 12]), (120, &[20, 20, 20, 20, 20, 20])]
        {
            assert_eq!(piece_seconds(seconds), pieces);
        }
    }

    #[test]
    fn the_median_of_the_rises_counts() {
        let report = |p99_us: f64| json!({"latency": {"p99_us": p99_us}});
        let mut rises = Rises::default();
        assert!(rises.median().is_nan());
        for (before, during) in [(100.0, 110.0), (100.0, 300.0), (200.0, 230.0)] {
            rises.add(&report(before), &report(during));
        }
        assert!((rises.median() - 15.0).abs() < 1e-9, "{rises:?}");
        let mut bounds = Bounds::default();
        rises.check("the p99", 20.0, &mut bounds);
        let table = bounds.table();
        assert!(
            table.contains(
                "| rise of the p99, median of 10, 200, 15 % | 15.00 % | at most 20 % | yes |"
            ),
            "{table}"
        );
        rises.add(&report(100.0), &report(0.0));
        assert!(rises.median().is_nan(), "nothing was served in a piece");
    }
}
