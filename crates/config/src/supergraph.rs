//! Settings of the source of the graph.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, KeyPlaces};
use super::format::{DurationOrZeroText, FileText};
use super::quantity;
use super::supergraph_download::{SupergraphDownload, SupergraphDownloadForms, forms};

/// The source of the graph: a supergraph in a file or at a URL, or the subgraphs that the router composes to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Supergraph {
    /// The file with the supergraph SDL (join specification). A relative path is relative to the folder of the
    /// configuration file. The file is watched: a new version that loads replaces the old one. SIGHUP makes the router
    /// check it at once. The configuration itself is read at the start only; SIGHUP logs whether it has changed since.
    #[schemars(with = "FileText", example = &"graphs/supergraph.graphql")]
    #[schemars(extend("x-override" = "--supergraph"))]
    pub file: PathBuf,

    /// The URL of the supergraph SDL, instead of `file`, or the keys below (`docs/supergraph-delivery.md`). The router
    /// requests it at intervals, and a new version that loads replaces the old one. Whatever its servers do, the last
    /// good graph continues to serve. SIGHUP and `POST /admin/reload` make the router request it at once.
    #[serde(skip_serializing_if = "Option::is_none", with = "forms")]
    #[schemars(with = "SupergraphDownloadForms", example = &"https://graphs.example.com/supergraph.graphql")]
    #[schemars(extend("default" = serde_json::Value::Null))]
    pub url: Option<SupergraphDownload>,

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

    /// The folder with the schemas of the subgraphs, instead of `file`: `NAME.graphql` (or `.graphqls`, `.gql`) is the
    /// schema of the subgraph NAME. A relative path is relative to the folder of the configuration file. Hidden files,
    /// folders and files with other endings are ignored. The router composes the schemas as with `compose`, and again
    /// when a file is changed, added or removed.
    ///
    /// Requests to a subgraph go to `subgraphs.NAME.url`, which all but event subgraphs need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FileText>", example = &"graphs/subgraphs")]
    #[schemars(extend("default" = serde_json::Value::Null))]
    pub directory: Option<PathBuf>,

    /// The interval at which subgraphs are asked for their schemas (`_service { sdl }`), if `compose` names subgraphs
    /// whose schemas are not files. A subgraph that does not respond keeps its last schema. `0s` turns this off; SIGHUP
    /// still asks all of them.
    #[serde(with = "quantity::text")]
    #[schemars(with = "DurationOrZeroText", example = &"1m", extend("x-minimum" = 100))]
    pub poll_interval: Duration,

    /// Says which generation of the graph served a request: requests with the header `starling-generation`, with any
    /// value, get it in their response. Its value is that of the label `id` of `starling_graph_info`, the hash of the
    /// supergraph and the number of the load. Clients learn from it when a supergraph was replaced.
    #[schemars(example = true)]
    pub expose_generation: bool,
}

impl Default for Supergraph {
    fn default() -> Self {
        Self {
            file: "supergraph.graphql".into(),
            url: None,
            compose: None,
            directory: None,
            poll_interval: Duration::from_secs(10),
            expose_generation: false,
        }
    }
}

impl Supergraph {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        self.file = folder.join(&self.file);
        self.compose = self.compose.take().map(|path| folder.join(path));
        self.directory = self.directory.take().map(|path| folder.join(path));
        self.url.iter_mut().for_each(|it| it.resolve(folder));
    }

    /// Checks that there is only one source, and the settings of a URL. `section` is the path of these settings.
    pub(super) fn check_source(&self, section: &str, places: &KeyPlaces, findings: &mut Findings) {
        let sources = [
            ("file", places.get(&format!("{section}.file")).is_some(), "composed before"),
            ("url", self.url.is_some(), "read from a server"),
            ("compose", self.compose.is_some(), "composed by the router"),
            ("directory", self.directory.is_some(), "a folder of schemas"),
        ];
        let mut given = sources.into_iter().filter(|(_, is_given, _)| *is_given);
        if let (Some((first, _, related)), Some((second, _, label))) = (given.next(), given.next())
        {
            let path = |key| format!("{section}.{key}");
            let (first, second) = (path(first), path(second));
            findings
                .error("conflict", format!("`{first}` and `{second}` are both set"))
                .at_place(places.get(&second), label)
                .related_place(places.get(&first), related)
                .help("remove one of them: a graph has one source");
        }
        if let Some(url) = &self.url {
            url.check(&format!("{section}.url"), places, findings);
        }
    }

    /// True if a source is named, and not only meant by default. `section` is the path of these settings.
    pub(super) fn has_source(&self, section: &str, places: &KeyPlaces) -> bool {
        places.get(&format!("{section}.file")).is_some()
            || self.url.is_some()
            || self.compose.is_some()
            || self.directory.is_some()
    }
}
