//! Checks of a configuration and its supergraph without serving them (`starling check`).

use std::path::Path;
use std::sync::Arc;

use clients::authentication::key_sets;
use config::diagnostic::{Diagnostic, Severity, SourceText};
use config::{LoadedConfig, Overrides, Supergraph};
use serving::generation;
use serving::upstreams::SubgraphCertificates;

use crate::composition::ReadScope;
use crate::graph_watch::{GraphWatch, ReadGraph};
use crate::providers;
use crate::start_material::StartMaterial;
use crate::supergraph_source::SupergraphSource;

/// Checks the configuration at `path` (`None`: flags and defaults only) and its supergraph, its topics and providers
/// included, and the keys and certificates that a start needs. Connects to nothing but the subgraphs that a composition
/// asks for their schemas. Returns errors and warnings in the order in which they were found; empty if there are none.
pub async fn check(path: Option<&Path>, overrides: &Overrides) -> Vec<Diagnostic> {
    let loaded = match config::load(path, overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics,
    };
    let mut findings = loaded.warnings.clone();
    let config = &loaded.config;
    findings.extend(graph_findings(&loaded).await);
    findings.extend(StartMaterial::load(config).err().into_iter().flatten());
    findings.extend(key_sets::unreadable_files(&config.authentication.jwt));
    findings
}

/// Reads the supergraph and checks it against the configuration.
async fn graph_findings(loaded: &LoadedConfig) -> Vec<Diagnostic> {
    let ReadGraph { text, warnings } = match read_once(&loaded.config.supergraph).await {
        Ok(read) => read,
        Err(problems) => return problems,
    };
    let mut findings = warnings;
    let loaded = loaded.clone();
    match tokio::task::spawn_blocking(move || check_graph(&loaded, &text)).await {
        Ok(further) => findings.extend(further),
        Err(panic) => findings.push(Diagnostic::error("internal", panic.to_string())),
    }
    findings
}

/// Checks the supergraph against the configuration. Blocks.
fn check_graph(loaded: &LoadedConfig, text: &Arc<SourceText>) -> Vec<Diagnostic> {
    let config = &loaded.config;
    let graph = match generation::read_graph(config, text) {
        Ok(graph) => graph,
        Err(diagnostics) => return diagnostics,
    };
    let names = graph.subgraphs.iter().map(|subgraph| &*subgraph.name);
    let mut findings = loaded.unknown_subgraphs(names);
    let upstreams = generation::upstreams(config, &graph, &SubgraphCertificates::default(), None);
    findings.extend(upstreams.err().into_iter().flatten());
    match providers::idle_providers(config) {
        Ok(providers) => match generation::bind(&graph, text, &Arc::new(providers)) {
            Ok(_) => findings.extend(generation::unserved_subscriptions(&graph, text)),
            Err(diagnostics) => findings.extend(diagnostics),
        },
        Err(diagnostics) => findings.extend(diagnostics),
    }
    findings
}

/// Reads or composes the graph that a configuration names, once.
///
/// # Errors
/// All reasons why there is no graph.
pub(crate) async fn read_once(settings: &Supergraph) -> Result<ReadGraph, Vec<Diagnostic>> {
    GraphWatch::new(SupergraphSource::of(settings), false).read(ReadScope::Everything).await
}

/// True if one of the diagnostics is an error.
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) {
  query: Query
  subscription: Subscription
}
enum join__Graph { REVIEWS @join__graph(name: "reviews", url: "http://127.0.0.1:1") }
type Query @join__type(graph: REVIEWS) { reviews: Int }
type Subscription @join__type(graph: REVIEWS) { reviewAdded: Int }
"#;

    /// The findings for a configuration and a graph: severity and message of each.
    fn findings(configuration: &str, graph: &str) -> Vec<(Severity, String)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starling.yaml");
        std::fs::write(&path, configuration).unwrap();
        std::fs::write(folder.path().join("supergraph.graphql"), graph).unwrap();
        let place = folder.path().display().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let findings = runtime.block_on(check(Some(&path), &Overrides::default()));
        findings.into_iter().map(|it| (it.severity, it.message.replace(&place, "HERE"))).collect()
    }

    #[test]
    fn check_finds_everything_that_a_start_would_refuse() {
        let graph = GRAPH.replace("  subscription: Subscription\n", "");
        let short = "authentication: {jwt: {issuers: [{secret: too-short}]}}";
        let message = "`authentication.jwt.issuers[0].secret`: the secret has 9 bytes; 32 are needed for HS256";
        assert_eq!(findings(short, &graph), [(Severity::Error, message.to_owned())]);
        let tls = "listen: [{address: \"127.0.0.1:1\", tls: {cert: no.pem, key: no.key}}]";
        let found = findings(tls, &graph);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.starts_with("TLS (`listen`): cannot read HERE/no.pem"), "{found:?}");
        // All mistakes are reported at once, and those that do not depend on the graph also if the graph is invalid.
        let found = findings(&format!("{short}\n{tls}"), "type Query { a: Int }");
        assert_eq!(found.len(), 3, "{found:?}");
        for (settings, reason) in [
            ("file: keys.json", "keys.json: No such file or directory (os error 2)"),
            (
                "file: supergraph.graphql, max_size: 1KiB",
                "supergraph.graphql: it is larger than 1024 bytes",
            ),
            ("file: supergraph.graphql", "it is not a JSON Web Key Set: line 2, column 1"),
        ] {
            let file = format!("authentication: {{jwt: {{issuers: [{{jwks: {{{settings}}}}}]}}}}");
            let found = findings(&file, &format!("{graph}{}", "# padding\n".repeat(100)));
            assert!(
                matches!(&found[..], [(Severity::Warning, text)] if text.ends_with(reason)),
                "{found:?}"
            );
        }
        assert_eq!(findings("", &graph), []);
    }

    #[test]
    fn subscriptions_of_a_subgraph_with_a_server_get_a_warning() {
        let found = findings("", GRAPH);
        assert!(
            matches!(&found[..], [(Severity::Warning, text)]
                if text.contains("`Subscription.reviewAdded`") && text.contains("reviews")),
            "{found:?}"
        );
    }
}
