//! What a reactor thread does above its sockets.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use execute::{GraphqlError, Payload};
use futures_util::future::{AbortHandle, Abortable};
use http::HeaderMap;
use hub::{EndReason, GroupId, Member, OutletCommand, Subscription};
use indexmap::IndexSet;
use plan::OperationKind;
use prepare::OperationRequest;
use reactor::{Application, Mailbox, Sent, Sockets, Token};
use wire::connection::Connection;
use wire::graphql_transport_ws::{Event, INVALID_MESSAGE};
use wire::subprotocol::Subprotocol;
use wire::websocket::{CloseCode, deflate_shared};

use super::client::{self, Client, Operation, SharedHeaders};
use super::outlet::ReactorOutlet;
use crate::connections::ConnectionPermit;
use crate::farewell;
use crate::live::backlog::{Bounds, Delivery, Taken};
use crate::live::running::{self, too_slow};
use crate::live::{SLOW_SUBSCRIBER, count_dropped, init_payload};
use crate::metrics::{Open, Transport};
use crate::operation;
use crate::router::Router;
use crate::trace::RequestTrace;

/// What other threads tell a reactor.
pub(crate) enum Message {
    /// Whom it serves.
    Begin(Arc<Router>),
    /// One connection more.
    Adopt(Box<Adoption>),
    /// From the hub.
    Hub(OutletCommand),
    /// Of an operation that a connection has started.
    Operation(Token, u32, Outcome),
    /// Some are to leave, and whoever comes later.
    ShutDown {
        /// Of [`farewell::PORTIONS`].
        portion: u32,
    },
}

/// What a connection is made of.
pub(crate) struct Adoption {
    pub(super) socket: OwnedFd,
    pub(super) machine: Connection<Subprotocol>,
    pub(super) early: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) permit: ConnectionPermit,
    pub(super) open: Open,
}

/// A payload compressed for all who take it so: once, and not before somebody does.
struct Deflated<'p> {
    payload: &'p Bytes,
    bytes_min: usize,
    blocks: Option<Option<Bytes>>,
}

impl<'p> Deflated<'p> {
    fn new(router: Option<&Router>, payload: &'p Bytes) -> Self {
        let bytes_min = router.map_or(usize::MAX, |it| it.websocket.deflate_bytes_min);
        Self { payload, bytes_min, blocks: None }
    }

    /// `None`: it is too small, or would not become smaller.
    fn blocks(&mut self) -> Option<&Bytes> {
        if self.payload.len() < self.bytes_min {
            return None;
        }
        self.blocks.get_or_insert_with(|| deflate_shared(self.payload, b"}")).as_ref()
    }
}

/// What became of an operation.
pub(crate) enum Outcome {
    /// Its one answer.
    Answered(Payload),
    /// It is live.
    Subscribed(Subscription, Open),
    /// It could not run.
    Failed(Vec<GraphqlError>),
}

/// The connections of one reactor thread.
pub(crate) struct Live {
    router: Option<Arc<Router>>,
    outlet: Arc<ReactorOutlet>,
    groups: HashMap<GroupId, IndexSet<Member>>,
    headers: SharedHeaders,
    is_shutting_down: bool,
    /// Heads of frames are written here.
    head: Vec<u8>,
}

type ClientSockets = Sockets<Subprotocol, Client>;

impl Live {
    pub(super) fn new(outlet: Arc<ReactorOutlet>) -> Self {
        Self {
            router: None,
            outlet,
            groups: HashMap::new(),
            headers: SharedHeaders::default(),
            is_shutting_down: false,
            head: Vec::new(),
        }
    }

    fn adopt(&mut self, sockets: &mut ClientSockets, adoption: Adoption) {
        let Adoption { socket, machine, early, headers, permit, open } = adoption;
        let headers = self.headers.share(headers);
        let client = Client { headers, operations: Vec::new(), backlog: None, permit, open };
        match sockets.adopt(socket, machine, &early, client) {
            Ok(token) if self.is_shutting_down => shut_down(sockets, token),
            Ok(_) => {}
            // Out of memory for one more watch: the client sees its socket close.
            Err((error, _)) => tracing::warn!(%error, "a connection cannot be watched"),
        }
    }

