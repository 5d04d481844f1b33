//! Rules in Rego that this process evaluates: one evaluation for all policies of an operation, on the thread that asks.
//! Typical rules take less time than another thread would take to wake up. The time limit bounds the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use expressions::RequestFacts;
use telemetry::{DurationHistogram, LogLimit};

use crate::answer::Decisions;
use crate::input::InputShape;
#[cfg(not(feature = "rego"))]
use crate::rego_absent::Evaluator;
use crate::rego_defect::RegoDefect;
#[cfg(feature = "rego")]
use crate::rego_evaluator::Evaluator;
use crate::settings::RegoSettings;

/// True if this build can evaluate Rego (feature `rego`).
pub const HAS_REGO: bool = cfg!(feature = "rego");

/// Rules in Rego, ready to be evaluated.
#[derive(Debug)]
pub struct RegoRules {
    evaluator: Evaluator,
    shape: InputShape,
    failure_log: LogLimit,
    /// The counters of evaluations.
    pub stats: RegoStats,
}

/// Counters of evaluations since the start of the process.
#[derive(Debug, Default)]
pub struct RegoStats {
    /// The number of evaluations with decisions.
    pub decided: AtomicU64,
    /// The number of evaluations without decisions.
    pub failed: AtomicU64,
    /// The durations of evaluations.
    pub durations: DurationHistogram,
}

impl RegoRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The first mistake in a file, or a query that names no rule.
    pub(crate) fn new(settings: &RegoSettings) -> Result<Self, RegoDefect> {
        Ok(Self {
            evaluator: Evaluator::new(settings)?,
            shape: InputShape::new(&settings.input),
            failure_log: LogLimit::new(),
            stats: RegoStats::default(),
        })
    }

    /// Returns the facts that inputs contain.
    pub(crate) fn shape(&self) -> &InputShape {
        &self.shape
    }

    /// Decides about `policies`, which are sorted. `None` if the rules decide nothing.
    pub(crate) fn decide(&self, policies: &[&str], facts: &RequestFacts<'_>) -> Decisions {
        let mut input = Vec::with_capacity(512);
        self.shape.print(policies, facts, &mut input);
        let started = Instant::now();
        let decided = self.evaluator.evaluate(&input, policies);
        self.stats.durations.add(started.elapsed());
        match decided {
            Ok(decisions) => {
                self.stats.decided.fetch_add(1, Ordering::Relaxed);
                Some(decisions.into())
            }
            Err(reason) => {
                self.stats.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(suppressed) = self.failure_log.admit(Instant::now()) {
                    tracing::warn!(
                        %reason,
                        suppressed,
                        "policies could not be decided by Rego, and count as denied"
                    );
                }
                None
            }
        }
    }
}
