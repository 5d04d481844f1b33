//! Settings of the source of the graph.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::FileText;

/// The source of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Supergraph {
    /// The file with the supergraph SDL (join specification). A relative path is relative to the folder of the
    /// configuration file. The file is watched: a new version that loads replaces the old one. SIGHUP makes the router
    /// check it at once. The configuration itself is read at the start only; SIGHUP logs whether it has changed since.
    #[schemars(with = "FileText", example = &"graphs/supergraph.graphql")]
    #[schemars(extend("x-override" = "--supergraph"))]
    pub file: PathBuf,
}

impl Default for Supergraph {
    fn default() -> Self {
        Self { file: "supergraph.graphql".into() }
    }
}
