//! The client of `graphql-transport-ws` and `graphql-ws` on an open WebSocket, with any number of operations.
//!
//! Operations may begin before the server's acknowledgement; they wait for it inside. The WebSocket below notices a
//! server that is gone, because every WebSocket server responds to ping frames. So this machine has no deadline for
//! `ka`. Under `graphql-transport-ws` it also sends a `ping` when the WebSocket pings: some proxies count messages
//! only, and some respond to frames while the server behind them is gone. Once the server has responded with a `pong`,
//! the frame is left out. If the server does not know the message, and closes the connection or sends an invalid
//! message within the time for a pong, the connection ends with [`ConnectionEnd::PingRefused`]. Close codes that may
//! have another cause do not end it so, see [`UpstreamClient::ended_after_ping`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::error::{ConnectionEnd, IgnoredMessage, OperationError};
use super::operation_id::OperationId;
use crate::connection::{Output, Protocol};
use crate::messages::{Dialect, InvalidMessage, message, operation_message};
use crate::pending::PendingQueues;
use crate::server_message::{ServerMessage, find_id};
use crate::websocket::{CloseCode, Closed, ClosedBy, WebSocketConfig};
use crate::{graphql_transport_ws, graphql_ws};

/// The server's message is invalid: the code of the npm package graphql-ws for its client.
pub const BAD_RESPONSE: CloseCode = CloseCode(4004);
/// The server did not acknowledge the connection in time: the code of the npm package graphql-ws for its client.
pub const ACKNOWLEDGEMENT_TIMEOUT: CloseCode = CloseCode(4504);

/// The number of bytes that are kept of a message over the limit, to find its operation. Most servers write the id,
/// which the router chose, and the type before the payload: under 100 bytes.
pub const OVERSIZED_HEAD_BYTES: usize = 1024;

/// The reason of the end of a connection on which the server sent a message over the limit that names no operation.
const TOO_BIG: &str = "message is too big";

/// Settings that many connections share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The time within which the server must respond to the upgrade request.
    pub handshake_timeout: Duration,
    /// The time from the upgrade within which the server must send `connection_ack`.
    pub ack_timeout: Duration,
    /// The maximum number of operations of one connection, those that wait for the acknowledgement included.
    pub operations_max: usize,
    /// The number of operations that are remembered after the server has ended them, to recognise later messages.
    pub ended_operations_max: usize,
    /// The settings of the WebSocket, among them its pings and the maximum size of a message.
    pub websocket: Arc<WebSocketConfig>,
}

impl Default for UpstreamSettings {
    /// Returns defaults with these reasons:
    /// - 5 s for the handshake: it needs one round trip and no work.
    /// - 10 s for the acknowledgement: the server may check a token with a third party.
    /// - 10,000 operations: far more than a graph has different ones, since equal ones are shared.
    /// - 64 ended operations: messages after the end follow it closely.
    /// - 64 MiB a message: the default limit of a response from a subgraph. A larger one ends its operation only.
    fn default() -> UpstreamSettings {
        let websocket = WebSocketConfig {
            message_bytes_max: 64 * 1024 * 1024,
            oversized_head_bytes_max: OVERSIZED_HEAD_BYTES,
            ..WebSocketConfig::default()
        };
        UpstreamSettings {
            handshake_timeout: Duration::from_secs(5),
            ack_timeout: Duration::from_secs(10),
            operations_max: 10_000,
            ended_operations_max: 64,
            websocket: Arc::new(websocket),
        }
    }
}

/// The reason that an operation cannot begin on this connection. It may begin on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The connection has as many operations as it may have.
    #[error("the connection to the subgraph has {limit} operations, the most it may have")]
    TooManyOperations {
        /// The limit.
        limit: usize,
    },
    /// The connection has ended.
    #[error("the connection to the subgraph has ended")]
    Ended,
}

