//! Publishes the events of a run, on a thread of its own, so that the clock of the events does not depend on how busy
//! those are who receive them.
//!
//! Every event carries the time of its publishing in microseconds, and no two have the same: that is how a result is
//! told from another, put in order, and timed.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use url::Url;

use super::target::{KEY, address_of};
use crate::query::response::ResponseReader;

/// In an event: when it is published, in microseconds since 1970.
const TIME: &str = "$T";

/// In an event: how many were published before it.
const NUMBER: &str = "$N";

/// In an event: text that makes it longer.
const PADDING: &str = "$P";

/// How long a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How often a broker is asked whether it has everything, which also answers what it asks: NATS gives up a client that
/// is silent for some minutes.
const FLUSH_EVERY: Duration = Duration::from_secs(20);

/// Where Starling's admin listener is, unless the configuration says otherwise.
const ADMIN_PORT: u16 = 8088;

/// Where events go. Read from `nats://[USER:PASSWORD@]HOST[:PORT]/SUBJECT`, `memory://HOST[:PORT]/TOPIC` (the admin
/// listener of the router, which publishes at its memory provider) or `http://…` (a POST of each event).
#[derive(Debug, Clone)]
pub struct Destination {
    kind: Kind,
    address: SocketAddr,
}

#[derive(Debug, Clone)]
enum Kind {
    Nats {
        subject: String,
        /// What stands before the host, for `CONNECT`.
        user: Option<(String, String)>,
    },
    Http {
        authority: String,
        path: String,
    },
}

/// The events of a run.
#[derive(Debug, Clone)]
pub struct Events {
    /// Where they go.
    pub destination: Destination,
    /// Their text, with `$T` (when it is published), `$K` (its key), `$N` (its number) and `$P` (padding).
    pub text: String,
    /// How long the padding is.
    pub padding_bytes: usize,
}

impl std::str::FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Err("`memory` lives inside the router; name its admin listener, which publishes there: memory://127.0.0.1:8088/TOPIC".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        // As it was written: a subject may have characters that a URL would escape.
        let after = text.split_once("://").map_or("", |(_, after)| after);
        let topic = after.split_once('/').map_or("", |(_, topic)| topic);
        let needs_topic = |what: &str| match topic {
            "" => Err(format!(
                "`{text}` names no {what}: write {}://HOST:PORT/{}",
                url.scheme(),
                what.to_uppercase()
            )),
            topic if topic.contains(char::is_whitespace) => {
                Err(format!("`{text}`: a {what} has no spaces"))
            }
            topic => Ok(topic.to_owned()),
        };
        let (kind, port) = match url.scheme() {
            "nats" => {
                let password = url.password().unwrap_or_default().to_owned();
                let user =
                    (!url.username().is_empty()).then(|| (url.username().to_owned(), password));
                (Kind::Nats { subject: needs_topic("subject")?, user }, 4222)
            }
            "memory" => {
                let topic = needs_topic("topic")?;
                let query = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("provider", "memory/default")
                    .append_pair("topic", &topic)
                    .finish()
                    // Replaced for each event.
                    .replace("%24K", KEY);
                let authority = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
                (Kind::Http { authority, path: format!("/admin/publish?{query}") }, ADMIN_PORT)
            }
            "http" => {
                let authority = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
                let path = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
                (Kind::Http { authority, path }, 80)
            }
            _ => {
                return Err(format!(
                    "`{text}`: events are published by nats://, memory:// or http://"
                ));
            }
        };
        Ok(Self { kind, address: address_of(&url, port)? })
    }
}

impl Destination {
    /// Where a floor hears the same events: the broker's address and subject. Nothing where it has to be told by HTTP.
    pub fn nats(&self) -> Option<(SocketAddr, &str)> {
        match &self.kind {
            Kind::Nats { subject, .. } => Some((self.address, subject)),
            Kind::Http { .. } => None,
        }
    }
}

/// Events to publish in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Between two of them.
    pub(super) gap: Duration,
    /// Event `n` has the key `n` modulo this number.
    pub(super) keys: u64,
}

/// The thread, and how to speak to it.
pub(super) struct Publisher {
    batches: Option<mpsc::Sender<Batch>>,
    published: mpsc::Receiver<Result<(), String>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Connects.
    ///
    /// # Errors
    /// A sentence that says what does not work.
    pub(super) fn start(events: &Events) -> Result<Self, String> {
        let wrong =
            |error: io::Error| format!("cannot publish at {}: {error}", events.destination.address);
        let mut connection = Connection::open(&events.destination).map_err(wrong)?;
        let address = events.destination.address;
        let (batches, todo) = mpsc::channel::<Batch>();
        let (report, published) = mpsc::channel();
        let template = events.text.replace(PADDING, &"x".repeat(events.padding_bytes));
        let thread = std::thread::Builder::new().name("publisher".to_owned()).spawn(move || {
            let mut clock = Clock::default();
            while let Ok(batch) = todo.recv() {
                let done = publish(&mut connection, &template, batch, &mut clock);
                let done = done.map_err(|error| format!("cannot publish at {address}: {error}"));
                if report.send(done).is_err() {
                    return;
                }
            }
        });
        let thread = thread.map_err(wrong)?;
        Ok(Self { batches: Some(batches), published, thread: Some(thread) })
    }

