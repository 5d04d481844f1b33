//! The command line of Starling: `demo serve plan check bench mock config-schema`. Each command lives in
//! [`commands`]; what they do lives in the crates they call.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// See benches/README.md for what it costs and saves against others.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: profile::Allocator = profile::Allocator;

/// The federated GraphQL router for live data: one graph over many services, with
/// subscriptions driven by broker events.
#[derive(Parser)]
#[command(name = "starling", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a complete federated graph with live events on this machine, to look at and play with.
    Demo(commands::demo::Arguments),
    /// Serves a supergraph.
    Serve(commands::serve::Arguments),
    /// Prints how an operation would be answered: which subgraphs are asked for what, in which order.
    Plan(commands::plan::Arguments),
    /// Says what is wrong with a configuration or a supergraph, and exits 1 if something is.
    Check(commands::check::Arguments),
    /// Measures a GraphQL server: load, latency, CPU and memory.
    Bench(commands::bench::Arguments),
    /// Serves made-up data for every subgraph of a supergraph.
    Mock(commands::mock::Arguments),
    /// Prints the JSON Schema of the configuration file, for editors.
    ConfigSchema,
}

fn main() -> ExitCode {
    let code = match Arguments::parse().command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Mock(arguments) => commands::mock::run(&arguments),
        Command::ConfigSchema => commands::config_schema(),
    };
    server::logging::flush();
    code
}