/// A message of the server, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// The server acknowledged the connection; operations that waited were sent.
    Ready {
        /// The payload of the acknowledgement, any JSON value.
        payload: Option<Bytes>,
    },
    /// A result of an operation in progress.
    Next {
        /// The operation.
        id: OperationId,
        /// A JSON object, the GraphQL response: a slice of the received message.
        payload: Bytes,
    },
    /// An operation has ended after its last result.
    Complete {
        /// The operation.
        id: OperationId,
    },
    /// An operation has failed and ended. Other operations go on.
    Failed {
        /// The operation.
        id: OperationId,
        /// The reason.
        error: OperationError,
    },
    /// A message broke the protocol and was ignored.
    Ignored(IgnoredMessage),
    /// The last event: the connection and all its operations have ended.
    Ended(ConnectionEnd),
}

/// The client's side of one connection.
pub struct UpstreamClient {
    settings: Arc<UpstreamSettings>,
    dialect: Dialect,
    phase: ClientPhase,
    pings: PingSupport,
    /// The operations in progress, those that wait included.
    operations: HashSet<OperationId>,
    /// The operations that wait for the acknowledgement, in their order.
    waiting: VecDeque<(OperationId, Bytes)>,
    /// The operations that the server ended most recently.
    ended_by_server: VecDeque<OperationId>,
    last_id: u64,
    late_messages: u64,
    pending: PendingQueues<UpstreamEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    /// The WebSocket is not open.
    Upgrading,
    /// `connection_init` was sent at `since`.
    AwaitsAck {
        since: Instant,
    },
    /// The connection was acknowledged.
    Ready,
    Ended,
}

/// The server's support of `ping` messages, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PingSupport {
    /// No `ping` was sent to find out.
    Unknown,
    /// The first `ping` was sent at `since`, and no `pong` has arrived within the time for it, which is not over.
    Asked { since: Instant },
    /// The connection has outlasted the first `ping` without a `pong`, so later failures have other causes.
    Tolerated,
    /// The server responds with `pong`.
    Supported,
    /// An earlier connection ended because of a `ping`.
    Unsupported,
}

impl UpstreamClient {
    /// Returns a client before the upgrade of its connection: operations wait inside.
    pub(super) fn before_upgrade(settings: Arc<UpstreamSettings>) -> UpstreamClient {
        UpstreamClient {
            settings,
            dialect: Dialect::TransportWs,
            phase: ClientPhase::Upgrading,
            pings: PingSupport::Unknown,
            operations: HashSet::new(),
            waiting: VecDeque::new(),
            ended_by_server: VecDeque::new(),
            last_id: 0,
            late_messages: 0,
            pending: PendingQueues::default(),
        }
    }

    /// Begins on a fresh WebSocket: sends `connection_init`. The payload, if any, is a JSON object. `None` unless
    /// `subprotocol` is `graphql-transport-ws` or `graphql-ws`.
    pub fn new(
        settings: Arc<UpstreamSettings>,
        subprotocol: &str,
        init_payload: Option<Bytes>,
        now: Instant,
    ) -> Option<UpstreamClient> {
        let mut client = UpstreamClient::before_upgrade(settings);
        client.begin(subprotocol, init_payload, now).then_some(client)
    }

    /// Notes that the WebSocket is open, and sends `connection_init`. Returns whether `subprotocol` is known; without
    /// effect if it is not.
    pub(super) fn begin(
        &mut self,
        subprotocol: &str,
        init_payload: Option<Bytes>,
        now: Instant,
    ) -> bool {
        self.dialect = match subprotocol {
            graphql_transport_ws::SUBPROTOCOL => Dialect::TransportWs,
            graphql_ws::SUBPROTOCOL => Dialect::Ws,
            _ => return false,
        };
        if self.phase == ClientPhase::Upgrading {
            self.phase = ClientPhase::AwaitsAck { since: now };
            self.pending.push_text(message("connection_init", init_payload));
        }
        true
    }

