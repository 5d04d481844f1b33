//! One client from its handshake to its end, without its socket: bytes go in, bytes to send and results come out.

use std::borrow::Cow;
use std::time::Duration;

use super::frame::{self, Opcode};
use super::message::{self, MessageKind};

/// The example key of RFC 6455, section 1.3, whose response is known.
pub(super) const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The response to [`WEBSOCKET_KEY`].
pub(crate) const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The subprotocol, [graphql-transport-ws](https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md).
pub(crate) const SUBPROTOCOL: &str = "graphql-transport-ws";

/// The maximum length of the head of a handshake.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of bytes of a refusal in a report.
const SHOWN_BYTES_MAX: usize = 300;

/// The stage of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientStage {
    /// Waits for the response to its handshake.
    Upgrading,
    /// Waits for `connection_ack`.
    Greeting,
    /// The server has refused its subscription for now. It waits to subscribe again.
    Refused,
    /// Has subscribed and sent a ping. Servers read messages in order, so the pong means that the subscription was
    /// read.
    Subscribing,
    /// Is subscribed.
    Live,
    /// Has completed its subscription and sent a ping.
    Leaving,
    /// Has completed its subscription and received the pong.
    Left,
}

/// The reason for which a client's connection ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionEnd {
    /// The server closed the WebSocket with this code; 1005 means none.
    Closed(u16),
    /// The server closed the connection without a close frame.
    HungUp,
    /// The connection was reset.
    Reset,
    /// The handshake was refused with this status.
    Refused(u16),
    /// The server sent an error for the operation.
    OperationFailed,
    /// The server sent an error for the operation that says when to try again.
    OperationRefused,
    /// The server completed the subscription.
    Completed,
    /// Bytes that violate the protocol.
    Malformed(&'static str),
    /// No connection could be opened.
    Connect,
    /// The handshake of TLS failed, or its protocol was violated.
    Tls,
    /// Not subscribed in time.
    Timeout,
}

impl ConnectionEnd {
    /// Returns the name in reports.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Closed(1005) => "closed by the server without a code".to_owned(),
            Self::Closed(code) => format!("closed by the server with code {code}"),
            Self::HungUp => "connection ended without a close frame".to_owned(),
            Self::Reset => "connection reset".to_owned(),
            Self::Refused(status) => format!("handshake refused with status {status}"),
            Self::OperationFailed => "subscription failed".to_owned(),
            Self::OperationRefused => "subscription refused for now".to_owned(),
            Self::Completed => "completed by the server".to_owned(),
            Self::Malformed(what) => format!("protocol violation: {what}"),
            Self::Connect => "cannot connect".to_owned(),
            Self::Tls => "TLS failed".to_owned(),
            Self::Timeout => "not subscribed in time".to_owned(),
        }
    }
}

/// The messages of a client at its stages, formatted once for all clients with equal messages.
#[derive(Debug)]
pub(super) struct ClientMessages {
    pub(super) init: Vec<u8>,
    pub(super) ping: Vec<u8>,
    pong: Vec<u8>,
    complete: Vec<u8>,
    pub(super) close: Vec<u8>,
}

