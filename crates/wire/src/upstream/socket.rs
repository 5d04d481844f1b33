//! One connection to a server from the upgrade request on: the opening handshake, the WebSocket and the subprotocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::client::{SubscribeError, UpstreamClient, UpstreamEvent, UpstreamSettings};
use super::error::ConnectionEnd;
use super::operation_id::OperationId;
use crate::connection::Connection;
use crate::websocket::handshake::{ClientHandshake, HandshakeError, Upgraded};
use crate::websocket::{CloseCode, Closed, ClosedBy};
use crate::{Chunks, Machine, graphql_transport_ws, graphql_ws};

/// The subprotocols that the router offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubprotocolChoice {
    /// Both, `graphql-transport-ws` first: the server chooses.
    #[default]
    Auto,
    /// `graphql-transport-ws` only.
    TransportWs,
    /// `graphql-ws` only.
    Ws,
}

impl SubprotocolChoice {
    /// Returns the names for `Sec-WebSocket-Protocol`, the preferred one first.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            SubprotocolChoice::Auto => {
                &[graphql_transport_ws::SUBPROTOCOL, graphql_ws::SUBPROTOCOL]
            }
            SubprotocolChoice::TransportWs => &[graphql_transport_ws::SUBPROTOCOL],
            SubprotocolChoice::Ws => &[graphql_ws::SUBPROTOCOL],
        }
    }
}

/// The contents of an upgrade request. It has no `Debug`, because headers and payload contain tokens.
#[derive(Clone)]
pub struct UpgradeRequest<'a> {
    /// The value of the `Host` header.
    pub authority: &'a str,
    /// The path and the query of the URL.
    pub target: &'a str,
    /// The subprotocols to offer.
    pub subprotocols: SubprotocolChoice,
    /// Further headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The payload of `connection_init`, a JSON object.
    pub init_payload: Option<Bytes>,
    /// Random bytes for the key of the handshake (RFC 6455, section 4.1, requirement 7).
    pub key_entropy: [u8; 16],
    /// A random number from which the masks of frames are derived (RFC 6455, section 10.3).
    pub mask_seed: u64,
}

/// The client's side of one connection, with many operations. It is a [`Machine`].
pub struct UpstreamSocket {
    upgrade: UpgradeState,
    connection: Connection<UpstreamClient>,
}

/// The state of the opening handshake.
enum UpgradeState {
    InProgress(Upgrade),
    Done,
    /// There was no upgrade, so the transport can be closed.
    Failed,
}

/// An opening handshake in progress.
struct Upgrade {
    handshake: ClientHandshake,
    /// The request, until it is polled.
    request: Vec<u8>,
    init_payload: Option<Bytes>,
    subprotocols: SubprotocolChoice,
    began: Instant,
    timeout: Duration,
}

impl UpstreamSocket {
    /// Begins on a fresh transport.
    ///
    /// # Errors
    ///
    /// A part of the request contains characters that an HTTP request must not contain.
    pub fn new(
        settings: Arc<UpstreamSettings>,
        request: UpgradeRequest<'_>,
        now: Instant,
    ) -> Result<UpstreamSocket, HandshakeError> {
        let UpgradeRequest { authority, target, subprotocols, headers, init_payload, .. } = request;
        let names = subprotocols.names();
        let (handshake, text) =
            ClientHandshake::new(authority, target, request.key_entropy, names, headers)?;
        let (websocket, timeout) = (settings.websocket.clone(), settings.handshake_timeout);
        let client = UpstreamClient::before_upgrade(settings);
        let connection = Connection::client(websocket, client, now, request.mask_seed);
        let began = now;
        let upgrade =
            Upgrade { handshake, request: text, init_payload, subprotocols, began, timeout };
        Ok(UpstreamSocket { upgrade: UpgradeState::InProgress(upgrade), connection })
    }

    /// See [`UpstreamClient::subscribe`].
    pub fn subscribe(&mut self, request: Bytes) -> Result<OperationId, SubscribeError> {
        self.connection.protocol.subscribe(request)
    }

    /// See [`UpstreamClient::unsubscribe`].
    pub fn unsubscribe(&mut self, id: OperationId) -> bool {
        self.connection.protocol.unsubscribe(id)
    }

