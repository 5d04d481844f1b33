//! The server's machine.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::messages::{ClientMessage, error_payload, errors_payload};
use super::{DATA, SUBPROTOCOL};
use crate::connection::{Output, Protocol};
use crate::graphql_transport_ws::envelope::{self, Invalid, operation_message};
use crate::graphql_transport_ws::{
    Config, Event, FORBIDDEN, INITIALISATION_TIMEOUT, INVALID_MESSAGE, Request,
    SUBPROTOCOL_NOT_ACCEPTABLE, UNAUTHORIZED,
};
use crate::operations::{Operations, Subscription};
use crate::pending::Pending;
use crate::websocket::{CloseCode, Closed, ClosedBy, LargeMessage};

/// The server's side of one connection.
///
/// Commands for operations that are not in progress do nothing: the client's `stop` and the server's
/// results cross on the wire all the time.
pub struct GraphqlWs {
    config: Arc<Config>,
    /// When the connection began, or when the last sign of life was given.
    since: Instant,
    phase: Phase,
    operations: Operations,
    pending: Pending<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No `connection_init` yet.
    Connected,
    /// The application thinks about the `connection_init`; what begins meanwhile waits for it.
    Initialising,
    /// Acknowledged.
    Ready,
    Ended,
}

impl GraphqlWs {
    /// Begins on a fresh WebSocket. Without [`SUBPROTOCOL`] as the negotiated `subprotocol` the
    /// socket is closed with 4406.
    pub fn new(config: Arc<Config>, subprotocol: Option<&str>, now: Instant) -> GraphqlWs {
        let mut server = GraphqlWs {
            config,
            since: now,
            phase: Phase::Connected,
            operations: Operations::default(),
            pending: Pending::default(),
        };
        if subprotocol != Some(SUBPROTOCOL) {
            server.close(SUBPROTOCOL_NOT_ACCEPTABLE, "Subprotocol not acceptable");
        }
        server
    }

    /// Acknowledges the client's `connection_init`, with a JSON object if there is something to
    /// tell; a first sign of life follows. Without effect when none waits for an answer.
    pub fn accept_init(&mut self, payload: Option<Bytes>) {
        if self.phase == Phase::Initialising {
            self.phase = Phase::Ready;
            self.pending.text(envelope::message("connection_ack", payload));
            if self.config.keep_alive.is_some() {
                self.keep_alive();
            }
        }
    }

    /// Turns the client away: `connection_error`, then a close with 4403.
    pub fn forbid(&mut self) {
        if self.phase != Phase::Ended {
            self.connection_error("Forbidden");
            self.close(FORBIDDEN, "Forbidden");
        }
    }

    /// Sends a result, a JSON object, of an operation. Returns whether the operation is in progress.
    pub fn next(&mut self, id: &str, payload: Bytes) -> bool {
        let is_active = self.operations.contains(id);
        if is_active {
            self.pending.text(operation_message(id, DATA, Some(payload)));
        }
        is_active
    }

    /// Ends an operation that could not be executed; `errors` is a JSON list of GraphQL errors.
    /// Returns whether it was in progress.
    pub fn error(&mut self, id: &str, errors: Bytes) -> bool {
        let was_active = self.operations.remove(id).is_some();
        if was_active {
            let payload = errors_payload(&errors);
            self.pending.text(operation_message(id, "error", Some(payload.into())));
        }
        was_active
    }

    /// Ends an operation that has given all its results. Returns whether it was in progress.
    pub fn complete(&mut self, id: &str) -> bool {
        let was_active = self.operations.remove(id).is_some();
        if was_active {
            self.pending.text(operation_message(id, "complete", None));
        }
        was_active
    }