impl Default for ClientMessages {
    fn default() -> Self {
        let text = |text: &str| {
            let mut bytes = Vec::new();
            frame::write(Opcode::Text, text.as_bytes(), &mut bytes);
            bytes
        };
        let mut close = Vec::new();
        frame::write(Opcode::Close, &1000_u16.to_be_bytes(), &mut close);
        Self {
            init: text(r#"{"type":"connection_init"}"#),
            ping: text(r#"{"type":"ping"}"#),
            pong: text(r#"{"type":"pong"}"#),
            complete: text(r#"{"id":"1","type":"complete"}"#),
            close,
        }
    }
}

/// Receives a client's results.
pub(super) trait ResultListener {
    /// Handles a result, given as its whole message.
    fn result(&mut self, text: &[u8]);
    /// Handles a problem, to be shown.
    fn problem(&mut self, text: &str);
    /// Handles the time after which a refused client may return.
    fn retry_after(&mut self, time: Duration);
    /// Writes the message that subscribes.
    fn subscribe(&mut self, into: &mut Vec<u8>);
}

/// A client, see the module. It is small, since there are tens of thousands of them.
#[derive(Debug)]
pub(super) struct ClientProtocol {
    pub(super) stage: ClientStage,
    /// The bytes of an incomplete head or frame.
    partial: Vec<u8>,
    /// The part of a fragmented message that has arrived.
    fragments: Vec<u8>,
}

impl Default for ClientProtocol {
    fn default() -> Self {
        Self { stage: ClientStage::Upgrading, partial: Vec::new(), fragments: Vec::new() }
    }
}

impl ClientProtocol {
    /// Handles bytes of the server. Bytes to send are appended to `output`. An error is the end of the client.
    // hot path: once a message; whole frames are read in place.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        messages: &ClientMessages,
        output: &mut Vec<u8>,
        listener: &mut impl ResultListener,
    ) -> Result<(), ConnectionEnd> {
        if self.partial.is_empty() {
            let taken = self.take_whole(bytes, messages, output, listener)?;
            self.partial.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let taken = self.take_whole(&all, messages, output, listener)?;
        if taken < all.len() {
            all.drain(..taken);
            self.partial = all;
        }
        Ok(())
    }

    /// Handles the complete part and returns its length.
    fn take_whole(
        &mut self,
        bytes: &[u8],
        messages: &ClientMessages,
        output: &mut Vec<u8>,
        listener: &mut impl ResultListener,
    ) -> Result<usize, ConnectionEnd> {
        let mut taken = 0;
        if self.stage == ClientStage::Upgrading {
            let Some(length) = parse_upgrade(bytes, listener)? else { return Ok(0) };
            taken = length;
            self.stage = ClientStage::Greeting;
            output.extend_from_slice(&messages.init);
        }
        while let Some((frame, length)) = frame::read(&bytes[taken..])
            .map_err(|malformed| ConnectionEnd::Malformed(malformed.0))?
        {
            taken += length;
            match frame.opcode {
                Opcode::Text | Opcode::Continuation => {
                    let whole = frame.is_final && frame.opcode == Opcode::Text;
                    let text: Cow<'_, [u8]> = if whole {
                        Cow::Borrowed(frame.payload)
                    } else {
                        self.fragments.extend_from_slice(frame.payload);
                        if !frame.is_final {
                            continue;
                        }
                        Cow::Owned(std::mem::take(&mut self.fragments))
                    };
                    self.message(&text, messages, output, listener)?;
                }
                Opcode::Ping => frame::write(Opcode::Pong, frame.payload, output),
                Opcode::Pong => {}
                Opcode::Binary => return Err(ConnectionEnd::Malformed("a binary message")),
                Opcode::Close => {
                    output.extend_from_slice(&messages.close);
                    let code = match *frame.payload {
                        [high, low, ..] => u16::from_be_bytes([high, low]),
                        _ => 1005,
                    };
                    return Err(ConnectionEnd::Closed(code));
                }
            }
        }
        Ok(taken)
    }

    fn message(
        &mut self,
        text: &[u8],
        messages: &ClientMessages,
        output: &mut Vec<u8>,
        listener: &mut impl ResultListener,
    ) -> Result<(), ConnectionEnd> {
        match (message::kind(text), self.stage) {
            (MessageKind::Next, _) => listener.result(text),
            (MessageKind::Ack, ClientStage::Greeting) => {
                self.subscribe(messages, output, listener);
            }
            (MessageKind::Pong, ClientStage::Subscribing) => self.stage = ClientStage::Live,
            (MessageKind::Pong, ClientStage::Leaving) => self.stage = ClientStage::Left,
            (MessageKind::Ping, _) => output.extend_from_slice(&messages.pong),
            (MessageKind::Pong, _) => {}
            // The subscription ended while its completion was in flight.
            (
                MessageKind::Complete | MessageKind::Error,
                ClientStage::Leaving | ClientStage::Left,
            ) => {}
            (MessageKind::Complete, _) => return Err(ConnectionEnd::Completed),
            (MessageKind::Error, _) => {
                listener.problem(&truncate_text(text));
                let time = message::retry_after(text).ok_or(ConnectionEnd::OperationFailed)?;
                listener.retry_after(time);
                self.stage = ClientStage::Refused;
            }
            (MessageKind::Ack, _) => {
                return Err(ConnectionEnd::Malformed("a second connection_ack"));
            }
            (MessageKind::Unknown, _) => {
                listener.problem(&truncate_text(text));
                return Err(ConnectionEnd::Malformed("an unknown message"));
            }
        }
        Ok(())
    }

    /// Subscribes, after the acknowledgement or after having unsubscribed; the server must then send a pong.
    pub(super) fn subscribe(
        &mut self,
        messages: &ClientMessages,
        output: &mut Vec<u8>,
        listener: &mut impl ResultListener,
    ) {
        self.stage = ClientStage::Subscribing;
        listener.subscribe(output);
        output.extend_from_slice(&messages.ping);
    }

    /// Completes the subscription; the server must then send a pong.
    pub(super) fn unsubscribe(&mut self, messages: &ClientMessages, output: &mut Vec<u8>) {
        self.stage = ClientStage::Leaving;
        output.extend_from_slice(&messages.complete);
        output.extend_from_slice(&messages.ping);
    }
}

/// Returns the length of the head that accepts the handshake, once it is complete.
fn parse_upgrade(
    bytes: &[u8],
    listener: &mut impl ResultListener,
) -> Result<Option<usize>, ConnectionEnd> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES_MAX {
            Err(ConnectionEnd::Malformed("an endless response to the handshake"))
        } else {
            Ok(None)
        };
    };
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes);
    let status = response.code.filter(|_| parsed.is_ok());
    let status = status.ok_or(ConnectionEnd::Malformed("no HTTP response to the handshake"))?;
    if status != 101 {
        listener.problem(&truncate_text(bytes));
        let mut fields = response.headers.iter();
        let time = fields.find(|it| it.name.eq_ignore_ascii_case("retry-after"));
        let seconds = time.and_then(|it| std::str::from_utf8(it.value).ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            listener.retry_after(Duration::from_secs(seconds));
        }
        return Err(ConnectionEnd::Refused(status));
    }
    let is = |name: &str, value: &str| {
        let mut fields = response.headers.iter();
        fields.any(|it| it.name.eq_ignore_ascii_case(name) && it.value == value.as_bytes())
    };
    if !is("sec-websocket-accept", WEBSOCKET_ACCEPT) {
        return Err(ConnectionEnd::Malformed("a wrong sec-websocket-accept"));
    }
    if !is("sec-websocket-protocol", SUBPROTOCOL) {
        return Err(ConnectionEnd::Malformed("the server does not speak graphql-transport-ws"));
    }
    Ok(Some(end + 4))
}