    /// Starts an operation on a core; its outcome comes back through the mailbox.
    fn start(&self, client: &mut Client, token: Token, number: u32, request: OperationRequest) {
        let Some(router) = &self.router else { return };
        let (abort, registration) = AbortHandle::new_pair();
        client.operations.push((number, Operation::Task(abort)));
        let starting = Starting { outlet: Arc::clone(&self.outlet), token, number, is_done: false };
        let (serving, headers) = (Arc::clone(router), Arc::clone(&client.headers));
        router.cores.run(Box::new(move || {
            Box::pin(async move {
                let run = starting.run(&serving, &request, &headers);
                // Aborted: the client has gone, or wants no more of it.
                let _ = Abortable::new(run, registration).await;
            })
        }));
    }

    /// A client introduces itself.
    fn initialise(&mut self, sockets: &mut ClientSockets, token: Token, payload: Option<Bytes>) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let allowed = &router.config.websocket.init_payload_headers;
        let merged = init_payload::headers(allowed, payload, &client.headers);
        if let Ok(merged) = &merged
            && *merged != *client.headers
        {
            let needed = client::needed_headers(&router.config.headers, merged);
            client.headers = self.headers.share(needed);
        }
        let Some(protocol) = sockets.protocol_mut(token) else { return };
        match merged {
            Ok(_) => protocol.accept_init(None),
            Err(reason) => protocol.close(INVALID_MESSAGE, &reason),
        }
    }

    fn obey(&mut self, sockets: &mut ClientSockets, command: OutletCommand) {
        match command {
            OutletCommand::Join { group, member } => {
                self.groups.entry(group).or_default().insert(member);
            }
            OutletCommand::Deliver { group, payload } => {
                self.outlet.taken(group, payload.bytes.len());
                self.broadcast(sockets, group, &payload);
            }
            OutletCommand::Leave { group, member } => {
                if let Some(members) = self.groups.get_mut(&group) {
                    members.swap_remove(&member);
                    if members.is_empty() {
                        self.groups.remove(&group);
                        self.outlet.forget(group);
                    }
                }
                left(sockets, member);
            }
            OutletCommand::End { group, reason } => {
                let members = self.groups.remove(&group).unwrap_or_default();
                self.outlet.forget(group);
                for member in members {
                    self.ended(sockets, member, &reason);
                }
            }
        }
    }

    // hot path: once per group and event, then once per member.
    fn broadcast(&mut self, sockets: &mut ClientSockets, group: GroupId, payload: &Payload) {
        let Some(members) = self.groups.get(&group) else { return };
        let mut deflated = Deflated::new(self.router.as_deref(), &payload.bytes);
        let mut slow = Vec::new();
        for member in members {
            let token = Token::from_u64(member.connection);
            // What waits goes first, and what is owed is told.
            if sockets.is_blocked(token)
                || sockets.client(token).is_some_and(|client| client.backlog.is_some())
            {
                slow.push(*member);
                continue;
            }
            let Some(protocol) = sockets.protocol(token) else { continue };
            self.head.clear();
            // A client that completed it meanwhile has no id for it any more.
            if sockets.deflates(token)
                && let Some(blocks) = deflated.blocks()
            {
                if protocol.append_deflated_head(member.operation, blocks.len(), &mut self.head) {
                    sockets.send(token, &self.head, blocks, b"");
                }
            } else if protocol.append_result_head(
                member.operation,
                payload.bytes.len(),
                &mut self.head,
            ) {
                sockets.send(token, &self.head, &payload.bytes, b"}");
            }
        }
        for member in slow {
            self.put_off(sockets, member, payload);
            self.empty(sockets, Token::from_u64(member.connection));
        }
    }

    /// A result for a client whose socket is full.
    fn put_off(&mut self, sockets: &mut ClientSockets, member: Member, payload: &Payload) {
        let Some(router) = &self.router else { return };
        let token = Token::from_u64(member.connection);
        if sockets.protocol(token).is_none_or(|it| it.id_of(member.operation).is_none()) {
            return;
        }
        let Some(client) = sockets.client(token) else { return };
        let backlog = client.backlog.get_or_insert_default();
        let bounds = Bounds::new(&router.config.subscriptions);
        backlog.event(bounds, member.operation, payload.clone());
        count_dropped(router, backlog.take_dropped());
        if backlog.is_overflown() {
            // Nothing that waits is for anybody any more.
            client.backlog = None;
            client.stop_all();
            if let Some(protocol) = sockets.protocol_mut(token) {
                protocol.close(SLOW_SUBSCRIBER, &too_slow().message);
            }
        }
    }

    /// The hub's last word about a subscription.
    fn ended(&mut self, sockets: &mut ClientSockets, member: Member, reason: &EndReason) {
        let (token, operation) = (Token::from_u64(member.connection), member.operation);
        let Some(client) = sockets.client(token) else { return };
        client.forget(operation);
        let end = match reason {
            EndReason::Complete => Delivery::Complete { operation },
            EndReason::Error(error) => {
                Delivery::Failed { operation, errors: vec![(**error).clone()] }
            }
        };
        match &mut client.backlog {
            Some(backlog) => backlog.end(end),
            None => self.deliver(sockets, token, end),
        }
    }

    fn concluded(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        operation: u32,
        outcome: Outcome,
    ) {
        let Some(client) = sockets.client(token) else { return };
        let Some(entry) = client.operations.iter_mut().find(|(it, _)| *it == operation) else {
            // The client has completed it meanwhile, or the hub has.
            return;
        };
        match outcome {
            Outcome::Subscribed(subscription, open) => {
                entry.1 = Operation::Subscription(subscription, open);
            }
            Outcome::Answered(payload) => {
                client.forget(operation);
                let backlog = client.backlog.get_or_insert_default();
                backlog.answer(operation, payload);
                backlog.end(Delivery::Complete { operation });
                self.empty(sockets, token);
            }
            Outcome::Failed(errors) => {
                client.forget(operation);
                let end = Delivery::Failed { operation, errors };
                match &mut client.backlog {
                    Some(backlog) => backlog.end(end),
                    None => self.deliver(sockets, token, end),
                }
            }
        }
    }

    /// Sends what waits, as long as the socket takes it.
    fn empty(&mut self, sockets: &mut ClientSockets, token: Token) {
        while !sockets.is_blocked(token) {
            let Some(client) = sockets.client(token) else { return };
            let Some(backlog) = &mut client.backlog else { return };
            match backlog.take() {
                Taken::Delivery(delivery) => self.deliver(sockets, token, delivery),
                Taken::Nothing | Taken::Overflown => {
                    if backlog.is_idle() {
                        client.backlog = None;
                    }
                    return;
                }
            }
        }
    }

    /// To a socket that has room.
    fn deliver(&mut self, sockets: &mut ClientSockets, token: Token, delivery: Delivery) {
        // An operation that the client completed meanwhile has no id any more; its results go nowhere.
        match delivery {
            Delivery::Next { operation, payload, missed } => {
                let Some(protocol) = sockets.protocol(token) else { return };
                let payload = payload.with_missed(missed);
                self.head.clear();
                let mut deflated = Deflated::new(self.router.as_deref(), &payload.bytes);
                if sockets.deflates(token)
                    && let Some(blocks) = deflated.blocks()
                {
                    if protocol.append_deflated_head(operation, blocks.len(), &mut self.head) {
                        sockets.send(token, &self.head, blocks, b"");
                    }
                    return;
                }
                if !protocol.append_result_head(operation, payload.bytes.len(), &mut self.head) {
                    return;
                }
                let sent = sockets.send(token, &self.head, &payload.bytes, b"}");
                debug_assert_ne!(sent, Sent::Blocked, "whoever calls this has looked");
            }
            Delivery::Complete { operation } => {
                let Some(protocol) = sockets.protocol_mut(token) else { return };
                if let Some(id) = protocol.id_of(operation).cloned() {
                    protocol.complete(&id);
                }
            }
            Delivery::Failed { operation, errors } => {
                let Some(protocol) = sockets.protocol_mut(token) else { return };
                if let Some(id) = protocol.id_of(operation).cloned() {
                    let mut text = Vec::new();
                    execute::print_errors(&errors, &mut text);
                    protocol.error(&id, text.into());
                }
            }
        }
    }
}

