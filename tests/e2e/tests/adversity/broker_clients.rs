//! Minimal broker clients that share no code with the router's.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The time after which a silent broker counts as failed; it may be paused on purpose.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A client of NATS.
pub(crate) struct NatsClient(BufReader<TcpStream>);

impl NatsClient {
    pub(crate) fn connect(port: u16) -> Result<Self> {
        let mut client = Self(connect(port)?);
        client.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB inbox 1\r\n")?;
        Ok(client)
    }

    /// Publishes, and waits until the server has processed the message.
    pub(crate) fn publish(&mut self, subject: &str, payload: &str) -> Result<()> {
        let size = payload.len();
        self.send(&format!("PUB {subject} {size}\r\n{payload}\r\nPING\r\n"))?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with("PONG") {
                return Ok(());
            } else if line.starts_with("PING") {
                self.send("PONG\r\n")?;
            } else if line.starts_with("-ERR") {
                return Err(Error::other(line));
            }
        }
    }

    /// Sends a request to JetStream, or stores an event under a message id that is deduplicated.
    pub(crate) fn request(
        &mut self,
        subject: &str,
        id: Option<&str>,
        payload: &str,
    ) -> Result<String> {
        let size = payload.len();
        match id {
            None => self.send(&format!("PUB {subject} inbox {size}\r\n{payload}\r\n"))?,
            Some(id) => {
                let head = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
                let (head_size, size) = (head.len(), head.len() + size);
                self.send(&format!(
                    "HPUB {subject} inbox {head_size} {size}\r\n{head}{payload}\r\n"
                ))?;
            }
        }
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with("PING") {
                self.send("PONG\r\n")?;
            } else if line.starts_with("MSG") || line.starts_with("HMSG") {
                let size = line.split_whitespace().last().and_then(|size| size.parse().ok());
                let mut message = vec![0; size.unwrap_or(0_usize) + 2];
                self.0.read_exact(&mut message)?;
                return Ok(String::from_utf8_lossy(&message).into_owned());
            } else if line.starts_with("-ERR") {
                return Err(Error::other(line));
            }
        }
    }

    fn send(&mut self, text: &str) -> Result<()> {
        self.0.get_mut().write_all(text.as_bytes())
    }
}

/// A client of Redis.
pub(crate) struct RedisClient(BufReader<TcpStream>);

impl RedisClient {
    pub(crate) fn connect(port: u16) -> Result<Self> {
        Ok(Self(connect(port)?))
    }

    /// Sends a command and returns the response, if it is one line or one bulk string.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(command.as_bytes())?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(size) =
            line.strip_prefix('$').and_then(|size| size.trim().parse::<usize>().ok())
        {
            let mut text = vec![0; size + 2];
            self.0.read_exact(&mut text)?;
            line = String::from_utf8_lossy(&text).into_owned();
        }
        Ok(line.trim_end().to_owned())
    }
}

fn connect(port: u16) -> Result<BufReader<TcpStream>> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
    Ok(BufReader::new(socket))
}
