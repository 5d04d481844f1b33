//! `starling bench`: load for a GraphQL server, and reports about it.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

#[cfg(target_os = "linux")]
mod floor;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod query;
mod report;
#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_os = "linux")]
mod subscriptions;

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
    /// Holds subscriptions open, publishes events, and says what each client got, when, and what it cost the server.
    #[cfg(target_os = "linux")]
    Subscriptions(Box<subscriptions::Arguments>),
    /// Shows runs of `bench query` or `bench subscriptions` side by side.
    Report(report::Arguments),
    /// Serves prepared answers, or sends prepared events, with the least work there is: what to compare a router with.
    #[cfg(target_os = "linux")]
    Floor(floor::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.command {
        #[cfg(target_os = "linux")]
        Command::Query(arguments) => query::run(arguments),
        #[cfg(target_os = "linux")]
        Command::Subscriptions(arguments) => subscriptions::run(arguments),
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

/// How to print a result.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs, and for `bench report`.
    Json,
}

fn read(path: &std::path::Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
