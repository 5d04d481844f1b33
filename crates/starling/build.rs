//! Passes the commit and the date of the build to `starling --version`.
//!
//! Both come from Git, and from the environment where there is no Git or a packager knows better:
//! `STARLING_BUILD_COMMIT`, and `SOURCE_DATE_EPOCH` (<https://reproducible-builds.org/specs/source-date-epoch/>).
//! Without any of them they are unknown. The clock is not read, so that two builds of a commit are equal.
#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of digits of the commit: no two commits of a repository of any size share twelve.
const COMMIT_DIGITS: &str = "--short=12";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["STARLING_BUILD_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let repository = Repository::find();
    if let Some(repository) = &repository {
        for file in repository.files_of_head() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    let commit = variable("STARLING_BUILD_COMMIT")
        .or_else(|| repository.as_ref()?.read(&["rev-parse", COMMIT_DIGITS, "HEAD"]))
        .unwrap_or_default();
    let seconds = source_date()
        .or_else(|| repository.as_ref()?.read(&["log", "-1", "--format=%ct"])?.parse().ok());
    println!("cargo::rustc-env=STARLING_COMMIT={commit}");
    let seconds = seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
    println!("cargo::rustc-env=STARLING_BUILD_SECONDS={seconds}");
}

/// Returns the seconds since 1970 in `SOURCE_DATE_EPOCH`.
fn source_date() -> Option<i64> {
    let text = variable("SOURCE_DATE_EPOCH")?;
    let seconds = text.parse().ok();
    if seconds.is_none() {
        println!(
            "cargo::warning=SOURCE_DATE_EPOCH is ignored: it must be a number of seconds since 1970"
        );
    }
    seconds
}

/// Returns the value of a variable of the environment that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The Git repository of this source.
struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Finds the repository. `None` if Git is missing, or the source was unpacked into another repository.
    fn find() -> Option<Self> {
        let package = std::env::var_os("CARGO_MANIFEST_DIR")?;
        let root = Path::new(&package).join("../..").canonicalize().ok()?;
        let repository = Self { root };
        let top = repository.read(&["rev-parse", "--show-toplevel"])?;
        (Path::new(&top).canonicalize().ok()? == repository.root).then_some(repository)
    }

    /// Returns the files that change with the commit. Those that do not exist are left out, because cargo would run
    /// this script each time.
    fn files_of_head(&self) -> Vec<PathBuf> {
        let branch = self.read(&["symbolic-ref", "--quiet", "HEAD"]);
        let names = ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
        let files = names.filter_map(|name| {
            let file = self.read(&["rev-parse", "--git-path", name])?;
            Some(self.root.join(file))
        });
        files.filter(|file| file.exists()).collect()
    }

    /// Returns what a command of Git prints. `None` if it fails or prints nothing.
    fn read(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").current_dir(&self.root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let text = text.trim();
        (output.status.success() && !text.is_empty()).then(|| text.to_owned())
    }
}
