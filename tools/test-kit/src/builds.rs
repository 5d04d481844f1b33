//! How the programs of this workspace are built for tests, measurements and soaks: the one place that chooses profile
//! and features.
#![allow(clippy::print_stdout, reason = "developers follow the progress of their command")]

use crate::commands::{self, Failure};
use std::path::{Path, PathBuf};

/// The feature that adds everything that the router can have. Every build here has the package `starling`.
const ALL_FEATURES: &str = "starling/full";

/// The purpose of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Everything that `cargo test --workspace` needs, in one command, so that the features of dependencies, and
    /// therefore their builds, agree.
    Tests,
    /// A debug build of the named programs only.
    Debug,
    /// The named programs as packages contain them, for measurements and soaks.
    Dist,
}

impl Build {
    /// Returns the arguments of `cargo build`, without the packages.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Tests => &["--workspace", "--lib", "--bins", "--tests", "--examples"],
            Self::Debug => &["--profile", "dev", "--features", ALL_FEATURES],
            Self::Dist => &["--profile", "dist", "--features", ALL_FEATURES],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Tests => "the router and the tests",
            Self::Debug => "the router",
            Self::Dist => "the router as packages contain it",
        }
    }
}

/// Builds the programs of these packages, which have the names of their packages, and returns their paths. One command
/// builds all of them, so that the features of dependencies agree and nothing is built twice. `Build::Tests` builds
/// examples too, so a name may be that of an example there.
///
/// # Errors
/// A build fails, or a package has no program of its name.
pub fn build_programs<const N: usize>(
    root: &Path,
    build: Build,
    packages: [&str; N],
) -> Result<[PathBuf; N], Failure> {
    let mut cargo = commands::cargo();
    cargo.current_dir(root).args(["build", "--message-format=json-render-diagnostics"]);
    cargo.args(build.arguments());
    if build != Build::Tests {
        cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    }
    println!("building {}", build.title());
    let text = commands::read_output(&mut cargo)?;
    let messages: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs = packages.map(|_| PathBuf::new());
    for (package, program) in packages.iter().zip(&mut programs) {
        let built = messages.iter().filter(|message| {
            message["target"]["name"] == *package && message["profile"]["test"] == false
        });
        *program = built
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back()
            .ok_or_else(|| format!("cargo built no program `{package}`"))?;
    }
    Ok(programs)
}

/// Returns the folder of the workspace: the one with the lock file, above the package that cargo runs.
pub fn workspace_root() -> PathBuf {
    // Cargo sets the variable for programs that it runs. The other value is that of the build.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
