//! Long runs against a release build: `tests/e2e/js/soaks/NAME.mjs`, and `churn` and `reloads` with the load generator
//! (`tools/benches/src/soaks.rs`).

use crate::arguments::Soak;
use crate::bench;
use crate::javascript::{JS_FOLDER, install_packages};
use std::path::Path;
use std::process::{Command, ExitCode};
use test_kit::builds::{Build, build_programs};
use test_kit::commands::{self, Failure};
use test_kit::installation;
use test_kit::kafka::download::fetch_jars;
use test_kit::programs::KAFKA_VARIABLE;

/// Runs one soak and returns its exit code.
pub(crate) fn run(root: &Path, soak: &Soak) -> Result<ExitCode, Failure> {
    let (name, seconds) = match soak {
        Soak::Churn(duration) => {
            let seconds = duration.seconds.to_string();
            return bench::run(root, "soak", ["churn", "--seconds", &seconds]);
        }
        Soak::Reloads { duration, subscribers } => {
            let (seconds, subscribers) = (duration.seconds.to_string(), subscribers.to_string());
            let words = ["reloads", "--seconds", &seconds, "--subscribers", &subscribers];
            return bench::run(root, "soak", words);
        }
        Soak::Live(duration) => ("live", duration.seconds),
        Soak::Queries(duration) => ("queries", duration.seconds),
        Soak::Hostile(duration) => ("hostile", duration.seconds),
        Soak::Resume { duration, .. } => ("resume", duration.seconds),
    };
    let js = root.join(JS_FOLDER);
    let [binary] = build_programs(root, Build::Dist, ["starling"])?;
    install_packages(&js)?;
    let mut node = Command::new("node");
    node.current_dir(&js)
        .arg(format!("soaks/{name}.mjs"))
        .env("STARLING_BIN", &binary)
        .env("STARLING_SOAK_SECONDS", seconds.to_string());
    if let Soak::Resume { busy, .. } = soak {
        node.env("STARLING_SOAK_BUSY", if *busy { "1" } else { "0" });
        locate_brokers(&mut node, &binary)?;
    }
    commands::run(&mut node)?;
    Ok(ExitCode::SUCCESS)
}

/// Sets the variables with the paths of the brokers. The soak itself reports missing ones.
fn locate_brokers(command: &mut Command, binary: &Path) -> Result<(), Failure> {
    let found = installation::install_missing()?;
    command.envs(found.variables.iter().map(|(name, path)| (*name, path.as_os_str())));
    match fetch_jars(binary) {
        Ok(jars) => {
            command.env(KAFKA_VARIABLE, jars);
        }
        Err(reason) => println!("no Kafka broker: {reason}"),
    }
    Ok(())
}