    /// Begins an operation; `request` is a JSON object with `query` and so on. Before the acknowledgement the
    /// operation waits inside.
    pub fn subscribe(&mut self, request: Bytes) -> Result<OperationId, SubscribeError> {
        if self.phase == ClientPhase::Ended {
            return Err(SubscribeError::Ended);
        }
        let limit = self.settings.operations_max;
        if self.operations.len() >= limit {
            return Err(SubscribeError::TooManyOperations { limit });
        }
        self.last_id += 1;
        let id = OperationId(self.last_id);
        self.operations.insert(id);
        match self.phase {
            ClientPhase::Ready => self.send_start(id, request),
            _ => self.waiting.push_back((id, request)),
        }
        Ok(id)
    }

    /// Ends an operation. Returns whether it was in progress. No event about it follows, except for those that wait to
    /// be polled.
    pub fn unsubscribe(&mut self, id: OperationId) -> bool {
        let was_active = self.operations.remove(&id);
        if was_active {
            self.send_stop(id);
        }
        was_active
    }

    /// Sends a `ping` with a payload, a JSON object, to a server that has acknowledged the connection. No response is
    /// awaited. Without effect under `graphql-ws`, which has no such message.
    pub fn send_ping(&mut self, payload: Bytes) {
        if self.is_ready() && self.dialect == Dialect::TransportWs {
            self.pending.push_text(message("ping", Some(payload)));
        }
    }

    /// Pings the server with frames only, because another connection has ended with [`ConnectionEnd::PingRefused`].
    pub fn disable_ping_messages(&mut self) {
        self.pings = PingSupport::Unsupported;
    }

    /// Closes the connection, for example because it has no operations.
    pub fn close(&mut self) {
        if self.phase == ClientPhase::Ended {
            return;
        }
        if self.dialect == Dialect::Ws && self.phase != ClientPhase::Upgrading {
            self.pending.push_text(message("connection_terminate", None));
        }
        self.close_with(CloseCode::NORMAL, "", ConnectionEnd::ClosedByRouter);
    }

    /// Returns the number of operations in progress, those that wait for the acknowledgement included.
    pub fn in_progress(&self) -> usize {
        self.operations.len()
    }

    /// True if the server has acknowledged the connection and it has not ended.
    pub fn is_ready(&self) -> bool {
        self.phase == ClientPhase::Ready
    }

    /// True if the connection ended directly after the first `ping`: within the time for a `pong`, and before one. The
    /// `ping` may be the cause, whatever the close code says.
    pub fn ended_after_ping(&self) -> bool {
        self.has_ended() && self.awaits_first_pong()
    }

