//! One client from its handshake to its end, without its socket: bytes go in, bytes to send and results come out.

use std::borrow::Cow;

use super::frame::{self, Opcode};
use super::message::{self, Kind};

/// The key that RFC 6455 uses as its example, section 1.3; its response is known.
pub(super) const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The response to [`WEBSOCKET_KEY`].
pub(crate) const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The subprotocol, [graphql-transport-ws](https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md).
pub(crate) const SUBPROTOCOL: &str = "graphql-transport-ws";

/// A head of a handshake longer than this is not one.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What of a refusal a report shows.
const SHOWN_BYTES_MAX: usize = 300;

/// How far a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Waits for the answer to its handshake.
    Upgrading,
    /// Waits for `connection_ack`.
    Greeting,
    /// Has subscribed and sent a ping; servers read messages in turn, so the pong says that it was read.
    Subscribing,
    /// Subscribed.
    Live,
    /// Has completed its subscription and sent a ping.
    Leaving,
    /// The same, and the pong is there.
    Left,
}

/// Why a client's connection ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The server closed the WebSocket with this code; 1005 stands for none.
    Closed(u16),
    /// The server closed the connection without a word.
    HungUp,
    /// The connection was reset.
    Reset,
    /// The handshake was refused with this status.
    Refused(u16),
    /// The server said that the operation failed.
    OperationFailed,
    /// The server said that the subscription is complete.
    Completed,
    /// Bytes that are not the protocol.
    Malformed(&'static str),
    /// No connection.
    Connect,
    /// The handshake of TLS failed, or its protocol was broken.
    Tls,
    /// Not subscribed in time.
    Timeout,
}

impl End {
    /// What a report calls it.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Closed(1005) => "closed by the server without a code".to_owned(),
            Self::Closed(code) => format!("closed by the server with code {code}"),
            Self::HungUp => "connection ended without a close frame".to_owned(),
            Self::Reset => "connection reset".to_owned(),
            Self::Refused(status) => format!("handshake refused with status {status}"),
            Self::OperationFailed => "subscription failed".to_owned(),
            Self::Completed => "completed by the server".to_owned(),
            Self::Malformed(what) => format!("not the protocol: {what}"),
            Self::Connect => "cannot connect".to_owned(),
            Self::Tls => "TLS failed".to_owned(),
            Self::Timeout => "not subscribed in time".to_owned(),
        }
    }
}

/// What a client says at its stages, written once for all clients that say the same.
#[derive(Debug)]
pub(super) struct Phrases {
    pub(super) init: Vec<u8>,
    pub(super) ping: Vec<u8>,
    pong: Vec<u8>,
    complete: Vec<u8>,
    pub(super) close: Vec<u8>,
}

impl Default for Phrases {
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

/// What hears a client's results.
pub(super) trait Ear {
    /// A result, as its whole message.
    fn result(&mut self, text: &[u8]);
    /// Something that went wrong, to be shown.
    fn complaint(&mut self, text: &str);
    /// Writes the message that subscribes.
    fn subscribe(&mut self, into: &mut Vec<u8>);
}

/// See the module. Small, since there are tens of thousands of them.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stage: Stage,
    /// Bytes of a head or a frame that is not complete.
    partial: Vec<u8>,
    /// A message in several frames, as far as it is there.
    fragments: Vec<u8>,
}

impl Default for Client {
    fn default() -> Self {
        Self { stage: Stage::Upgrading, partial: Vec::new(), fragments: Vec::new() }
    }
}

