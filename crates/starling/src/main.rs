//! The command line of Starling: `demo dev serve compose subgraph plan check diff validate migrate bench mock
//! healthcheck config config-schema completions`. Each command is a module of [`commands`] and calls the crates that do
//! its work.

mod commands;
mod features;
mod usage;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// See benches/README.md for its cost and benefit compared with other allocators.
#[global_allocator]
static ALLOCATOR: profile::Allocator = profile::Allocator;

/// The federated GraphQL router for live data: one graph over many services, with
/// subscriptions driven by broker events.
#[derive(Parser)]
#[command(name = "starling", version, long_version = version::long_version(), max_term_width = 100)]
#[command(after_help = "\
Start here:\n  \
starling demo                           a complete example that needs no files\n  \
starling check --config starling.yaml   reports mistakes without serving\n  \
starling serve --config starling.yaml   serves your graph")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a complete example on this machine: subgraphs, live events and the router.
    Demo(commands::demo::DemoArguments),
    /// Composes subgraphs, serves them on this machine and follows their changes.
    Dev(commands::dev::DevArguments),
    /// Serves a supergraph.
    Serve(commands::serve::ServeArguments),
    /// Composes subgraph schemas into a supergraph.
    Compose(commands::compose::ComposeArguments),
    /// Asks a running subgraph for its schema.
    Subgraph(commands::subgraph::SubgraphArguments),
    /// Prints the subgraph requests of an operation, in their order, without sending them.
    Plan(commands::plan::PlanArguments),
    /// Checks a configuration and its supergraph without serving. Exits with status 1 on errors.
    Check(commands::check::CheckArguments),
    /// Compares the schemas that clients see in two graphs. Exits with status 1 on breaking changes.
    Diff(commands::diff::DiffArguments),
    /// Checks the operations of clients against a graph. Exits with status 1 on errors.
    Validate(commands::validate::ValidateArguments),
    /// Converts the configuration of another router.
    Migrate(commands::migrate::MigrateArguments),
    /// Measures a GraphQL server: load, latency, CPU and memory.
    Bench(commands::bench::BenchArguments),
    /// Serves made-up data for every subgraph of a supergraph.
    Mock(commands::mock::MockArguments),
    /// Asks a running router whether it accepts traffic. Exits with status 1 if not.
    Healthcheck(commands::healthcheck::HealthcheckArguments),
    /// Writes an annotated example of the configuration file.
    Config(commands::config_init::ConfigArguments),
    /// Prints the JSON Schema of the configuration file, for editors.
    ConfigSchema,
    /// Prints the completions of a shell.
    Completions(commands::completions::CompletionsArguments),
    /// Writes a man page for each command, for packages.
    #[command(hide = true)]
    Man(commands::completions::ManArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| usage::add_advice(error).exit());
    let code = match arguments.command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Dev(arguments) => commands::dev::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Compose(arguments) => commands::compose::run(&arguments),
        Command::Subgraph(arguments) => commands::subgraph::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Diff(arguments) => commands::diff::run(&arguments),
        Command::Validate(arguments) => commands::validate::run(&arguments),
        Command::Migrate(arguments) => commands::migrate::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Mock(arguments) => commands::mock::run(&arguments),
        Command::Healthcheck(arguments) => commands::healthcheck::run(&arguments),
        Command::Config(arguments) => commands::config_init::run(&arguments),
        Command::ConfigSchema => commands::config_schema(),
        Command::Completions(arguments) => {
            commands::completions::run(&arguments, Arguments::command())
        }
        Command::Man(arguments) => commands::completions::run_man(&arguments, Arguments::command()),
    };
    telemetry::logging::flush();
    code
}
