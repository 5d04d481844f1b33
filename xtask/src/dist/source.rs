//! The commit that a release is made of.

use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::commands::Failure;

/// The commit and its time.
#[derive(Debug)]
pub(super) struct Source {
    /// The commit, with a mark if files were changed after it. `None` without Git.
    pub(super) commit: Option<String>,
    /// The time of all files: seconds since 1970.
    pub(super) seconds: u64,
}

impl Source {
    /// Reads `SOURCE_DATE_EPOCH` and Git. Without both, the time is 1970.
    ///
    /// # Errors
    /// The variable contains no number.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            let output = git.current_dir(root).args(words).stderr(Stdio::null()).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            output.status.success().then_some(text)
        };
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
            let changes = git(&["status", "--porcelain"]).unwrap_or_default();
            if changes.is_empty() { commit } else { commit + " with changes" }
        });
        let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.parse().map_err(|_| {
                format!("SOURCE_DATE_EPOCH is `{text}` and not a number of seconds since 1970")
            })?,
            Err(_) => {
                git(&["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok()).unwrap_or(0)
            }
        };
        Ok(Self { commit, seconds })
    }

    /// Passes commit and time to a build, where `starling --version` reads them.
    pub(super) fn describe_build(&self, command: &mut Command) {
        if let Some(commit) = &self.commit {
            command.env("STARLING_BUILD_COMMIT", commit);
        }
        command.env("SOURCE_DATE_EPOCH", self.seconds.to_string());
    }
}
