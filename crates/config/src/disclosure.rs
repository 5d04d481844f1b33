//! Settings of the disclosure of subgraph errors to clients.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parts of subgraph errors that clients see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IncludeSubgraphErrors {
    /// Passes the messages of all subgraphs on to clients. `false` replaces each message by a fixed text.
    #[schemars(example = true)]
    pub all: bool,

    /// Names the subgraph in the fixed text, in the message and as `extensions.serviceName`.
    #[schemars(example = true)]
    pub subgraph_names: bool,

    /// The members of an error's `extensions` that clients see in addition to `code`, also if its message is hidden.
    /// All others are dropped, because many servers put stack traces and queries there.
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
