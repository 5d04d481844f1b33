//! Runs every test: cargo's, then the suites in JavaScript: those of the router, and those that compare composition
//! with other implementations.
//!
//! The programs that tests need are installed first, where possible (`test_kit::installation`). A test that cannot run
//! reports that it was skipped; with `CI=true` a skipped test is a failure. The last lines repeat the failed tests, and
//! contain the totals.

use crate::dist;
use crate::failed_tests::FailedTests;
use crate::javascript::{JS_FOLDER, RUNNER, check_node_version, install_packages};
use crate::site;
use crate::tally::Tally;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::builds::{Build, build_programs};
use test_kit::commands::{self, Failure};
use test_kit::installation::{self, GoSource};
use test_kit::kafka::download::fetch_jars;
use test_kit::programs::{
    ACTIONLINT, ACTIONLINT_PACKAGE, COMPOSE_GO, COMPOSE_GO_PACKAGE, HELM, HELM_PACKAGE,
    KAFKA_VARIABLE, KUBECTL_VALIDATE, KUBECTL_VALIDATE_PACKAGE, KUBERNETES, KUBERNETES_MODULE,
    MONITORING_DEFINITIONS, MONITORING_DEFINITIONS_VARIABLE, OPEN_POLICY_AGENT,
    OPEN_POLICY_AGENT_PACKAGE, OPENTELEMETRY_COLLECTOR, OPENTELEMETRY_COLLECTOR_FOLDER,
};

/// The time limit of one suite, longer than the slowest suite takes on a busy machine with two cores. Each wait inside
/// a suite has a shorter deadline (`waiting.mjs`).
const JS_SUITE_MILLISECONDS_MAX: u32 = 300_000;

/// The folders with suites in JavaScript. Each is an npm package; the second part is the folder of its suites.
const JS_SUITES: [(&str, &str); 2] = [(JS_FOLDER, "suites"), ("tests/composition", ".")];

/// The example of the crate `compose` that composes JSON lines, and the variable with its path.
const COMPOSE_LINES: (&str, &str) = ("compose_lines", "STARLING_TEST_COMPOSE_LINES");

/// The beginning of the names of the suites that check archives of a release, and the variable with their folder.
const PACKAGES_SUITE: &str = "packages";
const PACKAGES_VARIABLE: &str = "STARLING_TEST_DIST";

/// The name of the only suite that needs Kubernetes.
const KUBERNETES_SUITE: &str = "kubernetes_installation";

