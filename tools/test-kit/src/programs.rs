//! The third-party programs that tests use, and the rule for missing ones.
//!
//! The rule, also for the suites in JavaScript (`tests/e2e/js/programs.mjs`): the path in the environment variable,
//! which `cargo xtask test` sets; then `PATH`; otherwise the test skips itself with [`skip`], or fails with `CI=true`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The folders of servers on Debian, which a user's `PATH` often lacks.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Returns the path of `nats-server`, or `None` after it has reported the test as skipped.
///
/// # Panics
/// It is not installed and `CI=true`.
///
/// ```no_run
/// # fn main() {
/// let Some(program) = test_kit::programs::nats_server() else { return };
/// # }
/// ```
pub fn nats_server() -> Option<PathBuf> {
    let found = locate("STARLING_TEST_NATS_SERVER", &["nats-server"]);
    if found.is_none() {
        skip("nats-server is not installed");
    }
    found
}

/// Returns the path of `redis-server`, or `None` after it has reported the test as skipped.
///
/// # Panics
/// It is not installed and `CI=true`.
pub fn redis_server() -> Option<PathBuf> {
    let found = locate("STARLING_TEST_REDIS_SERVER", &["redis-server"]);
    if found.is_none() {
        skip("redis-server is not installed");
    }
    found
}

/// Reports the running test as skipped, with the reason; the test must then return. The line goes to standard error,
/// past the capture of the test runner, and to xtask, which counts it.
///
/// # Panics
/// `CI=true`: no test may be skipped.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!strict, "CI=true, and {test} cannot run: {reason}");
    let line = format!("skipped: {test}: {reason}\n");
    // If the line cannot be written, the report only lacks it.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("STARLING_TEST_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Returns the path that the environment variable contains, or the first file on `PATH` with one of the names.
pub fn locate(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(SERVER_FOLDERS.map(PathBuf::from));
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}
