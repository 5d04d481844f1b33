//! A real Open Policy Agent for tests.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::NamedTempFile;

use crate::children::ChildProcess;
use crate::programs;

/// The maximum number of starts, each with another port, if another process takes the free port first.
const STARTS_MAX: usize = 5;

/// A server on 127.0.0.1, killed on drop.
pub struct OpenPolicyAgent {
    running: ChildProcess,
    address: SocketAddr,
    _rules: NamedTempFile,
}

impl OpenPolicyAgent {
    /// Starts a server with these rules, in Rego; `None` if it is not installed ([`programs::OPEN_POLICY_AGENT`]).
    ///
    /// # Panics
    /// The server does not start, or with `CI=true` it is not installed.
    pub fn start(rules: &str) -> Option<Self> {
        let program = programs::OPEN_POLICY_AGENT.locate_or_skip()?;
        for _ in 0..STARTS_MAX {
            let address = crate::free_address().unwrap_or_else(|error| panic!("no port: {error}"));
            let mut file = tempfile::Builder::new()
                .suffix(".rego")
                .tempfile()
                .unwrap_or_else(|error| panic!("no file: {error}"));
            let written = file.write_all(rules.as_bytes());
            written.unwrap_or_else(|error| panic!("no rules: {error}"));
            let running = ChildProcess::start(
                Command::new(&program)
                    .args(["run", "--server", "--disable-telemetry", "--addr"])
                    .arg(address.to_string())
                    .arg(file.path()),
            );
            let mut server = Self { running, address, _rules: file };
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("no port stayed free for a moment, {STARTS_MAX} times");
    }

    /// Returns the URL of a policy document.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/v1/data/{path}", self.address)
    }

    /// Ends the server.
    pub fn kill(&mut self) {
        self.running.kill();
    }

    /// Waits until the server listens. False if it has ended, because another process has the port.
    fn is_ready(&mut self) -> bool {
        let address = self.address;
        crate::eventually("Open Policy Agent to listen", || {
            if self.running.has_exited() {
                return Some(false);
            }
            TcpStream::connect(address).ok().map(|_| true)
        })
    }
}
