//! Pages in `docs/` that are generated from code.
//!
//! The generator of each page is a function of the crate that knows the facts; a test beside it,
//! whose name contains `is_up_to_date`, compares the page on disk with what the function says, and
//! writes it if `UPDATE_EXPECT=1`. So `cargo test` alone keeps them true; this is the short way.

use crate::{Failure, process, test};
use std::path::Path;

/// What the names of those tests have in common.
const MARK: &str = "is_up_to_date";

/// Checks every generated page, or writes them.
pub(crate) fn run(root: &Path, write: bool) -> Result<(), Failure> {
    let mut cargo = process::cargo();
    cargo.current_dir(root).args(["test", "--workspace", "--quiet", "--lib", "--bins"]);
    cargo.args(["--no-fail-fast", "--", MARK]);
    if write {
        cargo.env("UPDATE_EXPECT", "1");
    }
    let mut tally = test::Tally::default();
    let status = process::watch(&mut cargo, |line| tally.add_cargo_line(line))?;
    match (status.success(), tally.passed) {
        (true, 0) => Err(format!("no test has `{MARK}` in its name")),
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
