//! The times of the steps of preparing one operation, for traces.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A step of preparing an operation that is not in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrepareStep {
    /// Parsing the text.
    Parse,
    /// Validating the document, and normalising it.
    Validate,
    /// Planning the operation, or finding the plan of an equal one.
    Plan,
}

/// The steps of preparing one operation, in their order. Empty if the operation was in the cache, or if another request
/// prepared it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrepareSteps {
    steps: Vec<(PrepareStep, Instant, Instant)>,
}

impl PrepareSteps {
    /// Records a step that began at `began` and ends now. Returns the time of its end.
    pub(crate) fn record(&mut self, step: PrepareStep, began: Instant) -> Instant {
        let now = Instant::now();
        self.steps.push((step, began, now));
        now
    }

    /// Iterates over the steps, each with its beginning and its end.
    pub fn iter(&self) -> impl Iterator<Item = (PrepareStep, Instant, Instant)> + '_ {
        self.steps.iter().copied()
    }

    /// True if nothing was prepared.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Keeps the steps of one operation for its trace. Shared by the part that prepares and the part that records.
#[derive(Debug, Default)]
pub struct StepRecorder(Mutex<PrepareSteps>);

impl StepRecorder {
    /// Keeps the steps in place of earlier ones.
    pub fn set(&self, steps: PrepareSteps) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = steps;
    }

    /// Takes the steps.
    pub fn take(&self) -> PrepareSteps {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
