//! The cost of each operation, its time without load, and whether it opens a stream. A bounded table, learnt from
//! recent executions.
//!
//! **Cost** is in any unit of the caller, such as microseconds of a processor. The weight of an operation is its cost
//! relative to the average of all operations, so that the limit stays a number of average operations.
//!
//! **Latency.** The [baseline](crate::baseline) of an operation is its latency, divided by the slow-down that all
//! operations have at that time. So a change that concerns all operations is left to the limit, and a change of one
//! operation (other data, a slow subgraph) moves its own baseline only.
//!
//! Operations that are executed too rarely to be known have cost and latency of [`unknown
//! operations`](crate::unknown_operations).

use crate::UNITS;
use crate::baseline::{Baseline, Windows};
use crate::unknown_operations::UnknownOperations;

/// The number of operations that are kept: 40 bytes each, 160 KiB. A graph has fewer that matter.
const OPERATIONS_MAX: usize = 4096;

/// The number of places that an operation may have. Of these, the one that is used least gives way.
const WAYS: usize = 4;

/// The share of a new cost in the average cost of an operation.
const COST_STEP: f32 = 0.1;

/// The number of executions over which the average cost of all operations is taken.
const MEAN_EXECUTIONS: f64 = 1000.0;

/// A single execution counts in the average of all operations with at most this multiple of it.
const COST_RATIO_MAX: f64 = 16.0;

/// The bounds of a weight: a tenth of an average operation, and ten.
const WEIGHT_MIN: u32 = UNITS / 10;
const WEIGHT_MAX: u32 = UNITS * 10;

#[derive(Clone, Copy, Default, Debug)]
struct OperationRecord {
    key: u64,
    /// The number of recent uses; 0 for a free place.
    uses: u8,
    /// True if the operation has opened a stream.
    opens_stream: bool,
    /// The average cost; 0 if it is not known.
    cost: f32,
    baseline: Baseline,
}

impl OperationRecord {
    fn known_cost(&self) -> Option<f64> {
        (self.cost > 0.0).then(|| f64::from(self.cost))
    }
}

/// The costs and latencies of operations.
#[derive(Debug)]
pub(crate) struct OperationTable {
    records: Box<[OperationRecord]>,
    mean_cost: f64,
    executions: f64,
    windows: Windows,
    unknown: UnknownOperations,
}

impl OperationTable {
    pub(crate) fn new() -> Self {
        Self {
            records: vec![OperationRecord::default(); OPERATIONS_MAX].into(),
            mean_cost: 0.0,
            executions: 0.0,
            windows: Windows::new(),
            unknown: UnknownOperations::new(),
        }
    }

    /// Returns the weight of an operation in units of work, and whether it is known to open a stream. One that is not
    /// known weighs as much as such operations cost of late, and not less than the average operation.
    pub(crate) fn look_up(&self, key: u64) -> (u32, bool) {
        let record = self.find(key);
        let unknown = || self.unknown.cost().map(|it| it.max(self.mean_cost));
        let cost = record.and_then(OperationRecord::known_cost).or_else(unknown);
        let weight = match cost {
            Some(cost) if self.mean_cost > 0.0 => {
                let weight = cost / self.mean_cost * f64::from(UNITS);
                (weight as u32).clamp(WEIGHT_MIN, WEIGHT_MAX)
            }
            _ => UNITS,
        };
        (weight, record.is_some_and(|it| it.opens_stream))
    }

    /// Returns the average cost of an operation, if it is known.
    pub(crate) fn known_cost(&self, key: u64) -> Option<f64> {
        self.find(key).and_then(OperationRecord::known_cost)
    }

    /// Counts the cost of an execution.
    pub(crate) fn count_cost(&mut self, key: u64, cost: u64) {
        let cost = (cost as f64).max(1.0);
        self.executions = (self.executions + 1.0).min(MEAN_EXECUTIONS);
        let bounded = match self.mean_cost {
            0.0 => cost,
            mean => cost.min(mean * COST_RATIO_MAX),
        };
        self.mean_cost += (bounded - self.mean_cost) / self.executions;
        let record = find_or_add(&mut self.records, key);
        let is_known = record.as_ref().is_some_and(|it| it.cost > 0.0);
        if let Some(record) = record {
            let cost = cost as f32;
            record.cost += (cost - record.cost) * if is_known { COST_STEP } else { 1.0 };
        }
        if !is_known {
            self.unknown.count_cost(bounded);
        }
    }

    /// Notes that an operation has opened a stream: it does so each time. [`OperationTable::count_cost`] has added its
    /// record, if there was room for it.
    pub(crate) fn note_stream(&mut self, key: u64) {
        let start = set_of(key);
        let mut set = self.records[start..start + WAYS].iter_mut();
        if let Some(record) = set.find(|it| it.uses > 0 && it.key == key) {
            record.opens_stream = true;
        }
    }

    /// Counts the cost of an execution that was given up, if it is more than the execution was expected to cost.
    pub(crate) fn count_partial_cost(&mut self, key: u64, cost: u64) {
        let expected = self.known_cost(key).unwrap_or(self.mean_cost);
        // All work is new while there is no mean.
        if expected > 0.0 && cost as f64 > expected {
            self.count_cost(key, cost);
        }
    }

