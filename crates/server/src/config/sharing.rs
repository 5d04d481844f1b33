//! Sharing work that is in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Work that several requests ask for at the same time is done once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// Clients that ask the same get the same answer, while it is being made.
    #[schemars(example = false)]
    pub operations: bool,

    /// Operations that ask a subgraph the same get the same answer, while it is on its way.
    #[schemars(example = false)]
    pub subgraph_queries: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { operations: true, subgraph_queries: true }
    }
}