    /// True if the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.phase == ClientPhase::Ended
    }

    /// Returns the number of messages about operations that this side had ended. A few for each operation are usual,
    /// because they cross the request to end it.
    pub fn late_messages(&self) -> u64 {
        self.late_messages
    }

    /// Ends the connection, without a message to the server.
    pub(super) fn end(&mut self, end: ConnectionEnd) {
        if self.phase != ClientPhase::Ended {
            self.phase = ClientPhase::Ended;
            self.operations = HashSet::new();
            self.waiting = VecDeque::new();
            self.pending.push_event(UpstreamEvent::Ended(end));
        }
    }

    fn close_with(&mut self, code: CloseCode, reason: &str, end: ConnectionEnd) {
        if self.phase != ClientPhase::Ended {
            self.pending.push_close(code, reason.into());
            self.end(end);
        }
    }

    /// Ends the connection because of an invalid message that names no operation.
    fn close_invalid(&mut self, reason: &str) {
        let end = if self.awaits_first_pong() {
            ConnectionEnd::PingRefused(format!("it sent an invalid message: {reason}").into())
        } else {
            ConnectionEnd::InvalidMessage(reason.into())
        };
        self.close_with(BAD_RESPONSE, &format!("Invalid message: {reason}"), end);
    }

    /// True from the first `ping` until a `pong`, or the end of the time for it.
    fn awaits_first_pong(&self) -> bool {
        matches!(self.pings, PingSupport::Asked { .. })
    }

    fn send_start(&mut self, id: OperationId, request: Bytes) {
        let start = operation_message(&id.to_string(), self.dialect.start(), Some(request));
        self.pending.push_text(start);
    }

    /// Tells the server to end an operation that was removed from the list.
    fn send_stop(&mut self, id: OperationId) {
        match self.phase {
            ClientPhase::Ready => {
                let stop = operation_message(&id.to_string(), self.dialect.stop(), None);
                self.pending.push_text(stop);
            }
            _ => self.waiting.retain(|(waiting, _)| *waiting != id),
        }
    }

    fn receive_ack(&mut self, payload: Option<Bytes>) {
        match self.phase {
            ClientPhase::AwaitsAck { .. } => {
                self.phase = ClientPhase::Ready;
                self.pending.push_event(UpstreamEvent::Ready { payload });
                for (id, request) in std::mem::take(&mut self.waiting) {
                    self.send_start(id, request);
                }
            }
            _ => self.ignore(IgnoredMessage::RepeatedAck),
        }
    }

    /// Returns the operation with this id if it is in progress. Otherwise notes the message as late or ignored.
    fn find_operation(&mut self, id: &str) -> Option<OperationId> {
        if !self.is_ready() {
            self.close_invalid("a message of an operation came before `connection_ack`");
            return None;
        }
        match OperationId::parse(id).filter(|id| id.0 <= self.last_id) {
            Some(id) if self.operations.contains(&id) => return Some(id),
            Some(id) if self.ended_by_server.contains(&id) => {
                self.ignore(IgnoredMessage::AfterEnd(id));
            }
            Some(id) => {
                self.late_messages += 1;
                // The npm package subscriptions-transport-ws forgets a `stop` that comes while the operation begins.
                if self.dialect == Dialect::Ws {
                    self.send_stop(id);
                }
            }
            None => self.ignore(IgnoredMessage::UnknownId(shorten(id).into())),
        }
        None
    }

    /// Removes an operation that the server ended.
    fn remove_ended(&mut self, id: OperationId) {
        self.operations.remove(&id);
        if self.ended_by_server.len() >= self.settings.ended_operations_max {
            self.ended_by_server.pop_front();
        }
        if self.settings.ended_operations_max > 0 {
            self.ended_by_server.push_back(id);
        }
    }

    /// Ends an operation of which a message is invalid, also at the server.
    fn fail_invalid(&mut self, id: OperationId, invalid: &InvalidMessage) {
        self.fail_operation(id, OperationError::InvalidResult((*invalid.0).into()));
    }

    /// Ends an operation because of a message of its server, also at the server.
    fn fail_operation(&mut self, id: OperationId, error: OperationError) {
        self.operations.remove(&id);
        self.send_stop(id);
        self.pending.push_event(UpstreamEvent::Failed { id, error });
    }

    fn ignore(&mut self, ignored: IgnoredMessage) {
        self.pending.push_event(UpstreamEvent::Ignored(ignored));
    }

    fn receive(&mut self, received: ServerMessage) {
        match received {
            ServerMessage::Next { id, payload } => {
                let Some(id) = self.find_operation(&id) else { return };
                match payload {
                    Ok(payload) => self.pending.push_event(UpstreamEvent::Next { id, payload }),
                    Err(invalid) => self.fail_invalid(id, &invalid),
                }
            }
            ServerMessage::Error { id, errors } => {
                let Some(id) = self.find_operation(&id) else { return };
                match errors {
                    Ok(errors) => {
                        self.remove_ended(id);
                        let error = OperationError::Errors(errors);
                        self.pending.push_event(UpstreamEvent::Failed { id, error });
                    }
                    Err(invalid) => self.fail_invalid(id, &invalid),
                }
            }
            ServerMessage::Complete { id } => {
                let Some(id) = self.find_operation(&id) else { return };
                self.remove_ended(id);
                self.pending.push_event(UpstreamEvent::Complete { id });
            }
            ServerMessage::Ack { payload } => self.receive_ack(payload),
            ServerMessage::Ping { payload } => self.pending.set_pong(message("pong", payload)),
            ServerMessage::Pong => {
                if matches!(self.pings, PingSupport::Asked { .. } | PingSupport::Tolerated) {
                    self.pings = PingSupport::Supported;
                }
            }
            ServerMessage::KeepAlive => {}
            ServerMessage::Refused(text) => {
                self.close_with(CloseCode::NORMAL, "", ConnectionEnd::Refused(text));
            }
        }
    }
}

