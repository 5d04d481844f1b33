//! The foreign programs that tests talk to, and how to get them.
//!
//! A test learns the path of such a program from an environment variable that xtask sets; a test
//! that runs without xtask looks on `PATH` (`tests/e2e/src/programs.rs`, `tests/e2e/js/programs.mjs`).

use crate::{Failure, process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that some tests need.
pub(crate) struct Program {
    /// Its Debian package, which is also what people call it.
    pub(crate) package: &'static str,
    /// The environment variable that carries its path to the tests.
    pub(crate) variable: &'static str,
    /// Names it may have on `PATH`.
    names: &'static [&'static str],
}

/// Every program that a test needs beside cargo and Node.
pub(crate) const PROGRAMS: [Program; 3] = [
    Program {
        package: "nats-server",
        variable: "STARLING_TEST_NATS_SERVER",
        names: &["nats-server"],
    },
    Program {
        package: "redis-server",
        variable: "STARLING_TEST_REDIS_SERVER",
        names: &["redis-server"],
    },
    Program {
        package: "chromium",
        variable: "STARLING_TEST_CHROMIUM",
        names: &["chromium", "chromium-browser", "google-chrome"],
    },
];

/// Where Debian puts servers; a user's `PATH` often lacks it.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// What is there, and what is not although it was tried.
pub(crate) struct Found {
    /// Environment variable and path.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    /// Packages that are missing.
    pub(crate) missing: Vec<&'static str>,
}

/// Finds every program; as root on Debian installs what is missing.
pub(crate) fn prepare() -> Result<Found, Failure> {
    let missing = |program: &&Program| locate(program).is_none();
    let wanted: Vec<&str> =
        PROGRAMS.iter().filter(missing).map(|program| program.package).collect();
    if !wanted.is_empty() && can_install() {
        apt_get(&["update", "-q"])?;
        let mut install = vec!["install", "-q", "-y", "--no-install-recommends"];
        install.extend(&wanted);
        apt_get(&install)?;
    }
    let mut found = Found { variables: Vec::new(), missing: Vec::new() };
    for program in &PROGRAMS {
        match locate(program) {
            Some(path) => found.variables.push((program.variable, path)),
            None => found.missing.push(program.package),
        }
    }
    Ok(found)
}

/// Finds one program by its package; as root on Debian installs it.
pub(crate) fn find(package: &str) -> Result<PathBuf, Failure> {
    let program = PROGRAMS.iter().find(|program| program.package == package);
    let program = program.ok_or_else(|| format!("`{package}` is none of our programs"))?;
    if locate(program).is_none() && can_install() {
        apt_get(&["update", "-q"])?;
        apt_get(&["install", "-q", "-y", "--no-install-recommends", package])?;
    }
    locate(program).ok_or_else(|| {
        format!("{package} is not on PATH; install it, or name it in {}", program.variable)
    })
}

/// The path of a program: the one its variable names, or the first on `PATH`.
fn locate(program: &Program) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(program.variable).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(SERVER_FOLDERS.map(PathBuf::from));
    program
        .names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Whether apt-get is there and we are root.
fn can_install() -> bool {
    let root = process::read(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    root && Path::new("/etc/debian_version").is_file() && Path::new("/usr/bin/apt-get").is_file()
}

/// Servers are started by the tests that need them; the package must not start one of its own.
fn apt_get(arguments: &[&str]) -> Result<(), Failure> {
    process::run(
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .stdin(Stdio::null()),
    )
}
