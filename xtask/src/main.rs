//! Developer commands: `cargo xtask …`. CONTRIBUTING.md says when to use which.
//!
//! Each command is a module with a `run` function, which prints its progress and fails with a reason in one line. The
//! process exits with 0 or 1, or with 2 for wrong arguments.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks by printing")]

mod arguments;
mod bench;
mod docs;
mod fuzz;
mod h2spec;
mod kafka;
mod licences;
mod process;
mod programs;
mod sanitize;
mod soak;
mod test;

use arguments::Command;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The reason for which a command failed, as a message for its user.
type Failure = String;

fn main() -> ExitCode {
    let command = Command::parse();
    let root = root();
    let outcome = match command {
        Command::Test(arguments) => test::run(&root, arguments.filter.as_deref()),
        Command::Bench(arguments) => bench::run(&root, arguments.name, &arguments.options),
        Command::Soak(soak) => soak::run(&root, &soak),
        Command::Fuzz(arguments) => {
            fuzz::run(&root, arguments.target.as_deref(), arguments.seconds)
        }
        Command::Sanitize => sanitize::run(&root),
        Command::Docs(arguments) => docs::run(&root, arguments.write),
        Command::H2spec => h2spec::run(&root),
        Command::Licences => licences::run(&root),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the workspace. Cargo sets the variable for programs that `cargo run` starts.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}