fn truncate_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriptions::frame::write_from_server;

    #[derive(Default)]
    struct HeardMessages {
        results: Vec<String>,
        complaints: Vec<String>,
        times: Vec<Duration>,
    }

    impl ResultListener for HeardMessages {
        fn result(&mut self, text: &[u8]) {
            self.results.push(String::from_utf8(text.to_vec()).unwrap());
        }
        fn problem(&mut self, text: &str) {
            self.complaints.push(text.to_owned());
        }
        fn retry_after(&mut self, time: Duration) {
            self.times.push(time);
        }
        fn subscribe(&mut self, into: &mut Vec<u8>) {
            frame::write(Opcode::Text, b"subscribe", into);
        }
    }

    fn accepted() -> Vec<u8> {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {WEBSOCKET_ACCEPT}\r\n\
             sec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n"
        )
        .into_bytes()
    }

    fn server(texts: &[&str]) -> Vec<u8> {
        let mut bytes = accepted();
        texts.iter().for_each(|text| write_from_server(text.as_bytes(), &mut bytes));
        bytes
    }

    /// Passes the bytes in pieces of this size; returns the stage, the received messages and the output.
    fn taken(
        bytes: &[u8],
        size: usize,
    ) -> (Result<ClientStage, ConnectionEnd>, HeardMessages, Vec<u8>) {
        let (mut client, mut heard, mut output) =
            (ClientProtocol::default(), HeardMessages::default(), Vec::new());
        let messages = ClientMessages::default();
        for piece in bytes.chunks(size) {
            if let Err(end) = client.take(piece, &messages, &mut output, &mut heard) {
                return (Err(end), heard, output);
            }
        }
        (Ok(client.stage), heard, output)
    }

    #[test]
    fn a_client_is_live_once_the_server_has_read_its_subscription() {
        let next = r#"{"id":"1","type":"next","payload":{}}"#;
        let bytes = server(&[
            r#"{"type":"connection_ack"}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"pong"}"#,
            next,
        ]);
        for size in [1, 7, bytes.len()] {
            let (stage, heard, output) = taken(&bytes, size);
            assert_eq!(
                (stage, heard.results),
                (Ok(ClientStage::Live), vec![next.to_owned()]),
                "{size}"
            );
            let said = String::from_utf8_lossy(&output).into_owned();
            let order = ["connection_init", "subscribe", "ping", "pong"];
            let places: Vec<_> = order.iter().map(|word| said.find(word)).collect();
            assert!(places.is_sorted() && places[0].is_some(), "{said}");
        }
    }

    #[test]
    fn a_message_in_several_frames_is_one_message() {
        let mut bytes = server(&[r#"{"type":"connection_ack"}"#]);
        bytes.extend([0x01, 9]);
        bytes.extend(b"{\"id\":\"1\"");
        bytes.extend([0x89, 1, b'p']);
        bytes.extend([0x80, 15]);
        bytes.extend(b",\"type\":\"next\"}");
        let (_, heard, output) = taken(&bytes, 5);
        assert_eq!(heard.results, [r#"{"id":"1","type":"next"}"#]);
        assert!(output.ends_with(&[0x8a, 0x81, 0, 0, 0, 0, b'p']));
    }

    #[test]
    fn a_client_learns_when_it_may_return() {
        let error = r#"{"id":"1","type":"error","payload":[{"message":"busy","extensions":{"code":"OVERLOADED","retryAfter":7}}]}"#;
        // Whether the server read the ping before it refused the subscription or after it.
        for texts in [["{\"type\":\"pong\"}", error], [error, "{\"type\":\"pong\"}"]] {
            let bytes = server(&[r#"{"type":"connection_ack"}"#, texts[0], texts[1]]);
            let (stage, heard, _) = taken(&bytes, 9);
            assert_eq!(stage, Ok(ClientStage::Refused));
            assert_eq!(heard.times, [Duration::from_secs(7)]);
            assert_eq!(heard.complaints, [error]);
        }
        let refused = b"HTTP/1.1 503 Busy\r\nRetry-After: 12\r\n\r\n";
        let (stage, heard, _) = taken(refused, 1000);
        assert_eq!(stage, Err(ConnectionEnd::Refused(503)));
        assert_eq!(heard.times, [Duration::from_secs(12)]);
    }

    #[test]
    fn the_end_of_a_connection_has_its_reason() {
        let ack = r#"{"type":"connection_ack"}"#;
        let failed = server(&[ack, r#"{"id":"1","type":"error","payload":[{"message":"no"}]}"#]);
        let mut closed = accepted();
        closed.extend([0x88, 2]);
        closed.extend(4408_u16.to_be_bytes());
        for (bytes, expected) in [
            (failed, ConnectionEnd::OperationFailed),
            (server(&[ack, r#"{"id":"1","type":"complete"}"#]), ConnectionEnd::Completed),
            (closed, ConnectionEnd::Closed(4408)),
            (b"HTTP/1.1 429 Too Many\r\n\r\nslow".to_vec(), ConnectionEnd::Refused(429)),
            (server(&[ack, "?"]), ConnectionEnd::Malformed("an unknown message")),
            (
                b"HTTP/1.1 101 x\r\n\r\n".to_vec(),
                ConnectionEnd::Malformed("a wrong sec-websocket-accept"),
            ),
        ] {
            let (end, ..) = taken(&bytes, 1000);
            assert_eq!(end, Err(expected));
        }
    }
}
