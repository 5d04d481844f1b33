//! Files that a command writes.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use server::{FilePermissions, replace_file};

/// Writes a file that does not exist yet.
///
/// # Errors
/// The file exists, or cannot be written.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}

/// Replaces the content of a file as a whole. It keeps its permissions.
///
/// # Errors
/// The file cannot be written; it keeps its content.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_file(path, &[text], FilePermissions::Kept)
}
