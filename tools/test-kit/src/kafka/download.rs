//! The jars of Kafka: fetched from Maven Central once and kept in the target folder.

use crate::commands::{self, Failure};
use crate::programs::{KAFKA_FOLDER, KAFKA_VARIABLE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Maven project that lists the jars.
const POM: &str = include_str!("../../kafka/pom.xml");

/// Returns the folder of the jars, which are fetched if necessary into the target folder that contains `router`.
///
/// # Errors
/// `java` or Maven is missing, or the jars cannot be fetched.
pub fn fetch_jars(router: &Path) -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os(KAFKA_VARIABLE).filter(|given| !given.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    for program in ["java", "mvn"] {
        // Checks only that the program can be run.
        let version = if program == "java" { "-version" } else { "--version" };
        let mut command = Command::new(program);
        command.arg(version).stderr(std::process::Stdio::null());
        commands::read_output(&mut command).map_err(|_| format!("`{program}` is missing"))?;
    }
    // For `target/debug/starling` this is `target`: one folder for all profiles.
    let target = router.parent().and_then(Path::parent).ok_or("the router has no folder")?;
    let folder = target.join(KAFKA_FOLDER);
    if folder.is_dir() {
        return Ok(folder);
    }
    // The folder gets its final name only when it is complete.
    let partial = target.join(format!("{KAFKA_FOLDER}.partial"));
    let failed = |error: std::io::Error| format!("{}: {error}", partial.display());
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(failed)?;
    fs::write(partial.join("pom.xml"), POM).map_err(failed)?;
    let fetched = commands::run(Command::new("mvn").current_dir(&partial).args([
        "--batch-mode",
        "--quiet",
        "dependency:copy-dependencies",
        "-DoutputDirectory=.",
        "-DincludeScope=runtime",
    ]));
    fetched.map_err(|_| "cannot fetch the jars from Maven Central")?;
    fs::rename(&partial, &folder).map_err(failed)?;
    Ok(folder)
}
