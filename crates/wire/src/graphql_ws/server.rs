//! The server's machine.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::SUBPROTOCOL;
use super::error_payload::{error_payload, errors_payload};
use crate::connection::{Output, Protocol};
use crate::graphql_transport_ws::{
    FORBIDDEN, INITIALISATION_TIMEOUT, INVALID_MESSAGE, SUBPROTOCOL_NOT_ACCEPTABLE, UNAUTHORIZED,
};
use crate::messages::{ClientMessage, Dialect, InvalidMessage, Request, operation_message};
use crate::operations::ActiveOperation;
use crate::server_state::{ProtocolConfig, ServerEvent, ServerState};
use crate::websocket::{CloseCode, Closed, LargeMessage};

/// The server's side of one connection.
///
/// Commands for operations that are not in progress do nothing: the client's `stop` and the server's results cross on
/// the wire all the time.
pub struct GraphqlWs {
    /// The start of the connection, or the time of the last keep-alive message.
    since: Instant,
    phase: GraphqlWsPhase,
    state: ServerState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GraphqlWsPhase {
    /// No `connection_init` was received.
    Connected,
    /// The layer above processes the `connection_init`; operations that start meanwhile wait for it.
    Initialising,
    /// The connection was acknowledged.
    Ready,
    Ended,
}

impl GraphqlWs {
    /// Begins on a fresh WebSocket. Unless [`SUBPROTOCOL`] is the negotiated `subprotocol`, the socket is closed with
    /// 4406.
    pub fn new(config: Arc<ProtocolConfig>, subprotocol: Option<&str>, now: Instant) -> GraphqlWs {
        let state = ServerState::new(config);
        let mut server = GraphqlWs { since: now, phase: GraphqlWsPhase::Connected, state };
        if subprotocol != Some(SUBPROTOCOL) {
            server.close(SUBPROTOCOL_NOT_ACCEPTABLE, "Subprotocol not acceptable");
        }
        server
    }

    /// Acknowledges the client's `connection_init`, optionally with a JSON object; a first keep-alive message follows.
    /// Without effect unless one waits for a response.
    pub fn accept_init(&mut self, payload: Option<Bytes>) {
        if self.phase == GraphqlWsPhase::Initialising {
            self.phase = GraphqlWsPhase::Ready;
            self.state.send("connection_ack", payload);
            if self.state.config.keep_alive.is_some() {
                self.send_keep_alive();
            }
        }
    }

    /// Rejects the client: sends `connection_error`, then closes with 4403.
    pub fn forbid(&mut self) {
        if self.phase != GraphqlWsPhase::Ended {
            self.send_connection_error("Forbidden");
            self.close(FORBIDDEN, "Forbidden");
        }
    }

    /// Sends a result, a JSON object, of an operation. Returns whether the operation is in progress.
    pub fn next(&mut self, id: &str, payload: Bytes) -> bool {
        self.state.send_of(id, || operation_message(id, Dialect::Ws.result(), Some(payload)))
    }

    /// Ends an operation that could not be executed; `errors` is a JSON list of GraphQL errors. Returns whether it was
    /// in progress.
    pub fn error(&mut self, id: &str, errors: Bytes) -> bool {
        self.state.end(id, || operation_message(id, "error", Some(errors_payload(&errors).into())))
    }

    /// Ends an operation after its last result. Returns whether it was in progress.
    pub fn complete(&mut self, id: &str) -> bool {
        self.state.end(id, || operation_message(id, "complete", None))
    }

