//! Settings of the source of the graph.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{DurationOrZeroText, FileText};
use super::quantity;

/// The source of the graph: a supergraph, or the subgraphs that the router composes to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Supergraph {
    /// The file with the supergraph SDL (join specification). A relative path is relative to the folder of the
    /// configuration file. The file is watched: a new version that loads replaces the old one. SIGHUP makes the router
    /// check it at once. The configuration itself is read at the start only; SIGHUP logs whether it has changed since.
    #[schemars(with = "FileText", example = &"graphs/supergraph.graphql")]
    #[schemars(extend("x-override" = "--supergraph"))]
    pub file: PathBuf,

    /// The composition configuration, instead of `file`: a YAML file that lists the subgraphs and their schemas, as
    /// `starling compose` takes it. A relative path is relative to the folder of the configuration file. The router
    /// composes the subgraphs at the start, and does not start if that fails. It composes again when this file or a
    /// schema file changes, when a subgraph returns another schema (see `poll_interval`), and at SIGHUP. If that fails,
    /// the last good graph continues to serve, and the log and `starling_composition_errors` report it.
    ///
    /// Requests to a subgraph go to `subgraphs.NAME.url` if it is set, else to its `routing_url` in that file. The URL
    /// that schemas are read from does not depend on either.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FileText>", example = &"graphs/supergraph.yaml")]
    #[schemars(extend("default" = serde_json::Value::Null))]
    pub compose: Option<PathBuf>,

    /// The interval at which subgraphs are asked for their schemas (`_service { sdl }`), if `compose` names subgraphs
    /// whose schemas are not files. A subgraph that does not respond keeps its last schema. `0s` turns this off; SIGHUP
    /// still asks all of them.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"1m", extend("x-minimum" = 100))]
    pub poll_interval: Duration,
}

impl Default for Supergraph {
    fn default() -> Self {
        Self {
            file: "supergraph.graphql".into(),
            compose: None,
            poll_interval: Duration::from_secs(10),
        }
    }
}

impl Supergraph {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        self.file = folder.join(&self.file);
        self.compose = self.compose.take().map(|path| folder.join(path));
    }

    /// Checks that there is only one source.
    pub(super) fn check_source(&self, places: &KeyPlaces, findings: &mut Findings) {
        let (file, compose) = (places.get("supergraph.file"), places.get("supergraph.compose"));
        if self.compose.is_some() && file.is_some() {
            findings
                .error("conflict", "`supergraph.file` and `supergraph.compose` are both set")
                .at_place(compose, "composed by the router")
                .related_place(file, "composed before")
                .help("remove one of them: the router serves one graph");
        }
    }
}
