//! The command `starling bench report`.

use std::path::PathBuf;
use std::process::ExitCode;

use load::report::Runs;
use load::report::surge_comparison::{self, SurgeSeries};

use crate::commands::{print, read_file, write_file};

/// Shows runs side by side, as a table or a page.
#[derive(clap::Args)]
pub(crate) struct ReportArguments {
    /// The files that `bench query`, `bench subscriptions` or `bench surge` wrote with `--format json` or `--json`.
    #[arg(required = true, value_name = "JSON")]
    files: Vec<PathBuf>,
    /// Also writes a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also draws a picture that compares servers: each file has the runs of `bench surge` against one server, and runs
    /// with the same name are compared. The names of the files are those of the servers.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The title of the page and of the picture.
    #[arg(long, default_value = "Load")]
    title: String,
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, String> {
    let mut all: Option<Runs> = None;
    let mut servers = Vec::new();
    for path in &arguments.files {
        let wrong = |what: &str| format!("{}: {what}", path.display());
        let found = Runs::read(&read_file(path)?)
            .map_err(|error| wrong(&format!("not a report: {error}")))?;
        if let Runs::Surge(runs) = &found {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            servers.push(SurgeSeries { name, runs: runs.clone() });
        }
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
    if let Some(path) = &arguments.svg {
        if servers.is_empty() {
            return Err("--svg compares runs of `bench surge`; use --html for others".to_owned());
        }
        write_file(path, &surge_comparison::svg(&arguments.title, &servers))?;
    }
    Ok(ExitCode::SUCCESS)
}
