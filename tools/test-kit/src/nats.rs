//! A real `nats-server` for tests.

use crate::children::ChildProcess;
use crate::programs;
use std::process::Command;
use tempfile::TempDir;

/// A server on 127.0.0.1, killed on drop.
pub struct NatsServer {
    running: ChildProcess,
    port: u16,
    // The folder with the file in which the server writes its port; removed with the server.
    _folder: TempDir,
}

impl NatsServer {
    /// Starts a server on a free port; `None` if it is not installed ([`programs::NATS_SERVER`]).
    ///
    /// # Panics
    /// If the server does not start, and under `CI=true` if it is not installed.
    pub fn start() -> Option<Self> {
        Self::start_on(-1)
    }

    /// Starts a server on the port of an earlier one, like a broker that recovers.
    ///
    /// # Panics
    /// See [`NatsServer::start`].
    pub fn restart_on(port: u16) -> Option<Self> {
        Self::start_on(i32::from(port))
    }

    fn start_on(port: i32) -> Option<Self> {
        Self::start_with(port, &[])
    }

    /// Starts a server on `port` (-1 for a free one) with extra arguments.
    ///
    /// # Panics
    /// See [`NatsServer::start`].
    pub fn start_with(port: i32, arguments: &[&str]) -> Option<Self> {
        let program = programs::NATS_SERVER.locate_or_skip()?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let mut running = ChildProcess::start(
            Command::new(program)
                .args(arguments_on(port))
                .arg("--ports_file_dir")
                .arg(folder.path())
                .args(arguments),
        );
        let port = running.wait_for("nats-server to listen", || {
            let file = std::fs::read_dir(folder.path()).ok()?.next()?.ok()?.path();
            port_in(&std::fs::read_to_string(file).ok()?)
        });
        Some(Self { running, port, _folder: folder })
    }

    /// Returns the server's URL, such as `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the port of [`NatsServer::url`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Kills the server, like a broker that fails, and returns its port.
    pub fn kill(mut self) -> u16 {
        self.running.kill();
        self.port
    }
}

/// Returns the command line of a server on this port of 127.0.0.1, -1 for a free one.
pub fn arguments_on(port: i32) -> Vec<String> {
    ["--addr", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned).into()
}

/// Returns the port in `{"nats":["nats://127.0.0.1:4222"],…}`, the file that the server writes.
fn port_in(ports: &str) -> Option<u16> {
    let (_, after) = ports.split_once("nats://127.0.0.1:")?;
    // The file is incomplete if the closing quote is missing.
    after.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    #[test]
    fn the_port_is_read_only_from_a_complete_line() {
        assert_eq!(port_in(r#"{"nats":["nats://127.0.0.1:4222"]}"#), Some(4222));
        assert_eq!(port_in(r#"{"nats":["nats://127.0.0.1:42"#), None);
        assert_eq!(port_in(""), None);
    }

    #[test]
    fn a_server_greets_on_its_port_and_again_after_a_restart() {
        let greeting = |port| {
            let mut bytes = [0; 5];
            TcpStream::connect(("127.0.0.1", port)).unwrap().read_exact(&mut bytes).unwrap();
            bytes
        };
        let Some(server) = NatsServer::start() else { return };
        assert_eq!(&greeting(server.port()), b"INFO ");
        let port = server.kill();
        let Some(again) = NatsServer::restart_on(port) else { return };
        assert_eq!(again.port(), port);
        assert_eq!(&greeting(port), b"INFO ");
    }
}
