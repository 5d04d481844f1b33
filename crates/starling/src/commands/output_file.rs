//! Files that a command writes.

use std::fs::Permissions;
use std::io;
use std::path::Path;

pub(crate) use server::create_file_with as create;
use server::{FilePermissions, replace_file};

/// Replaces the content of a file as a whole. Without `permissions` those of the file stay.
///
/// # Errors
/// The file cannot be written; it keeps its content.
pub(crate) fn replace(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let permissions = permissions.map_or(FilePermissions::Kept, FilePermissions::Given);
    replace_file(path, &[text], permissions)
}
