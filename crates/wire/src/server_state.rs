//! The part of a server's machine that both WebSocket subprotocols share: settings, events for the layer above, and the
//! operations that the client has started.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Chunks;
use crate::messages::{HiddenText, InvalidMessage, Request, message, operation_message};
use crate::operations::{ActiveOperation, ActiveOperations};
use crate::pending::PendingQueues;
use crate::websocket::{CloseCode, Closed, ClosedBy, LargeMessage};

/// Settings that many connections share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolConfig {
    /// The time within which a client must send `connection_init`; after it the socket closes with 4408.
    pub init_timeout: Duration,
    /// The maximum number of operations in progress on one connection; one more gets an error result.
    pub subscriptions_max: usize,
    /// The maximum length of an operation id in bytes; a longer one closes the socket with 4400.
    pub id_bytes_max: usize,
    /// The interval of keep-alive messages under `graphql-ws`, which has no pings; `None` sends none.
    pub keep_alive: Option<Duration>,
}

impl Default for ProtocolConfig {
    /// Returns defaults with these reasons:
    /// - 3 s to initialise, as the npm package graphql-ws does.
    /// - A thousand operations: several for each part of the fullest page.
    /// - 1 KiB for an id: clients use counters or UUIDs of 36 bytes, and the id is sent again with each event.
    /// - 12 s between keep-alive messages: the npm client waits for 30.
    fn default() -> ProtocolConfig {
        ProtocolConfig {
            init_timeout: Duration::from_secs(3),
            subscriptions_max: 1000,
            id_bytes_max: 1024,
            keep_alive: Some(Duration::from_secs(12)),
        }
    }
}

/// A request of the client, or the end of the connection. `Debug` does not show payloads, see [`Request`].
#[derive(Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client sent `connection_init`. Respond with `accept_init` or `forbid`.
    Init {
        /// A JSON object.
        payload: Option<Bytes>,
    },
    /// The client sent a `ping` with a payload on an acknowledged connection. The machine sends the `pong` itself.
    Ping {
        /// A JSON object.
        payload: Bytes,
    },
    /// The client requests an operation. Respond with any number of results (`next`) and one end (`error` or
    /// `complete`).
    Subscribe {
        /// The id that the client chose, unique while the operation is in progress.
        id: Box<str>,
        /// The number that the server chose, counted up from 0: for lists of members.
        number: u32,
        /// The operation.
        request: Request,
    },
    /// The client ended an operation. Nothing more is sent for this id.
    Complete {
        /// The id that the client chose.
        id: Box<str>,
        /// The number that the server chose.
        number: u32,
    },
    /// A message for another thread to read. Return it with
    /// [`Connection::resume`](crate::connection::Connection::resume).
    Large(LargeMessage),
    /// The last event: all operations of the connection are over.
    Ended(Closed),
}

impl fmt::Debug for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerEvent::Init { payload } => {
                f.debug_struct("Init").field("payload", &HiddenText(payload)).finish()
            }
            ServerEvent::Ping { payload } => {
                f.debug_struct("Ping").field("payload", &payload.len()).finish()
            }
            ServerEvent::Subscribe { id, number, request } => f
                .debug_struct("Subscribe")
                .field("id", id)
                .field("number", number)
                .field("request", request)
                .finish(),
            ServerEvent::Complete { id, number } => {
                f.debug_struct("Complete").field("id", id).field("number", number).finish()
            }
            ServerEvent::Large(message) => f.debug_tuple("Large").field(&message.len()).finish(),
            ServerEvent::Ended(closed) => f.debug_tuple("Ended").field(closed).finish(),
        }
    }
}

/// The operations of one connection, with the events and messages about them that wait to be polled.
pub(crate) struct ServerState {
    pub(crate) config: Arc<ProtocolConfig>,
    active: ActiveOperations,
    pub(crate) pending: PendingQueues<ServerEvent>,
}

impl ServerState {
    pub(crate) fn new(config: Arc<ProtocolConfig>) -> ServerState {
        ServerState {
            config,
            active: ActiveOperations::default(),
            pending: PendingQueues::default(),
        }
    }

    /// Returns the number of operations in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.active.len()
    }

    /// Returns the id of an operation in progress.
    pub(crate) fn id_of(&self, number: u32) -> Option<&str> {
        self.active.id_of(number)
    }

    /// True if an operation with this id is in progress.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.active.contains(id)
    }

    /// Sends a message that belongs to no operation.
    pub(crate) fn send(&mut self, kind: &str, payload: Option<Bytes>) {
        self.pending.push_text(message(kind, payload));
    }

    /// Sends a message of an operation, made by `write`, if the operation is in progress. Returns whether it is.
    pub(crate) fn send_of(&mut self, id: &str, write: impl FnOnce() -> Chunks) -> bool {
        let is_active = self.active.contains(id);
        if is_active {
            self.pending.push_text(write());
        }
        is_active
    }

    /// Ends an operation with its last message, made by `write`, if the operation is in progress. Returns whether it
    /// was.
    pub(crate) fn end(&mut self, id: &str, write: impl FnOnce() -> Chunks) -> bool {
        let was_active = self.active.remove(id).is_some();
        if was_active {
            self.pending.push_text(write());
        }
        was_active
    }

    /// Checks the length of an id that the client chose.
    pub(crate) fn check_id(&self, id: &str) -> Result<(), InvalidMessage> {
        let most = self.config.id_bytes_max;
        match id.len() > most {
            true => Err(InvalidMessage(format!("`id` is over {most} bytes").into())),
            false => Ok(()),
        }
    }

    /// Starts an operation with an id that is not in use. If the connection has as many operations as it may have, the
    /// operation ends at once with an error; `payload` makes the payload of that message from the error, a JSON object.
    pub(crate) fn start(
        &mut self,
        id: &str,
        request: Request,
        payload: impl FnOnce(String) -> String,
    ) {
        let most = self.config.subscriptions_max;
        if self.active.len() >= most {
            let payload = payload(too_many_operations(most));
            return self.pending.push_text(operation_message(id, "error", Some(payload.into())));
        }
        let number = self.active.insert(id);
        self.pending.push_event(ServerEvent::Subscribe { id: id.into(), number, request });
    }

    /// Removes an operation that the client ended.
    pub(crate) fn stop(&mut self, id: &str) -> Option<ActiveOperation> {
        self.active.remove(id)
    }

    /// Queues a close frame, and returns the end of the connection that it causes.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str) -> Closed {
        self.pending.push_close(code, reason.into());
        Closed { code, reason: reason.into(), by: ClosedBy::Us }
    }

    /// Ends all operations with the connection.
    pub(crate) fn end_all(&mut self, closed: Closed) {
        self.active.clear();
        self.pending.push_event(ServerEvent::Ended(closed));
    }
}

/// Returns the error of an operation over the limit of the connection, a JSON object.
fn too_many_operations(most: usize) -> String {
    format!(
        r#"{{"message":"This connection has {most} operations in progress, the most it may have: complete one first.","extensions":{{"code":"TOO_MANY_SUBSCRIPTIONS"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_contain_an_init_payload() {
        let event = ServerEvent::Init { payload: Some(r#"{"token":"hunter2"}"#.into()) };
        assert_eq!(format!("{event:?}"), "Init { payload: 19 bytes }");
    }
}
