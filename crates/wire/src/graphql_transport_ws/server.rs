//! The server's machine.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::envelope::{
    self, ClientMessage, Invalid, Request, append_operation_prefix, operation_message,
    operation_prefix_len,
};
use super::position::position_message;
use super::{
    FORBIDDEN, INITIALISATION_TIMEOUT, INVALID_MESSAGE, SUBPROTOCOL, SUBPROTOCOL_NOT_ACCEPTABLE,
    SUBSCRIBER_ALREADY_EXISTS, TOO_MANY_INITIALISATION_REQUESTS, UNAUTHORIZED,
};
use crate::Chunks;
use crate::connection::{Connection, Output, Protocol};
use crate::operations::{Operations, Subscription};
use crate::pending::Pending;
use crate::websocket::{CloseCode, Closed, ClosedBy, LargeMessage, append_text_head};

/// Settings that many connections share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a client may take to send `connection_init`; past it the socket closes with 4408.
    pub init_timeout: Duration,
    /// Most operations in progress on one connection; one more gets an error result.
    pub subscriptions_max: usize,
    /// Longest operation id in bytes; a longer one closes the socket with 4400.
    pub id_bytes_max: usize,
    /// How often graphql-ws, which knows no pings, says that it is still there. `None`: never.
    pub keep_alive: Option<Duration>,
}

impl Default for Config {
    /// 3 s to initialise, as graphql-ws does. A thousand operations: several for each part of the
    /// fullest page. 1 KiB for an id: clients use counters or UUIDs of 36 bytes, and the id goes out
    /// again with each event. 12 s between signs of life: the npm client waits for 30.
    fn default() -> Config {
        Config {
            init_timeout: Duration::from_secs(3),
            subscriptions_max: 1000,
            id_bytes_max: 1024,
            keep_alive: Some(Duration::from_secs(12)),
        }
    }
}

/// What a client wants, or how the connection ended. `Debug` does not show payloads, see
/// [`Request`].
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// The client introduces itself. Answer with [`GraphqlTransportWs::accept_init`] or
    /// [`GraphqlTransportWs::forbid`].
    Init {
        /// A JSON object.
        payload: Option<Bytes>,
    },
    /// The client wants an operation executed. Answer with any number of results and one end:
    /// [`GraphqlTransportWs::error`] or [`GraphqlTransportWs::complete`].
    Subscribe {
        /// The client's name for the operation, unique while it lasts.
        id: Box<str>,
        /// Our name for it on this connection, counted up from 0: for lists of members.
        number: u32,
        /// The operation.
        request: Request,
    },
    /// The client wants no more of an operation. Nothing more is sent for this id.
    Complete {
        /// The client's name for the operation.
        id: Box<str>,
        /// Our name for it.
        number: u32,
    },
    /// A message for another thread to read. Hand it back with [`Connection::resume`].
    Large(LargeMessage),
    /// The last event, given once: all operations of the connection are over.
    Ended(Closed),
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Init { payload } => {
                f.debug_struct("Init").field("payload", &envelope::Hidden(payload)).finish()
            }
            Event::Subscribe { id, number, request } => f
                .debug_struct("Subscribe")
                .field("id", id)
                .field("number", number)
                .field("request", request)
                .finish(),
            Event::Complete { id, number } => {
                f.debug_struct("Complete").field("id", id).field("number", number).finish()
            }
            Event::Large(message) => f.debug_tuple("Large").field(&message.len()).finish(),
            Event::Ended(closed) => f.debug_tuple("Ended").field(closed).finish(),
        }
    }
}

/// The server's side of one connection.
///
/// Commands for operations that are not in progress do nothing: the client's `complete` and the
/// server's results cross on the wire all the time.
pub struct GraphqlTransportWs {
    config: Arc<Config>,
    phase: Phase,
    operations: Operations,
    pending: Pending<Event>,
}

// Part of what an idle connection may cost, see `subprotocol`.
const _: () = assert!(size_of::<Connection<GraphqlTransportWs>>() <= 112);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No `connection_init` yet; it is due at the instant, if any.
    Connected(Option<Instant>),
    /// The application thinks about the `connection_init`.
    Initialising,
    /// Acknowledged.
    Ready,
    Ended,
}

impl GraphqlTransportWs {
    /// Begins on a fresh WebSocket. Without [`SUBPROTOCOL`] as the negotiated `subprotocol` the
    /// socket is closed with 4406.
    pub fn new(config: Arc<Config>, subprotocol: Option<&str>, now: Instant) -> GraphqlTransportWs {
        let phase = Phase::Connected(now.checked_add(config.init_timeout));
        let mut server = GraphqlTransportWs {
            config,
            phase,
            operations: Operations::default(),
            pending: Pending::default(),
        };
        if subprotocol != Some(SUBPROTOCOL) {
            server.close(SUBPROTOCOL_NOT_ACCEPTABLE, "Subprotocol not acceptable");
        }
        server
    }

    /// Acknowledges the client's `connection_init`, with a JSON object if there is something to
    /// tell. Without effect when none waits for an answer.
    pub fn accept_init(&mut self, payload: Option<Bytes>) {
        if self.phase == Phase::Initialising {
            self.phase = Phase::Ready;
            self.pending.text(envelope::message("connection_ack", payload));
        }
    }

    /// Turns the client away: closes with 4403.
    pub fn forbid(&mut self) {
        self.close(FORBIDDEN, "Forbidden");
    }

