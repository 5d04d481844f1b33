//! The variant of a graph for which an operation is planned: it selects the plan, and is part of the identity.

use graph::{OverrideLabels, RequirementSet};

/// The variant of a graph for which an operation is planned.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct OperationVariant {
    /// The labels of progressive overrides that are on.
    pub(crate) labels: OverrideLabels,
    /// The requirements of the operation that the client does not meet.
    pub(crate) unmet: RequirementSet,
}
