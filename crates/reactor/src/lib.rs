//! Reactor threads that own long-lived sockets, WebSockets above all. An idle connection costs an entry in a slab and
//! its descriptor: no task, no buffer and no heap object of its own.
//!
//! A [`Reactor`] is one thread. It owns byte streams ([`Stream`]: a socket, or TLS over a socket) with their protocol
//! machines ([`wire::Machine`]), and an [`Application`] that handles the events of the machines and the messages of
//! other threads ([`Mailbox::send`]). Nothing on the thread blocks. Reads are limited per wake-up, in bytes and, for
//! input that takes long to process, in time. Bytes that a socket does not take are kept up to the end of the message
//! that was begun; [`Sockets::send`] refuses the next message, so that the application can queue, drop or disconnect by
//! a policy of its own.
//!
//! Invariants: the crate knows nothing of GraphQL; the thread blocks only in the poller (`mio`: epoll or kqueue); a
//! connection ends exactly once, by [`Application::on_closed`].

mod chunk;
mod connection;
mod endings;
mod mailbox;
mod outgoing;
mod poller;
mod recent_count;
mod slab;
mod sockets;
mod stream;
mod thread;
mod wheel;

pub use connection::ConnectionEnd;
pub use mailbox::Mailbox;
pub use slab::Token;
pub use sockets::{SendOutcome, Sockets};
pub use stream::{DiscardStats, Stream};
pub use thread::{Application, Reactor, ReactorSettings};
