//! The command `starling check`: reports mistakes before deployment.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, ValueEnum};
use config::Overrides;
use config::diagnostic::{Diagnostic, Severity};
use serde_json::json;
use server::{CheckReport, OnlineReport, OnlineVerdict, SubscriptionRoute};
use tokio::runtime::Runtime;

use crate::usage;

/// Checks a configuration and the supergraph that it names, or a supergraph alone. Exits with status 1 on errors.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["config", "supergraph"]).required(true).multiple(true)))]
pub(crate) struct CheckArguments {
    /// The configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The supergraph file (SDL), instead of the one in the configuration.
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
    /// Also checks that every subgraph and broker can be reached and accepts the router's credentials, and that
    /// brokers have the topics of the supergraph. Publishes nothing.
    #[arg(long)]
    online: bool,
    /// Also reports what the configuration leaves open for a graph that strangers can reach (docs/hardening.md), and
    /// exits with status 1 if there is anything.
    #[arg(long)]
    hardening: bool,
    /// An item that `--hardening` does not report, by its name. May be given several times.
    #[arg(long, value_name = "NAME", requires = "hardening", value_parser = hardening_item_parser())]
    accept: Vec<String>,
    /// The output format of the findings.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: CheckFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// A table, with advice.
    Text,
    /// JSON for programs.
    Json,
}

fn hardening_item_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(config::hardening_items())
}

impl CheckArguments {
    /// Returns what the configuration leaves open, if that was asked for and the configuration can be read. Mistakes of
    /// an unreadable one are among the other findings.
    fn open_hardening_items(&self, overrides: &Overrides) -> Vec<Diagnostic> {
        if !self.hardening {
            return Vec::new();
        }
        let loaded = config::load(self.config.as_deref(), overrides);
        loaded.map_or_else(|_| Vec::new(), |loaded| loaded.open_hardening_items(&self.accept))
    }
}

pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    if let Err(diagnostic) =
        usage::check_file_kinds(arguments.config.as_deref(), arguments.supergraph.as_deref())
    {
        super::report(&[*diagnostic]);
        return ExitCode::FAILURE;
    }
    let overrides = Overrides { supergraph: arguments.supergraph.clone(), ..Overrides::default() };
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            super::print_error(&format!("cannot start threads: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    if arguments.online {
        return check_online(runtime, arguments, &overrides);
    }
    let report = runtime.block_on(server::check(arguments.config.as_deref(), &overrides));
    let CheckReport { mut findings, subscriptions } = report;
    if server::has_errors(&findings) {
        findings = usage::recognize_composition(arguments.config.as_deref(), findings);
    }
    let open = arguments.open_hardening_items(&overrides);
    let is_hardened = open.is_empty();
    findings.extend(open);
    if arguments.format == CheckFormat::Json {
        let report = OnlineReport { findings, checks: Vec::new() };
        super::print(&format!("{:#}\n", as_json(&report, &subscriptions)));
        let is_good = !report.has_failed() && is_hardened;
        return if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    super::report(&findings);
    super::print(&routes_as_text(&subscriptions));
    if server::has_errors(&findings) {
        return ExitCode::FAILURE;
    }
    if !is_hardened {
        super::print(
            "No errors, but the configuration is not hardened; `--accept NAME` accepts an item.\n",
        );
        return ExitCode::FAILURE;
    }
    // Warnings have been printed; a line that contradicts them would be odd.
    super::print(match findings.is_empty() {
        true => "Everything is in order.\n",
        false => "No errors.\n",
    });
    ExitCode::SUCCESS
}

fn check_online(runtime: Runtime, arguments: &CheckArguments, overrides: &Overrides) -> ExitCode {
    let path = arguments.config.as_deref();
    let checks = async {
        let CheckReport { findings, subscriptions } = server::check(path, overrides).await;
        (server::check_online(findings, path, overrides).await, subscriptions)
    };
    let open = arguments.open_hardening_items(overrides);
    let is_hardened = open.is_empty();
    let (mut report, subscriptions) = tokio::task::LocalSet::new().block_on(&runtime, checks);
    report.findings.extend(open);
    // Unreachable providers keep retrying; the process does not wait for them.
    runtime.shutdown_background();
    if arguments.format == CheckFormat::Json {
        super::print(&format!("{:#}\n", as_json(&report, &subscriptions)));
    } else {
        super::report(&report.findings);
        super::print(&routes_as_text(&subscriptions));
        super::print(&as_text(&report));
    }
    if report.has_failed() || !is_hardened { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Formats a table of the subgraphs to which the router subscribes. Empty without any.
fn routes_as_text(subscriptions: &[SubscriptionRoute]) -> String {
    if subscriptions.is_empty() {
        return String::new();
    }
    let name_width = subscriptions.iter().map(|it| it.subgraph.chars().count()).max().unwrap_or(0);
    let protocol_width = subscriptions.iter().map(|it| it.protocol.len()).max().unwrap_or(0);
    let mut text = "Subscriptions of subgraphs:\n".to_owned();
    for SubscriptionRoute { subgraph, protocol, url } in subscriptions {
        let _ = writeln!(text, "  {subgraph:<name_width$}  {protocol:<protocol_width$}  {url}");
    }
    text.push('\n');
    text
}

/// Formats one line for each check; below failed ones, the reason and the advice.
fn as_text(report: &OnlineReport) -> String {
    let mut text = String::new();
    let mut counts = [0; 3];
    for check in &report.checks {
        counts[check.verdict as usize] += 1;
        let _ = writeln!(text, "{:<8} {:<10} {}", check.verdict.as_str(), check.what, check.place);
        for (word, line) in [("why:", &check.reason), ("do:", &check.advice)] {
            if let Some(line) = line {
                let _ = writeln!(text, "{:<8} {word:<10} {line}", "");
            }
        }
    }
    let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
    match (report.has_failed(), errors.count()) {
        (true, 0) => {
            let [works, fails, unknown] = counts;
            let _ = writeln!(text, "\n{fails} failed, {works} ok, {unknown} unknown.");
        }
        (true, _) => text.push_str("Nothing was connected to: correct these errors first.\n"),
        (false, _) if counts[OnlineVerdict::Unknown as usize] == 0 => {
            text.push_str("\nEverything is in order.\n");
        }
        (false, _) => text.push_str("\nNothing failed; what is unknown cannot be tried.\n"),
    }
    text
}

fn as_json(report: &OnlineReport, subscriptions: &[SubscriptionRoute]) -> serde_json::Value {
    let findings = report.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        json!({"severity": severity, "code": finding.code, "message": finding.to_string()})
    });
    let checks = report.checks.iter().map(|check| {
        json!({
            "verdict": check.verdict.as_str().to_lowercase(),
            "what": check.what,
            "where": check.place,
            "reason": check.reason,
            "advice": check.advice,
        })
    });
    let subscriptions = subscriptions
        .iter()
        .map(|it| json!({"subgraph": it.subgraph, "protocol": it.protocol, "url": it.url}));
    json!({
        "ok": !report.has_failed(),
        "findings": findings.collect::<Vec<_>>(),
        "subscriptions": subscriptions.collect::<Vec<_>>(),
        "checks": checks.collect::<Vec<_>>(),
    })
}
