//! The protocol of a WebSocket connection after its handshake, and the machine that speaks it.

use std::sync::Arc;
use std::time::Instant;

use wire::connection::Connection;
use wire::subprotocol::Subprotocol;

use super::jitter;
use crate::router::Router;

/// The protocol that client and router have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NegotiatedProtocol {
    pub(super) subprotocol: Option<&'static str>,
    pub(super) deflates: bool,
}

impl NegotiatedProtocol {
    /// Makes the protocol machine of a new connection.
    pub(crate) fn make_machine(self, router: &Router, now: Instant) -> Connection<Subprotocol> {
        let protocol = Subprotocol::new(Arc::clone(&router.protocol), self.subprotocol, now);
        // Starts as if the connection had been quiet for a while: clients that connect together are not pinged
        // together.
        let interval = router.websocket.ping_interval.unwrap_or_default();
        let quiet_since = now.checked_sub(jitter::next_fraction(interval)).unwrap_or(now);
        let connection = Connection::server(Arc::clone(&router.websocket), protocol, quiet_since);
        connection.with_deflate(self.deflates)
    }
}
