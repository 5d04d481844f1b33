//! `starling check`: what is wrong, before it is deployed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgGroup;
use server::config::Overrides;

/// Checks a configuration file and the supergraph that it names, or a supergraph alone.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("graph").args(["config", "supergraph"]).required(true).multiple(true)))]
pub(crate) struct Arguments {
    /// The configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The supergraph file (SDL); instead of the one in the configuration.
    #[arg(long, value_name = "FILE")]
    supergraph: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let overrides = Overrides { supergraph: arguments.supergraph.clone(), ..Overrides::default() };
    let findings = server::check(arguments.config.as_deref(), &overrides);
    super::report(&findings);
    if server::has_errors(&findings) {
        return ExitCode::FAILURE;
    }
    // Warnings have been told; a line that contradicts them would be odd.
    super::print(match findings.is_empty() {
        true => "Everything is in order.\n",
        false => "No errors.\n",
    });
    ExitCode::SUCCESS
}
