//! The router as users run it: a program with a command line.

use crate::http::{HttpResponse, request};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use test_kit::{ChildProcess, eventually};

/// The maximum number of starts, each with other ports, if another process takes a free port before the router does.
const STARTS_MAX: usize = 5;

/// A running router, killed on drop.
pub struct Router {
    running: ChildProcess,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Router {
    /// Starts `starling demo` and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready; the message contains the output.
    pub fn demo() -> Self {
        Self::start(["demo"])
    }

    /// Starts the router with these arguments (for example `serve --config FILE`) and waits until it is ready. The
    /// ports are added.
    ///
    /// # Panics
    /// It does not become ready; the message contains the output.
    pub fn start(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        Self::start_by(words, || Command::new(binary()), Stdio::piped)
    }

    /// Like [`Router::start`], with a limit of open files.
    ///
    /// # Panics
    /// See [`Router::start`].
    pub fn start_with_descriptors(
        descriptors: u32,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        Self::start_by(words, || with_descriptors(descriptors), Stdio::piped)
    }

    /// Like [`Self::start`], with the given standard error.
    ///
    /// # Panics
    /// See [`Self::start`].
    pub fn start_with_stderr(
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
        stderr: impl Fn() -> Stdio,
    ) -> Self {
        Self::start_by(words, || Command::new(binary()), stderr)
    }

    fn start_by(
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
        command: impl Fn() -> Command,
        stderr: impl Fn() -> Stdio,
    ) -> Self {
        let words: Vec<OsString> = words.into_iter().map(|word| word.as_ref().into()).collect();
        for _ in 0..STARTS_MAX {
            let [address, admin] = free_addresses();
            let mut command = command();
            command.args(&words);
            command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
            let mut running = ChildProcess::start_with_stderr(&mut command, stderr());
            let is_ready = eventually("the router to be ready or to end", || {
                let response = request(admin, "GET", "/health/ready", &[], b"");
                match response {
                    Ok(response) if response.status == 200 => Some(true),
                    _ => running.has_exited().then_some(false),
                }
            });
            if is_ready {
                return Self { running, address, admin };
            }
            running.wait_for_exit();
            let output = running.output();
            assert!(output.contains("cannot listen on"), "the router did not start:\n{output}");
        }
        panic!("no port stayed free for a moment, {STARTS_MAX} times");
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for health, metrics and test events.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Returns the output so far.
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Sends one GraphQL request by POST, with the given body.
    ///
    /// # Errors
    /// See [`request`].
    pub fn post(&self, body: &str) -> io::Result<HttpResponse> {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/graphql-response+json, application/json"),
        ];
        request(self.address, "POST", "/graphql", &headers, body.as_bytes())
    }

    /// Returns the value of a metric in `/metrics`, by its name and labels as printed there
    /// (`starling_graph_loads_total{result="loaded"}`); `None` if it is missing.
    ///
    /// # Panics
    /// The admin listener does not respond.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let response = request(self.admin, "GET", "/metrics", &[], b"")
            .unwrap_or_else(|error| panic!("no metrics: {error}\n{}", self.output()));
        let text = response.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    /// True if the program has ended.
    pub fn has_exited(&mut self) -> bool {
        self.running.has_exited()
    }

    /// Waits for the end of a router that was asked to end; returns its exit code and output.
    ///
    /// # Panics
    /// It does not end.
    pub fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let code = self.running.wait_for_exit();
        (code, self.running.output())
    }

    /// Asks the router to end, as Ctrl-C does, and returns its exit code.
    ///
    /// # Panics
    /// It does not end.
    pub fn interrupt(mut self) -> Option<i32> {
        self.signal("INT");
        self.running.wait_for_exit()
    }

    /// Sends a signal by its name without `SIG`, for example `HUP` for a reload.
    ///
    /// # Panics
    /// There is no program `kill`, or the router has ended.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args(["-s", name, &self.running.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name}");
    }
}

/// Runs the router's program with these arguments to its end, for commands such as `check` and `plan`. Returns exit
/// code, standard output and standard error.
///
/// # Panics
/// It cannot be started, or does not end.
pub fn run(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> (Option<i32>, String, String) {
    finish(Command::new(binary()).args(words))
}

/// Like [`run`], with a limit of open files.
pub fn run_with_descriptors(
    descriptors: u32,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> (Option<i32>, String, String) {
    finish(with_descriptors(descriptors).args(words))
}

/// Returns a command of the router's program with a limit of open files, without arguments.
fn with_descriptors(descriptors: u32) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(binary());
    shell
}

fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let mut running = ChildProcess::start(command);
    let code = running.wait_for_exit();
    let (out, err) = running.separate_output();
    (code, out, err)
}

/// Another long-running command of the router's program (for example `mock`), killed on drop.
pub struct Program {
    running: ChildProcess,
}

impl Program {
    /// Starts the program with these arguments; it is ready once its output contains `ready`.
    ///
    /// # Panics
    /// It does not become ready; the message contains the output.
    pub fn start(words: impl IntoIterator<Item = impl AsRef<OsStr>>, ready: &str) -> Self {
        let mut running = ChildProcess::start(Command::new(binary()).args(words));
        eventually("the program to be ready or to end", || {
            (running.output().contains(ready) || running.has_exited()).then_some(())
        });
        assert!(!running.has_exited(), "the program ended:\n{}", running.output());
        Self { running }
    }

    /// Returns the output so far.
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        self.running.separate_output().0
    }
}

/// Returns the path of the router's program: `STARLING_BIN`, or the one in the target folder of this test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("STARLING_BIN") {
        return PathBuf::from(path);
    }
    // A test is at target/PROFILE/deps/NAME-HASH.
    let test = std::env::current_exe().unwrap_or_default();
    let profile = test.ancestors().nth(2).map(|folder| folder.join("starling"));
    profile.filter(|path| path.is_file()).unwrap_or_else(|| {
        panic!("no router to test: use `cargo xtask test`, or `cargo build` before `cargo test`")
    })
}

fn free_addresses() -> [SocketAddr; 2] {
    test_kit::free_addresses().unwrap_or_else(|error| panic!("no free port on 127.0.0.1: {error}"))
}
