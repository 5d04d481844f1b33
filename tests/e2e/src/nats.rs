//! A real `nats-server` for a test.

use crate::children::Running;
use crate::programs;
use std::process::Command;
use tempfile::TempDir;

/// A server on 127.0.0.1, killed when dropped.
pub struct NatsServer {
    running: Running,
    port: u16,
    // Holds the file in which the server says where it listens; removed with the server.
    _folder: TempDir,
}

impl NatsServer {
    /// Starts a server on a free port; `None` if it is not installed ([`programs::nats_server`]).
    ///
    /// # Panics
    /// If the server does not start, and under `CI=true` if it is not installed.
    pub fn start() -> Option<Self> {
        Self::start_on(-1)
    }

    /// Starts a server on the port that an earlier one had, as a broker that comes back.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    pub fn start_again_on(port: u16) -> Option<Self> {
        Self::start_on(i32::from(port))
    }

    fn start_on(port: i32) -> Option<Self> {
        Self::start_with(port, &[])
    }

    /// Starts a server on `port` (-1: a free one) with these further arguments.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    pub fn start_with(port: i32, arguments: &[&str]) -> Option<Self> {
        let program = programs::nats_server()?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let mut running = Running::start(
            Command::new(program)
                .args(["-a", "127.0.0.1", "-p", &port.to_string(), "--ports_file_dir"])
                .arg(folder.path())
                .args(arguments),
        );
        let port = running.wait_for("nats-server to listen", || {
            let file = std::fs::read_dir(folder.path()).ok()?.next()?.ok()?.path();
            port_in(&std::fs::read_to_string(file).ok()?)
        });
        Some(Self { running, port, _folder: folder })
    }

    /// Where it listens, as in `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port of [`NatsServer::url`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Kills the server, as a broker that is lost, and answers with its port.
    pub fn kill(mut self) -> u16 {
        self.running.kill();
        self.port
    }
}

/// The port in `{"nats":["nats://127.0.0.1:4222"],…}`, the file that the server writes.
fn port_in(ports: &str) -> Option<u16> {
    let (_, after) = ports.split_once("nats://127.0.0.1:")?;
    // Without the quote after it the file is only half written.
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
        let Some(again) = NatsServer::start_again_on(port) else { return };
        assert_eq!(again.port(), port);
        assert_eq!(&greeting(port), b"INFO ");
    }
}
