//! What a destination has to be told, by its protocol: only as much of each as publishing needs, over a blocking socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::destination::{Destination, Kind, User};
use super::kafka::Kafka;
use crate::query::response::ResponseReader;
use crate::subscriptions::target::KEY;

/// How long a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Bytes of events in one body: half of what the admin listener takes.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// Bytes of one line of a broker; none is near that.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A connection to where events go.
pub(super) trait Broker: Send {
    /// Adds an event to what is sent next.
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()>;

    /// Sends what was added; waits for the answers where every event has one.
    fn send(&mut self) -> io::Result<()>;

    /// Waits until the broker has everything, and answers its questions on the way.
    fn flush(&mut self) -> io::Result<()>;
}

/// Connects.
pub(super) fn open(destination: &Destination) -> io::Result<Box<dyn Broker>> {
    let Destination { kind, address } = destination.clone();
    let stream = BufReader::new(connect(address)?);
    Ok(match kind {
        Kind::Nats { subject, user } => Box::new(Nats::open(stream, subject, user)?),
        Kind::Redis { channel, user } => Box::new(Redis::open(stream, channel, user)?),
        Kind::Kafka { topic } => Box::new(Kafka::open(stream, topic)?),
        Kind::Http { authority, path, lines } => {
            Box::new(Http { address, stream, authority, path, lines, bodies: Vec::new() })
        }
    })
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Reads one line, without its end.
fn read_line(stream: &mut BufReader<TcpStream>, line: &mut String) -> io::Result<()> {
    line.clear();
    if stream.by_ref().take(LINE_BYTES_MAX).read_line(line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(())
}

/// NATS: nothing is answered, so a ping tells that everything before it was read.
struct Nats {
    stream: BufReader<TcpStream>,
    subject: String,
    output: Vec<u8>,
}

impl Nats {
    fn open(stream: BufReader<TcpStream>, subject: String, user: User) -> io::Result<Self> {
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

impl Broker for Nats {
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
                    return Err(io::Error::other(format!("the broker says {error}")));
                }
                // INFO, of which nothing matters here.
                _ => {}
            }
        }
    }
}

/// Redis: every `PUBLISH` is answered by how many connections got it.
struct Redis {
    stream: BufReader<TcpStream>,
    channel: String,
    output: Vec<u8>,
    unanswered: usize,
}

impl Redis {
    fn open(stream: BufReader<TcpStream>, channel: String, user: User) -> io::Result<Self> {
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

impl Broker for Redis {
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
                return Err(io::Error::other(format!("the broker says {line}")));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// HTTP: a POST for each event, or for several, one line each.
struct Http {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    authority: String,
    path: String,
    lines: bool,
    /// What is to be posted, and where.
    bodies: Vec<(String, Vec<u8>)>,
}

impl Broker for Http {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let path = self.path.replace(KEY, key);
        if self.lines
            && let Some((last, body)) = self.bodies.last_mut()
            && *last == path
            && body.len() + event.len() < BODY_BYTES_MAX
        {
            body.push(b'\n');
            body.extend_from_slice(event);
        } else {
            self.bodies.push((path, event.to_vec()));
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        for (path, body) in std::mem::take(&mut self.bodies) {
            match self.post(&path, &body) {
                // The server has closed a connection that it thought idle; a fresh one tells whether it lives.
                Err(error) if is_closed(&error) => {
                    self.stream = BufReader::new(connect(self.address)?);
                    self.post(&path, &body)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Http {
    fn post(&mut self, path: &str, body: &[u8]) -> io::Result<()> {
        let kind = if self.lines { "application/x-ndjson" } else { "application/json" };
        let authority = &self.authority;
        let mut output = format!(
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        output.extend_from_slice(body);
        self.stream.get_mut().write_all(&output)?;
        let mut reader = ResponseReader::default();
        let mut body = Vec::new();
        loop {
            let bytes = self.stream.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = bytes;
            let read = reader.read(&mut rest, |bytes| body.extend_from_slice(bytes));
            let taken = bytes.len() - rest.len();
            self.stream.consume(taken);
            let read = read.map_err(|malformed| io::Error::other(malformed.0))?;
            let Some(answer) = read else { continue };
            if !(200..300).contains(&answer.status) {
                let body = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
                return Err(io::Error::other(format!("status {}: {body}", answer.status)));
            }
            return Ok(());
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe | ConnectionAborted)
}