    /// Begins to publish; [`Self::finished`] says when it is done.
    pub(super) fn begin(&self, batch: Batch) {
        // The thread has ended only if it has failed, which `finished` tells.
        let _ = self.batches.as_ref().map(|batches| batches.send(batch));
    }

    /// Whether all of a batch is published.
    pub(super) fn finished(&self) -> Result<Option<()>, String> {
        match self.published.try_recv() {
            Ok(done) => done.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err("the publisher has ended".to_owned()),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// Microseconds since 1970 that never repeat and never go back.
#[derive(Default)]
struct Clock {
    last: u64,
}

impl Clock {
    fn stamp(&mut self) -> u64 {
        self.last = now_us().max(self.last + 1);
        self.last
    }
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn publish(
    connection: &mut Connection,
    template: &str,
    batch: Batch,
    clock: &mut Clock,
) -> io::Result<()> {
    let started = Instant::now();
    let mut flushed = started;
    for place in 0..batch.count {
        let due = started + batch.gap.mul_f64(place as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let number = batch.first + place;
        let key = (number % batch.keys.max(1)).to_string();
        let text = template
            .replace(TIME, &clock.stamp().to_string())
            .replace(KEY, &key)
            .replace(NUMBER, &number.to_string());
        connection.send(&key, &text)?;
        if flushed.elapsed() > FLUSH_EVERY {
            connection.flush()?;
            flushed = Instant::now();
        }
    }
    connection.flush()
}

/// A connection to a destination.
struct Connection {
    kind: Kind,
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    output: Vec<u8>,
}

impl Connection {
    fn open(destination: &Destination) -> io::Result<Self> {
        let Destination { kind, address } = destination.clone();
        let stream = BufReader::new(connect(address)?);
        let mut connection = Self { kind, address, stream, output: Vec::new() };
        if let Kind::Nats { user, .. } = &connection.kind {
            let mut options =
                serde_json::json!({ "verbose": false, "pedantic": false, "name": "bench" });
            if let Some((user, password)) = user {
                options["user"] = user.as_str().into();
                options["pass"] = password.as_str().into();
            }
            let hello = format!("CONNECT {options}\r\n");
            connection.stream.get_mut().write_all(hello.as_bytes())?;
            connection.flush()?;
        }
        Ok(connection)
    }

    fn send(&mut self, key: &str, text: &str) -> io::Result<()> {
        match &self.kind {
            Kind::Nats { subject, .. } => {
                let subject = subject.replace(KEY, key);
                self.output.clear();
                write!(self.output, "PUB {subject} {}\r\n{text}\r\n", text.len())?;
                self.stream.get_mut().write_all(&self.output)
            }
            Kind::Http { .. } => match self.post(key, text) {
                // The server has closed a connection that it thought idle; a fresh one tells whether it lives.
                Err(error) if is_closed(&error) => {
                    self.stream = BufReader::new(connect(self.address)?);
                    self.post(key, text)
                }
                done => done,
            },
        }
    }

    fn post(&mut self, key: &str, text: &str) -> io::Result<()> {
        let Kind::Http { authority, path } = &self.kind else { return Ok(()) };
        let path = path.replace(KEY, key);
        self.output.clear();
        write!(
            self.output,
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )?;
        self.stream.get_mut().write_all(&self.output)?;
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

    /// Waits until the broker has everything, and answers its questions on the way.
    fn flush(&mut self) -> io::Result<()> {
        if !matches!(self.kind, Kind::Nats { .. }) {
            return Ok(());
        }
        self.stream.get_mut().write_all(b"PING\r\n")?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.by_ref().take(1 << 20).read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
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

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe | ConnectionAborted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_and_wrong_ones_explained() {
        let nats = "nats://127.0.0.1:4333/ticks.$K".parse::<Destination>().unwrap();
        assert_eq!(nats.nats(), Some(("127.0.0.1:4333".parse().unwrap(), "ticks.$K")));
        let memory = "memory://127.0.0.1:1/a.$K b".parse::<Destination>().err();
        assert!(memory.is_some_and(|error| error.contains("spaces")));
        let memory = "memory://127.0.0.1:1/a.$K".parse::<Destination>().unwrap();
        assert!(matches!(memory.kind, Kind::Http { path, .. }
            if path == "/admin/publish?provider=memory%2Fdefault&topic=a.$K"));
        for text in
            ["memory", "nats://127.0.0.1:4222", "redis://127.0.0.1/x", "x", "https://127.0.0.1/"]
        {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_two_events_have_the_same_time() {
        let mut clock = Clock::default();
        let stamps: Vec<u64> = (0..1000).map(|_| clock.stamp()).collect();
        assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