    /// Closes the connection, for example when the server shuts down.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if self.phase != GraphqlWsPhase::Ended {
            let closed = self.state.close(code, reason);
            self.ended(closed);
        }
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
        if self.phase == GraphqlWsPhase::Connected {
            return self.close(UNAUTHORIZED, "Unauthorized");
        }
        if let Err(invalid) = self.state.check_id(id) {
            return self.close_invalid(&invalid.0);
        }
        // As in the reference implementation, the new operation replaces the old one.
        self.stop(id);
        self.state.start(id, request, |error| error);
    }

    fn stop(&mut self, id: &str) {
        let Some(ActiveOperation { id, number }) = self.state.stop(id) else { return };
        // The layer above has not seen an operation that waits for the acknowledgement, so its event is taken back.
        // Thus the waiting ones stay within the bound of operations, however often a client subscribes and completes.
        let is_start = |event: &ServerEvent| matches!(event, ServerEvent::Subscribe { number: it, .. } if *it == number);
        if self.phase != GraphqlWsPhase::Initialising || !self.state.pending.retract_event(is_start)
        {
            self.state.pending.push_event(ServerEvent::Complete { id, number });
        }
    }

    fn receive(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::ConnectionInit { payload }
                if self.phase == GraphqlWsPhase::Connected =>
            {
                self.phase = GraphqlWsPhase::Initialising;
                self.state.pending.push_event(ServerEvent::Init { payload });
            }
            ClientMessage::ConnectionInit { .. } => {
                self.send_connection_error("Too many initialisation requests");
            }
            ClientMessage::Start { id, request } => self.start(&id, request),
            ClientMessage::Stop { id } => self.stop(&id),
            ClientMessage::ConnectionTerminate => self.close(CloseCode::NORMAL, "Terminated"),
            ClientMessage::Ping { .. } | ClientMessage::Pong => {
                debug_assert!(false, "the parser refuses it");
            }
        }
    }

    /// Sends the protocol's response to a mistake that belongs to no operation. The connection stays open.
    fn send_connection_error(&mut self, message: &str) {
        self.state.send("connection_error", Some(error_payload(message).into()));
    }

    fn send_keep_alive(&mut self) {
        self.state.send("ka", None);
    }

    fn close_invalid(&mut self, reason: &str) {
        self.close(INVALID_MESSAGE, &format!("Invalid message: {reason}"));
    }

    /// Takes a text message that was parsed.
    pub(crate) fn receive_parsed(&mut self, message: Result<ClientMessage, InvalidMessage>) {
        if self.phase == GraphqlWsPhase::Ended {
            return;
        }
        match message {
            Ok(message) => self.receive(message),
            Err(InvalidMessage(reason)) => {
                self.send_connection_error(&format!("Invalid message: {reason}"));
            }
        }
    }
}

impl Protocol for GraphqlWs {
    type Event = ServerEvent;

    fn receive_text(&mut self, text: Bytes) {
        if self.phase != GraphqlWsPhase::Ended {
            self.receive_parsed(ClientMessage::parse(Dialect::Ws, text));
        }
    }

    fn is_acknowledged(&self) -> bool {
        self.phase == GraphqlWsPhase::Ready
    }

    fn receive_large(&mut self, message: LargeMessage) {
        if self.phase != GraphqlWsPhase::Ended {
            self.state.pending.push_event(ServerEvent::Large(message));
        }
    }

    fn receive_binary(&mut self, _: Bytes) {
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        if self.phase == GraphqlWsPhase::Ended {
            return;
        }
        if self.phase == GraphqlWsPhase::Initialising {
            // The layer above has not seen the operations that wait for the acknowledgement.
            self.state.pending.clear_events();
        }
        self.phase = GraphqlWsPhase::Ended;
        self.state.end_all(closed);
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        let first = self.state.pending.peek_event();
        let waits = self.phase == GraphqlWsPhase::Initialising
            && !matches!(first, Some(ServerEvent::Init { .. }));
        if waits { None } else { self.state.pending.take_event() }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.state.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            GraphqlWsPhase::Connected => self.since.checked_add(self.state.config.init_timeout),
            GraphqlWsPhase::Ready => self.since.checked_add(self.state.config.keep_alive?),
            GraphqlWsPhase::Initialising | GraphqlWsPhase::Ended => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.phase == GraphqlWsPhase::Ready {
            self.since = now;
            self.send_keep_alive();
        } else {
            self.close(INITIALISATION_TIMEOUT, "Connection initialisation timeout");
        }
    }
}