impl Application for Live {
    type Protocol = Subprotocol;
    type Client = Client;
    type Message = Message;

    fn event(&mut self, sockets: &mut ClientSockets, token: Token, event: Event) {
        match event {
            Event::Init { payload } => self.initialise(sockets, token, payload),
            Event::Subscribe { number, request, .. } => {
                let request = OperationRequest {
                    query: request
                        .query
                        .map(|it| Bytes::from(it.into_string()))
                        .unwrap_or_default(),
                    operation_name: request.operation_name,
                    variables: request.variables.unwrap_or_default(),
                    extensions: request.extensions.unwrap_or_default(),
                };
                if let Some(client) = sockets.client(token) {
                    self.start(client, token, number, request);
                }
            }
            Event::Complete { number, .. } => {
                if let Some(client) = sockets.client(token) {
                    client.stop(number);
                }
            }
            Event::Ended(_) => {
                if let Some(client) = sockets.client(token) {
                    client.backlog = None;
                    client.stop_all();
                }
            }
        }
    }

    fn message(&mut self, sockets: &mut ClientSockets, message: Message) {
        match message {
            Message::Begin(router) => self.router = Some(router),
            Message::Adopt(adoption) => self.adopt(sockets, *adoption),
            Message::Hub(command) => {
                self.obey(sockets, command);
                if let Some(router) = &self.router {
                    count_dropped(router, self.outlet.take_dropped());
                }
            }
            Message::Operation(token, number, outcome) => {
                self.concluded(sockets, token, number, outcome);
            }
            Message::ShutDown { portion } => {
                self.is_shutting_down = true;
                for token in sockets.tokens() {
                    if farewell::portion_of(token.to_u64()) == portion {
                        shut_down(sockets, token);
                    }
                }
            }
        }
    }

