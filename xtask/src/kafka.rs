//! A Kafka broker for tests: its jars from Maven Central, kept in the target folder, so that they are
//! fetched once. Tests start it with `java` (`crates/events/tests/kafka/broker.rs`).

use crate::{Failure, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that carries the folder of the jars to the tests.
pub(crate) const VARIABLE: &str = "STARLING_TEST_KAFKA";

/// What is fetched. The version stands in the name of the folder too, so that a new one is fetched anew.
const POM: &str = include_str!("../kafka/pom.xml");
const FOLDER: &str = "kafka-4.3.1";

/// The folder of the jars, fetched if need be. `Err` says what is missing.
pub(crate) fn prepare(router: &Path) -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    for program in ["java", "mvn"] {
        // Their versions are of no interest, only that they are there.
        let version = if program == "java" { "-version" } else { "--version" };
        let mut command = Command::new(program);
        command.arg(version).stderr(std::process::Stdio::null());
        process::read(&mut command).map_err(|_| format!("`{program}` is missing"))?;
    }
    // target/debug/starling: the folder is for all profiles.
    let target = router.parent().and_then(Path::parent).ok_or("the router has no folder")?;
    let folder = target.join(FOLDER);
    if folder.is_dir() {
        return Ok(folder);
    }
    // Under its final name only when it is whole.
    let partial = target.join(format!("{FOLDER}.partial"));
    let failed = |error: std::io::Error| format!("{}: {error}", partial.display());
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(failed)?;
    fs::write(partial.join("pom.xml"), POM).map_err(failed)?;
    let fetched = process::run(Command::new("mvn").current_dir(&partial).args([
        "--batch-mode",
        "--quiet",
        "dependency:copy-dependencies",
        "-DoutputDirectory=.",
        "-DincludeScope=runtime",
    ]));
    fetched.map_err(|_| "Maven Central gave no jars")?;
    fs::rename(&partial, &folder).map_err(failed)?;
    Ok(folder)
}
