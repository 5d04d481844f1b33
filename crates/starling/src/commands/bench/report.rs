//! `starling bench report`.

use std::path::PathBuf;
use std::process::ExitCode;

use load::report::Runs;

/// Runs side by side, as a table or a page.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files that `bench query` or `bench subscriptions` wrote by `--format json` or `--json`.
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
    let mut all: Option<Runs> = None;
    for path in &arguments.files {
        let wrong = |what: &str| format!("{}: {what}", path.display());
        let found = Runs::read(&super::read(path)?)
            .map_err(|error| wrong(&format!("not a report: {error}")))?;
        match &mut all {
            None => all = Some(found),
            Some(runs) => runs.append(found).map_err(wrong)?,
        }
    }
    // clap wants at least one file.
    let Some(runs) = all else { return Ok(ExitCode::FAILURE) };
    crate::commands::print(&runs.text());
    if let Some(path) = &arguments.html {
        super::write(path, &runs.html(&arguments.title))?;
    }
    Ok(ExitCode::SUCCESS)
}
