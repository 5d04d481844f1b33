//! RFC 6455 for both roles: opening handshake, frames, messages, closing handshake, liveness.
//!
//! [`handshake`] judges and writes the HTTP part; [`WebSocket`] is the connection after it.
//! The one extension is permessage-deflate (RFC 7692), each message for itself: [`deflate_shared`] makes
//! the blocks of a broadcast once for all who get it. What the messages mean is for
//! [`crate::subprotocol`].

mod assembly;
mod close;
mod deflate;
mod frame;
pub mod handshake;
mod large;
mod machine;

pub use close::{CloseCode, Closed, ClosedBy};
pub(crate) use deflate::append_deflated_head;
pub use deflate::deflate_shared;
pub(crate) use frame::append_text_head;
pub use frame::{FrameHeader, Opcode};
pub(crate) use large::Contents;
pub use large::{ClientBounds, LargeMessage, MESSAGE_COST, ReadMessage};
pub(crate) use machine::pop_or_release;
pub use machine::{Config, Event, WebSocket};
