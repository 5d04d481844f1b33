//! Reading of files, with errors that name them.

use std::fs;
use std::path::Path;

use test_kit::commands::Failure;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| at(path, &error))
}

/// Returns the message of an error of a file.
pub(super) fn at(path: &Path, error: &std::io::Error) -> Failure {
    format!("{}: {error}", path.display())
}
