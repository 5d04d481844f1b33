//! `starling bench report`.

use std::path::PathBuf;
use std::process::ExitCode;

use load::report::{self, Run};

/// Runs side by side, as a table or a page.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files that `bench query --format json` or `--json` wrote.
    #[arg(required = true, value_name = "JSON")]
    files: Vec<PathBuf>,
    /// Also writes a page with plots that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The page's title.
    #[arg(long, default_value = "Load")]
    title: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let mut runs = Vec::new();
    for path in &arguments.files {
        let found = Run::read_all(&super::read(path)?)
            .map_err(|error| format!("{} is not a report: {error}", path.display()))?;
        runs.extend(found);
    }
    crate::commands::print(&report::text(&runs));
    if let Some(path) = &arguments.html {
        super::write(path, &report::html(&arguments.title, &runs))?;
    }
    Ok(ExitCode::SUCCESS)
}
