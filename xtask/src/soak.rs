//! Long runs against a release build: `tests/e2e/js/soaks/NAME.mjs`, and `churn` and `reloads` by our own load generator.

use crate::{Failure, bench, kafka, process, programs, test};
use std::path::Path;
use std::process::Command;

/// Clients that come, subscribe, unsubscribe and go.
pub(crate) const CHURN: &str = "churn";

/// The graph is loaded a hundred times while subscribers get events.
pub(crate) const RELOADS: &str = "reloads";

/// Clients resume with their cursors while routers, brokers and subgraphs are killed, paused or slow.
const RESUME: &str = "resume";

/// Who subscribes meanwhile, if nobody says otherwise.
const SUBSCRIBERS_DEFAULT: u32 = 5_000;

/// Runs the soak `name` for `seconds`. With `busy` all cores are kept busy meanwhile.
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
    let mut known = names(&js.join("soaks"))?;
    known.extend([CHURN, RELOADS].map(str::to_owned));
    if !known.iter().any(|soak| soak == name) {
        return Err(format!("no soak is called `{name}`; there are: {}", known.join(", ")));
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

/// Tells `command` where the brokers are. The soak itself names those that are missing.
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

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".mjs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}
