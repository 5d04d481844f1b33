//! The cost and the latency that are assumed of an operation that is not known.
//!
//! Clients that write values into their texts, or send batches that vary, execute each text once or twice. The
//! executions of all such texts together then have one baseline, so that the limit follows them.
//!
//! **Latency.** That baseline is used only while most executions are of unknown operations. Otherwise the known ones
//! show the load better: a baseline of many operations cannot tell another mix of them from load, until a probe does.
//! Before it is used, it is the lowest mean of some executions: the first ones of a process are slow, because nothing
//! is prepared, and an overload may have begun before there are many. If other operations were measured before, it is
//! chosen so that the slow-down stays what it was.
//!
//! **Cost.** The mean cost of the first execution of a text.

use crate::baseline::{Baseline, Windows};

/// The part of executions of unknown operations from which their baseline is used, and that below which it no longer
/// is.
const PART_USED: f64 = 0.5;
const PART_UNUSED: f64 = 0.25;

/// The share of one execution in that part.
const PART_STEP: f64 = 1.0 / 256.0;

/// The number of executions of which the mean may become the baseline.
const GROUP_EXECUTIONS: u32 = 32;

/// The number of executions over which the cost is averaged, and from which it is used.
const COST_EXECUTIONS: u32 = 64;

/// The cost and the latency of operations that are not known.
#[derive(Debug)]
pub(crate) struct UnknownOperations {
    cost: f64,
    /// The number of costs, up to [`COST_EXECUTIONS`].
    costs: u32,
    /// The part of the latest executions that were of unknown operations.
    part: f64,
    /// The baseline; not known while it is not used.
    baseline: Baseline,
    /// The lowest and the latest mean of a group of executions, while the baseline is not used.
    lowest: f64,
    latest: f64,
    group_sum: f64,
    group_count: u32,
}

impl UnknownOperations {
    pub(crate) fn new() -> Self {
        Self {
            cost: 0.0,
            costs: 0,
            part: 0.0,
            baseline: Baseline::default(),
            lowest: f64::INFINITY,
            latest: 0.0,
            group_sum: 0.0,
            group_count: 0,
        }
    }

    /// Returns the mean cost, if it is known.
    pub(crate) fn cost(&self) -> Option<f64> {
        (self.costs >= COST_EXECUTIONS).then_some(self.cost)
    }

    /// Counts the cost of an execution of an unknown operation.
    pub(crate) fn count_cost(&mut self, cost: f64) {
        self.costs = (self.costs + 1).min(COST_EXECUTIONS);
        self.cost += (cost - self.cost) / f64::from(self.costs);
    }

    /// Returns the latency without load in seconds, while most executions are of unknown operations.
    pub(crate) fn baseline(&self) -> Option<f64> {
        self.baseline.latency()
    }

    /// Notes an execution of a known operation.
    pub(crate) fn note_known(&mut self) {
        self.part -= self.part * PART_STEP;
        if self.part < PART_UNUSED && self.baseline.latency().is_some() {
            self.baseline = Baseline::default();
            (self.lowest, self.group_sum, self.group_count) = (f64::INFINITY, 0.0, 0);
        }
    }

    /// Counts the latency of an execution of an unknown operation, in seconds.
    pub(crate) fn count_latency(&mut self, latency: f64, windows: &Windows) {
        self.part += (1.0 - self.part) * PART_STEP;
        if self.baseline.latency().is_some() {
            self.baseline.count(latency, windows);
            return;
        }
        self.group_sum += latency;
        self.group_count += 1;
        if self.group_count == GROUP_EXECUTIONS {
            self.latest = self.group_sum / f64::from(GROUP_EXECUTIONS);
            self.lowest = self.lowest.min(self.latest);
            (self.group_sum, self.group_count) = (0.0, 0);
        }
        if self.part >= PART_USED && self.lowest.is_finite() {
            let latency = windows.latest().map_or(self.lowest, |slow_down| self.latest / slow_down);
            self.baseline = Baseline::with_latency(latency, windows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_used_while_most_executions_are_of_unknown_operations() {
        let (mut unknown, windows) = (UnknownOperations::new(), Windows::new());
        for _ in 0..1000 {
            unknown.note_known();
            unknown.note_known();
            unknown.count_latency(0.1, &windows);
        }
        assert_eq!(unknown.baseline(), None);
        (0..300).for_each(|_| unknown.count_latency(0.1, &windows));
        let baseline = unknown.baseline().expect("it is used");
        assert!((baseline / 0.1 - 1.0).abs() < 0.01, "{baseline}");
        (0..400).for_each(|_| unknown.note_known());
        assert_eq!(unknown.baseline(), None);
    }

    #[test]
    fn slow_first_executions_are_not_the_baseline() {
        let (mut unknown, windows) = (UnknownOperations::new(), Windows::new());
        for execution in 0..1000 {
            unknown.count_latency(if execution < 50 { 1.0 } else { 0.02 }, &windows);
        }
        let baseline = unknown.baseline().expect("it is used");
        assert!((baseline / 0.02 - 1.0).abs() < 0.01, "{baseline}");
    }

    #[test]
    fn the_slow_down_of_other_operations_goes_on() {
        let (mut unknown, mut windows) = (UnknownOperations::new(), Windows::new());
        windows.end(4.0);
        (0..300).for_each(|_| unknown.count_latency(0.2, &windows));
        let baseline = unknown.baseline().expect("it is used");
        assert!((baseline / 0.05 - 1.0).abs() < 0.01, "{baseline}");
    }
}
