//! A real `redis-server` for one test. It is killed when the test ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The number of attempts to start: a port that was free may be taken before the server opens it.
const ATTEMPTS: usize = 5;

/// A running broker.
pub(crate) struct RedisServer {
    process: Child,
    pub(crate) port: u16,
}

/// Returns the program: `STARLING_TEST_REDIS_SERVER`, otherwise the one in `PATH`. Without one the test is skipped with
/// a line that says so; with `CI=true` that is a failure.
#[allow(clippy::print_stdout, reason = "a skipped test must be visible in the output")]
pub(crate) fn program() -> Option<PathBuf> {
    let named = std::env::var_os("STARLING_TEST_REDIS_SERVER").map(PathBuf::from);
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("redis-server")).find(|file| file.is_file())
    };
    let found = named.or_else(in_path);
    if found.is_none() {
        let hint = "redis-server not found: install it or set STARLING_TEST_REDIS_SERVER";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("skipped: {hint}");
    }
    found
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("bound").port()
}

impl RedisServer {
    /// Starts a server on a free port with further `arguments`.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        for _ in 0..ATTEMPTS {
            if let Ok(server) = Self::try_start(program, free_port(), arguments) {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// Starts a server on a port that this or another server used before.
    pub(crate) fn start_at(program: &Path, port: u16) -> Self {
        Self::start_again(program, port, &[])
    }

    /// Starts a server on a port that it used before, with `arguments`.
    pub(crate) fn start_again(program: &Path, port: u16, arguments: &[&str]) -> Self {
        Self::try_start(program, port, arguments)
            .unwrap_or_else(|log| panic!("redis-server:\n{log}"))
    }

    /// Returns the server when it is ready, which it reports on its standard output; otherwise its output.
    fn try_start(program: &Path, port: u16, arguments: &[&str]) -> Result<Self, String> {
        let mut process = Command::new(program)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &port.to_string()])
            .args(arguments)
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let mut log = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut text = String::new();
        loop {
            let start = text.len();
            if log.read_line(&mut text).expect("its log is readable") == 0 {
                let _ = process.wait();
                return Err(text);
            }
            let line = &text[start..];
            if line.contains("Ready to accept connections") {
                break;
            }
        }
        // Further output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(Self { process, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a signal: `STOP` suspends the server, `CONT` resumes it.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Ends the server in order (`TERM`) or at once (`KILL`). Returns the port.
    #[cfg(unix)]
    pub(crate) fn end(mut self, signal: &str) -> u16 {
        self.signal(signal);
        self.process.wait().expect("it ends");
        self.port
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
