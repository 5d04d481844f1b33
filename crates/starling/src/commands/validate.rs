//! The command `starling validate`: checks the operations of clients against a graph.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, ValueEnum};
use compose::{ClientOperation, OperationPlace};
use composition_input::CompositionConfig;
use config::diagnostic::{Diagnostic, Severity};
use config::{Config, Overrides};
use graph::Supergraph;
use prepare::{Limits, PrepareError, PrepareSettings, Preparer};
use serde_json::json;

use super::{graph_file, operation_files, operation_files::ClientOperations};
use crate::usage;

/// The exit code if a file cannot be read, as for wrong arguments.
const UNREADABLE: u8 = 2;

/// Checks that every operation fits the schema that clients see, and that it can be planned.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["config", "supergraph"]).required(true)))]
#[command(after_help = "\
Exit status: 0 if all operations are valid, 1 if some are not, 2 if a file cannot be read or composed.\n\n\
Examples:\n  \
starling validate --supergraph supergraph.graphql --operations src/\n  \
starling validate --config supergraph.yaml --operations src/ --format json")]
pub(crate) struct ValidateArguments {
    /// The operations of clients: a folder or file of GraphQL, or manifests of persisted operations (JSON).
    #[arg(long, value_name = "FOLDER")]
    operations: PathBuf,
    /// The supergraph file (SDL).
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
    /// The configuration (YAML) of a composition, or of the router, whose limits then apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ValidateFormat::Text)]
    format: ValidateFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ValidateFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

pub(crate) fn run(arguments: &ValidateArguments) -> ExitCode {
    let (clients, findings) = match find(arguments) {
        Ok(found) => found,
        Err(messages) => {
            super::print_error(&messages);
            return ExitCode::from(UNREADABLE);
        }
    };
    let is_invalid = findings.iter().any(|it| it.diagnostic.severity == Severity::Error);
    let count = clients.operations.len();
    let text = if arguments.format == ValidateFormat::Json {
        format!("{:#}\n", as_json(count, &findings, !is_invalid))
    } else {
        let diagnostics: Vec<_> = findings.into_iter().map(|it| it.diagnostic).collect();
        super::report(&diagnostics);
        let errors = diagnostics.iter().filter(|it| it.severity == Severity::Error).count();
        let warnings = diagnostics.len() - errors;
        format!(
            "{}: {}, {}.\n",
            super::count_of(count, "operation"),
            super::count_of(errors, "error"),
            super::count_of(warnings, "warning")
        )
    };
    if !super::print_result(&text) {
        return ExitCode::from(UNREADABLE);
    }
    if is_invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A message about an operation.
struct OperationFinding {
    /// The label of the first operation that it concerns.
    operation: String,
    place: OperationPlace,
    diagnostic: Diagnostic,
}

/// Reads the graph and the operations, and checks these.
fn find(
    arguments: &ValidateArguments,
) -> Result<(ClientOperations, Vec<OperationFinding>), String> {
    let (graph, settings) = read_graph(arguments)?;
    let clients = operation_files::read(&arguments.operations)
        .map_err(|diagnostics| graph_file::render(&diagnostics))?;
    let api = graph.api.clone();
    let preparer = Preparer::new(Arc::new(graph), 0, settings);
    let mut findings = Vec::new();
    // Operations that share a fragment share its mistakes.
    let mut known: HashSet<(OperationPlace, String)> = HashSet::new();
    for operation in &clients.operations {
        let mut found = check_operation(&preparer, operation);
        for used in compose::find_deprecated_uses(&api, operation) {
            let message = format!("`{}` is deprecated: {}", used.path, used.reason);
            found.push((used.place, Diagnostic::warning("deprecated", message)));
        }
        for (place, diagnostic) in found {
            if known.insert((place.clone(), diagnostic.message.clone())) {
                let diagnostic = clients.locate(diagnostic, &place);
                let operation = operation.label.clone();
                findings.push(OperationFinding { operation, place, diagnostic });
            }
        }
    }
    findings.sort_by_key(|it: &OperationFinding| (it.diagnostic.severity, it.place.clone()));
    Ok((clients, findings))
}

/// Validates and plans an operation.
fn check_operation(
    preparer: &Preparer,
    operation: &ClientOperation,
) -> Vec<(OperationPlace, Diagnostic)> {
    let name = Some(operation.name.as_str()).filter(|it| !it.is_empty());
    let Err(error) = preparer.prepare_now(operation.text.as_bytes(), name) else {
        return Vec::new();
    };
    let (code, problems) = match &error {
        PrepareError::Syntax(problems) => ("syntax", problems),
        PrepareError::Validation(problems) => ("validation", problems),
        other => {
            let diagnostic = Diagnostic::error("operation", other.to_string());
            return vec![(operation.place.clone(), diagnostic)];
        }
    };
    let locate = |problem: &prepare::Problem| {
        let place = match problem.locations.first() {
            Some(&(line, column)) => operation.locate(line as usize, column as usize),
            None => operation.place.clone(),
        };
        (place, Diagnostic::error(code, problem.message.clone()))
    };
    problems.iter().map(locate).collect()
}

/// Reads the graph, and the limits on operations if the router's configuration has some.
fn read_graph(arguments: &ValidateArguments) -> Result<(Supergraph, PrepareSettings), String> {
    usage::check_file_kinds(arguments.config.as_deref(), arguments.supergraph.as_deref())
        .map_err(|diagnostic| graph_file::render(&[*diagnostic]))?;
    // Only a configuration turns live queries off.
    let defaults = PrepareSettings { live_queries: true, ..PrepareSettings::default() };
    let Some(path) = &arguments.config else {
        let path = arguments.supergraph.as_deref().unwrap_or(Path::new(""));
        return Ok((graph_file::read_for_serving(&Config::default(), path)?, defaults));
    };
    if CompositionConfig::is_in_file(path) {
        return Ok((graph_file::compose_for_serving(&Config::default(), path)?, defaults));
    }
    let loaded = config::load(Some(path), &Overrides::default())
        .map_err(|diagnostics| graph_file::render(&diagnostics))?;
    let config = loaded.config;
    let supergraph = &config.supergraph;
    let graph = if let Some(path) = &supergraph.compose {
        graph_file::compose_for_serving(&config, path)?
    } else if supergraph.directory.is_some() || supergraph.url.is_some() {
        graph_file::read_source_for_serving(&config)?
    } else {
        graph_file::read_for_serving(&config, &supergraph.file)?
    };
    let config::Limits { tokens, depth, aliases, root_fields, selections, .. } = config.limits;
    let limits = Limits { tokens, depth, aliases, root_fields, selections };
    let settings = PrepareSettings {
        limits,
        introspection: config.introspection.enabled,
        live_queries: config.has_live_queries(),
        ..defaults
    };
    Ok((graph, settings))
}

fn as_json(count: usize, findings: &[OperationFinding], is_ok: bool) -> serde_json::Value {
    let findings = findings.iter().map(|OperationFinding { operation, place, diagnostic }| {
        json!({
            "severity": match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "code": diagnostic.code,
            "message": diagnostic.message,
            "operation": operation,
            "file": diagnostic.source.as_ref().map(|it| &it.name),
            "line": place.line,
            "column": place.column,
        })
    });
    json!({"ok": is_ok, "operations": count, "findings": findings.collect::<Vec<_>>()})
}
