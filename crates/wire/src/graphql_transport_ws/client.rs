//! The client's machine.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::INVALID_MESSAGE;
use super::envelope::{Invalid, ServerMessage, message, operation_message};
use crate::connection::{Outbox, Output, Protocol};
use crate::websocket::{CloseCode, Closed, ClosedBy, pop_or_release};

/// What a server says, or how the connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The connection is acknowledged: operations may begin.
    Ack {
        /// A JSON object.
        payload: Option<Bytes>,
    },
    /// A result of an operation.
    Next {
        /// The operation's id.
        id: String,
        /// A JSON object, the GraphQL response.
        payload: Bytes,
    },
    /// An operation could not be executed and is over.
    Error {
        /// The operation's id.
        id: String,
        /// A JSON list of GraphQL errors.
        errors: Bytes,
    },
    /// An operation has given all its results.
    Complete {
        /// The operation's id.
        id: String,
    },
    /// Answers a [`Client::ping`].
    Pong,
    /// The last event, given once.
    Ended(Closed),
}

/// The client's side of one connection: sends `connection_init` at once.
///
/// It keeps no list of operations: the caller knows its ids, and ignores events for one that it has
/// completed, which may still be on their way.
pub struct Client {
    events: VecDeque<ClientEvent>,
    outbox: Outbox,
    has_ended: bool,
}

impl Client {
    /// Begins on a fresh WebSocket. The payload, if any, is a JSON object.
    pub fn new(init_payload: Option<Bytes>) -> Client {
        let mut outbox = Outbox::default();
        outbox.text(message("connection_init", init_payload));
        Client { events: VecDeque::new(), outbox, has_ended: false }
    }

    /// Asks for an operation, whose `request` is a JSON object with `query` and so on. Wait for
    /// [`ClientEvent::Ack`] first: a server closes the connection otherwise.
    pub fn subscribe(&mut self, id: &str, request: Bytes) {
        if !self.has_ended {
            self.outbox.text(operation_message(id, "subscribe", Some(request)));
        }
    }

    /// Asks for no more of an operation.
    pub fn complete(&mut self, id: &str) {
        if !self.has_ended {
            self.outbox.text(operation_message(id, "complete", None));
        }
    }

    /// Asks for a [`ClientEvent::Pong`].
    pub fn ping(&mut self, payload: Option<Bytes>) {
        if !self.has_ended {
            self.outbox.text(message("ping", payload));
        }
    }

    /// Ends the connection; the protocol's way is [`CloseCode::NORMAL`].
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if !self.has_ended {
            self.outbox.close(code, reason.into());
            self.ended(Closed { code, reason: reason.into(), by: ClosedBy::Us });
        }
    }

    fn close_invalid(&mut self, what: &str) {
        self.close(INVALID_MESSAGE, &format!("Invalid message: {what}"));
    }
}

impl Protocol for Client {
    type Event = ClientEvent;

    fn receive_text(&mut self, text: Bytes) {
        if self.has_ended {
            return;
        }
        let event = match ServerMessage::parse(text) {
            Ok(ServerMessage::ConnectionAck { payload }) => ClientEvent::Ack { payload },
            Ok(ServerMessage::Next { id, payload }) => ClientEvent::Next { id, payload },
            Ok(ServerMessage::Error { id, errors }) => ClientEvent::Error { id, errors },
            Ok(ServerMessage::Complete { id }) => ClientEvent::Complete { id },
            Ok(ServerMessage::Pong) => ClientEvent::Pong,
            Ok(ServerMessage::Ping { payload }) => {
                return self.outbox.pong(message("pong", payload));
            }
            Err(Invalid(what)) => return self.close_invalid(&what),
        };
        self.events.push_back(event);
    }

    fn receive_binary(&mut self, _: Bytes) {
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        if !self.has_ended {
            self.has_ended = true;
            self.events.push_back(ClientEvent::Ended(closed));
        }
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        pop_or_release(&mut self.events)
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outbox.poll()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
