//! The command `starling bench`: load for a GraphQL server, and reports about it.

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(target_os = "linux")]
mod choices;
#[cfg(target_os = "linux")]
mod floor;
#[cfg(target_os = "linux")]
mod operation_input;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod query;
mod report;
#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_os = "linux")]
mod subscriptions;
#[cfg(target_os = "linux")]
mod surge;
#[cfg(target_os = "linux")]
mod surge_files;

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
    /// Sends a load that grows, doubles or peaks, from clients that cache, repeat refused requests and give up. Reports
    /// what was served in time, and what was refused and why.
    #[cfg(target_os = "linux")]
    Surge(Box<surge::SurgeArguments>),
    /// Shows runs of `bench query`, `bench subscriptions` or `bench surge` side by side.
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
        #[cfg(target_os = "linux")]
        BenchCommand::Surge(arguments) => surge::run(arguments),
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
