//! Archives with the same bytes for the same contents, and their sums.

use super::files::at;
use flate2::GzBuilder;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use tar::{Builder, EntryType, Header};
use test_kit::commands::Failure;

/// One file of an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The path below the folder of the archive.
    pub(super) path: String,
    /// The permissions.
    pub(super) mode: u32,
    /// The bytes.
    pub(super) content: Vec<u8>,
}

impl Entry {
    /// A file with the permissions 644.
    pub(super) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, content: content.into() }
    }

    /// A program with the permissions 755.
    pub(super) fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o755, content: content.into() }
    }
}

/// The effort of compression.
#[derive(Debug, Clone, Copy)]
pub(super) enum Compression {
    /// Quick, to try the command out.
    Fast,
    /// Slow and small, as releases need it.
    Best,
}

/// Writes `entries` below one folder, sorted, without users, all with the same time.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(
    file: &Path,
    folder: &str,
    mut entries: Vec<Entry>,
    seconds: u64,
    compression: Compression,
) -> Result<(), Failure> {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let level = match compression {
        Compression::Fast => flate2::Compression::fast(),
        Compression::Best => flate2::Compression::best(),
    };
    let result = (|| {
        let out = BufWriter::new(File::create(file)?);
        // The default header has no name and no time.
        let mut archive = Builder::new(GzBuilder::new().write(out, level));
        for Entry { path, mode, content } in &entries {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_mtime(seconds);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{folder}/{path}"), content.as_slice())?;
        }
        archive.into_inner()?.finish()?.flush()
    })();
    result.map_err(|error| at(file, &error))
}

/// Returns a line for each file of a folder, in the format of `sha256sum`.
///
/// # Errors
/// A file cannot be read.
pub(super) fn sums(folder: &Path) -> Result<String, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| at(folder, &error))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let mut sums = String::new();
    for file in files {
        let content = fs::read(&file).map_err(|error| at(&file, &error))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(sums, "{}  {name}", hex(&Sha256::digest(content)));
    }
    Ok(sums)
}

/// Formats bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
