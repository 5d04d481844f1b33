//! What clients are told of errors in subgraphs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which subgraphs' errors reach clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IncludeSubgraphErrors {
    /// Whether the errors of all subgraphs do.
    #[schemars(example = false)]
    pub all: bool,

    /// What is different for single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, bool>,
}

impl IncludeSubgraphErrors {
    /// Whether those of one subgraph do.
    pub fn of(&self, subgraph: &str) -> bool {
        self.subgraphs.get(subgraph).copied().unwrap_or(self.all)
    }
}

impl Default for IncludeSubgraphErrors {
    fn default() -> Self {
        Self { all: true, subgraphs: BTreeMap::new() }
    }
}
