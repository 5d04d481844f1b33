//! The reasons why an operation has no plan. `prepare` passes them on, and the edge of the router gives them error
//! codes.

/// The reason why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The planner does not support the operation.
    #[error("{0}")]
    NotSupported(String),
    /// A field cannot be fetched from any subgraph at its position in the operation.
    #[error("{0}")]
    Unreachable(String),
    /// The plan would be larger than [`crate::Limits`] and the bounds on shapes allow.
    #[error("{0}")]
    TooComplex(String),
}

impl PlanError {
    pub(super) fn too_complex() -> Self {
        Self::TooComplex("the operation is too complex to plan; select fewer fields".to_owned())
    }
}
