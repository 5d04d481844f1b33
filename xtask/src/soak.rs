//! Long runs against a release build: `tests/e2e/js/soaks/NAME.mjs`, and `churn` and `reloads` with the load
//! generator.

use crate::arguments::Soak;
use crate::{Failure, bench, kafka, process, programs, test};
use std::path::Path;
use std::process::Command;

/// Runs one soak.
pub(crate) fn run(root: &Path, soak: &Soak) -> Result<(), Failure> {
    let (name, seconds) = match soak {
        Soak::Churn(duration) => return bench::churn(root, duration.seconds),
        Soak::Reloads { duration, subscribers } => {
            return bench::reloads(root, duration.seconds, *subscribers);
        }
        Soak::Live(duration) => ("live", duration.seconds),
        Soak::Queries(duration) => ("queries", duration.seconds),
        Soak::Hostile(duration) => ("hostile", duration.seconds),
        Soak::Resume { duration, .. } => ("resume", duration.seconds),
    };
    let js = root.join(test::JS_FOLDER);
    let binary = test::build_router(root, &["--release"])?;
    test::install_packages(&js)?;
    let mut node = Command::new("node");
    node.current_dir(&js)
        .arg(format!("soaks/{name}.mjs"))
        .env("STARLING_BIN", &binary)
        .env("STARLING_SOAK_SECONDS", seconds.to_string());
    if let Soak::Resume { busy, .. } = soak {
        node.env("STARLING_SOAK_BUSY", if *busy { "1" } else { "0" });
        locate_brokers(&mut node, &binary)?;
    }
    process::run(&mut node)
}

/// Sets the variables with the paths of the brokers. The soak itself reports missing ones.
fn locate_brokers(command: &mut Command, binary: &Path) -> Result<(), Failure> {
    let found = programs::prepare()?;
    command.envs(found.variables.iter().map(|(name, path)| (*name, path.as_os_str())));
    match kafka::prepare(binary) {
        Ok(jars) => {
            command.env(kafka::VARIABLE, jars);
        }
        Err(reason) => println!("no Kafka broker: {reason}"),
    }
    Ok(())
}
