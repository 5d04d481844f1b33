//! The command `starling diff`: how the schema that clients see changes between two graphs.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use compose::{ChangeUse, Criticality, OperationsReport, SchemaChange, UsageRules};
use graph::ApiSchema;
use serde_json::json;

use super::counted_usage::{Usage, time_text};
use super::usage_periods::UsagePeriods;
use super::{graph_file, operation_files};

/// The exit code if a file cannot be read, as for wrong arguments.
const UNREADABLE: u8 = 2;

/// The maximum number of operations that the text names for one change. The JSON has all.
const OPERATIONS_SHOWN_MAX: usize = 5;

/// The maximum number of clients that the text names for one change. The JSON has all.
const CLIENTS_SHOWN_MAX: usize = 5;

/// The maximum number of gaps between reports that the text names. The JSON has all.
const GAPS_SHOWN_MAX: usize = 5;

/// Compares the schemas that clients see in two graphs. Exits with status 1 if there are breaking changes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 without breaking changes, 1 with breaking changes, 2 if a file cannot be read or composed.\n\n\
Examples:\n  \
starling diff old.graphql new.graphql\n  \
starling diff old.graphql supergraph.yaml --operations src/\n  \
starling diff old.graphql supergraph.yaml --usage http://localhost:9090/admin/usage")]
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
    /// The use of fields that a router has counted: a file, or the URL of `/admin/usage` on its admin listener. Only
    /// changes of what was used count as breaking or dangerous. Several are added up.
    #[arg(long, value_name = "FILE|URL", conflicts_with = "operations")]
    usage: Vec<String>,
    /// The number of requests from which a change counts as used.
    #[arg(long, value_name = "REQUESTS", default_value_t = 1, requires = "usage")]
    usage_threshold: u64,
    /// The days before the last report that the usage must cover. If it covers fewer, or has gaps in them, unused
    /// changes keep their weight.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "usage")]
    usage_days: u64,
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

/// Changes, and what they were compared with.
struct DiffReport {
    changes: Vec<SchemaChange>,
    operations: Option<OperationsReport>,
    usage: Option<UsageSummary>,
}

/// The counted requests.
struct UsageSummary {
    requests: u64,
    periods: UsagePeriods,
    /// The reason why unused changes keep their weight.
    incomplete: Option<String>,
}

fn compare(arguments: &DiffArguments) -> Result<DiffReport, String> {
    let old = graph_file::read_for_comparison(&arguments.old)?.api;
    let new = graph_file::read_for_comparison(&arguments.new)?.api;
    let changes = compose::diff(&old, &new);
    if !arguments.usage.is_empty() {
        return with_usage(&old, changes, arguments);
    }
    let Some(folder) = &arguments.operations else {
        return Ok(DiffReport { changes, operations: None, usage: None });
    };
    let clients =
        operation_files::read(folder).map_err(|diagnostics| graph_file::render(&diagnostics))?;
    let mut report = compose::check_operations(&old, &new, changes, &clients.operations);
    let changes = std::mem::take(&mut report.changes);
    Ok(DiffReport { changes, operations: Some(report), usage: None })
}

/// Compares changes with the use that routers have counted.
fn with_usage(
    old: &ApiSchema,
    changes: Vec<SchemaChange>,
    arguments: &DiffArguments,
) -> Result<DiffReport, String> {
    let usage = Usage::read(&arguments.usage)?;
    let covered = usage.periods.covered_days(arguments.usage_days);
    let incomplete = if usage.lost > 0 {
        let lost = usage.lost;
        Some(format!("{lost} uses found no room in a router (`metrics.fields.max`)"))
    } else if usage.requests == 0 {
        Some("no request was counted".to_owned())
    } else if covered < arguments.usage_days {
        Some(format!("the usage covers {covered} of {} days", arguments.usage_days))
    } else {
        None
    };
    let rules = UsageRules {
        threshold: arguments.usage_threshold,
        total: usage.requests,
        is_complete: incomplete.is_none(),
    };
    let changes = compose::check_usage(old, changes, &usage.counted, rules);
    let Usage { requests, periods, .. } = usage;
    let usage = Some(UsageSummary { requests, periods, incomplete });
    Ok(DiffReport { changes, operations: None, usage })
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
            write_usage(&mut text, change.usage.as_ref());
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
    if let Some(UsageSummary { requests, periods, incomplete }) = &report.usage {
        let (since, until) = (time_text(periods.since()), time_text(periods.until()));
        let _ = writeln!(text, "{requests} requests from {since} to {until}.");
        write_gaps(&mut text, &periods.gaps());
        if let Some(reason) = incomplete {
            let _ = writeln!(text, "Unused changes keep their weight: {reason}.");
        }
    }
    text
}

/// Writes the clients that a change affects, those with most requests first.
fn write_usage(text: &mut String, usage: Option<&ChangeUse>) {
    let Some(ChangeUse::Counted(clients)) = usage else {
        if usage.is_some() {
            let _ = writeln!(text, "    used by: unknown, routers do not count it");
        }
        return;
    };
    if clients.is_empty() {
        return;
    }
    let mut sorted: Vec<_> = clients.iter().collect();
    sorted.sort_by_key(|(name, it)| (std::cmp::Reverse(it.requests), *name));
    let shown: Vec<_> = sorted
        .iter()
        .take(CLIENTS_SHOWN_MAX)
        .map(|(name, it)| format!("{name} ({})", super::count_of(it.requests as usize, "request")))
        .collect();
    let more = sorted.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let times = clients
        .values()
        .fold((u64::MAX, 0), |(first, last), it| (first.min(it.first), last.max(it.last)));
    let (first, last) = (time_text(times.0), time_text(times.1));
    let _ = writeln!(text, "    used by: {}{more}", shown.join(", "));
    let _ = writeln!(text, "    used from {first} to {last}");
}

/// Writes the times in which no router has counted, the last ones first.
fn write_gaps(text: &mut String, gaps: &[Range<u64>]) {
    for gap in gaps.iter().rev().take(GAPS_SHOWN_MAX) {
        let (since, until) = (time_text(gap.start), time_text(gap.end));
        let _ = writeln!(text, "No report covers the time from {since} to {until}.");
    }
    let more = gaps.len().saturating_sub(GAPS_SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "No report covers {more} earlier times, which `--format json` has.");
    }
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
            "usage": change.usage.as_ref().map(usage_json),
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
        "usage": report.usage.as_ref().map(|it| json!({
            "requests": it.requests,
            "since": time_text(it.periods.since()),
            "until": time_text(it.periods.until()),
            "gaps": it.periods.gaps().iter().map(|gap| json!({
                "since": time_text(gap.start),
                "until": time_text(gap.end),
            })).collect::<Vec<_>>(),
            "incomplete": it.incomplete,
        })),
    })
}

fn usage_json(usage: &ChangeUse) -> serde_json::Value {
    let ChangeUse::Counted(clients) = usage else {
        return json!({"requests": null, "clients": []});
    };
    let clients = clients.iter().map(|(name, it)| {
        json!({
            "client": name,
            "requests": it.requests,
            "firstUsed": time_text(it.first),
            "lastUsed": time_text(it.last),
        })
    });
    json!({"requests": usage.requests(), "clients": clients.collect::<Vec<_>>()})
}
