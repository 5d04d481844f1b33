//! A client of event streams (GraphQL over SSE) that may stop reading.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

/// Longer than any condition takes that a test waits for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running stream.
pub(crate) struct Stream {
    socket: TcpStream,
    /// Received and not yet returned, including the framing of chunks, which never splits an event here.
    received: String,
    has_exited: bool,
}

impl Stream {
    /// Starts an operation.
    pub(crate) fn open(address: SocketAddr, query: &str) -> Self {
        Self::open_with(address, query, "")
    }

    /// Starts an operation after the event with this id, as a browser does when it reconnects.
    pub(crate) fn open_after(address: SocketAddr, query: &str, id: &str) -> Self {
        Self::open_with(address, query, &format!("last-event-id: {id}\r\n"))
    }

    /// Opens a reserved stream.
    pub(crate) fn open_reserved(address: SocketAddr, token: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let head = format!(
            "GET /graphql HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\
             x-graphql-event-stream-token: {token}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut stream = Self { socket, received: String::new(), has_exited: false };
        let head = stream.until("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }

    fn open_with(address: SocketAddr, query: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let body = json!({ "query": query }).to_string();
        let head = format!(
            "POST /graphql HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: text/event-stream\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body.as_bytes()).unwrap();
        let mut stream = Self { socket, received: String::new(), has_exited: false };
        let head = stream.until("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }

    /// Returns the next event as `name data`, without comments, or `None` at the end of the stream.
    pub(crate) fn event(&mut self) -> Option<String> {
        loop {
            let block = self.until("\n\n")?;
            let (mut name, mut data) = ("message", String::new());
            for line in block.lines() {
                if let Some(value) = line.strip_prefix("event: ") {
                    name = value;
                } else if let Some(value) = line.strip_prefix("data: ") {
                    data.push_str(value);
                }
            }
            if name != "message" || !data.is_empty() {
                return Some(format!("{name} {data}"));
            }
        }
    }

    /// Returns the next result and the id of its event.
    pub(crate) fn event_with_id(&mut self) -> (String, serde_json::Value) {
        loop {
            let block = self.until("\n\n").expect("the stream goes on");
            let of = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(id), Some(data)) = (of("id: "), of("data: ")) {
                return (id.to_owned(), serde_json::from_str(data).unwrap());
            }
        }
    }

    /// Returns the next id without an event.
    pub(crate) fn position(&mut self) -> String {
        loop {
            let block = self.until("\n\n").expect("the stream goes on");
            assert!(!block.contains("event:"), "{block}");
            // The framing of chunks precedes it.
            let id = block.lines().find_map(|line| line.strip_prefix("id: "));
            if let Some(id) = id {
                return id.to_owned();
            }
        }
    }

    /// Returns everything received until the stream ends, one line per event, and how it ends.
    pub(crate) fn transcript(&mut self) -> String {
        let mut lines = String::new();
        while let Some(event) = self.event() {
            lines.extend([event.trim_end(), "\n"]);
        }
        // The last chunk of a complete body.
        lines.push_str(if self.received.ends_with("0\r\n\r\n") { "end\n" } else { "broken off\n" });
        lines
    }

    /// Returns the text up to the mark.
    fn until(&mut self, mark: &str) -> Option<String> {
        let mut buffer = [0; 16 << 10];
        // The router sends heartbeats regularly, and they do not count.
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "nothing came but heartbeats");
            if let Some(at) = self.received.find(mark) {
                let rest = self.received.split_off(at + mark.len());
                return Some(std::mem::replace(&mut self.received, rest));
            }
            if self.has_exited {
                return None;
            }
            match self.socket.read(&mut buffer).unwrap() {
                0 => self.has_exited = true,
                length => self.received.push_str(std::str::from_utf8(&buffer[..length]).unwrap()),
            }
        }
    }
}
