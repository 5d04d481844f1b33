//! Epoll threads that own long-lived sockets, WebSockets above all: an idle connection costs an entry in a slab and
//! its descriptor, no task, no buffer and no heap object of its own.
//!
//! A [`Reactor`] is one thread. It owns byte streams ([`Stream`]: a socket, or TLS over it) and their protocol machines
//! ([`wire::Machine`]), and an [`Application`] that hears what peers mean and what other threads tell it
//! ([`Mailbox::send`]). Everything on the thread runs without waiting: reads are bounded per wake-up, in bytes and, for
//! peers whose bytes take long, in time; what a socket does not take is kept up to the message that was begun
//! ([`Sockets::send`] refuses the next one), so that the application can queue, drop or disconnect by a policy of its
//! own.
//!
//! Invariants: knows nothing of GraphQL; the thread never blocks but in `epoll_wait`; a connection ends exactly once,
//! by [`Application::closed`].
//!
//! On systems other than Linux this crate is empty: see `Poller` for what another one would have to bring.

#![cfg(target_os = "linux")]

mod connection;
mod mailbox;
mod outgoing;
mod poller;
mod slab;
mod sockets;
mod stream;
mod thread;
mod wheel;

pub use connection::End;
pub use mailbox::Mailbox;
pub use slab::Token;
pub use sockets::{Sent, Sockets};
pub use stream::{Stream, Sunk};
pub use thread::{Application, Reactor, Settings};
