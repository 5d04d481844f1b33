//! Policies: named conditions that a supergraph requires of its clients (`@policy`). All policies that an operation
//! needs are decided in one call of [`PolicyDecider::decide`]: by an expression of the configuration, or together by an
//! engine. An engine is a decision point such as Open Policy Agent, which gets one request, or Rego rules, which this
//! process evaluates.
//!
//! Invariant: a policy without a decision is denied. That holds for names that nothing decides, for expressions without
//! a value, for rules that take too long, and for a decision point that is down, slow or sends something else. Each is
//! counted.
//!
//! `input` makes the input of an engine and `answer` reads a response, both without I/O; `decision_point` sends,
//! remembers and shares; `rego` evaluates, with the interpreter in `rego_evaluator`, which is behind the feature `rego`
//! and has `rego_absent` in its place otherwise. This crate knows neither graphs nor plans nor the configuration: the
//! caller names the policies, and translates settings.

mod answer;
mod decider;
mod decision_point;
mod input;
mod metrics;
mod rego;
#[cfg(not(feature = "rego"))]
mod rego_absent;
mod rego_defect;
#[cfg(feature = "rego")]
mod rego_evaluator;
mod settings;

pub use answer::{AnswerDefect, read_answer};
pub use decider::PolicyDecider;
pub use decision_point::{DecisionPoint, DecisionPointStats};
pub use metrics::{DECISION_POINT_METRICS, POLICY_METRICS, PolicyStats, REGO_METRICS};
pub use rego::{HAS_REGO, RegoRules, RegoStats};
pub use rego_defect::RegoDefect;
pub use settings::{
    DecisionPointSettings, EngineSettings, InputSettings, PolicySettings, RegoFile, RegoSettings,
    UnusablePolicies,
};
