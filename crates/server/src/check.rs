//! Everything that can be said about a configuration without serving it.

use std::path::Path;
use std::sync::Arc;

use crate::authentication::key_sets;
use crate::config::{self, Loaded, Overrides};
use crate::diagnostic::{Diagnostic, Severity};
use crate::loaded::{self, SupergraphSource};
use crate::start;
use crate::start_material::StartMaterial;
use crate::upstreams::SubgraphCertificates;

/// Checks the configuration at `path` (none: flags and defaults only) and the supergraph that it names,
/// its topics and providers included, and the keys and certificates that a start needs. Connects to nothing. Errors and
/// warnings, in that order of finding; empty: all is well.
pub fn check(path: Option<&Path>, overrides: &Overrides) -> Vec<Diagnostic> {
    let loaded = match config::load(path, overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics,
    };
    let mut findings = loaded.warnings.clone();
    let config = &loaded.config;
    findings.extend(graph_findings(&loaded));
    findings.extend(StartMaterial::load(config).err().into_iter().flatten());
    findings.extend(key_sets::unreadable_files(&config.authentication.jwt));
    findings
}

/// Checks the supergraph against the configuration.
fn graph_findings(loaded: &Loaded) -> Vec<Diagnostic> {
    let config = &loaded.config;
    let mut findings = Vec::new();
    let text = match SupergraphSource::File(config.supergraph.file.clone()).read() {
        Ok(text) => Arc::new(text),
        Err(diagnostic) => {
            findings.push(*diagnostic);
            return findings;
        }
    };
    match loaded::read_graph(config, &text) {
        Ok(graph) => {
            let names = graph.subgraphs.iter().map(|subgraph| &*subgraph.name);
            findings.extend(loaded.unknown_subgraphs(names));
            let upstreams =
                loaded::upstreams(config, &graph, &SubgraphCertificates::default(), None);
            findings.extend(upstreams.err().into_iter().flatten());
            match start::idle_providers(config) {
                Ok(providers) => match loaded::bind(&graph, &text, &Arc::new(providers)) {
                    Ok(_) => findings.extend(loaded::unserved_subscriptions(&graph, &text)),
                    Err(diagnostics) => findings.extend(diagnostics),
                },
                Err(diagnostics) => findings.extend(diagnostics),
            }
        }
        Err(diagnostics) => findings.extend(diagnostics),
    }
    findings
}

/// Is there an error among them?
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}
