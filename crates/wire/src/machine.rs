//! The methods that every machine of one socket has, so that the owner of the sockets need not know their protocols.

use std::time::Instant;

use crate::Chunks;

/// The complete protocol of one socket, which a reactor or a task holds beside it.
///
/// After each call drain [`Machine::poll_transmit`] and [`Machine::poll_event`], then call [`Machine::poll_timeout`].
/// When [`Machine::is_closed`] is true and everything is written, close the transport.
pub trait Machine {
    /// An event for the layer above: a message of the peer, or the end of the connection.
    type Event;

    /// Takes bytes that the transport delivered, in pieces of any size.
    fn receive(&mut self, now: Instant, bytes: &[u8]);
    /// Notes that the transport has ended or failed.
    fn receive_eof(&mut self, now: Instant);
    /// Returns the next event for the layer above.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Returns the next bytes to write: whole messages.
    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks>;
    /// Returns the time at which [`Machine::handle_timeout`] must be called. The time may move back; a caller may keep
    /// its timer and call early.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does what is due at `now`. An early call does nothing.
    fn handle_timeout(&mut self, now: Instant);
    /// True if messages can still be sent, also beside the machine.
    fn is_open(&self) -> bool;
    /// True if the transport can be closed once everything is written.
    fn is_closed(&self) -> bool;
    /// Notes that the peer has read bytes that waited for it. This counts as a sign of life, also from a peer that
    /// cannot respond because a ping is queued behind other data.
    fn taken(&mut self, now: Instant) {
        let _ = now;
    }
    /// True if the machine holds input that it has not processed: call [`Machine::receive`] again, with no bytes, after
    /// other connections have had their turn. Do not read from the transport until then.
    fn has_input(&self) -> bool {
        false
    }
    /// True while the layer above processes an event that later input must not overtake, or wants no more input. Do not
    /// read from the transport meanwhile.
    fn is_paused(&self) -> bool {
        false
    }
    /// Notes that a whole message was written beside the machine.
    fn sent(&mut self, now: Instant) {
        let _ = now;
    }
}
