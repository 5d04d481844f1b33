//! Reactor threads that serve WebSockets and event streams: messages of clients become operations on the workers, and a
//! delivery of the hub goes to all members of a group at once.

mod client;
mod client_machine;
pub mod context;
mod deflation;
mod group_members;
mod message;
mod null_clients;
mod outlet;
mod subscription_opening;
mod subscription_server;
mod watched_members;
mod watching;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clients::connections::TakenOver;
use clients::workers::after_ready_tasks;
use config::Subscriptions;
use reactor::{Mailbox, Reactor, ReactorSettings, Stream};
use socket2::SockRef;
use wire::http1::{FramedBody, Framing};
use wire::result_stream::{ResultStream, StreamFormat};

use super::access_records::WebSocketRecord;
use super::client_context::ClientContext;
use super::jitter;
use super::takeover::{AcceptedStream, AcceptedWebSocket, LiveConnection};
use client_machine::ClientMachine;
pub use context::ReactorContext;
use message::{Adoption, FirstOperation, Message};
use outlet::ReactorOutlet;
use subscription_server::SubscriptionServer;

/// The reactor threads. Dropping it ends them with all their connections.
pub struct Reactors {
    reactors: Vec<Reactor<SubscriptionServer>>,
}

/// The handles through which the router reaches the reactors.
pub struct ReactorHandles {
    mailboxes: Vec<Arc<Mailbox<Message>>>,
    next: AtomicUsize,
}

impl std::fmt::Debug for Reactors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactors").field("threads", &self.reactors.len()).finish()
    }
}

impl Reactors {
    /// Starts `count` threads. `stall_time_max` is the time that a client may take nothing at all of its unsent bytes.
    ///
    /// # Errors
    /// The system provides no thread or no poller.
    pub fn start(count: usize, stall_time_max: Duration) -> io::Result<(Self, ReactorHandles)> {
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

    /// Returns a function that asks for the ends of connections that clients have closed, because there is no room for
    /// others, and counts those connections.
    pub fn hurry_leaving(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let mailboxes: Vec<_> = self.reactors.iter().map(|it| Arc::clone(it.mailbox())).collect();
        move || {
            mailboxes.iter().for_each(|it| it.hurry_leaving());
            mailboxes.iter().map(|it| it.leaving()).sum()
        }
    }

    /// Passes the parts of the router to the reactors. They adopt connections only after this.
    pub fn serve(&self, context: &Arc<ReactorContext>) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::Serve(Arc::clone(context)));
        }
    }

    /// Closes the connections of a portion, see [`clients::drain`], and each connection that is adopted later.
    pub fn shut_down(&self, portion: u32) {
        for reactor in &self.reactors {
            reactor.mailbox().send(Message::ShutDown { portion });
        }
    }
}

fn result_stream(
    settings: &Subscriptions,
    framing: Framing,
    kind: StreamFormat,
    now: Instant,
) -> ClientMachine {
    // With jitter, so that streams that got an event at the same time do not have their heartbeats at the same time.
    let heartbeat = settings.heartbeat;
    let heartbeat = Some(heartbeat - jitter::next_fraction(heartbeat));
    let results = ResultStream::new(kind, heartbeat, now);
    ClientMachine::ResultStream(FramedBody::new(framing, results))
}

impl ReactorHandles {
    /// Hands a connection that has left HTTP to the next reactor.
    pub fn adopt(&self, reactor: &ReactorContext, live: LiveConnection, taken: TakenOver) {
        let TakenOver { socket, session, early, permit } = taken;
        let settings = &reactor.runner.limits.settings;
        // Best effort. With a small buffer the configured limits for slow clients take effect soon, and not after
        // megabytes.
        let _ = SockRef::from(&socket).set_send_buffer_size(settings.kernel_queue_bytes);
        let now = Instant::now();
        let mut record = None;
        let (machine, context, first) = match live {
            LiveConnection::WebSocket(AcceptedWebSocket { negotiated, context, logged }) => {
                record = logged.map(|it| WebSocketRecord::begin(it, context.origin, now));
                let machine = reactor.websocket.make_machine(negotiated, now);
                let machine = ClientMachine::WebSocket(machine);
                let headers = reactor.needed_headers.select(&context.headers);
                let origin = reactor.needed_headers.select_origin(context.origin);
                let context = ClientContext { headers, identity: context.identity, origin };
                (machine, context, FirstOperation::FromClient)
            }
            LiveConnection::ResultStream(stream) => {
                let AcceptedStream { framing, kind, ready } = *stream;
                let machine = result_stream(settings, framing, kind, now);
                let context =
                    ClientContext { identity: ready.identity.clone(), ..ClientContext::default() };
                (machine, context, FirstOperation::Prepared(Box::new(ready)))
            }
            LiveConnection::SingleConnection(framing, opened) => {
                let machine = result_stream(settings, framing, StreamFormat::EventStream, now);
                (machine, ClientContext::default(), FirstOperation::SharedStream(opened))
            }
        };
        let adoption = Adoption {
            stream: Stream::new(socket, session),
            early,
            context,
            record,
            permit,
            open: reactor.runner.metrics.open_stream(machine.transport()),
            machine,
            first,
            later: None,
        };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(turn % self.mailboxes.len().max(1)) {
            send_together(mailbox, Message::Adopt(Box::new(adoption)));
        }
    }
}

/// Sends a message of a worker, together with those that its other tasks send now. A reactor has a higher priority than
/// a worker, so it would otherwise interrupt the worker for each of them.
fn send_together(mailbox: &Arc<Mailbox<Message>>, message: Message) {
    if mailbox.send_later(message) {
        let mailbox = Arc::clone(mailbox);
        after_ready_tasks(move || mailbox.flush());
    }
}
