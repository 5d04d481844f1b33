//! The shares of traces that conditions of the configuration choose (`tracing.sample.rules`), in place of that of all
//! requests.

use config::Config;
use config::diagnostic::Diagnostic;
use execute::ClaimPath;
use expressions::{Expected, Program, Scope};

use crate::admission::AdmissionRequest;
use crate::expression_stats::ExpressionStats;
use crate::request_facts::{NeededFacts, compile};

/// The rules of the configuration, compiled.
#[derive(Debug)]
pub struct TraceRatios {
    rules: Vec<RatioRule>,
    /// The facts that the conditions read.
    needed: NeededFacts,
}

/// A share of the requests that fulfil a condition.
#[derive(Debug)]
struct RatioRule {
    /// The path of the condition in the configuration.
    setting: Box<str>,
    condition: Program,
    /// The share of requests, from 0 to 1.
    ratio: f64,
}

impl TraceRatios {
    /// Compiles the rules of a configuration; `None` if there are none, or no traces.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, Box<Diagnostic>> {
        let sample = &config.tracing.sample;
        if !config.tracing.enabled || sample.rules.is_empty() {
            return Ok(None);
        }
        let mut rules = Vec::with_capacity(sample.rules.len());
        for ((setting, condition), rule) in sample.conditions().zip(&sample.rules) {
            let condition = compile(&setting, condition, Scope::OPERATION, Expected::Condition)?;
            let (setting, ratio) = (setting.into(), rule.ratio.ratio());
            rules.push(RatioRule { setting, condition, ratio });
        }
        let programs = rules.iter().map(|it| &it.condition);
        Ok(Some(Self { needed: NeededFacts::of(programs, &config.client_info), rules }))
    }

    /// Returns the claims that the conditions read.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        &self.needed.claims
    }

    /// Returns the share of traces among the requests like this one; `None` if no rule is about it. A condition that
    /// cannot be evaluated is not true.
    // hot path: one evaluation for each rule up to the first that is true; `expressions/benches`
    pub(crate) fn ratio_of(
        &self,
        request: &AdmissionRequest<'_>,
        stats: &ExpressionStats,
    ) -> Option<f64> {
        request.with_facts(&self.needed, |facts| {
            let is_true = |rule: &&RatioRule| match rule.condition.is_true(facts) {
                Ok(is_true) => is_true,
                Err(error) => {
                    stats.count_trace_failure(&rule.setting, &error);
                    false
                }
            };
            self.rules.iter().find(is_true).map(|rule| rule.ratio)
        })
    }
}
