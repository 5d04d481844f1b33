//! Clients without sockets: all of a connection but its descriptor, to measure the cost of a million of them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use clients::connections::{ConnectionRefused, Connections};
use reactor::{DiscardStats, Stream};
use tokio::sync::oneshot;
use wire::graphql_transport_ws::SUBPROTOCOL;

use super::client_machine::ClientMachine;
use super::context::ReactorContext;
use super::message::{Adoption, FirstOperation, Message};
use super::{ReactorHandles, Reactors};
use crate::client_context::ClientContext;
use crate::metrics::Transport;
use crate::websocket_settings::NegotiatedProtocol;

impl ReactorHandles {
    /// Adds a WebSocket without a socket. Its client sends `greeting`, then `said` when it is acknowledged, and nothing
    /// more; it takes everything that is sent to it.
    ///
    /// # Errors
    /// The limit of connections is reached.
    pub fn adopt_null_client(
        &self,
        (reactor, connections): (&ReactorContext, &Connections),
        greeting: &[u8],
        said: &Bytes,
    ) -> Result<(), ConnectionRefused> {
        let negotiated = NegotiatedProtocol { subprotocol: Some(SUBPROTOCOL), deflates: false };
        let machine = reactor.websocket.make_machine(negotiated, Instant::now());
        let adoption = Adoption {
            stream: Stream::null(),
            machine: ClientMachine::WebSocket(machine),
            early: greeting.to_vec(),
            context: ClientContext::default(),
            record: None,
            permit: connections.enter(None)?,
            open: reactor.runner.metrics.open_stream(Transport::WebSocket),
            first: FirstOperation::FromClient,
            later: Some(said.clone()),
        };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(turn % self.mailboxes.len().max(1)) {
            mailbox.send(Message::Adopt(Box::new(adoption)));
        }
        Ok(())
    }
}

impl Reactors {
    /// Returns the messages and bytes that were sent to clients without sockets.
    pub async fn discard_stats(&self) -> DiscardStats {
        let mut all = DiscardStats::default();
        for reactor in &self.reactors {
            let (reply, response) = oneshot::channel();
            reactor.mailbox().send(Message::DiscardStats(reply));
            // Without a reply the thread has ended.
            let DiscardStats { messages, bytes } = response.await.unwrap_or_default();
            all.messages += messages;
            all.bytes += bytes;
        }
        all
    }
}
