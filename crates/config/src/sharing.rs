//! Settings of sharing equal work in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sharing of equal work that several requests need at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// Shares the response between equal requests of clients while it is being prepared.
    #[schemars(example = false)]
    pub operations: bool,

    /// Shares the response of a subgraph between equal requests to it while they are in flight.
    #[schemars(example = false)]
    pub subgraph_queries: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { operations: true, subgraph_queries: true }
    }
}