impl Protocol for UpstreamClient {
    type Event = UpstreamEvent;

    fn receive_text(&mut self, text: Bytes) {
        if self.phase == ClientPhase::Ended {
            return;
        }
        match ServerMessage::parse(self.dialect, &text) {
            Ok(received) => self.receive(received),
            // The other operations go on if the message names the one that it belongs to.
            Err(invalid) => match find_id(&text) {
                Some(id) => {
                    if let Some(id) = self.find_operation(&id) {
                        self.fail_invalid(id, &invalid);
                    }
                }
                None => self.close_invalid(&invalid.0),
            },
        }
    }

    fn receive_oversized(&mut self, head: Bytes) {
        if self.phase == ClientPhase::Ended {
            return;
        }
        let Some(id) = find_id(&head) else {
            let (code, reason) = (CloseCode::TOO_BIG, TOO_BIG.into());
            let end = ConnectionEnd::BrokenRule(Closed { code, reason, by: ClosedBy::Us });
            return self.close_with(code, TOO_BIG, end);
        };
        if let Some(id) = self.find_operation(&id) {
            let limit = self.settings.websocket.message_bytes_max;
            self.fail_operation(id, OperationError::ResultTooBig { limit });
        }
    }

    fn receive_binary(&mut self, _: Bytes) {
        self.close_invalid("binary messages are not part of the protocol");
    }

    fn ended(&mut self, closed: Closed) {
        let may_refuse_ping = self.awaits_first_pong() && refuses_message(closed.code);
        self.end(match closed.by {
            ClosedBy::Us => ConnectionEnd::BrokenRule(closed),
            ClosedBy::Peer if may_refuse_ping => {
                let Closed { code, reason, .. } = closed;
                let text = format!("it closed the connection with code {code}: {reason}");
                ConnectionEnd::PingRefused(text.trim_end_matches(": ").into())
            }
            ClosedBy::Peer => ConnectionEnd::ClosedByServer(closed),
            ClosedBy::Loss => ConnectionEnd::Lost(closed),
        });
    }

    fn poll_event(&mut self) -> Option<UpstreamEvent> {
        self.pending.take_event()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.pending.take_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match (self.phase, self.pings) {
            (ClientPhase::AwaitsAck { since }, _) => since.checked_add(self.settings.ack_timeout),
            (ClientPhase::Ready, PingSupport::Asked { since }) => {
                since.checked_add(self.settings.websocket.pong_timeout)
            }
            _ => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.phase == ClientPhase::Ready {
            // The only deadline of this phase.
            self.pings = PingSupport::Tolerated;
            return;
        }
        // No other phase has a deadline.
        let end = ConnectionEnd::AckTimeout(self.settings.ack_timeout);
        self.close_with(ACKNOWLEDGEMENT_TIMEOUT, "Connection acknowledgement timeout", end);
    }

    fn ping_silent_peer(&mut self, now: Instant) -> bool {
        let has_pings = self.is_ready() && self.dialect == Dialect::TransportWs;
        if !has_pings || self.pings == PingSupport::Unsupported {
            return false;
        }
        if self.pings == PingSupport::Unknown {
            self.pings = PingSupport::Asked { since: now };
        }
        self.pending.push_text(message("ping", None));
        self.pings == PingSupport::Supported
    }
}

/// True for the codes with which servers close a connection because of a message that they do not know: 4400 by the
/// protocol, the others by WebSocket libraries and gateways. Codes of general failures, such as 1011, are none of them:
/// a gateway also sends them when it has lost its server.
fn refuses_message(code: CloseCode) -> bool {
    matches!(code.0, 1002 | 1003 | 1007 | 1008 | 4400)
}

/// Returns the beginning of an id that the server chose: it goes into logs and has no bound of its own.
fn shorten(id: &str) -> &str {
    &id[..id.floor_char_boundary(100)]
}
