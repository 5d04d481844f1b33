//! The client's machine.

use std::time::Instant;

use bytes::Bytes;

use super::protocol::INVALID_MESSAGE;
use crate::connection::{Output, Protocol};
use crate::messages::{Dialect, InvalidMessage, message, operation_message};
use crate::pending::PendingQueues;
use crate::server_message::ServerMessage;
use crate::websocket::{CloseCode, Closed, ClosedBy};

/// A message of the server, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server acknowledged the connection: operations may begin.
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
    /// An operation could not be executed and has ended.
    Error {
        /// The operation's id.
        id: String,
        /// A JSON list of GraphQL errors.
        errors: Bytes,
    },
    /// An operation has ended after its last result.
    Complete {
        /// The operation's id.
        id: String,
    },
    /// The response to [`Client::ping`].
    Pong,
    /// The last event.
    Ended(Closed),
}

/// The client's side of one connection. It sends `connection_init` at once.
///
/// It keeps no list of operations: the caller knows its ids, and ignores events for an operation that it has completed,
/// which may still be on their way.
pub struct Client {
    pending: PendingQueues<ClientEvent>,
    has_ended: bool,
}

impl Client {
    /// Begins on a fresh WebSocket. The payload, if any, is a JSON object.
    pub fn new(init_payload: Option<Bytes>) -> Client {
        let mut pending = PendingQueues::default();
        pending.push_text(message("connection_init", init_payload));
        Client { pending, has_ended: false }
    }

    /// Requests an operation; `request` is a JSON object with `query` and so on. Wait for [`ClientEvent::Ack`] first:
    /// otherwise a server closes the connection.
    pub fn subscribe(&mut self, id: &str, request: Bytes) {
        if !self.has_ended {
            self.pending.push_text(operation_message(id, "subscribe", Some(request)));
        }
    }

    /// Ends an operation.
    pub fn complete(&mut self, id: &str) {
        if !self.has_ended {
            self.pending.push_text(operation_message(id, "complete", None));
        }
    }

    /// Requests a [`ClientEvent::Pong`].
    pub fn ping(&mut self, payload: Option<Bytes>) {
        if !self.has_ended {
            self.pending.push_text(message("ping", payload));
        }
    }

    /// Closes the connection; the protocol's code for that is [`CloseCode::NORMAL`].
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if !self.has_ended {
            self.pending.push_close(code, reason.into());
            self.ended(Closed { code, reason: reason.into(), by: ClosedBy::Us });
        }
    }

    /// Unlike an upstream client, ends the connection also if only one operation is concerned.
    fn receive(&mut self, received: ServerMessage) -> Result<(), InvalidMessage> {
        self.pending.push_event(match received {
            ServerMessage::Ack { payload } => ClientEvent::Ack { payload },
            ServerMessage::Next { id, payload } => {
                ClientEvent::Next { id: id.into(), payload: payload? }
            }
            ServerMessage::Error { id, errors } => {
                ClientEvent::Error { id: id.into(), errors: errors? }
            }
            ServerMessage::Complete { id } => ClientEvent::Complete { id: id.into() },
            ServerMessage::Pong => ClientEvent::Pong,
            ServerMessage::Ping { payload } => {
                self.pending.set_pong(message("pong", payload));
                return Ok(());
            }
            // Messages of the other subprotocol.
            ServerMessage::KeepAlive | ServerMessage::Refused(_) => return Ok(()),
        });
        Ok(())
    }

    fn close_invalid(&mut self, reason: &str) {
        self.close(INVALID_MESSAGE, &format!("Invalid message: {reason}"));
    }
}

impl Protocol for Client {
    type Event = ClientEvent;

    fn receive_text(&mut self, text: Bytes) {
        if self.has_ended {
            return;
        }
        let received = ServerMessage::parse(Dialect::TransportWs, &text);
        if let Err(InvalidMessage(reason)) = received.and_then(|it| self.receive(it)) {
            self.close_invalid(&reason);
        }
    }

    fn receive_binary(&mut self, _: Bytes) {
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        if !self.has_ended {
            self.has_ended = true;
            self.pending.push_event(ClientEvent::Ended(closed));
        }
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.pending.take_event()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
