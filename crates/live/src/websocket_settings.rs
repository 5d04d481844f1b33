//! The settings of WebSocket connections, and the protocol machines made from them.

use std::sync::Arc;
use std::time::Instant;

use config::Config;
use http::HeaderName;
use wire::connection::Connection;
use wire::graphql_transport_ws::ProtocolConfig;
use wire::subprotocol::Subprotocol;
use wire::websocket::{ClientBounds, WebSocketConfig};

use super::jitter;

/// The number of messages of the largest size that a client may send before its `connection_init` is acknowledged.
const INIT_MESSAGES: usize = 4;

/// The protocol that client and router have agreed on in the handshake.
#[derive(Clone, Copy, Debug)]
pub struct NegotiatedProtocol {
    /// The subprotocol, if the client named one.
    pub subprotocol: Option<&'static str>,
    /// True if messages may be compressed.
    pub deflates: bool,
}

/// The settings of WebSocket connections.
#[derive(Debug)]
pub struct WebSocketSettings {
    connection: Arc<WebSocketConfig>,
    protocol: Arc<ProtocolConfig>,
    /// The headers that the payload of `connection_init` may replace.
    pub(super) init_payload_headers: Vec<HeaderName>,
}

impl WebSocketSettings {
    /// Converts the settings of the configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            connection: Arc::new(connection_settings(config)),
            protocol: Arc::new(protocol_settings(config)),
            init_payload_headers: config.websocket.init_payload_headers.clone(),
        }
    }

    /// Returns the size from which results are compressed.
    pub(super) fn deflate_bytes_min(&self) -> usize {
        self.connection.deflate_bytes_min
    }

    /// Makes the protocol machine of a new connection.
    pub(super) fn make_machine(
        &self,
        negotiated: NegotiatedProtocol,
        now: Instant,
    ) -> Connection<Subprotocol> {
        let protocol = Subprotocol::new(Arc::clone(&self.protocol), negotiated.subprotocol, now);
        // Starts as if the connection had been quiet for a while: clients that connect together are not pinged
        // together.
        let interval = self.connection.ping_interval.unwrap_or_default();
        let quiet_since = now.checked_sub(jitter::next_fraction(interval)).unwrap_or(now);
        let connection = Connection::server(Arc::clone(&self.connection), protocol, quiet_since);
        connection.with_deflate(negotiated.deflates)
    }
}

fn connection_settings(config: &Config) -> WebSocketConfig {
    WebSocketConfig {
        message_bytes_max: config.websocket.max_message_size,
        ping_interval: Some(config.websocket.ping_interval),
        pong_timeout: config.websocket.ping_interval,
        deflate_bytes_min: config.websocket.compression.min_size,
        client_bounds: Some(ClientBounds {
            init_message_bytes_max: config.websocket.max_init_message_size,
            init_bytes_max: config.websocket.max_init_message_size.saturating_mul(INIT_MESSAGES),
            ..ClientBounds::default()
        }),
        ..WebSocketConfig::default()
    }
}

fn protocol_settings(config: &Config) -> ProtocolConfig {
    ProtocolConfig {
        init_timeout: config.websocket.init_timeout,
        subscriptions_max: config.websocket.max_subscriptions_per_connection as usize,
        keep_alive: Some(config.subscriptions.heartbeat),
        ..ProtocolConfig::default()
    }
}
