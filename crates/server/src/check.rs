//! Checks of a configuration and its supergraph without serving them (`starling check`).

use std::path::Path;
use std::sync::Arc;

use admission::memory::MemoryAccount;
use clients::authentication::key_sets;
use config::diagnostic::{Diagnostic, Severity, SourceText};
use config::{Config, LoadedConfig, Overrides, SubscriptionProtocol};
use policies::PolicyDecider;
use serving::field_access::undecided_policies;
use serving::generation;
use serving::policy_loading::load_policies;
use serving::subgraph_streams::load_streams;
use serving::subscription_endpoint::{ResolvedEndpoint, resolve_endpoints};
use serving::upstreams::SubgraphCertificates;

use crate::collector_export::CollectorExports;
use crate::composition::ReadScope;
use crate::further_graphs::with_name;
use crate::graph_watch::{GraphWatch, ReadGraph};
use crate::invalidation_topics::InvalidationTopics;
use crate::manifest_downloads::DownloadedManifests;
use crate::manifest_downloads::ManifestDownloads;
use crate::providers;
use crate::start_material::StartMaterial;
use crate::stores;
use crate::supergraph_source::SupergraphSource;

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// The errors and warnings in the order in which they were found.
    pub findings: Vec<Diagnostic>,
    /// The subgraphs to which the router subscribes, in the order of the graph. Empty if the graph has errors.
    pub subscriptions: Vec<SubscriptionRoute>,
}

/// The decider of policies, or the reasons why it cannot be used.
type LoadedPolicies = Result<Option<PolicyDecider>, Vec<Diagnostic>>;

/// The way to the subscriptions of one subgraph.
#[derive(Debug, PartialEq, Eq)]
pub struct SubscriptionRoute {
    /// The name of the subgraph.
    pub subgraph: String,
    /// The protocol, as in the configuration.
    pub protocol: &'static str,
    /// The URL without credentials and query.
    pub url: String,
}

impl From<Vec<Diagnostic>> for CheckReport {
    /// Creates the report of a check without a valid configuration.
    fn from(findings: Vec<Diagnostic>) -> Self {
        Self { findings, subscriptions: Vec::new() }
    }
}

/// The result of the check of one graph.
struct GraphReport {
    report: CheckReport,
    /// Warnings about settings that this graph does not use. Another graph may. `None` if the graph has errors.
    unused: Option<Vec<Diagnostic>>,
}

impl From<Vec<Diagnostic>> for GraphReport {
    /// Creates the report of a graph that cannot be read.
    fn from(findings: Vec<Diagnostic>) -> Self {
        Self { report: findings.into(), unused: None }
    }
}

/// Checks the configuration at `path` (`None`: flags and defaults only) and its supergraph, its topics and providers
/// included, and the keys and certificates that a start needs. Connects to nothing but the servers that provide the
/// supergraph, or the subgraphs that a composition asks for their schemas.
pub async fn check(path: Option<&Path>, overrides: &Overrides) -> CheckReport {
    let loaded = match config::load(path, overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics.into(),
    };
    let config = &loaded.config;
    let policies = Arc::new(load_policies(config));
    let GraphReport { report: mut graph, unused } = report_graph(&loaded, &policies).await;
    let mut unused = unused.unwrap_or_default();
    for settings in &config.graphs {
        let further = loaded.of_graph(settings);
        let GraphReport { report, unused: also } = report_graph(&further, &policies).await;
        let also = also.unwrap_or_default();
        unused.retain(|it| also.iter().any(|other| other.message == it.message));
        // Mistakes that several graphs share are reported once.
        let findings = report.findings.into_iter().filter(|it| !graph.findings.contains(it));
        let findings: Vec<_> = findings.map(|it| with_name(settings, it)).collect();
        graph.findings.extend(findings);
        let known = |it: &SubscriptionRoute| !graph.subscriptions.contains(it);
        let routes: Vec<_> = report.subscriptions.into_iter().filter(known).collect();
        graph.subscriptions.extend(routes);
    }
    let mut findings = loaded.warnings.clone();
    findings.extend(policies.as_ref().as_ref().err().into_iter().flatten().cloned());
    findings.extend(unused);
    findings.extend(graph.findings);
    findings.extend(
        StartMaterial::load(config, &DownloadedManifests::new()).err().into_iter().flatten(),
    );
    findings
        .extend(ManifestDownloads::new(&config.persisted_documents).err().into_iter().flatten());
    findings.extend(stores::check(config));
    findings.extend(CollectorExports::new(config).err().into_iter().flatten());
    findings.extend(key_sets::unreadable_files(&config.authentication.jwt));
    CheckReport { findings, subscriptions: graph.subscriptions }
}

