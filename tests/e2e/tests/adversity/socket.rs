//! A WebSocket client that sends exactly what the test gives it and checks everything it receives.

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
use wire::websocket::{Closed, WebSocketConfig};

/// Longer than any condition takes that a test waits for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A received message or the end of the connection.
#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    /// A text message.
    Text(String),
    /// The close frame or the end of the connection.
    Closed(Closed),
}

/// A connection after its handshake.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    connection: Connection<Verbatim>,
}

impl Socket {
    /// Connects with the subprotocol `graphql-transport-ws`.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::open_with(address, &[SUBPROTOCOL])
    }

    /// Connects with these subprotocols.
    pub(crate) fn open_with(address: SocketAddr, subprotocols: &[&str]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
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
        let config =
            Arc::new(WebSocketConfig { message_bytes_max: 1 << 26, ..WebSocketConfig::default() });
        let mut connection = Connection::client(config, Verbatim::default(), now, 7);
        connection.receive(now, &upgraded.rest);
        Self { stream, connection }
    }

    /// Connects and completes the initialisation.
    pub(crate) fn ready(address: SocketAddr) -> Self {
        let mut socket = Self::open(address);
        socket.send(r#"{"type":"connection_init"}"#);
        assert_eq!(socket.message(), json!({ "type": "connection_ack" }));
        socket
    }

    /// Like [`Socket::ready`], but returns `None` if nothing listens at the address.
    pub(crate) fn try_ready(address: SocketAddr) -> Option<Self> {
        drop(TcpStream::connect(address).ok()?);
        Some(Self::ready(address))
    }

    /// Sends a text message.
    pub(crate) fn send(&mut self, text: &str) {
        self.connection.protocol.outputs.push_back(Output::Text(Chunks::whole(text.to_owned())));
        self.flush();
    }

    /// Starts an operation.
    pub(crate) fn subscribe(&mut self, id: &str, query: &str) {
        let message = json!({ "id": id, "type": "subscribe", "payload": { "query": query } });
        self.send(&message.to_string());
    }

    /// Returns the next message or the end, without messages that only carry a cursor.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            match self.receive_any() {
                Received::Text(text) if text.starts_with(r#"{"type":"ping""#) => {}
                received => return received,
            }
        }
    }

    fn receive_any(&mut self) -> Received {
        let mut buffer = [0; 16 << 10];
        // The router sends pings regularly, and they do not count.
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "nothing came but pings");
            if let Some(received) = self.connection.poll_event() {
                return received;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => self.connection.receive_eof(Instant::now()),
                Ok(length) => self.connection.receive(Instant::now(), &buffer[..length]),
                // If a killed router has unread data, the operating system resets the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.connection.receive_eof(Instant::now());
                }
                Err(error) => panic!("nothing came: {error}"),
            }
            self.flush();
        }
    }

    /// Returns the next message.
    pub(crate) fn message(&mut self) -> Value {
        message(self.receive())
    }

    /// Returns the cursor of operation `id` from the next message, which must carry one.
    pub(crate) fn position(&mut self, id: &str) -> String {
        let message = self.any_message();
        assert_eq!((&message["type"], &message["payload"]["id"]), (&json!("ping"), &json!(id)));
        message["payload"]["cursor"].as_str().unwrap().to_owned()
    }

    /// Returns the next message, including one that only carries a cursor.
    pub(crate) fn any_message(&mut self) -> Value {
        message(self.receive_any())
    }

    /// Returns everything received until the connection is closed, one line per message.
    pub(crate) fn transcript(&mut self) -> String {
        let mut lines = String::new();
        loop {
            match self.receive() {
                Received::Text(text) => lines.extend([&text, "\n"]),
                Received::Closed(Closed { code, reason, .. }) => {
                    lines.push_str(&format!("closed {code} {reason}\n"));
                    return lines;
                }
            }
        }
    }

    fn flush(&mut self) {
        while let Some(chunks) = self.connection.poll_transmit(Instant::now()) {
            // A server that has closed the connection reads nothing more; its earlier messages can still be received.
            let _ = self.stream.write_all(&chunks.to_vec());
        }
    }
}

fn message(received: Received) -> Value {
    match received {
        Received::Text(text) => serde_json::from_str(&text).unwrap(),
        Received::Closed(closed) => panic!("closed instead of a message: {closed:?}"),
    }
}

/// Removes and adds the WebSocket framing of text messages, without changing their text.
#[derive(Default)]
struct Verbatim {
    received: VecDeque<Received>,
    outputs: VecDeque<Output>,
}

impl Protocol for Verbatim {
    type Event = Received;

    fn receive_text(&mut self, text: Bytes) {
        self.received.push_back(Received::Text(String::from_utf8(text.to_vec()).unwrap()));
    }

    fn receive_binary(&mut self, _: Bytes) {
        panic!("the router sends no binary messages");
    }

    fn ended(&mut self, closed: Closed) {
        self.received.push_back(Received::Closed(closed));
    }

    fn poll_event(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}
