//! Settings of further graphs: supergraphs that the process serves beside the one of `supergraph`.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use super::findings::{Findings, KeyPlaces};
use super::format::{GraphNameText, HeaderNameText, HeaderValueText, HostNameText, PathText};
use super::supergraph::Supergraph;

/// The name of the graph of `supergraph`, in metrics and in the requests of operators.
pub const DEFAULT_GRAPH: &str = "default";

/// A further graph, and the requests that reach it.
///
/// A request reaches the first graph of the list of which all conditions hold (`path`, `host`, `header`), and the graph
/// of `supergraph` if there is none. At least one condition is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphSettings {
    /// The name of the graph, in metrics, logs, traces, and requests of operators (`POST /admin/reload?graph=NAME`).
    #[schemars(with = "GraphNameText", example = &"beta")]
    pub name: String,

    /// The path of the endpoint of this graph. By default it is that of all graphs (`path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<PathText>", example = &"/beta/graphql")]
    pub path: Option<String>,

    /// The host in the URL of the request (header `host`), without its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<HostNameText>", example = &"beta.shop.example.com")]
    pub host: Option<String>,

    /// A header of the request, such as a feature flag. Browsers send no custom headers in the handshake of a
    /// WebSocket, so pages with subscriptions need a `path` or a `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null))]
    pub header: Option<GraphHeader>,

    /// The source of the graph.
    pub supergraph: Supergraph,
}

/// A header that selects a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphHeader {
    /// The name of the header.
    #[schemars(with = "HeaderNameText", example = &"x-graph")]
    pub name: String,

    /// The whole value of the header, letter by letter.
    #[schemars(with = "HeaderValueText", example = &"beta")]
    pub value: String,
}

impl Config {
    /// Returns the configuration of a further graph: this one with the source and the path of that graph. It has the
    /// list of all further graphs, like this one.
    pub fn of_graph(&self, graph: &GraphSettings) -> Self {
        let expose_generation = self.supergraph.expose_generation;
        Self {
            supergraph: Supergraph { expose_generation, ..graph.supergraph.clone() },
            path: graph.path.as_ref().unwrap_or(&self.path).clone(),
            ..self.clone()
        }
    }
}

/// Iterates over the sources of all graphs, each with the path of its section.
pub(super) fn sources(config: &Config) -> impl Iterator<Item = (String, &Supergraph)> {
    let further = config.graphs.iter().enumerate();
    let further =
        further.map(|(index, it)| (format!("graphs[{index}].supergraph"), &it.supergraph));
    std::iter::once(("supergraph".to_owned(), &config.supergraph)).chain(further)
}

/// Resolves relative paths against `folder`.
pub(super) fn resolve(graphs: &mut [GraphSettings], folder: &Path) {
    graphs.iter_mut().for_each(|graph| graph.supergraph.resolve(folder));
}

/// Checks names, conditions and sources.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    check_copies(config, places, findings);
    for (index, graph) in config.graphs.iter().enumerate() {
        let path = format!("graphs[{index}]");
        check_name(config, index, places, findings);
        check_conditions(config, index, places, findings);
        check_callback_path(config, index, places, findings);
        graph.supergraph.check_source(&format!("{path}.supergraph"), places, findings);
        if !graph.supergraph.has_source(&format!("{path}.supergraph"), places) {
            findings
                .error("missing-key", format!("`{path}.supergraph` names no source of the graph"))
                .at_place(places.get(&format!("{path}.supergraph")), "no supergraph")
                .help("add `file`, `url`, `compose` or `directory`");
        }
        if graph.supergraph.expose_generation {
            findings
                .warning(
                    "no-effect",
                    format!("`{path}.supergraph.expose_generation` has no effect"),
                )
                .at_place(places.get(&format!("{path}.supergraph.expose_generation")), "not used")
                .help("`supergraph.expose_generation` holds for all graphs");
        }
        if config.ide.enabled && graph.path.as_deref() == Some("/") {
            findings
                .error("conflict", format!("`{path}.path` is `/`, where the files of the page are"))
                .at_place(places.get(&format!("{path}.path")), "taken by the page")
                .help("choose another path, such as `/beta/graphql`, or set `ide.enabled: false`");
        }
    }
}

fn check_name(config: &Config, index: usize, places: &KeyPlaces, findings: &mut Findings) {
    let name = &config.graphs[index].name;
    let key = |index: usize| format!("graphs[{index}].name");
    if name == DEFAULT_GRAPH {
        findings
            .error("conflict", format!("`{}` is `{DEFAULT_GRAPH}`", key(index)))
            .at_place(places.get(&key(index)), "the name of the graph of `supergraph`")
            .help("choose another name");
    }
    if let Some(first) = config.graphs[..index].iter().position(|it| it.name == *name) {
        findings
            .error("conflict", format!("two graphs have the name `{name}`"))
            .at_place(places.get(&key(index)), "taken already")
            .related_place(places.get(&key(first)), "taken here")
            .help("give each graph a name of its own: metrics and operators tell them apart by it");
    }
}

