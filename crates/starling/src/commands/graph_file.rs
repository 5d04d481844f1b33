//! Graphs that a command reads: a supergraph in a file, the configuration of a composition, or the source that a
//! configuration of the router names.

use std::path::Path;
use std::sync::Arc;

use compose::{Composition, SubgraphInput};
use composition_input::CompositionConfig;
use config::Config;
use config::diagnostic::{self, Diagnostic, SourceText, Style};
use graph::Supergraph;

use crate::usage;

/// The mark by which a supergraph says that a router must enforce a feature.
const SECURITY_PURPOSE: &str = ", for: SECURITY";

/// Returns the messages as text for standard error.
pub(super) fn render(diagnostics: &[Diagnostic]) -> String {
    diagnostic::render(diagnostics, Style::for_stream(&std::io::stderr()))
}

/// Reads a graph to compare it: from the configuration of a composition if the name ends as YAML does, otherwise from a
/// supergraph.
///
/// # Errors
/// The messages for standard error.
pub(super) fn read_for_comparison(path: &Path) -> Result<Supergraph, String> {
    let mut source = match usage::has_extension(path, &usage::CONFIGURATION_EXTENSIONS) {
        true => compose_file(path)?,
        false => read_supergraph(path)?,
    };
    // The schema of clients does not depend on the features that a router enforces. Blanks keep the places in messages.
    source.text = source.text.replace(SECURITY_PURPOSE, &" ".repeat(SECURITY_PURPOSE.len()));
    parse(&Config::default(), source)
}

/// Reads a supergraph for serving.
///
/// # Errors
/// The messages for standard error.
pub(super) fn read_for_serving(config: &Config, path: &Path) -> Result<Supergraph, String> {
    parse(config, read_supergraph(path)?)
}

/// Reads the supergraph for serving from the source in the configuration, whatever it is. Reports warnings.
///
/// # Errors
/// The messages for standard error.
pub(super) fn read_source_for_serving(config: &Config) -> Result<Supergraph, String> {
    let runtime =
        super::control_runtime().map_err(|error| format!("cannot start threads: {error}\n"))?;
    let source = runtime.block_on(server::read_supergraph(config));
    let (source, warnings) = source.map_err(|diagnostics| render(&diagnostics))?;
    super::report(&warnings);
    server::read_graph(config, &source).map_err(|diagnostics| render(&diagnostics))
}

/// Composes the graph of a configuration for serving.
///
/// # Errors
/// The messages for standard error.
pub(super) fn compose_for_serving(config: &Config, path: &Path) -> Result<Supergraph, String> {
    parse(config, compose_file(path)?)
}

fn parse(config: &Config, source: SourceText) -> Result<Supergraph, String> {
    server::read_graph(config, &Arc::new(source)).map_err(|diagnostics| render(&diagnostics))
}

fn read_supergraph(path: &Path) -> Result<SourceText, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(SourceText { name: path.display().to_string(), text }),
        Err(error) => {
            let message = format!("cannot read the supergraph {}: {error}", path.display());
            Err(render(&[Diagnostic::error("supergraph", message)]))
        }
    }
}

/// Composes the subgraphs of a configuration.
fn compose_file(path: &Path) -> Result<SourceText, String> {
    let subgraphs = load_subgraphs(path)?;
    match compose::compose(&subgraphs) {
        Composition::Success { supergraph_sdl, .. } => {
            Ok(SourceText { name: path.display().to_string(), text: supergraph_sdl })
        }
        Composition::Failure { errors, .. } => {
            let coloring = match Style::for_stream(&std::io::stderr()) {
                Style::Plain => compose::Coloring::Plain,
                Style::Colored => compose::Coloring::Ansi,
            };
            let findings = compose::render(&errors, coloring);
            Err(format!("{findings}\nthe subgraphs of {} do not compose\n", path.display()))
        }
    }
}

/// Loads the schemas of the subgraphs.
fn load_subgraphs(path: &Path) -> Result<Vec<SubgraphInput>, String> {
    let config = CompositionConfig::read(path).map_err(|diagnostics| render(&diagnostics))?;
    let runtime =
        super::control_runtime().map_err(|error| format!("cannot start threads: {error}\n"))?;
    runtime.block_on(composition_input::load(&config)).map_err(|errors| {
        let diagnostics: Vec<_> = errors.into_iter().map(|it| *it.diagnostic).collect();
        render(&diagnostics)
    })
}
