//! Policies: named conditions that a supergraph requires of its clients (`@policy`). All policies that an operation
//! needs are decided in one call of [`PolicyDecider::decide`]: by an expression of the configuration, or by one request
//! to a decision point such as Open Policy Agent.
//!
//! Invariant: a policy without a decision is denied. That holds for names that nothing decides, for expressions without
//! a value, and for a decision point that is down, slow or sends something else. Each is counted.
//!
//! `input` makes the question and `answer` reads the response, both without I/O; `decision_point` sends, remembers
//! and shares. This crate knows neither graphs nor plans nor the configuration: the caller names the policies, and
//! translates settings.

mod answer;
mod decider;
mod decision_point;
mod input;
mod metrics;
mod settings;

pub use answer::{AnswerDefect, read_answer};
pub use decider::PolicyDecider;
pub use decision_point::{DecisionPoint, DecisionPointStats};
pub use metrics::{DECISION_POINT_METRICS, POLICY_METRICS, PolicyStats};
pub use settings::{DecisionPointSettings, PolicySettings, UnusablePolicies};
