//! Bundles GraphiQL with npm into `OUT_DIR`, or selects the plain page.
//!
//! `STARLING_IDE` selects the page. Unset: GraphiQL if npm works, otherwise the plain page with a warning. `graphiql`:
//! GraphiQL, or a failed build (for packagers and CI). `plain`: the plain page, without npm. The source tree is only
//! read: npm works in a copy under `OUT_DIR`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The sources of the bundle. The crate itself reads `index.html`.
const SOURCES: [&str; 7] = [
    "package.json",
    "package-lock.json",
    ".npmrc",
    "build.mjs",
    "src/main.jsx",
    "src/trace.jsx",
    "src/main.css",
];

/// The files that the bundler must have written.
const OUTPUTS: [&str; 5] =
    ["graphiql.js", "graphiql.js.gz", "graphiql.css", "graphiql.css.gz", "third-party.txt"];

/// The time limit of npm and the bundler together. With a registry nearby and an empty npm cache they take half a
/// minute; without network npm fails before this limit (see `npm_ci`).
const BUILD_TIMEOUT: Duration = Duration::from_secs(180);

/// The length from which on a line of the log counts as a dump rather than a sentence, in bytes.
const ERROR_LENGTH_MAX: usize = 200;

/// The interval between two checks of a running child process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn main() {
    println!("cargo:rustc-check-cfg=cfg(graphiql)");
    println!("cargo:rerun-if-env-changed=STARLING_IDE");
    println!("cargo:rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo:rerun-if-changed=page/{source}");
    }

    let choice = std::env::var("STARLING_IDE").unwrap_or_default();
    match choice.as_str() {
        "plain" => warn("STARLING_IDE=plain: the router serves the plain page, not GraphiQL"),
        "" | "graphiql" => match bundle() {
            Ok(()) => println!("cargo:rustc-cfg=graphiql"),
            Err(reason) if choice == "graphiql" => fail(&format!("no GraphiQL: {reason}")),
            Err(reason) => {
                warn(&format!("the router serves the plain page instead of GraphiQL: {reason}"));
                warn(
                    "to try again, touch crates/ide/build.rs; STARLING_IDE=plain skips the attempt",
                );
            }
        },
        other => fail(&format!("STARLING_IDE is `{other}`; write `graphiql` or `plain`")),
    }
}

/// Runs npm and the bundler. Their output is then in `OUT_DIR/bundle`.
fn bundle() -> Result<(), String> {
    let deadline = Instant::now() + BUILD_TIMEOUT;
    let out = PathBuf::from(variable("OUT_DIR")?);
    let work = out.join("page");
    let bundle = out.join("bundle");

    // The folders of an earlier run may contain other sources.
    for folder in [&work, &bundle] {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("cannot clear {}: {error}", folder.display()));
            }
            _ => {}
        }
    }
    copy_sources(&Path::new(&variable("CARGO_MANIFEST_DIR")?).join("page"), &work)
        .map_err(|error| format!("cannot copy the page's sources: {error}"))?;

    run("npm ci", npm_ci(&work), &out.join("npm.log"), deadline)?;
    let mut bundler = Command::new("node");
    bundler.args(["build.mjs", "../bundle"]).current_dir(&work);
    run("node build.mjs", bundler, &out.join("bundler.log"), deadline)?;

    for product in OUTPUTS {
        if !bundle.join(product).is_file() {
            return Err(format!("the bundler did not write {product}"));
        }
    }
    // The copy has over 100 MB and is not needed any more. A failure to remove it costs only space.
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}

fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.join("src"))?;
    for source in SOURCES {
        fs::copy(from.join(source), to.join(source))?;
    }
    Ok(())
}

/// Returns `npm ci` in `folder`: exactly the versions of the lock file, no install scripts of packages, and few
/// retries, so that a machine without network fails within a minute.
fn npm_ci(folder: &Path) -> Command {
    let mut npm = if cfg!(windows) {
        let mut shell = Command::new("cmd");
        shell.args(["/C", "npm"]);
        shell
    } else {
        Command::new("npm")
    };
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress"])
        .args(["--prefer-offline", "--loglevel=error"])
        .args(["--fetch-retries=1", "--fetch-timeout=20000"])
        .args(["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000"])
        .current_dir(folder);
    npm
}

/// Runs `command` to its end or to `deadline`, with its output in the file `log`.
fn run(name: &str, mut command: Command, log: &Path, deadline: Instant) -> Result<(), String> {
    let output = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
    let mut child =
        command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => format!("{name}: not found; is Node.js installed?"),
                _ => format!("{name}: {error}"),
            }
        })?;
    let status = loop {
        match child.try_wait().map_err(|error| format!("{name}: {error}"))? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{name}: stopped after {} s", BUILD_TIMEOUT.as_secs()));
            }
            None => sleep(POLL_INTERVAL),
        }
    };
    if status.success() {
        return Ok(());
    }
    let output_text = fs::read(log).unwrap_or_default();
    Err(format!(
        "{name} failed ({status}): {}",
        find_main_error(&String::from_utf8_lossy(&output_text))
    ))
}

/// Returns the most informative line of a log, for a warning of one line: npm spreads an error over a dozen lines,
/// most of them a single word, and ends with the name of its own log.
fn find_main_error(log: &str) -> &str {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .filter(|line| line.to_lowercase().contains("error") && !line.contains("complete log"))
        .max_by_key(|line| line.len().min(ERROR_LENGTH_MAX))
        .or_else(|| lines().next_back())
        .unwrap_or("no output")
}

fn warn(message: &str) {
    println!("cargo:warning={message}");
}

fn fail(message: &str) -> ! {
    println!("cargo:error={message}");
    std::process::exit(1);
}
