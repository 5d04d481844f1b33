//! Bundles GraphiQL with npm into `OUT_DIR`, or decides for the plain page.
//!
//! `STARLING_IDE` chooses: unset, GraphiQL where npm works and the plain page elsewhere, with a
//! warning; `graphiql`, GraphiQL or a failed build (for packagers and CI); `plain`, no npm at all.
//! The source tree is only read: npm works in a copy under `OUT_DIR`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What goes into the bundle. `index.html` is read by the crate itself.
const SOURCES: [&str; 6] =
    ["package.json", "package-lock.json", ".npmrc", "build.mjs", "src/main.jsx", "src/main.css"];

/// What the bundler must have written.
const PRODUCTS: [&str; 5] =
    ["graphiql.js", "graphiql.js.gz", "graphiql.css", "graphiql.css.gz", "third-party.txt"];

/// For npm and the bundler together. On a machine with a registry nearby they take half a minute
/// with an empty npm cache; without network npm gives up by itself before this (see `npm_ci`).
const TIME_MAX: Duration = Duration::from_secs(180);

/// Past this many bytes a line is a dump, not a sentence.
const COMPLAINT_LENGTH_MAX: usize = 200;

/// How often a running child is looked at.
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

/// Runs npm and the bundler. On success the products are in `OUT_DIR/bundle`.
fn bundle() -> Result<(), String> {
    let deadline = Instant::now() + TIME_MAX;
    let out = PathBuf::from(variable("OUT_DIR")?);
    let work = out.join("page");
    let bundle = out.join("bundle");

    // Left over from an earlier run with other sources.
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

    for product in PRODUCTS {
        if !bundle.join(product).is_file() {
            return Err(format!("the bundler did not write {product}"));
        }
    }
    // Over 100 MB that nobody reads again. A failure to remove them costs only space.
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

/// `npm ci` in `folder`: exactly what the lock says, no package's own scripts, and bounded retries,
/// so that a machine without network learns it within a minute.
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

/// Runs `command` to its end or to `deadline`, with what it says in the file `log`.
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
                return Err(format!("{name}: stopped after {} s", TIME_MAX.as_secs()));
            }
            None => sleep(POLL_INTERVAL),
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read(log).unwrap_or_default();
    Err(format!("{name} failed ({status}): {}", main_complaint(&String::from_utf8_lossy(&said))))
}

/// The line of a log that says most in a warning of one line: npm spreads an error over a dozen,
/// most of them a single word, and ends with the name of its own log.
fn main_complaint(log: &str) -> &str {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .filter(|line| line.to_lowercase().contains("error") && !line.contains("complete log"))
        .max_by_key(|line| line.len().min(COMPLAINT_LENGTH_MAX))
        .or_else(|| lines().next_back())
        .unwrap_or("it said nothing")
}

fn warn(message: &str) {
    println!("cargo:warning={message}");
}

fn fail(message: &str) -> ! {
    println!("cargo:error={message}");
    std::process::exit(1);
}
