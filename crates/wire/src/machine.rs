//! The verbs that every machine of one socket has, so that whoever owns sockets need not know what they speak.

use std::time::Instant;

use crate::Chunks;

/// The protocol of one socket, whole: what a reactor or a task holds beside it.
///
/// After each call drain [`Machine::poll_transmit`] and [`Machine::poll_event`], then look at
/// [`Machine::poll_timeout`]. Once [`Machine::is_closed`] and all is written, close the transport.
pub trait Machine {
    /// What the peer means.
    type Event;

    /// Takes bytes that the transport delivered, in pieces of any size.
    fn receive(&mut self, now: Instant, bytes: &[u8]);
    /// The transport has ended or failed.
    fn receive_eof(&mut self, now: Instant);
    /// The next event for the layer above.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// The next bytes to write: whole messages.
    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks>;
    /// When [`Machine::handle_timeout`] wants to be called. The time may move back; a caller may keep its timer and
    /// call early.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does what is due at `now`; nothing when called early.
    fn handle_timeout(&mut self, now: Instant);
    /// Whether messages can still be sent, also beside the machine.
    fn is_open(&self) -> bool;
    /// Whether the transport can be closed once everything is written.
    fn is_closed(&self) -> bool;
    /// The peer has taken bytes that waited for it: a sign of life, also of one that says nothing because it has not
    /// got to what we asked.
    fn taken(&mut self, now: Instant) {
        let _ = now;
    }
    /// True if the machine holds input that it has not got to: call [`Machine::receive`] again, with no bytes, after
    /// other connections have had their turn. Read no more from the transport until then.
    fn has_input(&self) -> bool {
        false
    }
    /// True while the layer above works on an event that nothing may overtake, or wants no more of the peer. Read
    /// nothing from the transport meanwhile.
    fn is_paused(&self) -> bool {
        false
    }
    /// A whole message was written beside the machine.
    fn sent(&mut self, now: Instant) {
        let _ = now;
    }
}
