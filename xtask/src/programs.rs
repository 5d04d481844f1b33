//! The third-party programs that tests use: finds them and, where possible, installs them.
//!
//! xtask passes the path of such a program to tests in an environment variable. A test that runs without xtask
//! searches `PATH` (`tools/test-kit/src/programs.rs`, `tests/e2e/js/programs.mjs`).

use crate::{Failure, process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that some tests need.
pub(crate) struct Program {
    /// The name of its Debian package, also used in messages.
    pub(crate) package: &'static str,
    /// The environment variable with its path, for tests.
    pub(crate) variable: &'static str,
    /// The file names to search for on `PATH`.
    names: &'static [&'static str],
}

/// The programs that tests need in addition to cargo and Node.js.
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

/// The result of searching and installing the programs.
pub(crate) struct Found {
    /// Environment variables and paths of the installed programs.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    /// The packages that are missing.
    pub(crate) missing: Vec<&'static str>,
}

/// Finds every program. As root on Debian it installs the missing ones.
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

/// Finds the program of one package. As root on Debian it installs a missing one.
pub(crate) fn find(package: &str) -> Result<PathBuf, Failure> {
    let program = PROGRAMS.iter().find(|program| program.package == package);
    let program = program.ok_or_else(|| format!("`{package}` is not a known program"))?;
    if locate(program).is_none() && can_install() {
        apt_get(&["update", "-q"])?;
        apt_get(&["install", "-q", "-y", "--no-install-recommends", package])?;
    }
    locate(program).ok_or_else(|| {
        format!("{package} is not on PATH; install it, or name it in {}", program.variable)
    })
}

/// Returns the path that the program's variable contains, or the first match on `PATH`.
fn locate(program: &Program) -> Option<PathBuf> {
    test_kit::programs::locate(program.variable, program.names)
}

/// True if `apt-get` exists and this process runs as root.
fn can_install() -> bool {
    let root = process::read_output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    root && Path::new("/etc/debian_version").is_file() && Path::new("/usr/bin/apt-get").is_file()
}

/// Runs `apt-get`. The package must not start a server: tests start the servers that they need.
fn apt_get(arguments: &[&str]) -> Result<(), Failure> {
    process::run(
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .stdin(Stdio::null()),
    )
}
