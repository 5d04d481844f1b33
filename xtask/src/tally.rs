//! Counting tests from the output of the test runners.

use test_kit::commands::Failure;

/// The numbers of passed, failed and skipped tests, from the output of the test runners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// The tests of a report that have not passed, each with its reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unpassed {
    pub(crate) skipped: Vec<String>,
    pub(crate) failed: Vec<String>,
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

    /// Adds the counts of `tests/e2e/js/run.mjs` and returns the skipped and the failed tests.
    pub(crate) fn add_javascript_report(&mut self, report: &str) -> Result<Unpassed, Failure> {
        let report: serde_json::Value = serde_json::from_str(report)
            .map_err(|error| format!("the report of the suites is not JSON: {error}"))?;
        let passed = report["passed"].as_u64().and_then(|number| usize::try_from(number).ok());
        let passed = passed.ok_or("the report of the suites has no number `passed`")?;
        let list = |key: &str| -> Result<Vec<String>, Failure> {
            let entries = report[key].as_array();
            let entries =
                entries.ok_or_else(|| format!("the report of the suites has no list `{key}`"))?;
            Ok(entries.iter().map(|entry| entry.as_str().unwrap_or("?").to_owned()).collect())
        };
        let unpassed = Unpassed { skipped: list("skipped")?, failed: list("failed")? };
        self.passed += passed;
        self.failed += unpassed.failed.len();
        self.skipped += unpassed.skipped.len();
        Ok(unpassed)
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
        let report = r#"{"passed": 3, "failed": ["e: f", "g: h"], "skipped": ["a: no b"]}"#;
        let unpassed = tally.add_javascript_report(report).unwrap();
        assert_eq!(unpassed.skipped, ["a: no b"]);
        assert_eq!(unpassed.failed, ["e: f", "g: h"]);
        assert_eq!(tally, Tally { passed: 8, failed: 3, skipped: 2 });
    }
}
