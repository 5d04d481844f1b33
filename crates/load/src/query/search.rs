//! Finds the highest rate at which a condition holds.
//!
//! A closed loop over the same connections says what the server can do at most; from there the rate is halved in
//! until the answer is as exact as a run of some seconds can be.

use super::{Condition, Load, QueryError, Settings, run};
use crate::rate::Rate;
use crate::report::{Interval, Run};

/// The search ends when the rates that hold and do not hold are as close as this.
const PRECISION: f64 = 0.03;

/// Runs of one search: from a factor of 1000 down to the precision it takes 15.
const TRIALS_MAX: usize = 20;

/// Rates below this are not looked at: a run of some seconds would have no answers.
const RATE_MIN: f64 = 1.0;

/// A rate must be kept up to this share to count as held: answers per second of what was asked for.
const KEPT_UP: f64 = 0.98;

/// What a search says while it goes on.
pub enum Step<'a> {
    /// A trial begins with this rate; nothing for the closed loop at the beginning.
    Trying(Option<f64>),
    /// Some time of a trial has passed.
    Interval(&'a Interval),
    /// A trial has ended; whether the condition held.
    Tried(&'a Run, bool),
}

/// What a search found.
pub struct Found {
    /// The run at the highest rate that held, if one did.
    pub best: Option<Run>,
    /// The first run above it, if one did not hold.
    pub above: Option<Run>,
    /// Runs it took.
    pub trials: usize,
}

/// Searches the highest constant rate at which `condition` holds; each trial is as long as `settings` say.
///
/// # Errors
/// As [`run`].
pub fn find_max(
    settings: &Settings,
    condition: &Condition,
    mut says: impl FnMut(Step<'_>),
) -> Result<Found, QueryError> {
    let arrivals = match &settings.load {
        Load::Open { arrivals, .. } => *arrivals,
        Load::Closed => Default::default(),
    };
    says(Step::Trying(None));
    let closed = Settings { load: Load::Closed, ..settings.clone() };
    let most = run(&closed, |interval| says(Step::Interval(interval)))?.answers_per_second;

    let mut found = Found { best: None, above: None, trials: 0 };
    let (mut low, mut high) = (0.0, most * 1.2);
    let mut rate = (most * 0.8).max(RATE_MIN);
    while found.trials < TRIALS_MAX && rate >= RATE_MIN {
        says(Step::Trying(Some(rate)));
        let load = Load::Open { rate: Rate::constant(rate), arrivals };
        let trial = Settings { load, ..settings.clone() };
        let result = run(&trial, |interval| says(Step::Interval(interval)))?;
        let held = keeps_up(&result, rate) && condition.holds(&result);
        found.trials += 1;
        says(Step::Tried(&result, held));
        if held {
            low = rate;
            found.best = Some(result);
        } else {
            high = rate;
            found.above = Some(result);
        }
        if high - low <= low * PRECISION || low >= most * 1.2 * (1.0 - PRECISION) {
            break;
        }
        // Nothing held yet: down by halves of the order of magnitude, not to the middle of nothing.
        rate = if low > 0.0 { (low + high) / 2.0 } else { high / 3.0 };
    }
    Ok(found)
}

/// Whether the answers came at this rate. One request more or less falls into either end of the measured time.
fn keeps_up(run: &Run, rate: f64) -> bool {
    let answers = run.answers_per_second * run.duration_seconds;
    answers >= rate * run.duration_seconds * KEPT_UP - 2.0
}
