//! Lasting connections on reactor threads, WebSockets and event streams: what clients say becomes operations on the
//! cores, what the hub delivers goes to all members of a group in one go.

mod client;
mod client_machine;
mod deflation;
mod group_members;
mod message;
mod null_clients;
mod outlet;
mod subscription_server;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reactor::{Mailbox, Reactor, ReactorSettings, Stream};
use socket2::SockRef;
use wire::http1::{Framing, ResponseBody};
use wire::result_stream::{Kind, ResultStream};

use super::client_context::ClientContext;
use super::jitter;
use super::takeover::{AcceptedStream, AcceptedWebSocket, LiveConnection};
use crate::http::takeover::Left;
use crate::router::Router;
use client_machine::ClientMachine;
use message::{Adoption, FirstOperation, Message};
use outlet::ReactorOutlet;
use subscription_server::SubscriptionServer;

/// The reactor threads. Dropping it ends them, and every connection that they have.
pub(crate) struct Reactors {
    reactors: Vec<Reactor<SubscriptionServer>>,
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
    /// Starts `count` threads. `stall_time_max`: how long a client may take nothing at all of what waits for it.
    ///
    /// # Errors
    /// Where the system gives no thread or no epoll instance.
    pub(crate) fn start(
        count: usize,
        stall_time_max: Duration,
    ) -> io::Result<(Self, ReactorHandles)> {
        let settings = ReactorSettings { stall_time_max };
        let start = |index| {
            let make = |mailbox: &Arc<Mailbox<Message>>| {
                SubscriptionServer::new(Arc::new(ReactorOutlet::new(Arc::clone(mailbox))))
            };
            Reactor::start(format!("reactor-{index}"), settings, make)
        };
        let reactors = (0..count).map(start).collect::<io::Result<Vec<_>>>()?;
        let mailboxes = reactors.iter().map(|it| Arc::clone(it.mailbox())).collect();
        Ok((Self { reactors }, ReactorHandles { mailboxes, next: AtomicUsize::new(0) }))
    }

    /// Tells them whom they serve. Before that they take no connection.
    pub(crate) fn begin(&self, router: &Arc<Router>) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::Serve(Arc::clone(router)));
        }
    }

    /// Asks the clients of a portion to leave, see [`crate::farewell`], and whoever comes later.
    pub(crate) fn shut_down(&self, portion: u32) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::ShutDown { portion });
        }
    }
}

fn result_stream(router: &Router, framing: Framing, kind: Kind, now: Instant) -> ClientMachine {
    // Those that got an event at one moment are not due at one.
    let heartbeat = router.config.subscriptions.heartbeat;
    let heartbeat = Some(heartbeat - jitter::next_fraction(heartbeat));
    let results = ResultStream::new(kind, heartbeat, now);
    ClientMachine::ResultStream(ResponseBody::new(framing, results))
}

impl ReactorHandles {
    /// Hands over a connection that has left HTTP.
    pub(crate) fn adopt(&self, router: &Router, leaving: LiveConnection, left: Left) {
        let Left { stream, early, permit } = left;
        let (socket, session, unread) = match stream.into_parts() {
            Ok(parts) => parts,
            Err(error) => {
                tracing::error!(%error, "a socket cannot leave its runtime; please report this");
                return;
            }
        };
        // Best effort: with it the bounds that are configured for slow clients act soon, and not after megabytes.
        let kernel_queue = router.config.subscriptions.kernel_queue_bytes;
        let _ = SockRef::from(&socket).set_send_buffer_size(kernel_queue);
        let now = Instant::now();
        let (machine, context, first) = match leaving {
            LiveConnection::WebSocket(AcceptedWebSocket { negotiated, context }) => {
                let machine = ClientMachine::WebSocket(negotiated.make_machine(router, now));
                let headers = client::needed_headers(&router.config, &context.headers);
                (
                    machine,
                    ClientContext { headers, identity: context.identity },
                    FirstOperation::FromClient,
                )
            }
            LiveConnection::ResultStream(AcceptedStream { framing, kind, ready }) => {
                let machine = result_stream(router, framing, kind, now);
                let context =
                    ClientContext { identity: ready.identity.clone(), ..ClientContext::default() };
                (machine, context, FirstOperation::Prepared(Box::new(ready)))
            }
            LiveConnection::SingleConnection(framing, opened) => {
                let machine = result_stream(router, framing, Kind::EventStream, now);
                (machine, ClientContext::default(), FirstOperation::SharedStream(opened))
            }
        };
        let adoption = Adoption {
            stream: Stream::new(socket, session),
            early: [&*early, &*unread].concat(),
            context,
            permit,
            open: router.metrics.stream(machine.transport()),
            machine,
            first,
            later: None,
        };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(turn % self.mailboxes.len().max(1)) {
            mailbox.send(Message::Adopt(Box::new(adoption)));
        }
    }
}
