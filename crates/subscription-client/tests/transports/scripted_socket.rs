//! The server's side of a WebSocket, message by message.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::websocket::{FrameHeader, Opcode, handshake};

use crate::scripted_server::{DEADLINE, ReceivedRequest, ScriptedServer};

/// An open WebSocket with the subprotocol graphql-transport-ws.
pub(crate) struct ScriptedSocket {
    request: ReceivedRequest,
    unread: Vec<u8>,
}

impl ScriptedSocket {
    /// Accepts the next connection, and acknowledges it. Returns the payload of `connection_init` too.
    pub(crate) async fn accept(server: &ScriptedServer) -> (Self, String) {
        let mut socket = Self::upgrade(server).await;
        let init = socket.next_message().await;
        assert!(init.contains(r#""type":"connection_init""#), "{init}");
        socket.send(r#"{"type":"connection_ack"}"#).await;
        (socket, init)
    }

    /// Accepts the next connection without acknowledging it.
    pub(crate) async fn upgrade(server: &ScriptedServer) -> Self {
        let mut request = server.next_request().await;
        let lines = request.raw_head.lines().filter_map(|line| line.split_once(": "));
        let headers = lines.map(|(name, value)| (name, value.as_bytes()));
        let accepted = handshake::accept("GET", headers, &["graphql-transport-ws"]);
        let accepted = accepted.expect("a valid handshake");
        let mut response = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in accepted.headers() {
            if name != "sec-websocket-extensions" {
                response.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        response.push_str("\r\n");
        request.send(&response).await;
        Self { request, unread: Vec::new() }
    }

    /// Returns the head of the upgrade request, in lower case.
    pub(crate) fn head(&self) -> &str {
        &self.request.head
    }

    /// Returns the next message. A close frame is `close` with its code, and the end of the connection is `end`.
    pub(crate) async fn next_message(&mut self) -> String {
        let message = tokio::time::timeout(DEADLINE, self.read_message()).await;
        message.expect("a message in time")
    }

    async fn read_message(&mut self) -> String {
        loop {
            match self.read_frame().await {
                Some((1, payload)) => return String::from_utf8(payload).expect("UTF-8"),
                Some((8, payload)) => {
                    return format!("close {}", u16::from_be_bytes([payload[0], payload[1]]));
                }
                Some(_) => {}
                None => return "end".to_owned(),
            }
        }
    }

    /// Waits for the next frame, and checks that it is a ping.
    pub(crate) async fn next_ping_frame(&mut self) {
        let frame = tokio::time::timeout(DEADLINE, self.read_frame()).await;
        let (opcode, payload) = frame.expect("a frame in time").expect("an open connection");
        assert_eq!(opcode, 9, "{}", String::from_utf8_lossy(&payload));
    }

    /// Returns the opcode and the contents of the next frame; `None` at the end of the connection.
    async fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Some(frame);
            }
            match self.request.stream.read_buf(&mut self.unread).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Takes a whole frame out of the bytes that were read: its opcode and its contents.
    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let bytes = &self.unread;
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        assert!(second & 0x80 != 0, "a client masks its frames");
        let (length, mask_at) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])), 4),
            127 => panic!("the tests send no such messages"),
            short => (usize::from(short), 2),
        };
        let end = mask_at + 4 + length;
        let mask = bytes.get(mask_at..mask_at + 4)?;
        let masked = bytes.get(mask_at + 4..end)?;
        let payload = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        let frame = (first & 0x0f, payload.collect());
        self.unread.drain(..end);
        Some(frame)
    }

    /// Waits for the request of an operation. Returns its id.
    pub(crate) async fn next_subscribe(&mut self) -> String {
        let message = self.next_message().await;
        assert!(message.contains(r#""type":"subscribe""#), "{message}");
        id_of(&message)
    }

    pub(crate) async fn send_result(&mut self, id: &str, payload: &str) {
        self.send(&format!(r#"{{"id":"{id}","type":"next","payload":{payload}}}"#)).await;
    }

    /// Sends a text message.
    pub(crate) async fn send(&mut self, text: &str) {
        self.send_frame(Opcode::Text, text.as_bytes()).await;
    }

    /// Sends a close frame with this code and a reason.
    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        self.send_frame(Opcode::Close, &[&code.to_be_bytes(), reason.as_bytes()].concat()).await;
    }

    /// Responds to a ping frame.
    pub(crate) async fn send_pong_frame(&mut self) {
        self.send_frame(Opcode::Pong, &[]).await;
    }

    async fn send_frame(&mut self, opcode: Opcode, payload: &[u8]) {
        let frame = [&*FrameHeader::new(opcode, payload.len()), payload].concat();
        self.request.stream.write_all(&frame).await.expect("an open connection");
    }
}

/// Returns the id in a message.
pub(crate) fn id_of(message: &str) -> String {
    let rest = message.split(r#""id":""#).nth(1).expect("an id");
    rest.split('"').next().expect("the end of a string").to_owned()
}
