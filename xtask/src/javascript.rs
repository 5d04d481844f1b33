//! The packages and the runtime of the tests in JavaScript.

use std::fs;
use std::path::Path;
use std::process::Command;
use test_kit::commands::{self, Failure};

/// The folder of the end-to-end tests in JavaScript.
pub(crate) const JS_FOLDER: &str = "tests/e2e/js";

/// The program in that folder that runs suites, also those of other folders.
pub(crate) const RUNNER: &str = "run.mjs";

/// The oldest supported Node.js: the first with all options of the test runner that are used.
const NODE_VERSION_MIN: (u32, u32) = (20, 11);

/// Runs `npm ci` if the installed packages differ from the lock file.
pub(crate) fn install_packages(folder: &Path) -> Result<(), Failure> {
    let lock = folder.join("package-lock.json");
    let stamp = folder.join("node_modules/.starling-lock.json");
    let wanted = fs::read(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    commands::run(Command::new("npm").current_dir(folder).args([
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
pub(crate) fn check_node_version() -> Result<(), Failure> {
    let text = commands::read_output(Command::new("node").arg("--version"))?;
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