/// Reads the supergraph and checks it against the configuration.
async fn report_graph(loaded: &LoadedConfig, policies: &Arc<LoadedPolicies>) -> GraphReport {
    let ReadGraph { text, warnings } = match read_once(&loaded.config).await {
        Ok(read) => read,
        Err(problems) => return problems.into(),
    };
    let (loaded, policies) = (loaded.clone(), Arc::clone(policies));
    let checked = tokio::task::spawn_blocking(move || check_graph(&loaded, &text, &policies)).await;
    let mut checked = checked
        .unwrap_or_else(|panic| vec![Diagnostic::error("internal", panic.to_string())].into());
    checked.report.findings.splice(..0, warnings);
    checked
}

/// Checks the supergraph against the configuration. Blocks.
fn check_graph(
    loaded: &LoadedConfig,
    text: &Arc<SourceText>,
    policies: &LoadedPolicies,
) -> GraphReport {
    let config = &loaded.config;
    let graph = match generation::read_graph(config, text) {
        Ok(graph) => graph,
        Err(diagnostics) => return diagnostics.into(),
    };
    let names = graph.subgraphs.iter().map(|subgraph| &*subgraph.name);
    let (mut unused, mut findings) = (loaded.unknown_subgraphs(names), Vec::new());
    let certificates = SubgraphCertificates::default();
    let upstreams =
        generation::upstreams(config, &graph, &certificates, &MemoryAccount::unlimited(), None);
    let has_certificates = upstreams.is_ok();
    findings.extend(upstreams.err().into_iter().flatten());
    match providers::idle_providers(config) {
        Ok(providers) => {
            findings
                .extend(InvalidationTopics::new(config, &providers).err().into_iter().flatten());
            let bound = generation::bind(&graph, text, &Arc::new(providers));
            findings.extend(bound.err().into_iter().flatten());
        }
        Err(diagnostics) => findings.extend(diagnostics),
    }
    if let Ok(policies) = policies {
        findings.extend(undecided(&graph, policies.as_ref()));
    }
    let mut subscriptions = Vec::new();
    match resolve_endpoints(config, &graph) {
        Ok(endpoints) => {
            if endpoints.iter().all(|it| it.protocol != SubscriptionProtocol::Callback) {
                unused.extend(loaded.unused_callback());
            }
            subscriptions.extend(endpoints.iter().map(|it| route(it, &graph)));
            // Otherwise the same files would be reported twice.
            if has_certificates {
                let streams = load_streams(config, &graph, &endpoints, &certificates, None, &[]);
                findings.extend(streams.err().into_iter().flatten());
            }
        }
        Err(diagnostics) => findings.extend(diagnostics),
    }
    GraphReport { report: CheckReport { findings, subscriptions }, unused: Some(unused) }
}

/// Warns of the policies of a graph that nothing decides.
fn undecided(graph: &graph::Supergraph, policies: Option<&PolicyDecider>) -> Option<Diagnostic> {
    let names = undecided_policies(graph, policies);
    if names.is_empty() {
        return None;
    }
    let shown: Vec<_> = names.iter().take(10).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > shown.len() { " and others" } else { "" };
    let message = format!(
        "nothing decides the policies {}{more}: what they protect is denied to every client",
        shown.join(", ")
    );
    let diagnostic = Diagnostic::warning("undecided-policies", message);
    Some(diagnostic.help(
        "add them to `authorization.policies.expressions`, or set `decision_point` or `rego` there",
    ))
}

fn route(endpoint: &ResolvedEndpoint, graph: &graph::Supergraph) -> SubscriptionRoute {
    SubscriptionRoute {
        subgraph: graph.subgraph(endpoint.subgraph).name.to_string(),
        protocol: endpoint.protocol.name(),
        url: endpoint.shown_url(),
    }
}

/// Reads or composes the graph that a configuration names, once.
///
/// # Errors
/// All reasons why there is no graph.
pub(crate) async fn read_once(config: &Config) -> Result<ReadGraph, Vec<Diagnostic>> {
    let source = SupergraphSource::of(config);
    GraphWatch::new(source, false)?.read(ReadScope::Everything).await
}

/// Reads or composes the supergraph that a configuration names: one by URL also from its copy on disk, if no server can
/// be reached. The second value are warnings, such as that.
///
/// # Errors
/// All reasons why there is no supergraph.
pub async fn read_supergraph(
    config: &Config,
) -> Result<(Arc<SourceText>, Vec<Diagnostic>), Vec<Diagnostic>> {
    read_once(config).await.map(|read| (read.text, read.warnings))
}

/// True if one of the diagnostics is an error.
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

#[cfg(test)]
mod tests {
    use config::diagnostic::{Style, render};

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

    /// Checks a configuration and a graph.
    fn report(configuration: &str, graph: &str) -> CheckReport {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starling.yaml");
        std::fs::write(&path, configuration).unwrap();
        std::fs::write(folder.path().join("supergraph.graphql"), graph).unwrap();
        let place = folder.path().display().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut report = runtime.block_on(check(Some(&path), &Overrides::default()));
        for finding in &mut report.findings {
            finding.message = finding.message.replace(&place, "HERE");
        }
        report
    }