impl Client {
    /// Takes bytes of the server. What is to be sent goes to `output`. An error is the end of the client.
    // hot path: once a message; bytes in whole frames are read where they lie.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        phrases: &Phrases,
        output: &mut Vec<u8>,
        ear: &mut impl Ear,
    ) -> Result<(), End> {
        if self.partial.is_empty() {
            let taken = self.take_whole(bytes, phrases, output, ear)?;
            self.partial.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let taken = self.take_whole(&all, phrases, output, ear)?;
        if taken < all.len() {
            all.drain(..taken);
            self.partial = all;
        }
        Ok(())
    }

    /// Takes what is complete and says how much that was.
    fn take_whole(
        &mut self,
        bytes: &[u8],
        phrases: &Phrases,
        output: &mut Vec<u8>,
        ear: &mut impl Ear,
    ) -> Result<usize, End> {
        let mut taken = 0;
        if self.stage == Stage::Upgrading {
            let Some(length) = upgraded(bytes, ear)? else { return Ok(0) };
            taken = length;
            self.stage = Stage::Greeting;
            output.extend_from_slice(&phrases.init);
        }
        while let Some((frame, length)) =
            frame::read(&bytes[taken..]).map_err(|malformed| End::Malformed(malformed.0))?
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
                    self.message(&text, phrases, output, ear)?;
                }
                Opcode::Ping => frame::write(Opcode::Pong, frame.payload, output),
                Opcode::Pong => {}
                Opcode::Binary => return Err(End::Malformed("a binary message")),
                Opcode::Close => {
                    output.extend_from_slice(&phrases.close);
                    let code = match *frame.payload {
                        [high, low, ..] => u16::from_be_bytes([high, low]),
                        _ => 1005,
                    };
                    return Err(End::Closed(code));
                }
            }
        }
        Ok(taken)
    }

    fn message(
        &mut self,
        text: &[u8],
        phrases: &Phrases,
        output: &mut Vec<u8>,
        ear: &mut impl Ear,
    ) -> Result<(), End> {
        match (message::kind(text), self.stage) {
            (Kind::Next, _) => ear.result(text),
            (Kind::Ack, Stage::Greeting) => {
                self.subscribe(phrases, output, ear);
            }
            (Kind::Pong, Stage::Subscribing) => self.stage = Stage::Live,
            (Kind::Pong, Stage::Leaving) => self.stage = Stage::Left,
            (Kind::Ping, _) => output.extend_from_slice(&phrases.pong),
            (Kind::Pong, _) => {}
            // The subscription ended while its completion was on its way.
            (Kind::Complete | Kind::Error, Stage::Leaving | Stage::Left) => {}
            (Kind::Complete, _) => return Err(End::Completed),
            (Kind::Error, _) => {
                ear.complaint(&shown(text));
                return Err(End::OperationFailed);
            }
            (Kind::Ack, _) => return Err(End::Malformed("a second connection_ack")),
            (Kind::Unknown, _) => {
                ear.complaint(&shown(text));
                return Err(End::Malformed("an unknown message"));
            }
        }
        Ok(())
    }

    /// Subscribes, once greeted or after having left; what the server then has to say is a pong.
    pub(super) fn subscribe(
        &mut self,
        phrases: &Phrases,
        output: &mut Vec<u8>,
        ear: &mut impl Ear,
    ) {
        self.stage = Stage::Subscribing;
        ear.subscribe(output);
        output.extend_from_slice(&phrases.ping);
    }

    /// Gives the subscription up; what the server then has to say is a pong.
    pub(super) fn leave(&mut self, phrases: &Phrases, output: &mut Vec<u8>) {
        self.stage = Stage::Leaving;
        output.extend_from_slice(&phrases.complete);
        output.extend_from_slice(&phrases.ping);
    }
}

/// The length of the head that accepts the handshake, once it is there.
fn upgraded(bytes: &[u8], ear: &mut impl Ear) -> Result<Option<usize>, End> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES_MAX {
            Err(End::Malformed("an endless answer to the handshake"))
        } else {
            Ok(None)
        };
    };
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes);
    let status = response.code.filter(|_| parsed.is_ok());
    let status = status.ok_or(End::Malformed("no HTTP answer to the handshake"))?;
    if status != 101 {
        ear.complaint(&shown(bytes));
        return Err(End::Refused(status));
    }
    let is = |name: &str, value: &str| {
        let mut fields = response.headers.iter();
        fields.any(|it| it.name.eq_ignore_ascii_case(name) && it.value == value.as_bytes())
    };
    if !is("sec-websocket-accept", WEBSOCKET_ACCEPT) {
        return Err(End::Malformed("a wrong sec-websocket-accept"));
    }
    if !is("sec-websocket-protocol", SUBPROTOCOL) {
        return Err(End::Malformed("the server does not speak graphql-transport-ws"));
    }
    Ok(Some(end + 4))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriptions::frame::write_from_server;

    #[derive(Default)]
    struct Heard {
        results: Vec<String>,
        complaints: Vec<String>,
    }

    impl Ear for Heard {
        fn result(&mut self, text: &[u8]) {
            self.results.push(String::from_utf8(text.to_vec()).unwrap());
        }
        fn complaint(&mut self, text: &str) {
            self.complaints.push(text.to_owned());
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

    /// Hands the bytes over in pieces of this size: how far the client is, what it heard and what it said.
    fn taken(bytes: &[u8], size: usize) -> (Result<Stage, End>, Heard, Vec<u8>) {
        let (mut client, mut heard, mut output) = (Client::default(), Heard::default(), Vec::new());
        let phrases = Phrases::default();
        for piece in bytes.chunks(size) {
            if let Err(end) = client.take(piece, &phrases, &mut output, &mut heard) {
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
            assert_eq!((stage, heard.results), (Ok(Stage::Live), vec![next.to_owned()]), "{size}");
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
    fn an_end_says_why() {
        let ack = r#"{"type":"connection_ack"}"#;
        let failed = server(&[ack, r#"{"id":"1","type":"error","payload":[{"message":"no"}]}"#]);
        let mut closed = accepted();
        closed.extend([0x88, 2]);
        closed.extend(4408_u16.to_be_bytes());
        for (bytes, expected) in [
            (failed, End::OperationFailed),
            (server(&[ack, r#"{"id":"1","type":"complete"}"#]), End::Completed),
            (closed, End::Closed(4408)),
            (b"HTTP/1.1 429 Too Many\r\n\r\nslow".to_vec(), End::Refused(429)),
            (server(&[ack, "?"]), End::Malformed("an unknown message")),
            (b"HTTP/1.1 101 x\r\n\r\n".to_vec(), End::Malformed("a wrong sec-websocket-accept")),
        ] {
            let (end, ..) = taken(&bytes, 1000);
            assert_eq!(end, Err(expected));
        }
    }
}
