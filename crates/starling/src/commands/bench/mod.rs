//! `starling bench`: load for a GraphQL server, and reports about it.

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(target_os = "linux")]
mod floor;
#[cfg(target_os = "linux")]
mod query;
mod report;

/// Measures a GraphQL server, this one or another.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sends one operation over and over, checks every answer, and says how fast they came.
    #[cfg(target_os = "linux")]
    Query(Box<query::Arguments>),
    /// Shows runs of `bench query --format json` side by side.
    Report(report::Arguments),
    /// Serves one prepared answer with the least work there is: what to compare a router with.
    #[cfg(target_os = "linux")]
    Floor(floor::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.command {
        #[cfg(target_os = "linux")]
        Command::Query(arguments) => query::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        #[cfg(target_os = "linux")]
        Command::Floor(arguments) => floor::run(arguments),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            super::complain(&format!("error: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

fn read(path: &std::path::Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
