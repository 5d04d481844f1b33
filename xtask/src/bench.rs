//! Starts the measurements in `tools/benches`, which read their own arguments, build the programs and print.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use test_kit::commands::{self, Failure};

/// The package with the measurements.
const PACKAGE: &str = "benches";

/// Runs `command` of the measurements, `bench` or `soak`, and returns its exit code. The measurements report their own
/// failures.
pub(crate) fn run(
    root: &Path,
    command: &str,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<ExitCode, Failure> {
    let mut cargo = commands::cargo();
    cargo.current_dir(root).args(["run", "--quiet", "--package", PACKAGE, "--", command]);
    let status = cargo.args(words).stdin(Stdio::null()).status();
    let status = status.map_err(|error| format!("cannot run cargo: {error}"))?;
    // A process that was ended by a signal has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
