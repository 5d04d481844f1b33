//! RFC 6455 for both roles: opening handshake, frames, messages, closing handshake, liveness.
//!
//! [`handshake`] judges and writes the HTTP part; [`WebSocket`] is the connection after it.
//! Extensions (compression) are not negotiated, so reserved bits are a protocol error. What the
//! messages mean is for [`crate::graphql_transport_ws`].

mod assembly;
mod close;
mod frame;
pub mod handshake;
mod machine;

pub use close::{CloseCode, Closed, ClosedBy};
pub use frame::{FrameHeader, Opcode};
pub(crate) use machine::pop_or_release;
pub use machine::{Config, Event, WebSocket};
