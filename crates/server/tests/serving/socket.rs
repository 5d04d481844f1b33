//! A client of graphql-transport-ws for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use wire::connection::Connection;
use wire::graphql_transport_ws::{Client, ClientEvent, SUBPROTOCOL};
use wire::websocket::handshake::ClientHandshake;
use wire::websocket::{Closed, WebSocketConfig};

use crate::http::connect;

/// An acknowledged connection.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    connection: Connection<Client>,
}

impl Socket {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::open_with(address, &[])
    }

    /// Opens a connection with these headers in the handshake.
    pub(crate) fn open_with(address: SocketAddr, headers: &[(&str, &str)]) -> Self {
        let mut stream = connect(address);
        let host = address.to_string();
        let key = *b"not very random.";
        let (mut handshake, request) =
            ClientHandshake::new(&host, "/graphql", key, &[SUBPROTOCOL], headers).unwrap();
        stream.write_all(&request).unwrap();
        let mut buffer = [0; 4096];
        let upgraded = loop {
            let length = stream.read(&mut buffer).unwrap();
            assert_ne!(length, 0, "the router hung up during the handshake");
            if let Some(upgraded) = handshake.receive(&buffer[..length]).unwrap() {
                break upgraded;
            }
        };
        let now = Instant::now();
        let config = Arc::new(WebSocketConfig::default());
        let mut connection = Connection::client(config, Client::new(None), now, 7);
        connection.receive(now, &upgraded.rest);
        let mut socket = Self { stream, connection };
        socket.flush();
        assert_eq!(socket.hear(), ClientEvent::Ack { payload: None });
        socket
    }

    pub(crate) fn subscribe(&mut self, id: &str, query: &str) {
        let request = format!(r#"{{"query":"{query}"}}"#);
        self.connection.protocol.subscribe(id, request.into());
        self.flush();
    }

    /// Subscribes several times, by id and query, in one piece: the router reads all of them at once.
    pub(crate) fn subscribe_together(&mut self, subscriptions: &[(&str, &str)]) {
        for (id, query) in subscriptions {
            let request = format!(r#"{{"query":"{query}"}}"#);
            self.connection.protocol.subscribe(id, request.into());
        }
        let mut piece = Vec::new();
        while let Some(chunks) = self.connection.poll_transmit(Instant::now()) {
            chunks.append_to(&mut piece);
        }
        self.stream.write_all(&piece).unwrap();
    }

    /// Waits for the next event.
    pub(crate) fn hear(&mut self) -> ClientEvent {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(event) = self.connection.poll_event() {
                return event;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => self.connection.receive_eof(Instant::now()),
                Ok(length) => self.connection.receive(Instant::now(), &buffer[..length]),
                Err(error) => panic!("nothing arrived: {error}"),
            }
            self.flush();
        }
    }

    /// Reads to the end. Returns the number of results and the reason of the end.
    pub(crate) fn read_to_end(&mut self) -> (usize, Closed) {
        let mut results = 0;
        loop {
            match self.hear() {
                ClientEvent::Next { .. } => results += 1,
                ClientEvent::Ended(closed) => return (results, closed),
                other => panic!("{other:?}"),
            }
        }
    }

    fn flush(&mut self) {
        while let Some(chunks) = self.connection.poll_transmit(Instant::now()) {
            // A closed router reads nothing more; the data that it sent before can still be read.
            let _ = self.stream.write_all(&chunks.to_vec());
        }
    }
}