    fn writable(&mut self, sockets: &mut ClientSockets, token: Token) {
        self.empty(sockets, token);
    }

    fn closed(&mut self, _: Token, mut client: Client) {
        client.stop_all();
    }
}

/// A subscription is over because its client, or the operation that it belongs to, has gone.
fn left(sockets: &mut ClientSockets, member: Member) {
    let Some(client) = sockets.client(Token::from_u64(member.connection)) else { return };
    client.forget(member.operation);
    if let Some(backlog) = &mut client.backlog {
        backlog.forget_missed(member.operation);
    }
}

fn shut_down(sockets: &mut ClientSockets, token: Token) {
    if let Some(protocol) = sockets.protocol_mut(token) {
        protocol.close(CloseCode(1001), "The router is shutting down");
    }
}

/// An operation on its way to its outcome. If it breaks off by a defect its client is told so: it would wait for ever.
struct Starting {
    outlet: Arc<ReactorOutlet>,
    token: Token,
    number: u32,
    is_done: bool,
}

impl Starting {
    async fn run(mut self, router: &Arc<Router>, request: &OperationRequest, headers: &HeaderMap) {
        let mut trace = RequestTrace::wanted(&router.config, headers);
        let outcome = match operation::prepare(router, request, headers).await {
            Err(errors) => Outcome::Failed(errors),
            Ok(ready) if ready.prepared.kind == OperationKind::Subscription => {
                let outlet = Arc::clone(&self.outlet) as Arc<dyn hub::Outlet>;
                let member = Member { connection: self.token.to_u64(), operation: self.number };
                match running::subscribe(router, ready, outlet, member).await {
                    Ok(subscription) => {
                        let open = router.metrics.subscription(Transport::websocket);
                        Outcome::Subscribed(subscription, open)
                    }
                    Err(error) => Outcome::Failed(vec![error]),
                }
            }
            Ok(ready) => {
                if let Some(trace) = &mut trace {
                    trace.prepared();
                }
                match operation::run(router, ready, trace).await {
                    Ok(payload) => Outcome::Answered(payload),
                    Err(errors) => Outcome::Failed(errors),
                }
            }
        };
        self.conclude(outcome);
    }

    fn conclude(&mut self, outcome: Outcome) {
        self.is_done = true;
        let mailbox: &Mailbox<Message> = self.outlet.mailbox();
        mailbox.send(Message::Operation(self.token, self.number, outcome));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.is_done && std::thread::panicking() {
            self.conclude(Outcome::Failed(vec![running::broken_off()]));
        }
    }
}
