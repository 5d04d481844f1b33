//! What clients are told of errors in subgraphs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of the errors of subgraphs reaches clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IncludeSubgraphErrors {
    /// Whether the messages of all subgraphs reach clients. `false` replaces each by a fixed text.
    #[schemars(example = true)]
    pub all: bool,

    /// Whether a fixed text names the subgraph, in the message and as `extensions.serviceName`.
    #[schemars(example = true)]
    pub subgraph_names: bool,

    /// Members of an error's `extensions` that reach clients beside `code`, whether its message does or not. All others
    /// are dropped: many servers put stack traces and queries there.
    #[schemars(length(max = 64), example = ["retryAfter"])]
    pub extensions: Vec<String>,

    /// Exceptions from `all` for single subgraphs, by the name they have in the supergraph.
    pub subgraphs: BTreeMap<String, bool>,
}

impl IncludeSubgraphErrors {
    /// True if the messages of this subgraph reach clients.
    pub fn of(&self, subgraph: &str) -> bool {
        self.subgraphs.get(subgraph).copied().unwrap_or(self.all)
    }
}