    /// The findings for a configuration and a graph: severity and message of each.
    fn findings(configuration: &str, graph: &str) -> Vec<(Severity, String)> {
        let findings = report(configuration, graph).findings.into_iter();
        findings.map(|it| (it.severity, it.message)).collect()
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
    fn mistakes_that_graphs_have_in_common_are_reported_once() {
        let settings = "subgraphs: {reviews: {url: \"https://r\", tls: {ca: no.pem}}}\n\
                        graphs: [{name: beta, path: /beta, supergraph: {file: supergraph.graphql}}]";
        let found = findings(settings, GRAPH);
        let missing = found.iter().filter(|(_, message)| message.contains("no.pem"));
        assert_eq!(missing.count(), 1, "{found:?}");
    }

    #[test]
    fn subgraphs_with_subscriptions_are_listed_with_protocol_and_url() {
        let route = |protocol, url: &str| {
            [SubscriptionRoute { subgraph: "reviews".to_owned(), protocol, url: url.to_owned() }]
        };
        let found = report("", GRAPH);
        assert_eq!(found.findings, []);
        assert_eq!(found.subscriptions, route("auto", "ws://127.0.0.1:1"));
        let settings =
            "subgraphs: {reviews: {subscription: {protocol: sse, url: \"http://r:1/s?key=1\"}}}";
        assert_eq!(report(settings, GRAPH).subscriptions, route("sse", "http://r:1/s"));
        let without = GRAPH.replace("  subscription: Subscription\n", "");
        assert_eq!(report("", &without).subscriptions, []);
    }

    #[test]
    fn excerpts_of_a_supergraph_hide_the_queries_of_urls() {
        let graph = GRAPH.replace(
            ":1\")",
            ":1?key=hunter2\") @starling__subscription(protocol: \"mqtt\", url: \"ws://me:hunter2@r/?key=hunter2\")",
        );
        let shown = render(&report("", &graph).findings, Style::Plain);
        assert!(
            shown.contains("`mqtt` is not a protocol") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn the_protocol_of_the_supergraph_must_fit_to_the_configuration() {
        let graph = GRAPH.replace(":1\")", ":1\") @starling__subscription(protocol: \"callback\")");
        let found = report("", &graph);
        let messages: Vec<_> = found.findings.iter().map(|it| &*it.message).collect();
        let missing =
            "subgraph `reviews` sends events by callbacks, and `subscriptions.callback` is missing";
        assert_eq!((&messages[..], &found.subscriptions[..]), (&[missing][..], &[][..]));
        let callback = "subscriptions: {callback: {public_url: \"http://router/callback\"}}";
        assert_eq!(findings(callback, &graph), []);
        let message =
            "`subscriptions.callback` has no effect: no subgraph sends events by callbacks";
        assert_eq!(findings(callback, GRAPH), [(Severity::Warning, message.to_owned())]);
    }

    #[test]
    fn policies_that_nothing_decides_and_mistakes_in_rules_are_reported() {
        let graph = GRAPH
            .replace(
                ", for: EXECUTION) {",
                ", for: EXECUTION) @link(url: \"https://specs.apollo.dev/policy/v0.1\", for: SECURITY) {",
            )
            .replace("{ reviews: Int }", "{ reviews: Int @policy(policies: [[\"a\", \"b\"]]) }");
        let message = |names: &str| {
            let text = format!(
                "nothing decides the policies {names}: what they protect is denied to every client"
            );
            [(Severity::Warning, text)]
        };
        assert_eq!(findings("", &graph), message("`a`, `b`"));
        let one = "authorization: {policies: {expressions: {a: 'true'}}}";
        assert_eq!(findings(one, &graph), message("`b`"));
        let point = "authorization: {policies: {decision_point: {url: 'http://127.0.0.1:1/'}}}";
        assert_eq!(findings(point, &graph), []);
        let missing = "authorization: {policies: {rego: {files: [a.rego], query: data.a.b}}}";
        let found = findings(missing, "type Query { a: Int }");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].1.starts_with("`authorization.policies.rego`: HERE/a.rego: No such"),
            "{found:?}"
        );
    }

    #[test]
    fn a_setting_is_unused_if_no_graph_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starling.yaml");
        let other = GRAPH.replace("reviews", "stock").replace("REVIEWS", "STOCK");
        std::fs::write(folder.path().join("supergraph.graphql"), GRAPH).unwrap();
        std::fs::write(folder.path().join("stock.graphql"), other).unwrap();
        let configuration = "subgraphs: {reviews: {}, stock: {}, stocks: {}}\n\
                             graphs: [{name: stock, path: /stock, supergraph: {file: stock.graphql}}]\n";
        std::fs::write(&path, configuration).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let report = runtime.block_on(check(Some(&path), &Overrides::default()));
        let found: Vec<_> = report.findings.iter().map(|it| &*it.message).collect();
        let message = "`subgraphs.stocks` has no effect: the supergraph has no such subgraph";
        assert_eq!(found, [message]);
    }
}
