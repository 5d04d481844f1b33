//! The failed tests of a run with what they printed, to repeat them at its end: hours of output may lie between a
//! failure and the last line, and systems that run tests often show the last lines only.

/// The lines that are kept of one test. The beginning of its output names the place and the reason.
const LINES_MAX: usize = 60;

/// Collects the failed tests from the output of programs that `cargo test` runs.
#[derive(Debug, Default)]
pub(crate) struct FailedTests {
    tests: Vec<String>,
    /// The lines of the last test of `tests`, while its output continues.
    open_lines: Option<usize>,
}

impl FailedTests {
    /// Takes a line. The output of a failed test begins with `---- NAME stdout ----` and ends with the list of failed
    /// tests, whose first line is `failures:`, or with the next test.
    pub(crate) fn add_cargo_line(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"))
        {
            self.tests.push(name.to_owned());
            self.open_lines = Some(0);
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.open_lines = None;
        } else if let (Some(lines), Some(test)) = (&mut self.open_lines, self.tests.last_mut()) {
            *lines += 1;
            if *lines <= LINES_MAX && !line.is_empty() {
                test.push_str("\n    ");
                test.push_str(line);
            }
        }
    }

    /// Adds a test that failed, with its output.
    pub(crate) fn push(&mut self, test: String) {
        self.tests.push(test);
        self.open_lines = None;
    }

    /// Returns the name of each failed test, followed by what it printed.
    pub(crate) fn into_tests(self) -> Vec<String> {
        self.tests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_output_of_failed_tests_are_kept() {
        let mut failed = FailedTests::default();
        for line in [
            "running 3 tests",
            "test a::good ... ok",
            "test a::bad ... FAILED",
            "test b::worse ... FAILED",
            "",
            "failures:",
            "",
            "---- a::bad stdout ----",
            "",
            "thread 'a::bad' (7) panicked at a.rs:1:2:",
            "no answer",
            "",
            "---- b::worse stdout ----",
            "Error: none",
            "",
            "failures:",
            "    a::bad",
            "    b::worse",
            "",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "running 1 test",
        ] {
            failed.add_cargo_line(line);
        }
        failed.push("a suite: a test".to_owned());
        failed.add_cargo_line("a line of no test");
        assert_eq!(
            failed.into_tests(),
            [
                "a::bad\n    thread 'a::bad' (7) panicked at a.rs:1:2:\n    no answer",
                "b::worse\n    Error: none",
                "a suite: a test",
            ]
        );
    }

    #[test]
    fn a_test_that_prints_much_keeps_the_beginning() {
        let mut failed = FailedTests::default();
        failed.add_cargo_line("---- a stdout ----");
        for number in 0..10_000 {
            failed.add_cargo_line(&number.to_string());
        }
        let tests = failed.into_tests();
        assert_eq!(tests[0].lines().count(), 1 + LINES_MAX);
        assert!(tests[0].ends_with("59"), "{tests:?}");
    }
}
