//! Runs every test: cargo's, then the end-to-end suites in JavaScript.
//!
//! The programs that tests need are prepared here (`programs.rs`). A test that cannot run reports that it was skipped;
//! with `CI=true` a skipped test is a failure. The last line contains the totals.

use crate::{Failure, kafka, process, programs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the end-to-end tests in JavaScript.
pub(crate) const JS_FOLDER: &str = "tests/e2e/js";

/// The time limit of one suite, longer than the slowest suite takes on a busy machine with two cores. Each wait inside
/// a suite has a shorter deadline (`waiting.mjs`).
const JS_SUITE_MILLISECONDS_MAX: u32 = 300_000;

/// The oldest supported Node.js: the first with all options of the test runner that are used.
const NODE_VERSION_MIN: (u32, u32) = (20, 11);

/// Runs all tests, or those with `filter` in their names.
pub(crate) fn run(root: &Path, filter: Option<&str>) -> Result<(), Failure> {
    let is_strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut found = programs::prepare()?;
    let mut notes: Vec<String> = found
        .missing
        .iter()
        .map(|package| format!("{package} is not installed: tests that need it are skipped"))
        .collect();

    let binary = build_router(root, &[])?;
    match kafka::prepare(&binary) {
        Ok(jars) => found.variables.push((kafka::VARIABLE, jars)),
        Err(reason) => {
            notes.push(format!("no Kafka broker ({reason}): tests that need it are skipped"));
        }
    }
    let skips = scratch_file(&binary, "skipped-tests.txt");
    let environment = |command: &mut Command| {
        command.env("STARLING_BIN", &binary).env("STARLING_TEST_SKIPS", &skips);
        command.envs(found.variables.iter().map(|(name, path)| (*name, path.as_os_str())));
    };
    // Tests append to this file; entries of an earlier run would be counted again.
    let _ = fs::remove_file(&skips);

    let mut tally = Tally::default();
    let mut failures = Vec::new();

    // Names in Rust have no spaces, and rustdoc would treat each word as a separate filter.
    if filter.is_none_or(|filter| !filter.contains(' ')) {
        let mut cargo = process::cargo();
        cargo.current_dir(root).args(["test", "--workspace", "--no-fail-fast"]);
        if let Some(filter) = filter {
            cargo.args(["--", filter]);
        }
        environment(&mut cargo);
        if !process::run_with_lines(&mut cargo, |line| tally.add_cargo_line(line))?.success() {
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
            notes.push(format!("the suites in {JS_FOLDER} are skipped: {reason}"));
        }
        Ok(()) => {
            let js = root.join(JS_FOLDER);
            install_packages(&js)?;
            let report = scratch_file(&binary, "javascript-tests.json");
            let mut node = Command::new("node");
            node.current_dir(&js).arg("run.mjs").arg(&report);
            node.arg(JS_SUITE_MILLISECONDS_MAX.to_string()).args(filter);
            environment(&mut node);
            let _ = fs::remove_file(&report);
            if process::run(&mut node).is_err() {
                failures.push("the suites in JavaScript".to_owned());
            }
            match fs::read_to_string(&report) {
                Ok(report) => notes.extend(tally.add_javascript_report(&report)?),
                Err(_) => failures.push("the runner of the suites (no report)".to_owned()),
            }
        }
    }

    for note in &notes {
        println!("note: {note}");
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

/// The numbers of passed, failed and skipped tests, from the output of the test runners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`; other lines are ignored.
    pub(crate) fn add_cargo_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        for part in counts.split(';') {
            if let Some((number, what)) = part.trim().split_once(' ') {
                self.add(what, number);
            }
        }
    }

    /// Adds the counts of `tests/e2e/js/run.mjs` and returns a line for each skipped test.
    fn add_javascript_report(&mut self, report: &str) -> Result<Vec<String>, Failure> {
        let report: serde_json::Value = serde_json::from_str(report)
            .map_err(|error| format!("the report of the suites is not JSON: {error}"))?;
        let count = |key: &str| {
            let number = report[key].as_u64().and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("the report of the suites has no number `{key}`"))
        };
        self.passed += count("passed")?;
        self.failed += count("failed")?;
        let skips = report["skipped"].as_array().into_iter().flatten();
        let skips: Vec<String> =
            skips.map(|skip| format!("skipped: {}", skip.as_str().unwrap_or("?"))).collect();
        self.skipped += skips.len();
        Ok(skips)
    }

    fn add(&mut self, what: &str, number: &str) {
        let Ok(number) = number.parse::<usize>() else { return };
        match what {
            "passed" => self.passed += number,
            "failed" => self.failed += number,
            "ignored" => self.skipped += number,
            _ => {}
        }
    }
}

/// Builds the router and returns its path. Without flags, everything that `cargo test --workspace` needs is built by
/// the same command, so that the features of dependencies, and therefore their builds, agree.
pub(crate) fn build_router(root: &Path, flags: &[&str]) -> Result<PathBuf, Failure> {
    let mut cargo = process::cargo();
    cargo.current_dir(root).args(["build", "--message-format=json-render-diagnostics"]);
    if flags.is_empty() {
        cargo.args(["--workspace", "--lib", "--bins", "--tests", "--examples"]);
    } else {
        cargo.args(["--package", "starling"]).args(flags);
    }
    println!("building the router and the tests");
    process::read_output(&mut cargo)?
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["target"]["name"] == "starling" && message["profile"]["test"] == false
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo built no program `starling`".to_owned())
}

/// Returns the path of a scratch file beside the router, in the target folder.
fn scratch_file(binary: &Path, name: &str) -> PathBuf {
    binary.with_file_name(name)
}

/// Runs `npm ci` if the installed packages differ from the lock file.
pub(crate) fn install_packages(folder: &Path) -> Result<(), Failure> {
    let lock = folder.join("package-lock.json");
    let stamp = folder.join("node_modules/.starling-lock.json");
    let wanted = fs::read(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    process::run(Command::new("npm").current_dir(folder).args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-progress",
        "--prefer-offline",
    ]))?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))
}

/// Checks that Node.js is installed and new enough.
fn check_node_version() -> Result<(), Failure> {
    let text = process::read_output(Command::new("node").arg("--version"))?;
    let mut numbers = text.trim().trim_start_matches('v').split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Err(format!("`node --version` says `{}`", text.trim()));
    };
    let (oldest_major, oldest_minor) = NODE_VERSION_MIN;
    if (major, minor) < NODE_VERSION_MIN {
        return Err(format!("Node.js {major}.{minor} is older than {oldest_major}.{oldest_minor}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_runners_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s",
        ] {
            tally.add_cargo_line(line);
        }
        let report = r#"{"passed": 3, "failed": 2, "skipped": ["a: no b", "c: no d"]}"#;
        let notes = tally.add_javascript_report(report).unwrap();
        assert_eq!(notes, ["skipped: a: no b", "skipped: c: no d"]);
        assert_eq!(tally, Tally { passed: 8, failed: 3, skipped: 3 });
    }

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