    /// Returns the latency of an operation without load in seconds, if it is known, or that of unknown operations while
    /// most executions are of such.
    pub(crate) fn baseline(&self, key: u64) -> Option<f64> {
        let own = self.find(key).and_then(|it| it.baseline.latency());
        own.or_else(|| self.unknown.baseline())
    }

    /// Counts the latency of an execution, in seconds.
    pub(crate) fn count_latency(&mut self, key: u64, latency: f64) {
        let mut is_known = false;
        if let Some(record) = find_or_add(&mut self.records, key) {
            is_known = record.baseline.latency().is_some();
            record.baseline.count(latency, &self.windows);
        }
        match is_known {
            true => self.unknown.note_known(),
            false => self.unknown.count_latency(latency, &self.windows),
        }
    }

    /// Ends a window in which all operations together took `slow_down` times their baselines.
    pub(crate) fn end_window(&mut self, slow_down: f64) {
        self.windows.end(slow_down);
    }

    fn find(&self, key: u64) -> Option<&OperationRecord> {
        let start = set_of(key);
        self.records[start..start + WAYS].iter().find(|it| it.uses > 0 && it.key == key)
    }
}

fn set_of(key: u64) -> usize {
    // Keys are hashes.
    (key as usize % (OPERATIONS_MAX / WAYS)) * WAYS
}

/// Returns the record of an operation. `None` if it is new and the others of its places are in use: each attempt takes
/// one of their uses, so that an operation that is repeated gets a place, and many that occur once do not displace it.
fn find_or_add(records: &mut [OperationRecord], key: u64) -> Option<&mut OperationRecord> {
    let start = set_of(key);
    let set = &mut records[start..start + WAYS];
    let mut place = set.iter().position(|it| it.uses > 0 && it.key == key);
    if place.is_none() {
        place = set.iter().position(|it| it.uses == 0);
        match place {
            Some(place) => set[place] = OperationRecord { key, ..OperationRecord::default() },
            None => set.iter_mut().for_each(|it| it.uses -= 1),
        }
    }
    let record = &mut set[place?];
    record.uses = record.uses.saturating_add(1);
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_weighs_what_it_costs_relative_to_the_average() {
        let mut table = OperationTable::new();
        assert_eq!(table.look_up(1).0, UNITS);
        for _ in 0..1000 {
            table.count_cost(1, 100);
            table.count_cost(2, 300);
        }
        assert!((450..550).contains(&table.look_up(1).0), "{}", table.look_up(1).0);
        assert!((1400..1600).contains(&table.look_up(2).0), "{}", table.look_up(2).0);
        assert_eq!(table.look_up(3).0, UNITS, "an unknown operation weighs as much as the average");
        for _ in 0..1000 {
            table.count_cost(3, 1);
        }
        assert_eq!(table.look_up(3).0, WEIGHT_MIN);
    }

    #[test]
    fn an_operation_that_has_opened_a_stream_is_known_to_do_so() {
        let mut table = OperationTable::new();
        for key in [1, 2] {
            table.count_cost(key, 100);
        }
        table.note_stream(1);
        assert_eq!([1, 2, 3].map(|key| table.look_up(key).1), [true, false, false]);
    }

    #[test]
    fn operations_that_come_once_do_not_displace_one_that_comes_again() {
        let mut table = OperationTable::new();
        for key in 0..1_000_000 {
            table.count_cost(5, 1000);
            table.count_cost(key * 7919 + 6, 10);
        }
        assert!(table.look_up(5).0 > UNITS, "{}", table.look_up(5).0);
    }

    #[test]
    fn operations_that_are_not_known_weigh_as_much_as_others_that_were_not() {
        let mut table = OperationTable::new();
        for key in 0..10_000 {
            (0..9).for_each(|_| table.count_cost(5, 100));
            table.count_cost(key * 7919 + 6, 1000);
        }
        // The average is 190.
        let weight = table.look_up(3).0;
        assert!((4000..7000).contains(&weight), "{weight}");
        let mut table = OperationTable::new();
        for key in 0..10_000 {
            (0..9).for_each(|_| table.count_cost(5, 100));
            table.count_cost(key * 7919 + 6, 10);
        }
        assert_eq!(table.look_up(3).0, UNITS, "cheap ones are not known to be cheap");
    }

    #[test]
    fn a_slow_down_of_all_operations_leaves_their_baselines() {
        let mut table = OperationTable::new();
        for window in 0..200 {
            let slow_down = if window < 100 { 1.0 } else { 3.0 };
            for _ in 0..10 {
                table.count_latency(1, 0.010 * slow_down);
                table.count_latency(2, 0.100 * slow_down);
            }
            table.end_window(slow_down);
        }
        let near = |key, expected: f64| {
            let baseline = table.baseline(key).unwrap();
            assert!((baseline / expected - 1.0).abs() < 0.01, "{baseline}");
        };
        near(1, 0.010);
        near(2, 0.100);
    }

    #[test]
    fn a_slow_down_of_one_operation_moves_its_baseline() {
        let mut table = OperationTable::new();
        for window in 0..200 {
            for _ in 0..10 {
                table.count_latency(1, if window < 100 { 0.010 } else { 0.030 });
            }
            table.end_window(1.0);
        }
        let baseline = table.baseline(1).unwrap();
        assert!((baseline / 0.030 - 1.0).abs() < 0.01, "{baseline}");
        assert_eq!(table.baseline(2), None);
    }
}
