//! The command `starling bench report`.

use std::path::PathBuf;
use std::process::ExitCode;

use load::report::Runs;

use crate::commands::{print, read_file, write_file};

/// Shows runs side by side, as a table or a page.
#[derive(clap::Args)]
pub(crate) struct ReportArguments {
    /// The files that `bench query` or `bench subscriptions` wrote with `--format json` or `--json`.
    #[arg(required = true, value_name = "JSON")]
    files: Vec<PathBuf>,
    /// Also writes a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The title of the page.
    #[arg(long, default_value = "Load")]
    title: String,
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, String> {
    let mut all: Option<Runs> = None;
    for path in &arguments.files {
        let wrong = |what: &str| format!("{}: {what}", path.display());
        let found = Runs::read(&read_file(path)?)
            .map_err(|error| wrong(&format!("not a report: {error}")))?;
        match &mut all {
            None => all = Some(found),
            Some(runs) => runs.append(found).map_err(wrong)?,
        }
    }
    // clap requires at least one file.
    let Some(runs) = all else { return Ok(ExitCode::FAILURE) };
    print(&runs.text());
    if let Some(path) = &arguments.html {
        write_file(path, &runs.html(&arguments.title))?;
    }
    Ok(ExitCode::SUCCESS)
}
