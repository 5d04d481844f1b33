//! Installs the third-party programs that tests and measurements use, where possible. Only commands of developers do
//! that; tests search what is there (`programs.rs`).

use crate::commands::{self, Failure};
use crate::programs::{PROGRAMS, Program};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of searching and installing the programs.
pub struct Found {
    /// Environment variables and paths of the installed programs.
    pub variables: Vec<(&'static str, PathBuf)>,
    /// The packages that are missing.
    pub missing: Vec<&'static str>,
}

/// Finds every program. As root on Debian it installs the missing ones.
///
/// # Errors
/// `apt-get` fails.
pub fn install_missing() -> Result<Found, Failure> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|program| program.locate().is_none())
        .map(|program| program.package)
        .collect();
    if !missing.is_empty() && can_install() {
        install(&missing)?;
    }
    let mut found = Found { variables: Vec::new(), missing: Vec::new() };
    for program in PROGRAMS {
        match program.locate() {
            Some(path) => found.variables.push((program.variable, path)),
            None => found.missing.push(program.package),
        }
    }
    Ok(found)
}

/// Finds one program. As root on Debian it installs a missing one.
///
/// # Errors
/// The program is missing and cannot be installed.
pub fn find_or_install(program: &Program) -> Result<PathBuf, Failure> {
    if program.locate().is_none() && can_install() {
        install(&[program.package])?;
    }
    program.locate().ok_or_else(|| {
        let Program { package, variable, .. } = program;
        format!("{package} is not on PATH; install it, or name it in {variable}")
    })
}

/// The source of a program that Go builds.
#[derive(Clone, Copy, Debug)]
pub enum GoSource<'a> {
    /// A package with its version.
    Package(&'a str),
    /// The folder of a module, and settings of the linker.
    Folder(&'a Path, &'a str),
}

/// Finds a program that Go builds, or builds it in `folder`, where it is kept. `None` if it is missing and Go is not
/// installed.
///
/// # Errors
/// `go` fails.
pub fn find_or_build(
    program: &Program,
    source: GoSource<'_>,
    folder: &Path,
) -> Result<Option<PathBuf>, Failure> {
    let built = folder.join(program.package);
    // A package has its version in its name; the files of a folder change.
    let is_kept = matches!(source, GoSource::Package(_)) && built.is_file();
    if let Some(found) = program.locate().or_else(|| is_kept.then(|| built.clone())) {
        return Ok(Some(found));
    }
    let go = Command::new("go").arg("version").stdout(Stdio::null()).status();
    if !go.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    match source {
        GoSource::Package(package) => {
            commands::run(Command::new("go").args(["install", package]).env("GOBIN", folder))?;
        }
        GoSource::Folder(module, linker) => {
            let output = std::path::absolute(&built).unwrap_or_else(|_| built.clone());
            let mut build = Command::new("go");
            build
                .args(["build", "-ldflags", linker, "-o"])
                .arg(output)
                .arg(".")
                .current_dir(module);
            commands::run(&mut build)?;
        }
    }
    Ok(Some(built))
}

/// Returns the folder of a Go module, which is fetched if necessary. `None` if Go is not installed.
///
/// # Errors
/// The module cannot be fetched.
pub fn fetch_go_module(module: &str) -> Result<Option<PathBuf>, Failure> {
    let go = Command::new("go").arg("version").stdout(Stdio::null()).status();
    if !go.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let facts =
        commands::read_output(Command::new("go").args(["mod", "download", "-json", module]))?;
    let facts: serde_json::Value = serde_json::from_str(&facts)
        .map_err(|error| format!("`go mod download` printed no JSON: {error}"))?;
    let folder = facts["Dir"].as_str().map(PathBuf::from);
    folder.map(Some).ok_or_else(|| format!("`go mod download` names no folder of {module}"))
}

/// True if `apt-get` exists and this process runs as root.
fn can_install() -> bool {
    let root = commands::read_output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    root && Path::new("/etc/debian_version").is_file() && Path::new("/usr/bin/apt-get").is_file()
}

/// Installs Debian packages. They must not start a server: tests start the servers that they need.
fn install(packages: &[&str]) -> Result<(), Failure> {
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    for arguments in [&["update", "-q"][..], &[&install[..], packages].concat()] {
        commands::run(
            Command::new("apt-get")
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .env("RUNLEVEL", "1")
                .stdin(Stdio::null()),
        )?;
    }
    Ok(())
}
