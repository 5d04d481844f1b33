//! The pieces of a load. The machine does not keep its speed for minutes, so a load is sent in pieces, and what it is
//! compared with is measured in between. Where the speed has fallen so much meanwhile that a load below the capacity
//! was above it, a piece says nothing about the router.

use super::bounds::{Bound, Bounds};
use super::stage::p99_ms;
use crate::reports::number;
use crate::setup::Bench;
use crate::statistics::Samples;
use serde_json::Value;

/// The maximum seconds of one piece.
pub(super) const PIECE_SECONDS: u32 = 20;

/// The maximum share of requests that are refused at a load below the capacity, in percent, if the machine has kept its
/// speed.
const STEADY_PERCENT_MAX: f64 = 0.5;

/// True if the machine has kept its speed since the capacity was measured: next to nothing was refused in these runs at
/// a load below it.
pub(super) fn is_steady(runs: &[&Value]) -> bool {
    runs.iter().all(|run| refused_percent(&[run]) <= STEADY_PERCENT_MAX)
}

/// Returns the share of the requests of all these runs that were refused, in percent.
pub(super) fn refused_percent(runs: &[&Value]) -> f64 {
    let sum = |what: &str| runs.iter().map(|run| number(&run["totals"][what])).sum::<f64>();
    100.0 * sum("refused") / sum("offered").max(1.0)
}

/// Returns the median of some figures; not a number if there are none or one is not a number.
pub(super) fn median(figures: &[f64]) -> f64 {
    if figures.is_empty() || figures.iter().any(|it| it.is_nan()) {
        return f64::NAN;
    }
    let mut samples = Samples::default();
    figures.iter().for_each(|&figure| samples.push(figure));
    samples.median()
}

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

/// The rises of a p99 in percent, each of a piece in comparison with pieces just before or after it.
#[derive(Debug, Default)]
pub(super) struct Rises(Vec<f64>);

impl Rises {
    /// Adds the rise of a piece above the mean of others. All are reports of pieces, or of classes in them.
    pub(super) fn add(&mut self, others: &[&Value], piece: &Value) {
        let mean = others.iter().map(|it| p99_ms(it)).sum::<f64>() / others.len() as f64;
        self.0.push(100.0 * (p99_ms(piece) / mean - 1.0));
    }

    /// Checks the median of the rises.
    pub(super) fn check(&self, what: &str, percent_max: f64, bounds: &mut Bounds) {
        let all: Vec<String> = self.0.iter().map(|rise| format!("{rise:.0}")).collect();
        let what = format!("rise of {what}, median of {} %", all.join(", "));
        // Not a number if a piece has no p99.
        bounds.check(what, median(&self.0), Bound::AtMost(percent_max), " %");
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
    fn a_machine_is_steady_if_nearly_nothing_below_the_capacity_was_refused() {
        let run = |refused: u32| json!({"totals": {"offered": 1000, "refused": refused}});
        let (calm, slow) = (run(5), run(6));
        assert!(is_steady(&[&calm, &calm]) && !is_steady(&[&calm, &slow]));
        assert!((refused_percent(&[&calm, &slow]) - 0.55).abs() < 1e-9);
    }

    #[test]
    fn the_median_of_the_rises_counts() {
        let report = |p99_us: f64| json!({"latency": {"p99_us": p99_us}});
        let mut rises = Rises::default();
        assert!(median(&rises.0).is_nan());
        for (before, during) in [(100.0, 110.0), (100.0, 300.0), (200.0, 230.0)] {
            rises.add(&[&report(before - 20.0), &report(before + 20.0)], &report(during));
        }
        assert!((median(&rises.0) - 15.0).abs() < 1e-9, "{rises:?}");
        let mut bounds = Bounds::default();
        rises.check("the p99", 20.0, &mut bounds);
        let table = bounds.table();
        assert!(
            table.contains(
                "| rise of the p99, median of 10, 200, 15 % | 15.00 % | at most 20 % | yes |"
            ),
            "{table}"
        );
        rises.add(&[&report(100.0)], &report(0.0));
        assert!(median(&rises.0).is_nan(), "nothing was served in a piece");
    }
}