/// Reports a graph that would get every request, and one that would get none.
fn check_conditions(config: &Config, index: usize, places: &KeyPlaces, findings: &mut Findings) {
    let graph = &config.graphs[index];
    let place = |index: usize| {
        let element = places.get(&format!("graphs[{index}]"));
        element.or_else(|| places.get(&format!("graphs[{index}].name")))
    };
    if graph.path.is_none() && graph.host.is_none() && graph.header.is_none() {
        findings
            .error("missing-key", format!("`graphs[{index}]` has no condition"))
            .at_place(place(index), "which requests reach it?")
            .help("add `path`, `host` or `header`");
        return;
    }
    // A path that is written out may be that of all graphs.
    let path_of = |graph: &GraphSettings| graph.path.clone().unwrap_or(config.path.clone());
    let has_host =
        |host: &String| graph.host.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(host));
    let has_header = |header: &GraphHeader| {
        let GraphHeader { name, value } = header;
        let own = graph.header.as_ref();
        own.is_some_and(|it| it.name.eq_ignore_ascii_case(name) && it.value == *value)
    };
    let is_covered = |earlier: &GraphSettings| {
        path_of(earlier) == path_of(graph)
            && earlier.host.as_ref().is_none_or(has_host)
            && earlier.header.as_ref().is_none_or(has_header)
    };
    if let Some(first) = config.graphs[..index].iter().position(is_covered) {
        findings
            .error("conflict", format!("no request would reach the graph `{}`", graph.name))
            .at_place(place(index), "all its requests reach another one before")
            .related_place(place(first), "this one")
            .help("move the graph with more conditions to the front, or change its conditions");
    }
    if graph.host.is_none()
        && graph.header.is_none()
        && graph.path.as_ref().is_some_and(|path| *path == config.path)
    {
        findings
            .error("conflict", format!("`graphs[{index}].path` and `path` are the same"))
            .at_place(places.get(&format!("graphs[{index}].path")), "reaches every request")
            .related_place(places.get("path"), "the path of the graph of `supergraph`")
            .help("choose another path, or add `host` or `header`");
    }
}

/// Reports a graph at the path of the callbacks of subgraphs, which would take its requests.
fn check_callback_path(config: &Config, index: usize, places: &KeyPlaces, findings: &mut Findings) {
    let callback = config.subscriptions.callback.as_ref().filter(|it| it.listen.is_none());
    let Some(callback) = callback else { return };
    if config.graphs[index].path.as_ref() != Some(&callback.path) {
        return;
    }
    let key = format!("graphs[{index}].path");
    findings
        .error("conflict", format!("`{key}` is the path of the callbacks of subgraphs"))
        .at_place(places.get(&key), "taken on the main listener")
        .related_place(places.get("subscriptions.callback.path"), "taken here")
        .help("choose another path, or give the endpoint for callbacks a listener with `listen`");
}

/// Reports two graphs with the same file for their copies.
fn check_copies(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    let copies = sources(config).filter_map(|(section, it)| {
        Some((format!("{section}.url.copy"), it.url.as_ref()?.copy.as_ref()?))
    });
    let copies: Vec<_> = copies.collect();
    for (index, (key, copy)) in copies.iter().enumerate() {
        let Some((first, _)) = copies[..index].iter().find(|(_, it)| it == copy) else { continue };
        findings
            .error("conflict", format!("`{first}` and `{key}` are the same file"))
            .at_place(places.get(key), "the copy of another graph")
            .related_place(places.get(first), "used already")
            .help("give each graph a file of its own: one would start with the copy of the other");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::diagnostic::Severity;
    use crate::{Overrides, parse};

    #[test]
    fn graphs_share_no_requests_and_files() {
        let problems = |text: &str| {
            let none = |_: &str| None;
            let overrides = Overrides::default();
            let loaded = parse(text, "starling.yaml", Path::new("/etc"), &overrides, &none);
            let problems = loaded.err().into_iter().flatten();
            let errors = problems.filter(|it| it.severity == Severity::Error);
            errors.map(|it| it.message).collect::<Vec<String>>()
        };
        let graph = |name: &str, host: &str, header: &str| {
            let conditions = format!("host: {host}, header: {{{header}}}");
            format!("  - {{name: {name}, {conditions}, supergraph: {{file: a.graphql}}}}\n")
        };
        let first = graph("a", "a.example.com", "name: x-a, value: one");
        let same = graph("b", "A.example.com", "name: X-A, value: one");
        let other = graph("b", "a.example.com", "name: x-a, value: One");
        let both = |second: String| problems(&format!("graphs:\n{first}{second}"));
        assert_eq!(both(same), ["no request would reach the graph `b`"]);
        assert_eq!(both(other), [""; 0]);
        let callback = "subscriptions: {callback: {public_url: 'http://router:4000/callback'}}\n\
                        graphs:\n  - {name: a, path: /callback, supergraph: {file: a}}\n";
        assert_eq!(
            problems(callback),
            ["`graphs[0].path` is the path of the callbacks of subgraphs"]
        );
        let copies = "supergraph: {url: {urls: ['https://g.example.com/1'], copy: copy.graphql}}\n\
                      graphs:\n  - name: a\n    path: /a\n    \
                      supergraph: {url: {urls: ['https://g.example.com/2'], copy: copy.graphql}}\n";
        assert_eq!(
            problems(copies),
            ["`supergraph.url.copy` and `graphs[0].supergraph.url.copy` are the same file"]
        );
    }

    #[test]
    fn a_graph_has_the_settings_of_all_with_its_own_source_and_path() {
        let text = "path: /q\nsupergraph: {expose_generation: true}\ngraphs:\n  \
                    - {name: beta, path: /beta, supergraph: {file: beta.graphql}}\n  \
                    - {name: flag, header: {name: x-flag, value: 'on'}, supergraph: {file: flag.graphql}}\n";
        let none = |_: &str| None;
        let loaded = parse(text, "starling.yaml", Path::new("/etc"), &Overrides::default(), &none);
        let config = loaded.expect("it is valid").config;
        let of = |index: usize| config.of_graph(&config.graphs[index]);
        assert_eq!((of(0).path.as_str(), of(1).path.as_str()), ("/beta", "/q"));
        assert_eq!(of(0).supergraph.file, Path::new("/etc/beta.graphql"));
        assert!(of(1).supergraph.expose_generation);
    }
}
