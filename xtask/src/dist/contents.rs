//! The files of an archive beside the program: those of the repository, and those that the program prints.

use super::archive::Entry;
use super::files::{at, read};
use std::fs;
use std::path::Path;
use std::process::Command;
use test_kit::commands::{self, Failure};

/// Files of the repository, and their paths in the archive.
const FILES: [(&str, &str); 5] = [
    ("LICENSE-MIT", "licences/LICENSE-MIT"),
    ("LICENSE-APACHE", "licences/LICENSE-APACHE"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("docs/installation.md", "INSTALLATION.md"),
    ("examples/deployment/starling.service", "systemd/starling.service"),
];

/// Shells, and the names under which they look for completions.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "starling"), ("fish", "starling.fish"), ("zsh", "_starling")];

/// Returns the files. `program` is the router for this machine; `scratch` is an empty folder.
///
/// # Errors
/// A file is missing, or the program fails.
pub(super) fn collect(root: &Path, program: &Path, scratch: &Path) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for (file, path) in FILES {
        entries.push(Entry::file(path, read(&root.join(file))?));
    }
    for (shell, name) in COMPLETIONS {
        let script = commands::read_output(Command::new(program).args(["completions", shell]))?;
        entries.push(Entry::file(format!("completions/{name}"), script));
    }
    let example = ["config", "init", "--output", "-"];
    let example = commands::read_output(Command::new(program).args(example))?;
    entries.push(Entry::file("examples/starling.yaml", example));

    let pages = scratch.join("man");
    fs::create_dir(&pages).map_err(|error| at(&pages, &error))?;
    commands::read_output(Command::new(program).args(["man", "--output"]).arg(&pages))?;
    for page in fs::read_dir(&pages).map_err(|error| at(&pages, &error))? {
        let page = page.map_err(|error| at(&pages, &error))?.path();
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        entries.push(Entry::file(format!("man/{name}"), read(&page)?));
    }
    Ok(entries)
}
