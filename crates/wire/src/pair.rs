//! Test kit: a client and a server joined by a virtual network, under a virtual clock.
//!
//! There are no sockets and no sleeping: [`Pair::deliver`] moves bytes until both sides are quiet, and
//! [`Pair::advance`] lets time pass, timer by timer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Protocol};
use crate::graphql_transport_ws as gtw;
use crate::websocket::WebSocketConfig;

/// The way in which the network cuts the bytes that one side writes into the pieces that the other side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All waiting bytes at once.
    Whole,
    /// One byte at a time.
    Bytewise,
    /// Pieces of one to sixteen bytes, the same for the same seed.
    Seeded(u64),
}

/// A client and a server.
pub struct Pair<C, S> {
    /// The client's machine.
    pub client: Connection<C>,
    /// The server's machine.
    pub server: Connection<S>,
    /// The virtual time.
    pub now: Instant,
    /// True if the network silently loses everything.
    pub is_cut: bool,
    split: Split,
}

impl Pair<gtw::Client, gtw::GraphqlTransportWs> {
    /// Joins a graphql-transport-ws client and server with these settings.
    pub fn graphql_transport_ws(
        websocket: WebSocketConfig,
        protocol: gtw::ProtocolConfig,
        split: Split,
    ) -> Self {
        // The only way to a first `Instant`; all later ones are computed.
        let now = Instant::now();
        let websocket = Arc::new(websocket);
        let server = gtw::GraphqlTransportWs::new(Arc::new(protocol), Some(gtw::SUBPROTOCOL), now);
        let client = gtw::Client::new(None);
        Pair::new(
            Connection::client(websocket.clone(), client, now, 7),
            Connection::server(websocket, server, now),
            now,
            split,
        )
    }
}

impl<C: Protocol, S: Protocol> Pair<C, S> {
    /// Joins two machines.
    pub fn new(client: Connection<C>, server: Connection<S>, now: Instant, split: Split) -> Self {
        Pair { client, server, now, is_cut: false, split }
    }

    /// Moves bytes both ways until neither side has more to send.
    pub fn deliver(&mut self) {
        loop {
            let to_server = written(&mut self.client, self.now);
            let to_client = written(&mut self.server, self.now);
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            if !self.is_cut {
                receive(&mut self.server, self.now, &to_server, &mut self.split);
                receive(&mut self.client, self.now, &to_client, &mut self.split);
            }
        }
    }

    /// Lets time pass: every timer that falls due is handled at its own time, and the resulting bytes are delivered.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.deliver();
        loop {
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            let Some(next) = timeouts.into_iter().flatten().min().filter(|next| *next <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            self.deliver();
        }
        self.now = end;
    }

    /// Returns the client's events since the last call.
    pub fn client_events(&mut self) -> Vec<C::Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    /// Returns the server's events since the last call.
    pub fn server_events(&mut self) -> Vec<S::Event> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }
}

fn written<P: Protocol>(from: &mut Connection<P>, now: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunks) = from.poll_transmit(now) {
        chunks.append_to(&mut bytes);
    }
    bytes
}

fn receive<P: Protocol>(to: &mut Connection<P>, now: Instant, mut bytes: &[u8], split: &mut Split) {
    while !bytes.is_empty() {
        let len = match split {
            Split::Whole => bytes.len(),
            Split::Bytewise => 1,
            Split::Seeded(state) => {
                // Knuth's MMIX generator; its high bits are the random ones.
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                1 + (*state >> 60) as usize
            }
        };
        let (piece, rest) = bytes.split_at(len.min(bytes.len()));
        to.receive(now, piece);
        bytes = rest;
    }
}
