//! The command `starling bench`: load for a GraphQL server, and reports about it.

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
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Sends one operation repeatedly, checks every response, and reports their rate and latency.
    #[cfg(target_os = "linux")]
    Query(Box<query::QueryArguments>),
    /// Holds subscriptions open, publishes events, and reports what each client received, when, and the cost for the
    /// server.
    #[cfg(target_os = "linux")]
    Subscriptions(Box<subscriptions::SubscriptionArguments>),
    /// Shows runs of `bench query` or `bench subscriptions` side by side.
    Report(report::ReportArguments),
    /// Sends prepared responses or events with the least work possible, as a baseline for routers.
    #[cfg(target_os = "linux")]
    Floor(floor::FloorArguments),
}

pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    let result = match &arguments.command {
        #[cfg(target_os = "linux")]
        BenchCommand::Query(arguments) => query::run(arguments),
        #[cfg(target_os = "linux")]
        BenchCommand::Subscriptions(arguments) => subscriptions::run(arguments),
        BenchCommand::Report(arguments) => report::run(arguments),
        #[cfg(target_os = "linux")]
        BenchCommand::Floor(arguments) => floor::run(arguments),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            super::print_error(&format!("error: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

/// The output format of a result.
#[derive(Clone, Copy, ValueEnum)]
enum ReportFormat {
    /// A table for people.
    Table,
    /// For programs, and for `bench report`.
    Json,
}
