//! The server's machine.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::position::position_message;
use super::protocol::{
    FORBIDDEN, INITIALISATION_TIMEOUT, INVALID_MESSAGE, SUBPROTOCOL, SUBPROTOCOL_NOT_ACCEPTABLE,
    SUBSCRIBER_ALREADY_EXISTS, TOO_MANY_INITIALISATION_REQUESTS, UNAUTHORIZED,
};
use crate::Chunks;
use crate::connection::{Connection, Output, Protocol};
use crate::messages::{
    ClientMessage, Dialect, InvalidMessage, Request, append_operation_prefix, message,
    operation_message, operation_prefix_len,
};
use crate::operations::ActiveOperation;
use crate::server_state::{ProtocolConfig, ServerEvent, ServerState};
use crate::websocket::{CloseCode, Closed, LargeMessage, append_text_head};

/// The server's side of one connection.
///
/// Commands for operations that are not in progress do nothing: the client's `complete` and the server's results cross
/// on the wire all the time.
pub struct GraphqlTransportWs {
    phase: TransportWsPhase,
    state: ServerState,
}

// A part of the memory of an idle connection, see `subprotocol`.
const _: () = assert!(size_of::<Connection<GraphqlTransportWs>>() <= 112);

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransportWsPhase {
    /// No `connection_init` was received; it is due at the instant, if any.
    Connected(Option<Instant>),
    /// The layer above processes the `connection_init`.
    Initialising,
    /// The connection was acknowledged.
    Ready,
    Ended,
}

impl GraphqlTransportWs {
    /// Begins on a fresh WebSocket. Unless [`SUBPROTOCOL`] is the negotiated `subprotocol`, the socket is closed with
    /// 4406.
    pub fn new(
        config: Arc<ProtocolConfig>,
        subprotocol: Option<&str>,
        now: Instant,
    ) -> GraphqlTransportWs {
        let phase = TransportWsPhase::Connected(now.checked_add(config.init_timeout));
        let mut server = GraphqlTransportWs { phase, state: ServerState::new(config) };
        if subprotocol != Some(SUBPROTOCOL) {
            server.close(SUBPROTOCOL_NOT_ACCEPTABLE, "Subprotocol not acceptable");
        }
        server
    }

    /// Acknowledges the client's `connection_init`, optionally with a JSON object. Without effect unless one waits for
    /// a response.
    pub fn accept_init(&mut self, payload: Option<Bytes>) {
        if self.phase == TransportWsPhase::Initialising {
            self.phase = TransportWsPhase::Ready;
            self.state.send("connection_ack", payload);
        }
    }

    /// Rejects the client: closes with 4403.
    pub fn forbid(&mut self) {
        self.close(FORBIDDEN, "Forbidden");
    }

    /// Sends a result, a JSON object, of an operation. Returns whether the operation is in progress.
    pub fn next(&mut self, id: &str, payload: Bytes) -> bool {
        self.state.send_of(id, || operation_message(id, NEXT, Some(payload)))
    }

    /// Sends the position of an operation without a result: `cursor` is text that needs no escapes. Returns whether the
    /// operation is in progress.
    pub fn position(&mut self, id: &str, cursor: Bytes) -> bool {
        self.state.send_of(id, || position_message(id, cursor))
    }

    /// Ends an operation that could not be executed; `errors` is a JSON list of GraphQL errors. Returns whether it was
    /// in progress.
    pub fn error(&mut self, id: &str, errors: Bytes) -> bool {
        self.state.end(id, || operation_message(id, "error", Some(errors)))
    }

    /// Ends an operation after its last result. Returns whether it was in progress.
    pub fn complete(&mut self, id: &str) -> bool {
        self.state.end(id, || operation_message(id, "complete", None))
    }

