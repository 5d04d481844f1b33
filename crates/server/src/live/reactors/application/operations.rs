//! Operations that clients of a reactor start: each runs on a core, and its outcome comes back as a message.

use std::sync::Arc;
use std::time::Instant;

use execute::ClientKey;
use futures_util::future::{AbortHandle, Abortable};
use hub::Member;
use plan::OperationKind;
use prepare::OperationRequest;
use reactor::Token;
use wire::connection::ReadApart;
use wire::websocket::LargeMessage;

use super::super::client::Operation;
use super::super::machine::ClientMachine;
use super::super::message::{Message, Outcome};
use super::super::outlet::ReactorOutlet;
use super::{ClientSockets, Live, hold};
use crate::forwarding::ClientHeaders::Kept;
use crate::live::backlog::Delivery;
use crate::live::caller::Caller;
use crate::live::client_work::{ClientWork, Started};
use crate::live::end_reasons::broken_off;
use crate::live::kept_operations::{Amounts, Held};
use crate::live::large_messages;
use crate::live::running::{self, Subscribed};
use crate::metrics::Transport;
use crate::operation::{self, Ready};
use crate::router::Router;
use crate::trace::RequestTrace;

/// An operation that is to begin.
pub(super) enum Wanted {
    /// The request of a client.
    Request(OperationRequest),
    /// A prepared operation.
    Ready(Box<Ready>),
}

impl Live {
    /// Starts an operation on a core; its outcome comes back through the mailbox.
    pub(super) fn start(
        &self,
        sockets: &mut ClientSockets,
        token: Token,
        number: u32,
        wanted: Wanted,
    ) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let work = client.work.take().unwrap_or_else(|| {
            let outlet = Arc::clone(&self.outlet);
            let on_few = Box::new(move || outlet.mailbox().send(Message::FewStarted(token)));
            ClientWork::new(running::response_account(router, client.key()), on_few)
        });
        let started = Some(work.start());
        let is_held = work.hold();
        client.work = Some(work);
        let (abort, registration) = AbortHandle::new_pair();
        client.operations.add(number, Operation::Task(abort));
        let (outlet, address) = (Arc::clone(&self.outlet), client.permit.client());
        let (transport, held) = (client.transport, client.operations.kept());
        let starting = Starting { outlet, token, number, address, transport, held, started };
        let (serving, caller) = (Arc::clone(router), Arc::clone(&client.caller));
        router.cores.run(Box::new(move || {
            Box::pin(async move {
                let run = starting.run(&serving, wanted, &caller);
                // Aborted if the client has gone, or has completed the operation.
                let _ = Abortable::new(run, registration).await;
            })
        }));
        if is_held {
            hold(sockets, token, true);
        }
    }

    /// Has another thread read a large message, while the connection waits for it.
    pub(super) fn read_apart(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        message: LargeMessage,
    ) {
        let Some(ClientMachine::WebSocket(connection)) = sockets.machine(token) else { return };
        let parse = connection.protocol.parser();
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let client = client.key();
        let (serving, outlet) = (Arc::clone(router), Arc::clone(&self.outlet));
        let (abort, registration) = AbortHandle::new_pair();
        router.cores.run(Box::new(move || {
            let reading = async move {
                let deadline = Instant::now() + serving.config.limits.time;
                let offload = &serving.offload;
                let read = large_messages::read(offload, client, deadline, message, parse).await;
                outlet.mailbox().send(Message::Read(token, read));
            };
            Box::pin(async move {
                // Aborted where the connection has ended.
                let _ = Abortable::new(reading, registration).await;
            })
        }));
        self.reading.insert(token, abort);
    }

    /// Nothing needs to be read for a connection that has ended: its message gives its place in the queue back.
    pub(super) fn stop_reading(&mut self, token: Token) {
        if let Some(reading) = self.reading.remove(&token) {
            reading.abort();
        }
    }

    /// Takes the outcome of an operation.
    pub(super) fn concluded(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        operation: u32,
        outcome: Outcome,
    ) {
        let Some(client) = sockets.client(token) else { return };
        if client.operations.get_mut(operation).is_none() {
            // The client has completed it meanwhile, or the hub has ended it.
            return;
        }
        match outcome {
            Outcome::Subscribed(subscription, open, kept) => {
                let Some(router) = &self.router else { return };
                let live = (subscription, open, kept);
                let is_live = client.go_live(&router.config.subscriptions, operation, live);
                client.tidy_work();
                if let Err(error) = is_live {
                    router.metrics.refused(error.code);
                    client.forget(operation);
                    self.end(sockets, token, Delivery::Failed { operation, errors: vec![error] });
                }
            }
            Outcome::Answered(payload) => {
                client.forget(operation);
                self.respond(sockets, token, operation, payload);
            }
            Outcome::Failed(errors) => {
                client.forget(operation);
                client.tidy_work();
                self.end(sockets, token, Delivery::Failed { operation, errors });
            }
        }
    }
}

/// An operation on its way to its outcome. If a defect breaks it off, its client gets an error instead of no response
/// at all.
struct Starting {
    outlet: Arc<ReactorOutlet>,
    token: Token,
    number: u32,
    /// The key of the client's address.
    address: ClientKey,
    transport: Transport,
    /// The amounts that the connection's live subscriptions kept when the operation was started.
    held: Amounts,
    /// `None` once it has its outcome.
    started: Option<Started>,
}

impl Starting {
    async fn run(mut self, router: &Arc<Router>, wanted: Wanted, caller: &Caller) {
        let (mut trace, prepared) = match wanted {
            Wanted::Ready(ready) => (None, Ok(*ready)),
            Wanted::Request(request) => {
                let Caller { headers, identity } = caller;
                let trace = RequestTrace::wanted(&router.config, headers);
                let prepared = operation::prepare_for(
                    router,
                    &request,
                    Kept(headers),
                    identity.clone(),
                    self.address,
                );
                (trace, prepared.await)
            }
        };
        let outcome = match prepared {
            Err(errors) => Outcome::Failed(errors),
            Ok(ready) if ready.prepared.kind == OperationKind::Subscription => {
                let outlet = Arc::clone(&self.outlet) as Arc<dyn hub::Outlet>;
                let member = Member { connection: self.token.to_u64(), operation: self.number };
                let held = Held::Amounts(self.held);
                match running::subscribe(router, ready, outlet, member, held).await {
                    Ok(Subscribed { subscription, kept, .. }) => {
                        let open = router.metrics.subscription(self.transport);
                        Outcome::Subscribed(subscription, open, kept)
                    }
                    Err(error) => Outcome::Failed(vec![error]),
                }
            }
            Ok(ready) => {
                if let Some(trace) = &mut trace {
                    trace.prepared();
                }
                let Some(started) = &self.started else { return };
                // Without a permit the connection is about to be closed, because it reads nothing.
                let Some(permit) = started.permit().await else { return };
                let outcome = match operation::run(router, ready, trace).await {
                    Ok(payload) => Outcome::Answered(started.charge(payload)),
                    Err(errors) => Outcome::Failed(errors),
                };
                drop(permit);
                outcome
            }
        };
        self.conclude(outcome);
    }

    fn conclude(&mut self, outcome: Outcome) {
        self.started = None;
        self.outlet.mailbox().send(Message::Operation(self.token, self.number, outcome));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.started.is_some() && std::thread::panicking() {
            self.conclude(Outcome::Failed(vec![broken_off()]));
        }
    }
}