/// Runs all tests, or those with `filter` in their names.
pub(crate) fn run(root: &Path, filter: Option<&str>) -> Result<(), Failure> {
    let is_strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut found = installation::install_missing()?;
    let mut notes: Vec<String> = found
        .missing
        .iter()
        .map(|package| format!("{package} is not installed: tests that need it are skipped"))
        .collect();

    let (composition, composition_variable) = COMPOSE_LINES;
    let [binary, composition] = build_programs(root, Build::Tests, ["starling", composition])?;
    match fetch_jars(&binary) {
        Ok(jars) => found.variables.push((KAFKA_VARIABLE, jars)),
        Err(reason) => {
            notes.push(format!("no Kafka broker ({reason}): tests that need it are skipped"));
        }
    }
    let collector = root.join(OPENTELEMETRY_COLLECTOR_FOLDER);
    let (kubernetes, kubernetes_linker) = KUBERNETES_MODULE;
    let kubernetes = root.join(kubernetes);
    // Building Kubernetes takes minutes, which a run of other tests need not wait for.
    let needs_kubernetes = filter.is_none_or(|filter| {
        KUBERNETES_SUITE.contains(filter) || filter.contains(KUBERNETES_SUITE)
    });
    for (name, program, source) in [
        ("Open Policy Agent", &OPEN_POLICY_AGENT, GoSource::Package(OPEN_POLICY_AGENT_PACKAGE)),
        ("OpenTelemetry collector", &OPENTELEMETRY_COLLECTOR, GoSource::Folder(&collector, "")),
        ("Helm", &HELM, GoSource::Package(HELM_PACKAGE)),
        ("Kubernetes", &KUBERNETES, GoSource::Folder(&kubernetes, kubernetes_linker)),
        ("kubectl-validate", &KUBECTL_VALIDATE, GoSource::Package(KUBECTL_VALIDATE_PACKAGE)),
        ("compose-go", &COMPOSE_GO, GoSource::Package(COMPOSE_GO_PACKAGE)),
        ("actionlint", &ACTIONLINT, GoSource::Package(ACTIONLINT_PACKAGE)),
    ] {
        if program.variable == KUBERNETES.variable && !needs_kubernetes {
            continue;
        }
        let folder = binary.with_file_name(program.package);
        match installation::find_or_build(program, source, &folder) {
            Ok(Some(path)) => found.variables.push((program.variable, path)),
            Ok(None) => notes
                .push(format!("{name} and Go are not installed: tests that need them are skipped")),
            Err(reason) => {
                notes.push(format!("no {name} ({reason}): tests that need it are skipped"));
            }
        }
    }
    let (module, folder) = MONITORING_DEFINITIONS;
    match installation::fetch_go_module(module) {
        Ok(Some(path)) => {
            found.variables.push((MONITORING_DEFINITIONS_VARIABLE, path.join(folder)));
        }
        Ok(None) => {}
        Err(reason) => notes.push(format!("no definition of ServiceMonitor ({reason})")),
    }
    // Packing takes some seconds, which a run of other tests need not wait for.
    let needs_archives = filter
        .is_none_or(|filter| PACKAGES_SUITE.contains(filter) || filter.starts_with(PACKAGES_SUITE));
    if cfg!(target_os = "linux") && needs_archives {
        let folder = scratch_file(&binary, PACKAGES_SUITE);
        found.variables.push((PACKAGES_VARIABLE, dist::pack_for_tests(root, &binary, folder)?));
    }
    let skips = scratch_file(&binary, "skipped-tests.txt");
    let environment = |command: &mut Command| {
        command.env("STARLING_BIN", &binary).env("STARLING_TEST_SKIPS", &skips);
        command.env(composition_variable, &composition);
        command.envs(found.variables.iter().map(|(name, path)| (*name, path.as_os_str())));
    };
    // Tests append to this file; entries of an earlier run would be counted again.
    let _ = fs::remove_file(&skips);

    let mut tally = Tally::default();
    let mut failed_tests = FailedTests::default();
    let mut failures = Vec::new();

    // Names in Rust have no spaces, and rustdoc would treat each word as a separate filter.
    if filter.is_none_or(|filter| !filter.contains(' ')) {
        let mut cargo = commands::cargo();
        cargo.current_dir(root).args(["test", "--workspace", "--no-fail-fast"]);
        if let Some(filter) = filter {
            cargo.args(["--", filter]);
        }
        environment(&mut cargo);
        let status = commands::run_with_lines(&mut cargo, |line| {
            tally.add_cargo_line(line);
            failed_tests.add_cargo_line(line);
        })?;
        if !status.success() {
            failures.push("cargo test".to_owned());
        }
    }
    // Cargo counts a Rust test that was skipped as passed.
    for skip in fs::read_to_string(&skips).unwrap_or_default().lines() {
        tally.passed = tally.passed.saturating_sub(1);
        tally.skipped += 1;
        notes.push(skip.to_owned());
    }

    match check_node_version() {
        Err(reason) => {
            tally.skipped += 1;
            notes.push(format!("the suites in JavaScript are skipped: {reason}"));
        }
        Ok(()) => {
            // A suite builds the documentation site.
            install_packages(&root.join(site::FOLDER))?;
            let report = scratch_file(&binary, "javascript-tests.json");
            for (package, suites) in JS_SUITES {
                let package_folder = root.join(package);
                install_packages(&package_folder)?;
                let mut node = Command::new("node");
                node.current_dir(&package_folder).arg(root.join(JS_FOLDER).join(RUNNER));
                node.arg(&report).arg(JS_SUITE_MILLISECONDS_MAX.to_string()).arg(suites);
                environment(node.args(filter));
                let _ = fs::remove_file(&report);
                if commands::run(&mut node).is_err() {
                    failures.push(format!("the suites in {package}"));
                }
                match fs::read_to_string(&report) {
                    Ok(report) => {
                        let unpassed = tally.add_javascript_report(&report)?;
                        notes
                            .extend(unpassed.skipped.iter().map(|skip| format!("skipped: {skip}")));
                        unpassed.failed.into_iter().for_each(|test| failed_tests.push(test));
                    }
                    Err(_) => {
                        failures.push(format!("the runner of the suites in {package} (no report)"));
                    }
                }
            }
        }
    }

    for note in &notes {
        println!("note: {note}");
    }
    for test in failed_tests.into_tests() {
        println!("\nfailed: {test}");
    }
    println!("\n{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    judge_outcome(&tally, &failures, is_strict, filter)
}

fn judge_outcome(
    tally: &Tally,
    failures: &[String],
    is_strict: bool,
    filter: Option<&str>,
) -> Result<(), Failure> {
    if !failures.is_empty() {
        return Err(format!("failed: {}", failures.join(", ")));
    }
    if tally.failed > 0 {
        return Err(format!("{} tests failed", tally.failed));
    }
    if tally.passed + tally.skipped == 0 {
        return Err(match filter {
            Some(filter) => format!("no test has `{filter}` in its name"),
            None => "no test ran".to_owned(),
        });
    }
    if is_strict && tally.skipped > 0 {
        return Err(format!("CI=true and {} skipped", tally.skipped));
    }
    Ok(())
}

/// Returns the path of a scratch file beside the router, in the target folder.
fn scratch_file(binary: &Path, name: &str) -> PathBuf {
    binary.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_without_matches_is_a_failure_and_so_is_a_skip_in_ci() {
        let tally = |passed, failed, skipped| Tally { passed, failed, skipped };
        for (tally, is_strict, filter, expected) in [
            (tally(1, 0, 0), true, None, Ok(())),
            (tally(1, 0, 1), false, None, Ok(())),
            (tally(1, 0, 1), true, None, Err("CI=true and 1 skipped")),
            (tally(1, 1, 0), false, None, Err("1 tests failed")),
            (tally(0, 0, 0), false, Some("x"), Err("no test has `x` in its name")),
            (tally(0, 0, 0), false, None, Err("no test ran")),
        ] {
            assert_eq!(
                judge_outcome(&tally, &[], is_strict, filter),
                expected.map_err(str::to_owned),
                "{tally:?}"
            );
        }
        assert_eq!(
            judge_outcome(&tally(1, 0, 0), &["cargo test".to_owned()], false, None),
            Err("failed: cargo test".to_owned())
        );
    }
}
