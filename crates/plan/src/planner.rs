//! The entry to planning.

use graph::Supergraph;

use crate::{Operation, Plan};

/// Bounds on planning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Steps after which greedy choices replace exact ones.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 1_000_000 }
    }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// This version cannot plan it.
    #[error("{0}")]
    NotSupported(String),
}

/// Plans `operation` over `graph`.
///
/// # Errors
/// Where no plan answers the whole operation.
pub fn plan(graph: &Supergraph, operation: &Operation, limits: &Limits) -> Result<Plan, PlanError> {
    let _ = (graph, operation, limits);
    Err(PlanError::NotSupported("the planner has not landed yet".to_owned()))
}
