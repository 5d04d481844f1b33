//! The part of Redis's protocol that publishing needs.

use std::io::{self, BufReader, Write as _};
use std::net::TcpStream;

use super::broker::{BrokerConnection, read_line};
use super::destination::Credentials;
use crate::subscriptions::target::KEY;

/// A connection to Redis. The response to each `PUBLISH` is the number of connections that got it.
pub(super) struct RedisPublisher {
    stream: BufReader<TcpStream>,
    channel: String,
    output: Vec<u8>,
    unanswered: usize,
}

impl RedisPublisher {
    pub(super) fn open(
        stream: BufReader<TcpStream>,
        channel: String,
        user: Credentials,
    ) -> io::Result<Self> {
        let mut redis = Self { stream, channel, output: Vec::new(), unanswered: 0 };
        if let Some((user, password)) = user {
            let words = match user.as_str() {
                "" => vec!["AUTH", &password],
                user => vec!["AUTH", user, &password],
            };
            redis.command(words.into_iter().map(str::as_bytes));
        }
        redis.command([b"CLIENT".as_slice(), b"SETNAME", b"bench"].into_iter());
        redis.send()?;
        Ok(redis)
    }

    fn command<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        // Writing to memory does not fail.
        let _ = write!(self.output, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.output, "${}\r\n", word.len());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
        self.unanswered += 1;
    }
}

impl BrokerConnection for RedisPublisher {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let channel = self.channel.replace(KEY, key);
        self.command([b"PUBLISH", channel.as_bytes(), event].into_iter());
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.output)?;
        self.output.clear();
        let mut line = String::new();
        while self.unanswered > 0 {
            read_line(&mut self.stream, &mut line)?;
            self.unanswered -= 1;
            if line.starts_with('-') {
                return Err(io::Error::other(format!("the broker responded {line}")));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
