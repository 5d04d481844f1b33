//! A request for admission.

use crate::class::Class;

/// A request for admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The client that has this work in its share.
    pub client: u64,
    /// The hash of what names the operation, by a function with a random seed: clients must not be able to choose it.
    pub operation: u64,
    /// The class of the request.
    pub class: Class,
    /// True if the request opens a stream, such as a WebSocket handshake. Of operations the control learns whether they
    /// do ([`Outcome::Opened`](crate::Outcome::Opened)).
    pub opens_stream: bool,
}