    /// Sends a result, a JSON object, of an operation. Returns whether the operation is in progress.
    pub fn next(&mut self, id: &str, payload: Bytes) -> bool {
        let is_active = self.is_active(id);
        if is_active {
            self.pending.text(operation_message(id, NEXT, Some(payload)));
        }
        is_active
    }

    /// Tells where an operation is, without a result: `cursor` is text that needs no escapes. Returns whether the
    /// operation is in progress.
    pub fn position(&mut self, id: &str, cursor: Bytes) -> bool {
        let is_active = self.is_active(id);
        if is_active {
            self.pending.text(position_message(id, cursor));
        }
        is_active
    }

    /// Ends an operation that could not be executed; `errors` is a JSON list of GraphQL errors.
    /// Returns whether it was in progress.
    pub fn error(&mut self, id: &str, errors: Bytes) -> bool {
        let was_active = self.operations.remove(id).is_some();
        if was_active {
            self.pending.text(operation_message(id, "error", Some(errors)));
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

    /// Whether an operation is in progress.
    pub fn is_active(&self, id: &str) -> bool {
        self.operations.contains(id)
    }

    /// How many operations are in progress.
    pub fn in_progress(&self) -> usize {
        self.operations.len()
    }

    /// The id of an operation in progress.
    pub fn id_of(&self, number: u32) -> Option<&str> {
        self.operations.id_of(number)
    }

    fn subscribe(&mut self, id: &str, request: Request) {
        if self.operations.contains(id) {
            let reason = format!("Subscriber for {id} already exists");
            return self.close(SUBSCRIBER_ALREADY_EXISTS, &reason);
        }
        let most = self.config.subscriptions_max;
        if self.operations.len() >= most {
            let errors = format!("[{}]", envelope::too_many(most));
            return self.pending.text(operation_message(id, "error", Some(errors.into())));
        }
        let number = self.operations.insert(id);
        self.pending.event(Event::Subscribe { id: id.into(), number, request });
    }

    fn receive(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::ConnectionInit { payload } => {
                if matches!(self.phase, Phase::Connected(_)) {
                    self.phase = Phase::Initialising;
                    self.pending.event(Event::Init { payload });
                } else {
                    let reason = "Too many initialisation requests";
                    self.close(TOO_MANY_INITIALISATION_REQUESTS, reason);
                }
            }
            ClientMessage::Ping { payload } => {
                self.pending.pong(envelope::message("pong", payload));
            }
            ClientMessage::Pong => {}
            ClientMessage::Subscribe { id, request } => {
                if self.phase != Phase::Ready {
                    self.close(UNAUTHORIZED, "Unauthorized");
                } else if id.len() > self.config.id_bytes_max {
                    let reason = format!("`id` is over {} bytes", self.config.id_bytes_max);
                    self.close_invalid(&reason);
                } else {
                    self.subscribe(&id, request);
                }
            }
            ClientMessage::Complete { id } => {
                if let Some(Subscription { id, number }) = self.operations.remove(&id) {
                    self.pending.event(Event::Complete { id, number });
                }
            }
        }
    }

    fn close_invalid(&mut self, what: &str) {
        self.close(INVALID_MESSAGE, &format!("Invalid message: {what}"));
    }
}

impl Protocol for GraphqlTransportWs {
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
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        if self.phase != Phase::Ended {
            self.phase = Phase::Ended;
            self.operations.clear();
            self.pending.event(Event::Ended(closed));
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.pending.take_event()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connected(deadline) => deadline,
            _ => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.close(INITIALISATION_TIMEOUT, "Connection initialisation timeout");
        }
    }
}

impl GraphqlTransportWs {
    /// Takes a text message that was parsed.
    pub(crate) fn receive_parsed(&mut self, message: Result<ClientMessage, Invalid>) {
        if self.phase == Phase::Ended {
            return;
        }
        match message {
            Ok(message) => self.receive(message),
            Err(Invalid(what)) => self.close_invalid(&what),
        }
    }
}

/// A `next` message as a whole WebSocket frame, ready to write beside the connection's machine: the
/// payload is shared, the rest is one small allocation.
///
/// For outlets that keep their own queue. It is for them to send nothing for an id that is not in
/// progress, and nothing after the connection has ended.
pub fn next_frame(id: &str, payload: Bytes) -> Chunks {
    let mut head = Vec::with_capacity(10 + operation_prefix_len(id, NEXT));
    append_next_head(id, payload.len(), &mut head);
    Chunks { head: head.into(), body: payload, tail: b"}" }
}

/// Appends what stands before the payload of a `next` message: frame header and
/// `{"id":…,"type":"next","payload":`. Behind the payload, write `}`.
///
/// Hot path of a broadcast: called for each recipient and event. It allocates nothing when `out`
/// has room.
pub fn append_next_head(id: &str, payload_len: usize, out: &mut Vec<u8>) {
    append_result_head(id, NEXT, payload_len, out);
}

/// The type of a result's message.
pub(crate) const NEXT: &str = "next";

/// [`append_next_head`] for a message of any type.
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
    fn an_init_payload_is_not_in_what_debug_shows() {
        let event = Event::Init { payload: Some(r#"{"token":"hunter2"}"#.into()) };
        assert_eq!(format!("{event:?}"), "Init { payload: 19 bytes }");
    }

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
