//! A WebSocket client that says exactly what it is told to, and believes nothing.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use wire::Chunks;
use wire::connection::{Connection, Output, Protocol};
use wire::graphql_transport_ws::SUBPROTOCOL;
use wire::websocket::handshake::ClientHandshake;
use wire::websocket::{Closed, Config};

/// Longer than anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    /// A text message.
    Text(String),
    /// The end.
    Closed(Closed),
}

/// A connection after its handshake.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    connection: Connection<Verbatim>,
}

impl Socket {
    /// Connects with the subprotocol of GraphQL.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::open_with(address, &[SUBPROTOCOL])
    }

    /// Connects with these subprotocols.
    pub(crate) fn open_with(address: SocketAddr, subprotocols: &[&str]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut handshake, request) = ClientHandshake::new(
            &address.to_string(),
            "/graphql",
            *b"not very random.",
            subprotocols,
            &[],
        )
        .unwrap();
        stream.write_all(&request).unwrap();
        let mut buffer = [0; 4096];
        let upgraded = loop {
            let length = stream.read(&mut buffer).unwrap();
            assert_ne!(length, 0, "the server hung up during the handshake");
            if let Some(upgraded) = handshake.receive(&buffer[..length]).unwrap() {
                break upgraded;
            }
        };
        let now = Instant::now();
        let config = Arc::new(Config { message_bytes_max: 1 << 26, ..Config::default() });
        let mut connection = Connection::client(config, Verbatim::default(), now, 7);
        connection.receive(now, &upgraded.rest);
        Self { stream, connection }
    }

    /// Connects, and is acknowledged.
    pub(crate) fn ready(address: SocketAddr) -> Self {
        let mut socket = Self::open(address);
        socket.send(r#"{"type":"connection_init"}"#);
        assert_eq!(socket.message(), json!({ "type": "connection_ack" }));
        socket
    }

    /// The same, if somebody listens there.
    pub(crate) fn try_ready(address: SocketAddr) -> Option<Self> {
        drop(TcpStream::connect(address).ok()?);
        Some(Self::ready(address))
    }

    /// Sends a text message.
    pub(crate) fn send(&mut self, text: &str) {
        self.connection.protocol.outputs.push_back(Output::Text(Chunks::whole(text.to_owned())));
        self.flush();
    }

    /// Asks for an operation.
    pub(crate) fn subscribe(&mut self, id: &str, query: &str) {
        let message = json!({ "id": id, "type": "subscribe", "payload": { "query": query } });
        self.send(&message.to_string());
    }

    /// The next thing that comes. Where it is comes now and then, and does not count.
    pub(crate) fn hear(&mut self) -> Heard {
        loop {
            match self.hear_any() {
                Heard::Text(text) if text.starts_with(r#"{"type":"ping""#) => {}
                heard => return heard,
            }
        }
    }

    fn hear_any(&mut self) -> Heard {
        let mut buffer = [0; 16 << 10];
        // Pings come as long as the router lives, and do not count.
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nothing came but pings");
            if let Some(heard) = self.connection.poll_event() {
                return heard;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => self.connection.receive_eof(Instant::now()),
                Ok(length) => self.connection.receive(Instant::now(), &buffer[..length]),
                // What a killed router had not read yet resets the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.connection.receive_eof(Instant::now());
                }
                Err(error) => panic!("nothing came: {error}"),
            }
            self.flush();
        }
    }

    /// The next message.
    pub(crate) fn message(&mut self) -> Value {
        message(self.hear())
    }

    /// The next message, which says where operation `id` is: its cursor.
    pub(crate) fn position(&mut self, id: &str) -> String {
        let message = self.any_message();
        assert_eq!((&message["type"], &message["payload"]["id"]), (&json!("ping"), &json!(id)));
        message["payload"]["cursor"].as_str().unwrap().to_owned()
    }

    /// The next message, also one that says where an operation is.
    pub(crate) fn any_message(&mut self) -> Value {
        message(self.hear_any())
    }

    /// What comes until the connection is closed, a line each.
    pub(crate) fn transcript(&mut self) -> String {
        let mut lines = String::new();
        loop {
            match self.hear() {
                Heard::Text(text) => lines.extend([&text, "\n"]),
                Heard::Closed(Closed { code, reason, .. }) => {
                    lines.push_str(&format!("closed {code} {reason}\n"));
                    return lines;
                }
            }
        }
    }

    fn flush(&mut self) {
        while let Some(chunks) = self.connection.poll_transmit(Instant::now()) {
            // A server that has closed reads nothing more; what it said before is still to be read.
            let _ = self.stream.write_all(&chunks.to_vec());
        }
    }
}

fn message(heard: Heard) -> Value {
    match heard {
        Heard::Text(text) => serde_json::from_str(&text).unwrap(),
        Heard::Closed(closed) => panic!("closed instead of a message: {closed:?}"),
    }
}

/// Passes texts through, in both directions.
#[derive(Default)]
struct Verbatim {
    heard: VecDeque<Heard>,
    outputs: VecDeque<Output>,
}

impl Protocol for Verbatim {
    type Event = Heard;

    fn receive_text(&mut self, text: Bytes) {
        self.heard.push_back(Heard::Text(String::from_utf8(text.to_vec()).unwrap()));
    }

    fn receive_binary(&mut self, _: Bytes) {
        panic!("the router sends no binary messages");
    }

    fn ended(&mut self, closed: Closed) {
        self.heard.push_back(Heard::Closed(closed));
    }

    fn poll_event(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}