    /// Closes the connection, for example when the server shuts down.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if self.phase != TransportWsPhase::Ended {
            let closed = self.state.close(code, reason);
            self.ended(closed);
        }
    }

    /// True if an operation with this id is in progress.
    pub fn is_active(&self, id: &str) -> bool {
        self.state.is_active(id)
    }

    /// Returns the number of operations in progress.
    pub fn in_progress(&self) -> usize {
        self.state.in_progress()
    }

    /// Returns the id of an operation in progress.
    pub fn id_of(&self, number: u32) -> Option<&str> {
        self.state.id_of(number)
    }

    fn start(&mut self, id: &str, request: Request) {
        if self.phase != TransportWsPhase::Ready {
            self.close(UNAUTHORIZED, "Unauthorized");
        } else if let Err(invalid) = self.state.check_id(id) {
            self.close_invalid(&invalid.0);
        } else if self.state.is_active(id) {
            let reason = format!("Subscriber for {id} already exists");
            self.close(SUBSCRIBER_ALREADY_EXISTS, &reason);
        } else {
            self.state.start(id, request, |error| format!("[{error}]"));
        }
    }

    fn receive(&mut self, received: ClientMessage) {
        match received {
            ClientMessage::ConnectionInit { payload } => {
                if matches!(self.phase, TransportWsPhase::Connected(_)) {
                    self.phase = TransportWsPhase::Initialising;
                    self.state.pending.push_event(ServerEvent::Init { payload });
                } else {
                    let reason = "Too many initialisation requests";
                    self.close(TOO_MANY_INITIALISATION_REQUESTS, reason);
                }
            }
            ClientMessage::Ping { payload } => {
                self.state.pending.set_pong(message("pong", payload.clone()));
                if let Some(payload) = payload.filter(|_| self.phase == TransportWsPhase::Ready) {
                    self.state.pending.push_event(ServerEvent::Ping { payload });
                }
            }
            ClientMessage::Pong => {}
            ClientMessage::Start { id, request } => self.start(&id, request),
            ClientMessage::Stop { id } => {
                if let Some(ActiveOperation { id, number }) = self.state.stop(&id) {
                    self.state.pending.push_event(ServerEvent::Complete { id, number });
                }
            }
            ClientMessage::ConnectionTerminate => debug_assert!(false, "the parser refuses it"),
        }
    }

    fn close_invalid(&mut self, reason: &str) {
        self.close(INVALID_MESSAGE, &format!("Invalid message: {reason}"));
    }

    /// Takes a text message that was parsed.
    pub(crate) fn receive_parsed(&mut self, message: Result<ClientMessage, InvalidMessage>) {
        if self.phase == TransportWsPhase::Ended {
            return;
        }
        match message {
            Ok(message) => self.receive(message),
            Err(InvalidMessage(reason)) => self.close_invalid(&reason),
        }
    }
}

impl Protocol for GraphqlTransportWs {
    type Event = ServerEvent;

    fn receive_text(&mut self, text: Bytes) {
        if self.phase != TransportWsPhase::Ended {
            self.receive_parsed(ClientMessage::parse(Dialect::TransportWs, text));
        }
    }

    fn is_acknowledged(&self) -> bool {
        self.phase == TransportWsPhase::Ready
    }

    fn receive_large(&mut self, message: LargeMessage) {
        if self.phase != TransportWsPhase::Ended {
            self.state.pending.push_event(ServerEvent::Large(message));
        }
    }

    fn receive_binary(&mut self, _: Bytes) {
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        if self.phase != TransportWsPhase::Ended {
            self.phase = TransportWsPhase::Ended;
            self.state.end_all(closed);
        }
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.state.pending.take_event()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.state.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            TransportWsPhase::Connected(deadline) => deadline,
            _ => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.close(INITIALISATION_TIMEOUT, "Connection initialisation timeout");
        }
    }
}

/// Returns a `next` message as a whole WebSocket frame, which can be written beside the connection's machine: the
/// payload is shared, the rest is one small allocation.
///
/// For outlets that keep their own queue. They must not send anything for an id that is not in progress, and nothing
/// after the connection has ended.
pub fn next_frame(id: &str, payload: Bytes) -> Chunks {
    let mut head = Vec::with_capacity(10 + operation_prefix_len(id, NEXT));
    append_next_head(id, payload.len(), &mut head);
    Chunks { head: head.into(), body: payload, tail: b"}" }
}

/// Appends the frame header and the text before the payload of a `next` message, `{"id":…,"type":"next","payload":`.
/// The caller writes `}` behind the payload.
///
/// Hot path of a broadcast: called for each recipient and event. It allocates nothing when `out` has room.
pub fn append_next_head(id: &str, payload_len: usize, out: &mut Vec<u8>) {
    append_result_head(id, NEXT, payload_len, out);
}

/// The type of a result's message.
const NEXT: &str = Dialect::TransportWs.result();

/// Appends the head of a message of any type, like [`append_next_head`].
pub(crate) fn append_result_head(id: &str, kind: &str, payload_len: usize, out: &mut Vec<u8>) {
    append_text_head(operation_prefix_len(id, kind), payload_len + 1, out, |out| {
        append_operation_prefix(id, kind, out);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::{FrameHeader, Opcode};

    #[test]
    fn a_frame_written_by_hand_equals_the_one_that_the_machines_write() {
        for id in ["1", "8f3c-\"quoted\"-\u{1}", &"x".repeat(90), &"\"".repeat(90)] {
            for payload_len in [2, 60, 90, 65_400, 70_000] {
                let payload = Bytes::from(vec![b'7'; payload_len]);
                let text = operation_message(id, "next", Some(payload.clone()));
                let header = FrameHeader::new(Opcode::Text, text.len());
                let expected = [&*header, &text.to_vec()].concat();
                assert_eq!(next_frame(id, payload).to_vec(), expected);
            }
        }
    }
}
