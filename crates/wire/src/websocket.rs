//! RFC 6455 for both roles: opening handshake, frames, messages, closing handshake, liveness.
//!
//! [`handshake`] checks and writes the HTTP part; [`WebSocket`] is the connection after it. The only extension is
//! permessage-deflate (RFC 7692), each message on its own: [`deflate_shared`] makes the blocks of a broadcast once for
//! all recipients. [`crate::subprotocol`] interprets the messages.

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
pub(crate) use large::ReadContents;
pub use large::{ClientBounds, LargeMessage, MESSAGE_COST, ReadMessage};
pub use machine::{WebSocket, WebSocketConfig, WebSocketEvent};