    /// See [`UpstreamClient::send_ping`].
    pub fn send_ping(&mut self, payload: Bytes) {
        self.connection.protocol.send_ping(payload);
    }

    /// See [`UpstreamClient::disable_ping_messages`].
    pub fn disable_ping_messages(&mut self) {
        self.connection.protocol.disable_ping_messages();
    }

    /// Closes the connection, for example because it has no operations.
    pub fn close(&mut self) {
        match self.upgrade {
            UpgradeState::InProgress(_) => self.fail(ConnectionEnd::ClosedByRouter),
            UpgradeState::Done => self.connection.protocol.close(),
            UpgradeState::Failed => {}
        }
    }

    /// Returns the protocol's state, for its counts.
    pub fn client(&self) -> &UpstreamClient {
        &self.connection.protocol
    }

    fn receive_upgrade(&mut self, now: Instant, bytes: &[u8]) {
        let UpgradeState::InProgress(upgrade) = &mut self.upgrade else { return };
        let upgraded = match upgrade.handshake.receive(bytes) {
            Ok(None) => return,
            Ok(Some(upgraded)) => upgraded,
            Err(error) => return self.fail(error.into()),
        };
        let Upgraded { subprotocol, rest } = upgraded;
        let (init_payload, offers) = (upgrade.init_payload.take(), upgrade.subprotocols);
        // The handshake has checked that the name is one of those that were offered.
        let subprotocol = subprotocol.unwrap_or_default();
        if !self.connection.protocol.begin(&subprotocol, init_payload, now) {
            let offered = offers.names().join(", ").into();
            return self.fail(ConnectionEnd::SubprotocolRefused { offered });
        }
        self.upgrade = UpgradeState::Done;
        // The time of the handshake does not count as silence of the server.
        self.connection.taken(now);
        self.connection.receive(now, &rest);
    }

    /// Ends a connection that was not upgraded.
    fn fail(&mut self, end: ConnectionEnd) {
        self.upgrade = UpgradeState::Failed;
        self.connection.protocol.end(end);
    }
}

impl Machine for UpstreamSocket {
    type Event = UpstreamEvent;

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        match self.upgrade {
            UpgradeState::InProgress(_) => self.receive_upgrade(now, bytes),
            UpgradeState::Done => self.connection.receive(now, bytes),
            UpgradeState::Failed => {}
        }
    }

    fn receive_eof(&mut self, now: Instant) {
        match self.upgrade {
            UpgradeState::InProgress(_) => {
                let reason = "it ended during the handshake".into();
                let closed = Closed { code: CloseCode::ABNORMAL, reason, by: ClosedBy::Loss };
                self.fail(ConnectionEnd::Lost(closed));
            }
            UpgradeState::Done => self.connection.receive_eof(now),
            UpgradeState::Failed => {}
        }
    }

    fn poll_event(&mut self) -> Option<UpstreamEvent> {
        self.connection.poll_event()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        match &mut self.upgrade {
            UpgradeState::InProgress(upgrade) if upgrade.request.is_empty() => None,
            UpgradeState::InProgress(upgrade) => {
                Some(Chunks::whole(std::mem::take(&mut upgrade.request)))
            }
            UpgradeState::Done => self.connection.poll_transmit(now),
            UpgradeState::Failed => None,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.upgrade {
            UpgradeState::InProgress(upgrade) => upgrade.began.checked_add(upgrade.timeout),
            UpgradeState::Done => self.connection.poll_timeout(),
            UpgradeState::Failed => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        match &self.upgrade {
            UpgradeState::InProgress(upgrade) => {
                self.fail(ConnectionEnd::HandshakeTimeout(upgrade.timeout));
            }
            UpgradeState::Done => self.connection.handle_timeout(now),
            UpgradeState::Failed => {}
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.upgrade, UpgradeState::Done) && self.connection.is_open()
    }

    fn is_closed(&self) -> bool {
        matches!(self.upgrade, UpgradeState::Failed) || self.connection.is_closed()
    }

    fn taken(&mut self, now: Instant) {
        self.connection.taken(now);
    }
}
