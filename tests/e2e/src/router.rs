//! The router as a user runs it: a program with a command line.

use crate::children::Running;
use crate::http::{Answer, request};
use crate::waiting::eventually;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How often a start is repeated with other ports, when one was taken in the moment between our look
/// and the program's.
const STARTS_MAX: usize = 5;

/// A running router; killed when dropped.
pub struct Router {
    running: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Router {
    /// `starling demo`, ready.
    ///
    /// # Panics
    /// If it does not get ready, with what it said.
    pub fn demo() -> Self {
        Self::start(["demo"])
    }

    /// The router with these words on its command line (`serve --config FILE`, say), ready. Ports
    /// are added.
    ///
    /// # Panics
    /// If it does not get ready, with what it said.
    pub fn start(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        Self::start_by(words, || Command::new(binary()), Stdio::piped)
    }

    /// As [`Router::start`], with a limit of open files.
    ///
    /// # Panics
    /// As [`Router::start`].
    pub fn start_with_descriptors(
        descriptors: u32,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        Self::start_by(words, || with_descriptors(descriptors), Stdio::piped)
    }

    /// As [`Self::start`], with standard error where `stderr` says.
    ///
    /// # Panics
    /// As [`Self::start`].
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
            let (address, admin) = (free_address(), free_address());
            let mut command = command();
            command.args(&words);
            command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
            let mut running = Running::start_with_stderr(&mut command, stderr());
            let is_ready = eventually("the router to be ready or to end", || {
                let answer = request(admin, "GET", "/health/ready", &[], b"");
                match answer {
                    Ok(answer) if answer.status == 200 => Some(true),
                    _ => running.has_ended().then_some(false),
                }
            });
            if is_ready {
                return Self { running, address, admin };
            }
            running.wait_for_end();
            let said = running.said();
            assert!(said.contains("cannot listen on"), "the router did not start:\n{said}");
        }
        panic!("no port stayed free for a moment, {STARTS_MAX} times");
    }

    /// Where clients go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health, metrics and test events are.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        self.running.said()
    }

    /// One GraphQL request by POST, its body as given.
    ///
    /// # Errors
    /// As [`request`].
    pub fn post(&self, body: &str) -> io::Result<Answer> {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/graphql-response+json, application/json"),
        ];
        request(self.address, "POST", "/graphql", &headers, body.as_bytes())
    }

    /// The value of a metric as `/metrics` shows it, name and labels as there
    /// (`starling_graph_loads_total{result="loaded"}`); `None` if it is not there.
    ///
    /// # Panics
    /// If the admin listener does not answer.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let answer = request(self.admin, "GET", "/metrics", &[], b"")
            .unwrap_or_else(|error| panic!("no metrics: {error}\n{}", self.said()));
        let text = answer.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    /// Has the program ended?
    pub fn has_ended(&mut self) -> bool {
        self.running.has_ended()
    }

    /// Waits for the end of a router that was told to end: exit code, and all that it said.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait_for_end(mut self) -> (Option<i32>, String) {
        let code = self.running.wait_for_end();
        (code, self.running.said())
    }

    /// Asks it to end, as Ctrl-C does, and answers with its exit code.
    ///
    /// # Panics
    /// If it does not end.
    pub fn interrupt(mut self) -> Option<i32> {
        self.signal("INT");
        self.running.wait_for_end()
    }

    /// Sends a signal by its name without `SIG`: `HUP` makes it reload.
    ///
    /// # Panics
    /// If there is no program `kill`, or no router any more.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args(["-s", name, &self.running.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name}");
    }
}

/// Runs the router with these words to its end, for commands that answer and exit (`check`,
/// `plan`): exit code, standard output, standard error.
///
/// # Panics
/// If it cannot be started, or does not end.
pub fn run(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> (Option<i32>, String, String) {
    finish(Command::new(binary()).args(words))
}

/// As [`run`], with a limit of open files.
pub fn run_with_descriptors(
    descriptors: u32,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> (Option<i32>, String, String) {
    finish(with_descriptors(descriptors).args(words))
}

/// The router's program with a limit of open files, without words.
fn with_descriptors(descriptors: u32) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(binary());
    shell
}

fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let mut running = Running::start(command);
    let code = running.wait_for_end();
    let (out, err) = running.said_apart();
    (code, out, err)
}

/// Another long-running command of the router's program (`mock`, say); killed when dropped.
pub struct Program {
    running: Running,
}

impl Program {
    /// Starts the program with these words; it is ready once it has said `ready`.
    ///
    /// # Panics
    /// If it does not get ready, with what it said.
    pub fn start(words: impl IntoIterator<Item = impl AsRef<OsStr>>, ready: &str) -> Self {
        let mut running = Running::start(Command::new(binary()).args(words));
        eventually("the program to be ready or to end", || {
            (running.said().contains(ready) || running.has_ended()).then_some(())
        });
        assert!(!running.has_ended(), "the program ended:\n{}", running.said());
        Self { running }
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        self.running.said()
    }

    /// What it has printed to standard output so far.
    pub fn said_out(&self) -> String {
        self.running.said_apart().0
    }
}

/// The router's program: `STARLING_BIN`, or the one in the target folder of this test.
fn binary() -> PathBuf {
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

/// A port of 127.0.0.1 that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .unwrap_or_else(|error| panic!("no free port on 127.0.0.1: {error}"))
}
