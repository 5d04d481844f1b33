//! A subprotocol joined to the WebSocket under it: bytes in and out, the subprotocol's events up.
//!
//! A server's task or reactor holds one [`Connection`] for each socket. The two machines have modules of their own;
//! this one only moves messages between them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::websocket::{
    CloseCode, Closed, LargeMessage, ReadContents, ReadMessage, WebSocket, WebSocketConfig,
    WebSocketEvent,
};
use crate::{Chunks, Machine};

/// A protocol of text messages on an open WebSocket, in one role.
pub trait Protocol {
    /// An event for the layer above: a message of the peer, or the end of the connection.
    type Event;

    /// Takes a whole text message, valid UTF-8.
    fn receive_text(&mut self, text: Bytes);
    /// Takes a whole binary message, which the GraphQL protocols do not have.
    fn receive_binary(&mut self, bytes: Bytes);
    /// Notes that the connection under the protocol has ended.
    fn ended(&mut self, closed: Closed);
    /// Returns the next event for the layer above.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Returns the next command for the WebSocket.
    fn poll_output(&mut self) -> Option<Output>;
    /// Returns the time at which [`Protocol::handle_timeout`] must be called.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does what is due at `now`. An early call does nothing.
    fn handle_timeout(&mut self, now: Instant);
    /// Sends a message that the peer must respond to, if the protocol has one: the peer has been silent for
    /// [`WebSocketConfig::ping_interval`]. Returns true if the message is enough, and false if the WebSocket must send
    /// a ping frame, as without such a message.
    fn ping_silent_peer(&mut self, _now: Instant) -> bool {
        false
    }
    /// True once the peer may send large messages, see [`ClientBounds`](crate::websocket::ClientBounds).
    fn is_acknowledged(&self) -> bool {
        true
    }
    /// Takes a message that another thread must read. Without effect by default: a protocol used with
    /// [`ClientBounds`](crate::websocket::ClientBounds) implements [`OffThreadParse`].
    fn receive_large(&mut self, message: LargeMessage) {
        drop(message);
    }
    /// Takes the head of a text message over the size limit. Without effect by default: a protocol used with
    /// [`WebSocketConfig::oversized_head_bytes_max`] implements it.
    fn receive_oversized(&mut self, head: Bytes) {
        drop(head);
    }
}

/// A protocol whose large messages can be parsed on another thread.
pub trait OffThreadParse: Protocol {
    /// A message after parsing.
    type Parsed: Send + 'static;

    /// Returns the function that parses a text message of this connection.
    fn parser(&self) -> fn(Bytes) -> Self::Parsed;
    /// Takes a text message that was parsed.
    fn receive_parsed(&mut self, message: Self::Parsed);
}

/// A command of a protocol for the WebSocket under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a text message.
    Text(Chunks),
    /// Send a binary message.
    Binary(Chunks),
    /// Begin the closing handshake.
    Close(CloseCode, Box<str>),
}

/// One WebSocket connection that speaks the protocol `P`.
///
/// Commands are methods of [`Connection::protocol`]; they take effect with the next [`Connection::poll_transmit`].
/// After each call drain `poll_transmit` and `poll_event`, then call `poll_timeout`. When [`Connection::is_closed`] is
/// true and everything is written, close the transport.
pub struct Connection<P> {
    websocket: WebSocket,
    /// The protocol's machine, for its commands.
    pub protocol: P,
}

impl<P: Protocol> Connection<P> {
    /// Returns the server's side of an upgraded connection.
    pub fn server(config: Arc<WebSocketConfig>, protocol: P, now: Instant) -> Connection<P> {
        Connection { websocket: WebSocket::server(config, now), protocol }
    }

    /// Returns the client's side; see [`WebSocket::client`] for `mask_seed`.
    pub fn client(
        config: Arc<WebSocketConfig>,
        protocol: P,
        now: Instant,
        mask_seed: u64,
    ) -> Connection<P> {
        Connection { websocket: WebSocket::client(config, now, mask_seed), protocol }
    }

    /// Sets whether permessage-deflate was negotiated, by default not: see [`handshake::Accept::deflate`].
    ///
    /// [`handshake::Accept::deflate`]: crate::websocket::handshake::Accept::deflate
    pub fn with_deflate(mut self, is_negotiated: bool) -> Connection<P> {
        self.websocket.set_deflate(is_negotiated);
        self
    }

