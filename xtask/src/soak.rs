//! Long runs against a release build: `tests/e2e/js/soaks/NAME.mjs`, and `churn` and `reloads` with the load
//! generator.

use crate::{Failure, bench, kafka, process, programs, test};
use std::path::Path;
use std::process::Command;

/// The soak in which clients connect, subscribe, unsubscribe and disconnect.
pub(crate) const CHURN: &str = "churn";

/// The soak in which the graph is reloaded a hundred times while subscribers receive events.
pub(crate) const RELOADS: &str = "reloads";

/// The soak in which clients resume with their cursors while routers, brokers and subgraphs are killed, paused or
/// slow.
const RESUME: &str = "resume";

/// The default number of subscribers for `reloads`.
const SUBSCRIBERS_DEFAULT: u32 = 5_000;

/// Runs the soak `name` for `seconds`. `busy` keeps all cores busy meanwhile.
pub(crate) fn run(
    root: &Path,
    name: &str,
    seconds: u32,
    subscribers: Option<u32>,
    busy: bool,
) -> Result<(), Failure> {
    match name {
        CHURN => return bench::churn(root, seconds),
        RELOADS => {
            return bench::reloads(root, seconds, subscribers.unwrap_or(SUBSCRIBERS_DEFAULT));
        }
        _ => {}
    }
    let js = root.join(test::JS_FOLDER);
    let mut known = list_scripts(&js.join("soaks"))?;
    known.extend([CHURN, RELOADS].map(str::to_owned));
    if !known.iter().any(|soak| soak == name) {
        return Err(format!("unknown soak `{name}`; the soaks are {}", known.join(", ")));
    }
    let binary = test::build_router(root, &["--release"])?;
    test::install_packages(&js)?;
    let mut node = Command::new("node");
    node.current_dir(&js)
        .arg(format!("soaks/{name}.mjs"))
        .env("STARLING_BIN", &binary)
        .env("STARLING_SOAK_SECONDS", seconds.to_string())
        .env("STARLING_SOAK_BUSY", if busy { "1" } else { "0" });
    if name == RESUME {
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

fn list_scripts(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".mjs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}
