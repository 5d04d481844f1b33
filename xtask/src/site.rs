//! `cargo xtask docs --site`: builds the documentation site from `docs/`. The builder is the npm package in `site/`.
//! Its `build.mjs` describes the result.

use crate::arguments::DocsArguments;
use crate::dist::target_folder;
use crate::javascript::{check_node_version, install_packages};
use std::path::Path;
use std::process::Command;
use test_kit::commands::{self, Failure};

/// The folder of the builder, relative to the root.
pub(crate) const FOLDER: &str = "site";

/// Builds the site of this version, beside those of other versions.
pub(crate) fn run(root: &Path, arguments: &DocsArguments) -> Result<(), Failure> {
    check_node_version()?;
    let folder = root.join(FOLDER);
    install_packages(&folder)?;
    let output = match &arguments.output {
        Some(folder) => folder.clone(),
        None => target_folder(root)?.join("site"),
    };
    let mut node = Command::new("node");
    node.arg(folder.join("build.mjs")).args(["--version", env!("CARGO_PKG_VERSION"), "--output"]);
    node.arg(&output);
    if let Some(base) = &arguments.base {
        node.args(["--base", base]);
    }
    commands::run(&mut node)?;
    let base = arguments.base.as_deref().unwrap_or("/");
    println!("docs: `node site/serve.mjs {} {base}` shows it on this machine", output.display());
    Ok(())
}