    /// True if compressed messages may be sent.
    pub fn deflates(&self) -> bool {
        self.websocket.deflates()
    }

    /// Takes bytes that the transport delivered, in pieces of any size.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.websocket.set_acknowledged(self.protocol.is_acknowledged());
        self.websocket.receive(now, bytes);
        self.move_messages(now);
    }

    /// Notes that the peer has read bytes that waited for it.
    pub fn taken(&mut self, now: Instant) {
        self.websocket.taken(now);
    }

    /// See [`WebSocket::has_input`].
    pub fn has_input(&self) -> bool {
        self.websocket.has_input()
    }

    /// See [`WebSocket::is_paused`].
    pub fn is_paused(&self) -> bool {
        self.websocket.is_paused()
    }

    /// See [`WebSocket::hold`].
    pub fn hold(&mut self, now: Instant, is_held: bool) {
        self.websocket.hold(now, is_held);
    }

    /// Notes that the transport has ended or failed.
    pub fn receive_eof(&mut self, now: Instant) {
        self.websocket.receive_eof();
        self.move_messages(now);
    }

    /// Returns the next event of the protocol.
    pub fn poll_event(&mut self) -> Option<P::Event> {
        self.protocol.poll_event()
    }

    /// Returns the next bytes to write: whole frames.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        self.move_messages(now);
        self.websocket.poll_transmit()
    }

    /// Returns the time at which [`Connection::handle_timeout`] must be called. The time moves back as bytes arrive; a
    /// caller may keep its timer and call early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.websocket.poll_timeout(), self.protocol.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Does what is due at `now`. An early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.websocket.is_ping_due(now) && self.protocol.ping_silent_peer(now) {
            self.websocket.await_response(now);
        }
        self.websocket.handle_timeout(now);
        self.protocol.handle_timeout(now);
        self.move_messages(now);
    }

    /// True if messages can still be sent.
    pub fn is_open(&self) -> bool {
        self.websocket.is_open()
    }

    /// True if the transport can be closed once everything is written.
    pub fn is_closed(&self) -> bool {
        self.websocket.is_closed()
    }

    fn move_messages(&mut self, now: Instant) {
        while let Some(event) = self.websocket.poll_event() {
            match event {
                WebSocketEvent::Text(text) => self.protocol.receive_text(text),
                WebSocketEvent::Binary(bytes) => self.protocol.receive_binary(bytes),
                WebSocketEvent::Large(message) => self.protocol.receive_large(message),
                WebSocketEvent::Oversized(head) => self.protocol.receive_oversized(head),
                WebSocketEvent::Closed(closed) => self.protocol.ended(closed),
            }
        }
        while let Some(output) = self.protocol.poll_output() {
            match output {
                Output::Text(text) => self.websocket.send_text(text),
                Output::Binary(bytes) => self.websocket.send_binary(bytes),
                Output::Close(code, reason) => self.websocket.close(now, code, &reason),
            }
        }
    }
}

impl<P: OffThreadParse> Connection<P> {
    /// Takes the [`LargeMessage`] that another thread has read, and processes the peer's input again.
    pub fn resume(&mut self, now: Instant, message: ReadMessage<P::Parsed>) {
        let failure = match message.0 {
            ReadContents::Failed(failure) => Some(failure),
            ReadContents::Text(parsed) => {
                self.protocol.receive_parsed(parsed);
                None
            }
            ReadContents::Binary(bytes) => {
                self.protocol.receive_binary(bytes);
                None
            }
        };
        self.websocket.resume(now, failure);
        self.move_messages(now);
    }
}

impl<P: Protocol> Machine for Connection<P> {
    type Event = P::Event;

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        Connection::receive(self, now, bytes);
    }

    fn receive_eof(&mut self, now: Instant) {
        Connection::receive_eof(self, now);
    }

    fn poll_event(&mut self) -> Option<P::Event> {
        Connection::poll_event(self)
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        Connection::poll_transmit(self, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Connection::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Connection::handle_timeout(self, now);
    }

    fn is_open(&self) -> bool {
        Connection::is_open(self)
    }

    fn is_closed(&self) -> bool {
        Connection::is_closed(self)
    }

    fn taken(&mut self, now: Instant) {
        Connection::taken(self, now);
    }

    fn has_input(&self) -> bool {
        Connection::has_input(self)
    }

    fn is_paused(&self) -> bool {
        Connection::is_paused(self)
    }
}
