//! The methods that the contents of every streamed response have.

use std::time::Instant;

use crate::Chunks;

/// The contents of a streamed response, without framing.
pub trait BodyMachine {
    /// Returns the next bytes to write.
    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks>;
    /// Returns the time at which [`BodyMachine::handle_timeout`] must be called.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does what is due at `now`. An early call does nothing.
    fn handle_timeout(&mut self, now: Instant);
    /// Notes that a part was written beside the body.
    fn sent(&mut self, now: Instant);
    /// True if the body ends once everything is written.
    fn is_finished(&self) -> bool;
}
