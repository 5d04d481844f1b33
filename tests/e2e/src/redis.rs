//! A real `redis-server` for a test.

use crate::children::Running;
use crate::programs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use tempfile::TempDir;

/// How often a start is repeated with another port, when one was taken since we looked.
const STARTS_MAX: usize = 5;

/// A server on 127.0.0.1, killed when dropped.
pub struct RedisServer {
    running: Running,
    port: u16,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server on a free port with these further arguments; `None` if it is not installed
    /// ([`programs::redis_server`]).
    ///
    /// # Panics
    /// If the server does not start, and under `CI=true` if it is not installed.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        for _ in 0..STARTS_MAX {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
            let port = port.unwrap_or_else(|error| panic!("no port: {error}")).port();
            let mut server = Self::begin(port, arguments)?;
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("no port stayed free for a moment, {STARTS_MAX} times");
    }

    /// Starts a server on the port that an earlier one had.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_again_on(port: u16, arguments: &[&str]) -> Option<Self> {
        let mut server = Self::begin(port, arguments)?;
        assert!(server.is_ready(), "redis-server did not start:\n{}", server.running.said());
        Some(server)
    }

    fn begin(port: u16, arguments: &[&str]) -> Option<Self> {
        let program = programs::redis_server()?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let running = Running::start(
            Command::new(program)
                .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
                .arg(folder.path())
                .args(arguments),
        );
        Some(Self { running, port, _folder: folder })
    }

    /// It answers a PING, if only to say that nobody has signed in; false: it has ended.
    fn is_ready(&mut self) -> bool {
        let port = self.port;
        crate::eventually("redis-server to listen or to end", || {
            if self.running.has_ended() {
                return Some(false);
            }
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
            socket.write_all(b"PING\r\n").ok()?;
            let mut answer = [0; 7];
            socket.read_exact(&mut answer).ok()?;
            (answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH")).then_some(true)
        })
    }

    /// Where it listens, as in `redis://127.0.0.1:6379`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port of [`RedisServer::url`].
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
