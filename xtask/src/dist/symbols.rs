//! Separating debug symbols from a program.

use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::commands::{self, Failure};

/// The two parts of a program.
pub(super) struct Split {
    /// The program, with a link to the symbols.
    pub(super) program: PathBuf,
    /// The debug symbols: source files and lines.
    pub(super) symbols: PathBuf,
}

/// Writes both parts to `folder`.
///
/// The program keeps the names of its functions, so that profiles and backtraces remain readable. With the file of the
/// symbols beside the program, they have files and lines too.
///
/// # Errors
/// `objcopy` is missing or fails.
pub(super) fn split(binary: &Path, folder: &Path, objcopy: &str) -> Result<Split, Failure> {
    let program = folder.join("starling");
    let symbols = folder.join("starling.debug");
    let objcopy = |words: &[&str], files: &[&Path]| {
        let mut command = Command::new(objcopy);
        commands::read_output(command.current_dir(folder).args(words).args(files))
            .map_err(|error| format!("{error}; objcopy separates debug symbols (Debian: binutils)"))
    };
    objcopy(&["--only-keep-debug"], &[binary, &symbols])?;
    objcopy(&["--strip-debug"], &[binary, &program])?;
    // The link has the name of the file without its folder.
    objcopy(&["--add-gnu-debuglink=starling.debug"], &[&program])?;
    Ok(Split { program, symbols })
}
