//! Developer commands: `cargo xtask …`. CONTRIBUTING.md says when to use which.
//!
//! Each command is a module with a `run` function, which starts other programs, prints its progress and fails with a
//! reason in one line. The process exits with 0 or 1, or with 2 for wrong arguments. Measurements are in
//! `tools/benches`, test suites in JavaScript and most soaks in `tests/e2e/js`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks by printing")]

mod arguments;
mod bench;
mod dist;
mod docs;
mod failed_tests;
mod fuzz;
mod h2spec;
mod javascript;
mod licences;
mod sanitize;
mod site;
mod soak;
mod tally;
mod test;

use arguments::Command;
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;
use test_kit::builds::workspace_root;
use test_kit::commands::Failure;

fn main() -> ExitCode {
    let command = Command::parse();
    run(command, &workspace_root()).unwrap_or_else(|reason| {
        eprintln!("xtask: {reason}");
        ExitCode::FAILURE
    })
}

fn run(command: Command, root: &Path) -> Result<ExitCode, Failure> {
    match command {
        Command::Bench(arguments) => return bench::run(root, "bench", arguments.words),
        Command::Soak(soak) => return soak::run(root, &soak),
        Command::Test(arguments) => test::run(root, arguments.filter.as_deref())?,
        Command::Fuzz(arguments) => {
            fuzz::run(root, arguments.target.as_deref(), arguments.seconds)?;
        }
        Command::Sanitize => sanitize::run(root)?,
        Command::Docs(arguments) if arguments.site => site::run(root, &arguments)?,
        Command::Docs(arguments) => docs::run(root, arguments.write)?,
        Command::H2spec => h2spec::run(root)?,
        Command::Dist(arguments) => dist::run(root, &arguments)?,
        Command::Licences => licences::run(root)?,
    }
    Ok(ExitCode::SUCCESS)
}
