//! The part of NATS's protocol that publishing needs.

use std::io::{self, BufReader, Write as _};
use std::net::TcpStream;

use super::broker::{BrokerConnection, read_line};
use super::destination::Credentials;
use crate::subscriptions::target::KEY;

/// A connection to NATS. Publications have no response; a pong shows that everything before its ping was read.
pub(super) struct NatsPublisher {
    stream: BufReader<TcpStream>,
    subject: String,
    output: Vec<u8>,
}

impl NatsPublisher {
    pub(super) fn open(
        stream: BufReader<TcpStream>,
        subject: String,
        user: Credentials,
    ) -> io::Result<Self> {
        let mut options =
            serde_json::json!({ "verbose": false, "pedantic": false, "name": "bench" });
        if let Some((user, password)) = user {
            options["user"] = user.into();
            options["pass"] = password.into();
        }
        let output = format!("CONNECT {options}\r\n").into_bytes();
        let mut nats = Self { stream, subject, output };
        nats.flush()?;
        Ok(nats)
    }
}

impl BrokerConnection for NatsPublisher {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let subject = self.subject.replace(KEY, key);
        write!(self.output, "PUB {subject} {}\r\n", event.len())?;
        self.output.extend_from_slice(event);
        self.output.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.extend_from_slice(b"PING\r\n");
        self.send()?;
        let mut line = String::new();
        loop {
            read_line(&mut self.stream, &mut line)?;
            match line.as_str() {
                "PONG" => return Ok(()),
                "PING" => self.stream.get_mut().write_all(b"PONG\r\n")?,
                error if error.starts_with("-ERR") => {
                    return Err(io::Error::other(format!("the broker responded {error}")));
                }
                // INFO, which contains nothing relevant.
                _ => {}
            }
        }
    }
}
