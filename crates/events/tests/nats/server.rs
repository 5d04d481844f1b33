//! A real `nats-server` for one test. It is killed when the test ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A running broker.
pub(crate) struct NatsServer {
    process: Child,
    pub(crate) port: u16,
    monitor: u16,
}

/// Returns the program: `STARLING_TEST_NATS_SERVER`, otherwise the one in `PATH`. Without one the test is skipped with
/// a line that says so; with `CI=true` that is a failure.
#[allow(clippy::print_stdout, reason = "a skipped test must be visible in the output")]
pub(crate) fn program() -> Option<PathBuf> {
    let named = std::env::var_os("STARLING_TEST_NATS_SERVER").map(PathBuf::from);
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file())
    };
    let found = named.or_else(in_path);
    if found.is_none() {
        let hint = "nats-server not found: install it or set STARLING_TEST_NATS_SERVER";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("skipped: {hint}");
    }
    found
}

/// A new empty folder, which is removed with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("starling-nats-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    /// Writes a file in the folder and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path.to_str().expect("a plain path").to_owned()
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl NatsServer {
    /// Starts a server with JetStream, which stores in `folder`.
    pub(crate) fn with_jetstream(program: &PathBuf, port: i32, folder: &Folder) -> Self {
        Self::start(program, port, &["-js", "-sd", folder.path()])
    }

    /// Ends the server as an administrator would, and returns when it has ended. (Dropping it is SIGKILL.)
    pub(crate) fn stop(mut self) {
        let process = self.process.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &process]).status().expect("kill runs");
        assert!(asked.success(), "the server still runs");
        self.process.wait().expect("it ends");
    }

    /// Starts the server on `port` (-1: a free one) and returns when it is ready, which it reports on its standard
    /// error.
    pub(crate) fn start(program: &PathBuf, port: i32, arguments: &[&str]) -> Self {
        let mut process = Command::new(program)
            .args(["-a", "127.0.0.1", "-m", "-1", "-p", &port.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server starts");
        let mut log = BufReader::new(process.stderr.take().expect("stderr is piped"));
        let (mut port, mut monitor, mut text) = (0, 0, String::new());
        loop {
            let start = text.len();
            let read = log.read_line(&mut text).expect("its log is readable");
            assert!(read > 0, "nats-server ended instead of starting:\n{text}");
            let line = &text[start..];
            let number = || line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
            if line.contains("Listening for client connections") {
                port = number().expect("a port");
            } else if line.contains("Starting http monitor") {
                monitor = number().expect("a port");
            } else if line.contains("Server is ready") {
                break;
            }
        }
        // Further output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, port, monitor }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the number of subscriptions that the broker holds for clients.
    pub(crate) fn subscriptions(&self) -> u64 {
        self.monitored("connz", "subscriptions")
    }

    /// Returns the number of subscriptions that clients have made since the broker started.
    pub(crate) fn subscriptions_made(&self) -> u64 {
        self.monitored("subsz", "num_inserts")
    }

    /// Returns the sum of these numbers on that page of the monitor.
    fn monitored(&self, page: &str, number: &str) -> u64 {
        let address = SocketAddr::from(([127, 0, 0, 1], self.monitor));
        let mut socket = TcpStream::connect(address).expect("the monitor listens");
        let request = format!("GET /{page} HTTP/1.0\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("request");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("response");
        answer
            .split(&format!("\"{number}\":"))
            .skip(1)
            .map(|rest| {
                let digits: String =
                    rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<u64>().expect("a number")
            })
            .sum()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
