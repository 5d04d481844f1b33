//! Pages in `docs/` that are generated from code.
//!
//! The generator of each page is a function of the crate that has the facts. A test beside it, with `is_up_to_date` in
//! its name, compares the page on disk with the function's result, and writes the page if `UPDATE_EXPECT=1` is set.
//! `cargo test` runs these tests too; this command runs only them.

use crate::tally::Tally;
use std::path::Path;
use test_kit::commands::{self, Failure};

/// The common part of the names of the tests that compare a page.
const NAME_PART: &str = "is_up_to_date";

/// Checks every generated page, or writes them.
pub(crate) fn run(root: &Path, write: bool) -> Result<(), Failure> {
    let mut cargo = commands::cargo();
    cargo.current_dir(root).args(["test", "--workspace", "--quiet", "--lib", "--bins"]);
    cargo.args(["--no-fail-fast", "--", NAME_PART]);
    if write {
        cargo.env("UPDATE_EXPECT", "1");
    }
    let mut tally = Tally::default();
    let status = commands::run_with_lines(&mut cargo, |line| tally.add_cargo_line(line))?;
    match (status.success(), tally.passed) {
        (true, 0) => Err(format!("no test has `{NAME_PART}` in its name")),
        (true, pages) if write => {
            println!("docs: {pages} written or already up to date");
            Ok(())
        }
        (true, pages) => {
            println!("docs: {pages} up to date");
            Ok(())
        }
        (false, _) => {
            Err("generated pages differ; `cargo xtask docs --write` writes them".to_owned())
        }
    }
}
