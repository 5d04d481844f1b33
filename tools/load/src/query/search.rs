//! Searches the highest rate at which a condition holds.
//!
//! A closed loop over the same connections measures the server's maximum. From there the rate is bisected until the
//! result is as exact as runs of some seconds can be.

use super::condition::RunCondition;
use super::run::{Load, QueryError, QuerySettings, run};
use crate::rate::Rate;
use crate::report::{QueryInterval, Run};

/// The relative distance between the rates that hold and do not hold at which the search ends.
const PRECISION: f64 = 0.03;

/// The maximum number of runs of one search: from a factor of 1000 down to the precision it takes 15.
const TRIALS_MAX: usize = 20;

/// The lowest rate to try: below it a run of some seconds would have no responses.
const RATE_MIN: f64 = 1.0;

/// The share of the requested rate that responses must reach for the rate to count as held.
const RATE_HELD_SHARE: f64 = 0.98;

/// An event during a search.
pub enum SearchStep<'a> {
    /// A trial begins with this rate; `None` is the closed loop at the beginning.
    Trying(Option<f64>),
    /// An interval of a trial has passed.
    QueryInterval(&'a QueryInterval),
    /// A trial has ended; the second value is true if the condition held.
    Tried(&'a Run, bool),
}

/// The result of a search.
pub struct SearchResult {
    /// The run at the highest rate that held, if one did.
    pub best: Option<Run>,
    /// The first run above it, if one did not hold.
    pub above: Option<Run>,
    /// The number of runs.
    pub trials: usize,
}

/// Searches the highest constant rate at which `condition` holds; each trial has the duration of `settings`.
///
/// # Errors
/// See [`run`].
pub fn find_max(
    settings: &QuerySettings,
    condition: &RunCondition,
    mut on_step: impl FnMut(SearchStep<'_>),
) -> Result<SearchResult, QueryError> {
    let arrivals = match &settings.load {
        Load::Open { arrivals, .. } => *arrivals,
        Load::Closed => Default::default(),
    };
    on_step(SearchStep::Trying(None));
    let closed = QuerySettings { load: Load::Closed, ..settings.clone() };
    let maximum =
        run(&closed, |interval| on_step(SearchStep::QueryInterval(interval)))?.answers_per_second;

    let mut found = SearchResult { best: None, above: None, trials: 0 };
    let (mut low, mut high) = (0.0, maximum * 1.2);
    let mut rate = (maximum * 0.8).max(RATE_MIN);
    while found.trials < TRIALS_MAX && rate >= RATE_MIN {
        on_step(SearchStep::Trying(Some(rate)));
        let load = Load::Open { rate: Rate::constant(rate), arrivals };
        let trial = QuerySettings { load, ..settings.clone() };
        let result = run(&trial, |interval| on_step(SearchStep::QueryInterval(interval)))?;
        let held = holds_rate(&result, rate) && condition.holds(&result);
        found.trials += 1;
        on_step(SearchStep::Tried(&result, held));
        if held {
            low = rate;
            found.best = Some(result);
        } else {
            high = rate;
            found.above = Some(result);
        }
        if high - low <= low * PRECISION || low >= maximum * 1.2 * (1.0 - PRECISION) {
            break;
        }
        // As long as no rate held, the rate is divided by three, to reach the right order of magnitude faster than by
        // bisection.
        rate = if low > 0.0 { (low + high) / 2.0 } else { high / 3.0 };
    }
    Ok(found)
}

/// True if the responses reached this rate. One request more or less falls into either end of the measured time.
fn holds_rate(run: &Run, rate: f64) -> bool {
    let responses = run.answers_per_second * run.duration_seconds;
    responses >= rate * run.duration_seconds * RATE_HELD_SHARE - 2.0
}
