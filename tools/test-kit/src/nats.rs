//! A real `nats-server` for tests.

use crate::children::ChildProcess;
use crate::programs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A server on 127.0.0.1 with a monitoring endpoint, killed on drop.
pub struct NatsServer {
    running: ChildProcess,
    ports: Ports,
    // The folder with the file in which the server writes its ports; removed with the server.
    _folder: TempDir,
}

/// The ports of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    clients: u16,
    monitoring: u16,
}

impl NatsServer {
    /// Starts a server on a free port; `None` if it is not installed ([`programs::NATS_SERVER`]).
    ///
    /// # Panics
    /// If the server does not start, and under `CI=true` if it is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(-1, &[])
    }

    /// Starts a server on the port of an earlier one, like a broker that recovers.
    ///
    /// # Panics
    /// See [`NatsServer::start`].
    pub fn restart_on(port: u16) -> Option<Self> {
        Self::start_with(port.into(), &[])
    }

    /// Starts a server with JetStream, which stores in `folder`, on `port` (-1 for a free one).
    ///
    /// # Panics
    /// See [`NatsServer::start`].
    pub fn start_with_jetstream(port: i32, folder: &Path) -> Option<Self> {
        Self::start_with(port, &["-js", "-sd", &folder.display().to_string()])
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
                .args(["--http_port", "-1", "--ports_file_dir"])
                .arg(folder.path())
                .args(arguments),
        );
        let ports = running.wait_for("nats-server to listen", || {
            let file = std::fs::read_dir(folder.path()).ok()?.next()?.ok()?.path();
            parse_ports(&std::fs::read_to_string(file).ok()?)
        });
        Some(Self { running, ports, _folder: folder })
    }

    /// Returns the server's URL, such as `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// Returns the port of [`NatsServer::url`].
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Kills the server, like a broker that fails, and returns its port.
    pub fn kill(mut self) -> u16 {
        self.running.kill();
        self.port()
    }

    /// Stops the server as an administrator does, waits for its end, and returns its port.
    ///
    /// # Panics
    /// It does not end.
    pub fn stop(mut self) -> u16 {
        self.running.signal("TERM");
        self.running.wait_for_exit();
        self.port()
    }

    /// Returns the number of subscriptions that the server holds for clients.
    ///
    /// # Panics
    /// The monitoring endpoint does not respond.
    pub fn subscription_count(&self) -> u64 {
        self.sum_monitored("connz", "subscriptions")
    }

    /// Returns the number of subscriptions that clients have made since the server started.
    ///
    /// # Panics
    /// The monitoring endpoint does not respond.
    pub fn subscriptions_made(&self) -> u64 {
        self.sum_monitored("subsz", "num_inserts")
    }

    /// Returns the sum of the numbers with this key on a page of the monitoring endpoint.
    fn sum_monitored(&self, page: &str, key: &str) -> u64 {
        let address = (Ipv4Addr::LOCALHOST, self.ports.monitoring);
        let fetch = || -> std::io::Result<String> {
            let mut socket = TcpStream::connect(address)?;
            socket.write_all(format!("GET /{page} HTTP/1.0\r\n\r\n").as_bytes())?;
            let mut response = String::new();
            socket.read_to_string(&mut response)?;
            Ok(response)
        };
        let response = fetch().unwrap_or_else(|error| panic!("the page {page}: {error}"));
        sum_of_numbers(&response, key)
    }
}

/// Returns the command line of a server on this port of 127.0.0.1, -1 for a free one.
pub fn arguments_on(port: i32) -> Vec<String> {
    ["--addr", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned).into()
}

/// Returns the ports in `{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://127.0.0.1:8222"]}`, the file that the
/// server writes. `None` if the file is incomplete.
fn parse_ports(text: &str) -> Option<Ports> {
    let ports: serde_json::Value = serde_json::from_str(text).ok()?;
    let port = |key: &str| ports[key][0].as_str()?.rsplit_once(':')?.1.parse().ok();
    Some(Ports { clients: port("nats")?, monitoring: port("monitoring")? })
}

/// Returns the sum of all numbers with this key, at any depth of the JSON in `text`.
fn sum_of_numbers(text: &str, key: &str) -> u64 {
    let key = format!("\"{key}\":");
    let values = text.split(&key).skip(1).map(str::trim_start);
    let numbers = values.filter_map(|value| {
        value.split(|it: char| !it.is_ascii_digit()).next()?.parse::<u64>().ok()
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_only_from_a_complete_file() {
        let file = r#"{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://127.0.0.1:8222"]}"#;
        assert_eq!(parse_ports(file), Some(Ports { clients: 4222, monitoring: 8222 }));
        assert_eq!(parse_ports(&file[..file.len() - 1]), None);
        assert_eq!(parse_ports(""), None);
    }

    #[test]
    fn numbers_are_added_at_any_depth() {
        let page = r#"{"subscriptions": 3, "connections": [{"subscriptions":12,"name":"a"}]}"#;
        assert_eq!(sum_of_numbers(page, "subscriptions"), 15);
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
