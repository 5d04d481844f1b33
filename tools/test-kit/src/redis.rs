//! A real `redis-server` for tests.

use crate::children::ChildProcess;
use crate::programs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The maximum number of starts, each with another port, if another process takes the free port first.
const STARTS_MAX: usize = 5;

/// A server on 127.0.0.1, killed on drop.
pub struct RedisServer {
    running: ChildProcess,
    port: u16,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server on a free port with extra arguments; `None` if it is not installed
    /// ([`programs::REDIS_SERVER`]).
    ///
    /// # Panics
    /// The server does not start, or with `CI=true` it is not installed.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        for _ in 0..STARTS_MAX {
            let address = crate::free_address();
            let port = address.unwrap_or_else(|error| panic!("no port: {error}")).port();
            let mut server = Self::spawn_on(port, arguments)?;
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("no port stayed free for a moment, {STARTS_MAX} times");
    }

    /// Starts a server on the port of an earlier one.
    ///
    /// # Panics
    /// See [`RedisServer::start`].
    pub fn restart_on(port: u16, arguments: &[&str]) -> Option<Self> {
        let mut server = Self::spawn_on(port, arguments)?;
        assert!(server.is_ready(), "redis-server did not start:\n{}", server.running.output());
        Some(server)
    }

    fn spawn_on(port: u16, arguments: &[&str]) -> Option<Self> {
        let program = programs::REDIS_SERVER.locate_or_skip()?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let running = ChildProcess::start(
            Command::new(program)
                .args(arguments_on(port))
                .arg("--dir")
                .arg(folder.path())
                .args(arguments),
        );
        Some(Self { running, port, _folder: folder })
    }

    /// True once the server responds to PING, even with an authentication error; false if it has ended.
    fn is_ready(&mut self) -> bool {
        let port = self.port;
        crate::eventually("redis-server to listen or to end", || {
            if self.running.has_exited() {
                return Some(false);
            }
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
            socket.write_all(b"PING\r\n").ok()?;
            let mut response = [0; 7];
            socket.read_exact(&mut response).ok()?;
            (response.starts_with(b"+PONG") || response.starts_with(b"-NOAUTH")).then_some(true)
        })
    }

    /// Returns the server's URL, such as `redis://127.0.0.1:6379`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the port of [`RedisServer::url`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command with `redis-cli`, and returns what it prints; empty if there is no response.
    pub fn ask(&self, words: &[&str]) -> String {
        ask(self.port, words)
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Sends a signal: `STOP` suspends the server, `CONT` resumes it.
    ///
    /// # Panics
    /// The program `kill` is missing or fails.
    pub fn signal(&self, name: &str) {
        self.running.signal(name);
    }

    /// Kills the server, like a broker that fails, and returns its port.
    pub fn kill(self) -> u16 {
        self.end("KILL")
    }

    /// Ends the server in order (`TERM`) or at once (`KILL`) and returns its port.
    ///
    /// # Panics
    /// It does not end.
    pub fn end(mut self, signal: &str) -> u16 {
        self.running.signal(signal);
        self.running.wait_for_exit();
        self.port
    }
}

/// Sends a command with `redis-cli` to a server on this port, and returns what it prints; empty if there is no
/// response.
pub(crate) fn ask(port: u16, words: &[&str]) -> String {
    let Some(program) = programs::REDIS_SERVER.locate() else { return String::new() };
    let mut command = Command::new(program.with_file_name("redis-cli"));
    let output = command.args(["-p", &port.to_string()]).args(words).stdin(Stdio::null()).output();
    output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned()).unwrap_or_default()
}

/// Returns the command line of a server on this port of 127.0.0.1 that stores nothing on disk.
pub fn arguments_on(port: u16) -> Vec<String> {
    let port = port.to_string();
    ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]
        .map(str::to_owned)
        .into()
}
