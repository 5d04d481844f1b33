//! Counters of decisions about policies, and their metrics.

use telemetry::{Metric, read};

use crate::decision_point::DecisionPoint;
use crate::rego::RegoRules;

telemetry::counters! {
    /// Counters of decisions since the start of the process.
    pub struct PolicyStats;
    /// The metrics of decisions.
    pub const POLICY_METRICS;
    {
        counter allowed = "starling_policies_allowed": "Policies that were decided in favour of a client";
        counter denied = "starling_policies_denied": "Policies that were decided against a client";
        counter undecided = "starling_policies_undecided":
            "Policies that were denied because nothing could decide them: no rule of that name, an expression without a \
             value, or a decision point that did not work";
    }
}

/// The metrics of the decision point.
pub const DECISION_POINT_METRICS: &[Metric<DecisionPoint>] = &[
    Metric::counters(
        "starling_policy_decision_requests",
        "Requests to the decision point, by result",
        |it, samples| {
            samples.add_labelled(("result", "decided"), read(&it.stats.decided))?;
            samples.add_labelled(("result", "failed"), read(&it.stats.failed))
        },
    ),
    Metric::counters(
        "starling_policy_decision_requests_omitted",
        "Decisions that were not requested and count as denied, by reason: backoff after failures, or too many at a time",
        |it, samples| {
            samples.add_labelled(("reason", "backoff"), read(&it.stats.backoff))?;
            samples.add_labelled(("reason", "concurrency"), read(&it.stats.concurrency))
        },
    ),
    Metric::histogram(
        "starling_policy_decision_duration_seconds",
        "Durations of requests to the decision point, also of those that failed",
        |it| it.stats.durations.read(),
    ),
    Metric::counter(
        "starling_policy_decisions_cached",
        "Decisions that were known from an equal question",
        |it| read(&it.stats.cached),
    ),
    Metric::gauge(
        "starling_policy_decision_cache_entries",
        "Decisions in the cache, which a limit bounds",
        DecisionPoint::cached_decisions,
    ),
];

/// The metrics of Rego rules.
pub const REGO_METRICS: &[Metric<RegoRules>] = &[
    Metric::counters(
        "starling_policy_rego_evaluations",
        "Evaluations of Rego rules, by result",
        |it, samples| {
            samples.add_labelled(("result", "decided"), read(&it.stats.decided))?;
            samples.add_labelled(("result", "failed"), read(&it.stats.failed))
        },
    ),
    Metric::histogram(
        "starling_policy_rego_duration_seconds",
        "Durations of evaluations of Rego rules",
        |it| it.stats.durations.read(),
    ),
];
