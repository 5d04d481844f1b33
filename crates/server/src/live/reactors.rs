//! WebSockets on reactor threads: what clients say becomes operations on the cores, what the hub delivers goes to all
//! members of a group in one go. Sockets that speak TLS keep a task each, see [`super::websocket`].

mod application;
mod client;
mod outlet;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use reactor::{Mailbox, Reactor};
use socket2::SockRef;

use super::websocket::Spoken;
use crate::connections::ConnectionPermit;
use crate::metrics::Transport;
use crate::router::Router;
use application::{Adoption, Live, Message};
use outlet::ReactorOutlet;

/// How much the system queues for a client that does not read. What is older than that is stale.
const KERNEL_QUEUE_BYTES: usize = 64 << 10;

/// The reactor threads. Dropping it ends them, and every connection that they have.
pub(crate) struct Reactors {
    reactors: Vec<Reactor<Live>>,
}

/// The way to the reactors.
pub(crate) struct ReactorHandles {
    mailboxes: Vec<Arc<Mailbox<Message>>>,
    next: AtomicUsize,
}

impl std::fmt::Debug for Reactors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactors").field("threads", &self.reactors.len()).finish()
    }
}

impl Reactors {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// Where the system gives no thread or no epoll instance.
    pub(crate) fn start(count: usize) -> io::Result<(Self, ReactorHandles)> {
        let start = |index| {
            let make = |mailbox: &Arc<Mailbox<Message>>| {
                Live::new(Arc::new(ReactorOutlet::new(Arc::clone(mailbox))))
            };
            Reactor::start(format!("reactor-{index}"), make)
        };
        let reactors = (0..count.max(1)).map(start).collect::<io::Result<Vec<_>>>()?;
        let mailboxes = reactors.iter().map(|it| Arc::clone(it.mailbox())).collect();
        Ok((Self { reactors }, ReactorHandles { mailboxes, next: AtomicUsize::new(0) }))
    }

    /// Tells them whom they serve. Before that they take no connection.
    pub(crate) fn begin(&self, router: &Arc<Router>) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::Begin(Arc::clone(router)));
        }
    }

    /// Asks the clients of a portion to leave, see [`crate::farewell`], and whoever comes later.
    pub(crate) fn shut_down(&self, portion: u32) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::ShutDown { portion });
        }
    }
}

impl ReactorHandles {
    /// Hands over an open WebSocket. `early` is what its client sent behind the handshake, `headers` are those of the
    /// handshake.
    pub(crate) fn adopt(
        &self,
        router: &Router,
        socket: OwnedFd,
        early: Bytes,
        spoken: Spoken,
        headers: &HeaderMap,
        permit: ConnectionPermit,
    ) {
        // Best effort: with it the bounds that are configured for slow clients act soon, and not after megabytes.
        let _ = SockRef::from(&socket).set_send_buffer_size(KERNEL_QUEUE_BYTES);
        let adoption = Adoption {
            socket,
            machine: spoken.machine(router, Instant::now()),
            early,
            headers: client::needed_headers(&router.config.headers, headers),
            permit,
            open: router.metrics.stream(Transport::websocket),
        };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(turn % self.mailboxes.len().max(1)) {
            mailbox.send(Message::Adopt(Box::new(adoption)));
        }
    }
}
