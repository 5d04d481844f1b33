//! Everything that can be said about a configuration without serving it.

use std::path::Path;
use std::sync::Arc;

use crate::config::{self, Overrides};
use crate::diagnostic::{Diagnostic, Severity};
use crate::loaded::{self, SupergraphSource};
use crate::start;
use crate::upstreams::SubgraphCertificates;

/// Checks the configuration at `path` (none: flags and defaults only) and the supergraph that it names,
/// its topics and providers included. Connects to nothing. Errors and warnings, in that order of finding;
/// empty: all is well.
pub fn check(path: Option<&Path>, overrides: &Overrides) -> Vec<Diagnostic> {
    let loaded = match config::load(path, overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics,
    };
    let mut findings = loaded.warnings.clone();
    let config = &loaded.config;
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
                Ok(providers) => {
                    findings.extend(
                        loaded::bind(&graph, &text, &Arc::new(providers))
                            .err()
                            .into_iter()
                            .flatten(),
                    );
                }
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
