//! A condition of the configuration about an operation that is known, which selects requests: for a trace in their
//! response (`trace.when`), or for the flight recorder (`admin.console.recorder.when`).

use config::diagnostic::Diagnostic;
use config::{Config, Expression};
use execute::ClaimPath;
use expressions::{Expected, Program, Scope};

use crate::admission::AdmissionRequest;
use crate::expression_stats::ExpressionStats;
use crate::request_facts::{NeededFacts, compile};

/// A compiled condition.
#[derive(Debug)]
pub struct OperationCondition {
    /// The path of the condition in the configuration.
    setting: &'static str,
    condition: Program,
    /// The facts that the condition reads.
    needed: NeededFacts,
}

impl OperationCondition {
    /// Compiles a condition of the configuration.
    ///
    /// # Errors
    /// The configuration was not checked, and the expression is not valid.
    pub(crate) fn new(
        setting: &'static str,
        condition: &Expression,
        config: &Config,
    ) -> Result<Self, Box<Diagnostic>> {
        let condition = compile(setting, condition, Scope::OPERATION, Expected::Condition)?;
        let needed = NeededFacts::of(std::iter::once(&condition), &config.client_info);
        Ok(Self { setting, condition, needed })
    }

    /// Compiles the condition of traces in responses; `None` if the configuration has none, or no such traces.
    ///
    /// # Errors
    /// The same as for [`OperationCondition::new`].
    pub(crate) fn of_response_traces(config: &Config) -> Result<Option<Self>, Box<Diagnostic>> {
        let when = config.trace.when.as_ref().filter(|_| config.trace.enabled);
        when.map(|when| Self::new("trace.when", when, config)).transpose()
    }

    /// Compiles the condition that selects requests for the flight recorder; `None` if the configuration has none, or
    /// no recorder.
    ///
    /// # Errors
    /// The same as for [`OperationCondition::new`].
    pub(crate) fn of_recorder(config: &Config) -> Result<Option<Self>, Box<Diagnostic>> {
        let when = config.admin.console.recorder_condition();
        when.map(|when| Self::new("admin.console.recorder.when", when, config)).transpose()
    }

    /// Returns the claims that the condition reads.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        &self.needed.claims
    }

    /// True if the condition is true for a request. A condition that cannot be evaluated is not true.
    pub(crate) fn is_true(&self, request: &AdmissionRequest<'_>, stats: &ExpressionStats) -> bool {
        request.with_facts(&self.needed, |facts| match self.condition.is_true(facts) {
            Ok(is_true) => is_true,
            Err(error) => {
                stats.count_trace_failure(self.setting, &error);
                false
            }
        })
    }
}
