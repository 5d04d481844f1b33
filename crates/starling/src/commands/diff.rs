//! The command `starling diff`: how the schema that clients see changes between two graphs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use compose::{Criticality, OperationsReport, SchemaChange};
use serde_json::json;

use super::{graph_file, operation_files};

/// The exit code if a file cannot be read, as for wrong arguments.
const UNREADABLE: u8 = 2;

/// The maximum number of operations that the text names for one change. The JSON has all.
const OPERATIONS_SHOWN_MAX: usize = 5;

/// Compares the schemas that clients see in two graphs. Exits with status 1 if there are breaking changes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 without breaking changes, 1 with breaking changes, 2 if a file cannot be read or composed.\n\n\
Examples:\n  \
starling diff old.graphql new.graphql\n  \
starling diff old.graphql supergraph.yaml --operations src/")]
pub(crate) struct DiffArguments {
    /// The graph of today: a supergraph (SDL) or the configuration of a composition (YAML).
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The graph to come: a supergraph (SDL) or the configuration of a composition (YAML).
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The operations of clients: a folder or file of GraphQL, or manifests of persisted operations (JSON). Only
    /// changes that affect them count as breaking or dangerous.
    #[arg(long, value_name = "FOLDER")]
    operations: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    format: DiffFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

pub(crate) fn run(arguments: &DiffArguments) -> ExitCode {
    let report = match compare(arguments) {
        Ok(report) => report,
        Err(messages) => {
            super::print_error(&messages);
            return ExitCode::from(UNREADABLE);
        }
    };
    let text = match arguments.format {
        DiffFormat::Text => as_text(&report),
        DiffFormat::Json => format!("{:#}\n", as_json(&report)),
    };
    if !super::print_result(&text) {
        return ExitCode::from(UNREADABLE);
    }
    match count(&report.changes, Criticality::Breaking) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Changes, and the operations if some were given.
struct DiffReport {
    changes: Vec<SchemaChange>,
    operations: Option<OperationsReport>,
}

fn compare(arguments: &DiffArguments) -> Result<DiffReport, String> {
    let old = graph_file::read_for_comparison(&arguments.old)?.api;
    let new = graph_file::read_for_comparison(&arguments.new)?.api;
    let changes = compose::diff(&old, &new);
    let Some(folder) = &arguments.operations else {
        return Ok(DiffReport { changes, operations: None });
    };
    let clients =
        operation_files::read(folder).map_err(|diagnostics| graph_file::render(&diagnostics))?;
    let mut report = compose::check_operations(&old, &new, changes, &clients.operations);
    let changes = std::mem::take(&mut report.changes);
    Ok(DiffReport { changes, operations: Some(report) })
}

fn count(changes: &[SchemaChange], criticality: Criticality) -> usize {
    changes.iter().filter(|it| it.criticality == criticality).count()
}

/// Formats the changes by criticality, and their numbers. Writing to a string does not fail.
fn as_text(report: &DiffReport) -> String {
    let mut text = String::new();
    for (criticality, title) in [
        (Criticality::Breaking, "Breaking"),
        (Criticality::Dangerous, "Dangerous"),
        (Criticality::Safe, "Safe"),
    ] {
        let changes = || report.changes.iter().filter(|it| it.criticality == criticality);
        if changes().next().is_none() {
            continue;
        }
        let _ = writeln!(text, "{title}:");
        for change in changes() {
            let _ = writeln!(text, "  {}: {}", change.code, change.message);
            let _ = writeln!(text, "    why: {}", change.reason);
            write_operations(&mut text, &change.operations);
        }
        text.push('\n');
    }
    let unchecked = report.operations.iter().flat_map(|it| &it.unchecked);
    for operation in unchecked {
        let _ = writeln!(
            text,
            "Not checked, because it does not fit the old graph: {}: {}",
            operation.label, operation.message
        );
    }
    let counts = [Criticality::Breaking, Criticality::Dangerous, Criticality::Safe]
        .map(|it| count(&report.changes, it));
    let _ = match counts {
        [0, 0, 0] => writeln!(text, "No changes."),
        [breaking, dangerous, safe] => {
            writeln!(text, "{breaking} breaking, {dangerous} dangerous, {safe} safe.")
        }
    };
    if let Some(operations) = &report.operations {
        let _ = writeln!(text, "{} checked.", super::count_of(operations.checked, "operation"));
    }
    text
}

fn write_operations(text: &mut String, operations: &[String]) {
    if operations.is_empty() {
        return;
    }
    let shown = operations.get(..OPERATIONS_SHOWN_MAX).unwrap_or(operations).join(", ");
    let more = operations.len().saturating_sub(OPERATIONS_SHOWN_MAX);
    let _ = match more {
        0 => writeln!(text, "    affects: {shown}"),
        _ => writeln!(text, "    affects: {shown} and {more} more"),
    };
}

fn as_json(report: &DiffReport) -> serde_json::Value {
    let changes = report.changes.iter().map(|change| {
        json!({
            "code": change.code.name(),
            "criticality": change.criticality.as_str(),
            "path": change.path,
            "message": change.message,
            "reason": change.reason,
            "operations": change.operations,
        })
    });
    let operations = report.operations.as_ref().map(|operations| {
        let unchecked = operations
            .unchecked
            .iter()
            .map(|it| json!({"operation": it.label, "message": it.message}));
        json!({"checked": operations.checked, "unchecked": unchecked.collect::<Vec<_>>()})
    });
    let count = |criticality| count(&report.changes, criticality);
    json!({
        "ok": count(Criticality::Breaking) == 0,
        "counts": {
            "breaking": count(Criticality::Breaking),
            "dangerous": count(Criticality::Dangerous),
            "safe": count(Criticality::Safe),
        },
        "changes": changes.collect::<Vec<_>>(),
        "operations": operations,
    })
}