    /// Ends the connection, for example when the server goes down.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if self.phase != Phase::Ended {
            self.pending.close(code, reason.into());
            self.ended(Closed { code, reason: reason.into(), by: ClosedBy::Us });
        }
    }

    /// How many operations are in progress.
    pub fn in_progress(&self) -> usize {
        self.operations.len()
    }

    /// The id of an operation in progress.
    pub fn id_of(&self, number: u32) -> Option<&str> {
        self.operations.id_of(number)
    }

    fn start(&mut self, id: &str, request: Request) {
        if self.phase == Phase::Connected {
            return self.close(UNAUTHORIZED, "Unauthorized");
        }
        if id.len() > self.config.id_bytes_max {
            let reason =
                format!("Invalid message: `id` is over {} bytes", self.config.id_bytes_max);
            return self.close(INVALID_MESSAGE, &reason);
        }
        // As the reference implementation does: the new operation takes the place of the old one.
        self.stop(id);
        let most = self.config.subscriptions_max;
        if self.operations.len() >= most {
            let payload = envelope::too_many(most);
            return self.pending.text(operation_message(id, "error", Some(payload.into())));
        }
        let number = self.operations.insert(id);
        self.pending.event(Event::Subscribe { id: id.into(), number, request });
    }

    fn stop(&mut self, id: &str) {
        let Some(Subscription { id, number }) = self.operations.remove(id) else { return };
        // The layer above has not seen an operation that waits for the acknowledgement, so that is taken back. Thus the
        // waiting ones stay within the bound of operations, however often a client subscribes and completes.
        let is_it =
            |event: &Event| matches!(event, Event::Subscribe { number: it, .. } if *it == number);
        if self.phase != Phase::Initialising || !self.pending.take_back(is_it) {
            self.pending.event(Event::Complete { id, number });
        }
    }

    fn receive(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::ConnectionInit { payload } if self.phase == Phase::Connected => {
                self.phase = Phase::Initialising;
                self.pending.event(Event::Init { payload });
            }
            ClientMessage::ConnectionInit { .. } => {
                self.connection_error("Too many initialisation requests");
            }
            ClientMessage::Start { id, request } => self.start(&id, request),
            ClientMessage::Stop { id } => self.stop(&id),
            ClientMessage::ConnectionTerminate => self.close(CloseCode::NORMAL, "Terminated"),
        }
    }

    /// The protocol's answer to what is wrong with the connection; it does not end by it.
    fn connection_error(&mut self, message: &str) {
        let payload = error_payload(message);
        self.pending.text(envelope::message("connection_error", Some(payload.into())));
    }

    fn keep_alive(&mut self) {
        self.pending.text(envelope::message("ka", None));
    }
}

impl Protocol for GraphqlWs {
    type Event = Event;

    fn receive_text(&mut self, text: Bytes) {
        if self.phase != Phase::Ended {
            self.receive_parsed(ClientMessage::parse(text));
        }
    }

    fn is_acknowledged(&self) -> bool {
        self.phase == Phase::Ready
    }

    fn receive_large(&mut self, message: LargeMessage) {
        if self.phase != Phase::Ended {
            self.pending.event(Event::Large(message));
        }
    }

    fn receive_binary(&mut self, _: Bytes) {
        let reason = "Invalid message: binary messages are not part of the protocol";
        self.close(INVALID_MESSAGE, reason);
    }

    fn ended(&mut self, closed: Closed) {
        if self.phase == Phase::Ended {
            return;
        }
        if self.phase == Phase::Initialising {
            // Nobody was told of what waited for the acknowledgement.
            self.pending.forget_events();
        }
        self.phase = Phase::Ended;
        self.operations.clear();
        self.pending.event(Event::Ended(closed));
    }

    fn poll_event(&mut self) -> Option<Event> {
        let waits = self.phase == Phase::Initialising
            && !matches!(self.pending.first_event(), Some(Event::Init { .. }));
        if waits { None } else { self.pending.take_event() }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connected => self.since.checked_add(self.config.init_timeout),
            Phase::Ready => self.since.checked_add(self.config.keep_alive?),
            Phase::Initialising | Phase::Ended => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.phase == Phase::Ready {
            self.since = now;
            self.keep_alive();
        } else {
            self.close(INITIALISATION_TIMEOUT, "Connection initialisation timeout");
        }
    }
}

impl GraphqlWs {
    /// Takes a text message that was parsed.
    pub(crate) fn receive_parsed(&mut self, message: Result<ClientMessage, Invalid>) {
        if self.phase == Phase::Ended {
            return;
        }
        match message {
            Ok(message) => self.receive(message),
            Err(Invalid(what)) => self.connection_error(&format!("Invalid message: {what}")),
        }
    }
}
