//! What a reactor thread does above its sockets.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use execute::{ClientKey, GraphqlError, Missed, Payload};
use futures_util::future::{AbortHandle, Abortable};
use hub::{EndReason, GroupId, Member, OutletCommand, Subscription};
use plan::OperationKind;
use prepare::OperationRequest;
use reactor::{Application, End, Mailbox, Sent, Sockets, Stream, Sunk, Token};
use tokio::sync::oneshot;
use wire::Machine;
use wire::connection::ReadApart;
use wire::graphql_transport_ws::{Event, INVALID_MESSAGE};
use wire::subprotocol::ParsedMessage;
use wire::websocket::{LargeMessage, ReadMessage};

use super::client::{self, Client, Operation, Operations, SharedCallers};
use super::deflation::Deflation;
use super::machine::{ClientMachine, ONLY_OPERATION, Shared, SharedPosition};
use super::members::Members;
use super::outlet::ReactorOutlet;
use crate::authentication::{
    self, Authentication, EXPIRED, Identity, InitOutcome, Introduced, LOOK_INTERVAL_MAX, Refusal,
};
use crate::connections::ConnectionPermit;
use crate::farewell;
use crate::forwarding::ClientHeaders::Kept;
use crate::live::backlog::{Backlog, Bounds, Delivery, Taken};
use crate::live::client_work::{ClientWork, Started};
use crate::live::kept_operations::{Amounts, Held, KeptOperation};
use crate::live::running::Subscribed;
use crate::live::single::{Opened, Step};
use crate::live::websocket::{AUTHENTICATION_UNAVAILABLE, TRY_AGAIN_LATER};
use crate::live::{Caller, count_dropped, init_payload, large_messages, running};
use crate::metrics::{Open, TimeoutPhase, Transport};
use crate::operation::{self, Ready};
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
    /// Events that wait for that connection are to make room for others.
    Shed(Token),
    /// So few of a connection's operations are left that it may be read again.
    FewStarted(Token),
    /// There is something to write for a stream that many requests share.
    Filled(Token),
    /// A client without a socket says this.
    Said(Token, Bytes),
    /// Who has sent `connection_init` on that connection.
    Introduced(Token, Result<InitOutcome, Refusal>),
    /// A large message of that connection has been read.
    Read(Token, ReadMessage<ParsedMessage>),
    /// What has been sent to those without sockets?
    Sunk(oneshot::Sender<Sunk>),
    /// Some are to leave, and whoever comes later.
    ShutDown {
        /// Of [`farewell::PORTIONS`].
        portion: u32,
    },
}

/// What a connection is made of.
pub(crate) struct Adoption {
    pub(super) stream: Stream,
    pub(super) machine: ClientMachine,
    pub(super) early: Vec<u8>,
    pub(super) caller: Caller,
    pub(super) permit: ConnectionPermit,
    pub(super) open: Open,
    pub(super) begin: Begin,
    /// What its client says once it is greeted: of one without a socket.
    pub(super) later: Option<Bytes>,
}

/// What a connection begins with.
pub(crate) enum Begin {
    /// Its client will say it.
    Later,
    /// Its request has said it all.
    Operation(Box<Ready>),
    /// Requests on other connections say it, and have begun to.
    Stream(Box<Opened>),
}

/// An operation that is to begin.
enum Wanted {
    /// As a client said it.
    Request(OperationRequest),
    /// Prepared.
    Ready(Box<Ready>),
}

/// What became of an operation.
pub(crate) enum Outcome {
    /// Its one answer.
    Answered(Payload),
    /// It is live.
    Subscribed(Subscription, Open, KeptOperation),
    /// It could not run.
    Failed(Vec<GraphqlError>),
}

/// The connections of one reactor thread.
pub(crate) struct Live {
    router: Option<Arc<Router>>,
    outlet: Arc<ReactorOutlet>,
    groups: HashMap<GroupId, Members>,
    /// Of which groups something waits for a client whose socket is full.
    behind: HashMap<Token, Vec<GroupId>>,
    callers: SharedCallers,
    /// When the first of their tokens expires.
    next_expiry: Option<Instant>,
    /// The clients that have responses to read, and when they are looked at next.
    unread: HashSet<Token>,
    next_eviction: Option<Instant>,
    is_shutting_down: bool,
    deflation: RefCell<Deflation>,
    /// Heads of frames are written here.
    head: Vec<u8>,
}

type ClientSockets = Sockets<ClientMachine, Client>;

// All that an idle connection with its first subscription costs in the slab. Beside it are the id of the subscription,
// its place in the list of its group (`members`), and an entry in the timer wheel: some 350 bytes together, measured by
// `starling bench subscriptions --simulate`; 440 is what they may be.
const _: () = assert!(ClientSockets::ENTRY_BYTES <= 304);

impl Live {
    pub(super) fn new(outlet: Arc<ReactorOutlet>) -> Self {
        Self {
            router: None,
            outlet,
            groups: HashMap::new(),
            behind: HashMap::new(),
            callers: SharedCallers::default(),
            next_expiry: None,
            unread: HashSet::new(),
            next_eviction: None,
            is_shutting_down: false,
            deflation: RefCell::new(Deflation::new(usize::MAX)),
            head: Vec::new(),
        }
    }

    fn adopt(&mut self, sockets: &mut ClientSockets, adoption: Adoption) {
        let Adoption { stream, machine, early, caller, permit, open, begin, later } = adoption;
        self.note_expiry(&caller.identity);
        let caller = self.callers.share(caller);
        let transport = machine.transport();
        let client = Client {
            caller,
            operations: Operations::None,
            backlog: None,
            kept: Amounts::default(),
            work: None,
            transport,
            permit,
            open,
        };
        let token = match sockets.adopt(stream, machine, &early, client) {
            Ok(token) => token,
            Err((error, _)) => {
                // Out of memory for one more watch: the client sees its socket close.
                tracing::warn!(%error, "a connection cannot be watched");
                return;
            }
        };
        if let Some(said) = later {
            // Comes behind what the greeting leads to.
            self.outlet.mailbox().send(Message::Said(token, said));
        }
        match begin {
            Begin::Later => {}
            Begin::Operation(ready) if !self.is_shutting_down => {
                self.start(sockets, token, ONLY_OPERATION, Wanted::Ready(ready));
            }
            Begin::Operation(_) => {}
            Begin::Stream(opened) => self.open(sockets, token, *opened),
        }
        if self.is_shutting_down {
            shut_down(sockets, token);
        }
    }

    /// A stream that many requests share, some of which may have come already.
    fn open(&self, sockets: &mut ClientSockets, token: Token, opened: Opened) {
        let Some(client) = sockets.client(token) else { return };
        let opened = Arc::new(opened);
        client.operations = Operations::Elsewhere(Arc::clone(&opened));
        let outlet = Arc::clone(&self.outlet);
        let filled = move || outlet.mailbox().send(Message::Filled(token));
        opened.tell(Box::new(filled));
        pour(sockets, token);
    }

    /// Starts an operation on a core; its outcome comes back through the mailbox.
    fn start(&self, sockets: &mut ClientSockets, token: Token, number: u32, wanted: Wanted) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let work = client.work.take().unwrap_or_else(|| {
            let outlet = Arc::clone(&self.outlet);
            let on_few = Box::new(move || outlet.mailbox().send(Message::FewStarted(token)));
            ClientWork::new(router, client.key(), on_few)
        });
        let started = Some(work.start());
        let is_held = work.hold();
        client.work = Some(work);
        let (abort, registration) = AbortHandle::new_pair();
        client.operations.add(number, Operation::Task(abort));
        let (outlet, address) = (Arc::clone(&self.outlet), client.permit.client());
        let (transport, held) = (client.transport, client.kept);
        let starting = Starting { outlet, token, number, address, transport, held, started };
        let (serving, caller) = (Arc::clone(router), Arc::clone(&client.caller));
        router.cores.run(Box::new(move || {
            Box::pin(async move {
                let run = starting.run(&serving, wanted, &caller);
                // Aborted: the client has gone, or wants no more of it.
                let _ = Abortable::new(run, registration).await;
            })
        }));
        if is_held {
            hold(sockets, token, true);
        }
    }

    /// A client introduces itself.
    fn initialise(&mut self, sockets: &mut ClientSockets, token: Token, payload: Option<Bytes>) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let allowed = &router.config.websocket.init_payload_headers;
        let tokens = router.authentication.as_ref().map(Authentication::token_source);
        let init = match init_payload::read(allowed, tokens, payload, &client.caller.headers) {
            Ok(init) => init,
            Err(reason) => {
                if let Some(ClientMachine::WebSocket(it)) = sockets.machine_mut(token) {
                    it.protocol.close(INVALID_MESSAGE, &reason);
                }
                return;
            }
        };
        if init.headers != client.caller.headers {
            let headers = client::needed_headers(&router.config, &init.headers);
            let identity = client.caller.identity.clone();
            client.caller = self.callers.share(Caller { headers, identity });
        }
        match authentication::introduced(router, init.token, &client.caller.identity) {
            Introduced::Known(identified) => self.introduced(sockets, token, identified),
            Introduced::By(bearer) => {
                // A signature takes as long as some hundred messages: that is work for a core.
                let (router, outlet) = (Arc::clone(router), Arc::clone(&self.outlet));
                let cores = Arc::clone(&router.cores);
                cores.run(Box::new(move || {
                    Box::pin(async move {
                        let identified = authentication::identify(&router, &bearer).await;
                        outlet.mailbox().send(Message::Introduced(token, identified));
                    })
                }));
            }
        }
    }

    /// Has a large message read on another thread; the connection waits for it.
    fn read_apart(&self, sockets: &mut ClientSockets, token: Token, message: LargeMessage) {
        let Some(ClientMachine::WebSocket(connection)) = sockets.machine(token) else { return };
        let parse = connection.protocol.parser();
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let client = client.key();
        let (serving, outlet) = (Arc::clone(router), Arc::clone(&self.outlet));
        router.cores.run(Box::new(move || {
            Box::pin(async move {
                if let Some(read) = large_messages::read(&serving, client, message, parse).await {
                    outlet.mailbox().send(Message::Read(token, read));
                }
            })
        }));
    }

    /// It is known who has sent `connection_init`.
    fn introduced(
        &mut self,
        sockets: &mut ClientSockets,
        token: Token,
        identified: Result<InitOutcome, Refusal>,
    ) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let admitted = identified.and_then(|it| router.admit(&it.identity).map(|()| it));
        let refusal = admitted.as_ref().err().cloned();
        if let Ok(outcome) = admitted
            && (outcome.sets_header()
                || outcome.identity.fingerprint() != client.caller.identity.fingerprint())
        {
            let mut headers = client.caller.headers.clone();
            if outcome.sets_header() {
                outcome.set_header(&mut headers);
                headers = client::needed_headers(&router.config, &headers);
            }
            let identity = outcome.identity;
            client.caller = self.callers.share(Caller { headers, identity: identity.clone() });
            self.note_expiry(&identity);
        }
        let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) else { return };
        match refusal {
            None => connection.protocol.accept_init(None),
            Some(refusal) if refusal.is_temporary() => {
                connection.protocol.close(TRY_AGAIN_LATER, AUTHENTICATION_UNAVAILABLE);
            }
            Some(_) => connection.protocol.forbid(),
        }
    }

    /// Somebody's connection is to end with their token.
    fn note_expiry(&mut self, identity: &Identity) {
        if let Some(left) = identity.time_left(SystemTime::now()) {
            // The clock that tokens are measured by may be set meanwhile.
            let at = Instant::now() + left.min(LOOK_INTERVAL_MAX);
            self.next_expiry = Some(self.next_expiry.map_or(at, |next| next.min(at)));
        }
    }

    /// Ends the connections of those whose token has expired. That looks at all of them, and is done once a second at
    /// most: nothing has to be kept for each.
    fn end_expired(&mut self, sockets: &mut ClientSockets) {
        let now = SystemTime::now();
        let mut next: Option<Duration> = None;
        for token in sockets.tokens() {
            let Some(client) = sockets.client(token) else { continue };
            let Some(left) = client.caller.identity.time_left(now) else { continue };
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            // Nothing that waits is for anybody any more; nor is it to be ended again.
            client.caller = self.callers.share(Caller::default());
            client.backlog = None;
            client.stop_all();
            if let Some(router) = &self.router {
                router.metrics.unauthenticated(EXPIRED);
            }
            if let Some(machine) = sockets.machine_mut(token) {
                machine.expire();
            }
            self.keeps_up(token);
        }
        let pause = next.map(|left| left.clamp(EXPIRY_INTERVAL_MIN, LOOK_INTERVAL_MAX));
        self.next_expiry = pause.map(|pause| Instant::now() + pause);
    }

    fn obey(&mut self, sockets: &mut ClientSockets, command: OutletCommand) {
        match command {
            OutletCommand::Join { group, member } => {
                self.groups.entry(group).or_default().insert(member);
            }
            OutletCommand::Deliver { group, payload, .. } => {
                self.outlet.taken(group, payload.bytes.len());
                self.broadcast(sockets, group, &payload);
            }
            OutletCommand::Position { group, cursor } => {
                self.outlet.position_taken(group);
                self.tell(sockets, group, cursor);
            }
            OutletCommand::Leave { group, member } => {
                if let Some(members) = self.groups.get_mut(&group) {
                    members.remove(member);
                    if members.is_empty() {
                        self.groups.remove(&group);
                        self.outlet.forget(group);
                    }
                }
                left(sockets, member);
                // It may be all that kept the client from being one that keeps up.
                self.empty(sockets, Token::from_u64(member.connection));
            }
            OutletCommand::Merge { from, into } => {
                let merged = self.groups.remove(&from).unwrap_or_default();
                let owed = self.outlet.take_missed(from);
                if owed != Missed::default() {
                    merged.iter().for_each(|member| self.owe(sockets, member, owed));
                }
                self.groups.entry(into).or_default().append(merged);
                self.outlet.forget(from);
            }
            OutletCommand::End { group, reason } => {
                let members = self.groups.remove(&group).unwrap_or_default();
                self.outlet.forget(group);
                for member in members.iter() {
                    self.ended(sockets, member, &reason);
                }
            }
        }
    }

    // hot path: once per group and event, then once per member.
    fn broadcast(&mut self, sockets: &mut ClientSockets, group: GroupId, payload: &Payload) {
        let Some(members) = self.groups.get(&group) else { return };
        let shared = Shared::new(payload, &self.deflation, true);
        let mut slow = Vec::new();
        for member in members.iter() {
            let token = Token::from_u64(member.connection);
            let (head, mut has_backlog) = (&mut self.head, false);
            let sent = sockets.send_with(token, |machine, client| {
                // What waits goes first, and what is owed is told.
                has_backlog = client.backlog.is_some();
                if has_backlog {
                    return None;
                }
                head.clear();
                let (body, tail) = machine.next(member.operation, &shared, head)?;
                Some((&head[..], body, tail))
            });
            if has_backlog || sent == Some(Sent::Blocked) {
                slow.push(member);
            }
        }
        for member in slow {
            let token = Token::from_u64(member.connection);
            let behind = self.behind.entry(token).or_default();
            if !behind.contains(&group) {
                behind.push(group);
                self.outlet.falls_behind(group, true);
            }
            self.put_off(sockets, member, payload);
            self.empty(sockets, token);
            if sockets.client(token).is_none_or(|client| client.backlog.is_none()) {
                self.keeps_up(token);
            }
        }
    }

    /// Tells the members of a group where they are. Whoever does not keep up is not told: it has yet to get what stands
    /// before that, or to hear that it lost it, and the next one will do.
    fn tell(&mut self, sockets: &mut ClientSockets, group: GroupId, cursor: Bytes) {
        let Some(members) = self.groups.get(&group) else { return };
        let shared = SharedPosition::new(cursor);
        for member in members.iter() {
            let head = &mut self.head;
            sockets.send_with(Token::from_u64(member.connection), |machine, client| {
                if client.backlog.as_ref().is_some_and(|it| it.concerns(member.operation)) {
                    return None;
                }
                head.clear();
                let (body, tail) = machine.position(member.operation, &shared, head)?;
                Some((&head[..], body, tail))
            });
        }
    }

    /// Nothing waits for that client any more.
    fn keeps_up(&mut self, token: Token) {
        for group in self.behind.remove(&token).unwrap_or_default() {
            self.outlet.falls_behind(group, false);
        }
        if self.behind.is_empty() {
            // All have what was compressed.
            self.deflation.get_mut().forget();
        }
    }

    /// A result for a client whose socket is full.
    fn put_off(&mut self, sockets: &mut ClientSockets, member: Member, payload: &Payload) {
        let Some(router) = &self.router else { return };
        let token = Token::from_u64(member.connection);
        if !sockets.machine(token).is_some_and(|it| it.is_active(member.operation)) {
            return;
        }
        let Some(client) = sockets.client(token) else { return };
        let backlog =
            client.backlog.get_or_insert_with(|| new_backlog(router, &self.outlet, token));
        let bounds = Bounds::new(&router.config.subscriptions);
        backlog.event(bounds, member.operation, payload.clone());
        self.give_up_if_overflown(sockets, token);
    }

    /// Drops events of a client, since of all clients it leaves the most waiting.
    fn shed(&self, sockets: &mut ClientSockets, token: Token) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let Some(backlog) = &mut client.backlog else { return };
        backlog.shed(Bounds::new(&router.config.subscriptions));
        self.give_up_if_overflown(sockets, token);
    }

    fn give_up_if_overflown(&self, sockets: &mut ClientSockets, token: Token) {
        let (Some(router), Some(client)) = (&self.router, sockets.client(token)) else { return };
        let Some(backlog) = &mut client.backlog else { return };
        count_dropped(router, backlog.take_dropped());
        if backlog.is_overflown() {
            // Nothing that waits is for anybody any more.
            client.backlog = None;
            client.stop_all();
            if let Some(machine) = sockets.machine_mut(token) {
                machine.give_up();
            }
        }
    }

    /// A client is told with its next result what was lost before it came from another group.
    fn owe(&self, sockets: &mut ClientSockets, member: Member, missed: Missed) {
        let Some(router) = &self.router else { return };
        let token = Token::from_u64(member.connection);
        if !sockets.machine(token).is_some_and(|it| it.is_active(member.operation)) {
            return;
        }
        let Some(client) = sockets.client(token) else { return };
        let backlog =
            client.backlog.get_or_insert_with(|| new_backlog(router, &self.outlet, token));
        backlog.owe(member.operation, missed);
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
        self.end(sockets, token, end);
    }

    /// The last word about an operation, behind what waits for its client.
    fn end(&mut self, sockets: &mut ClientSockets, token: Token, end: Delivery) {
        let backlog = sockets.client(token).and_then(|client| client.backlog.as_mut());
        match backlog {
            Some(backlog) => {
                backlog.end(end);
                // Somebody who is only owed an announcement has a socket with room, which tells nothing of itself.
                self.empty(sockets, token);
            }
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
        if client.operations.get_mut(operation).is_none() {
            // The client has completed it meanwhile, or the hub has.
            return;
        }
        match outcome {
            Outcome::Subscribed(subscription, open, kept) => {
                let Some(router) = &self.router else { return };
                let is_live = client.go_live(router, operation, (subscription, open, kept));
                client.tidy_work();
                if let Err(error) = is_live {
                    client.forget(operation);
                    self.end(sockets, token, Delivery::Failed { operation, errors: vec![error] });
                }
            }
            Outcome::Answered(payload) => {
                client.forget(operation);
                let Some(router) = &self.router else { return };
                let backlog =
                    client.backlog.get_or_insert_with(|| new_backlog(router, &self.outlet, token));
                backlog.answer(operation, payload);
                backlog.end(Delivery::Complete { operation });
                self.empty(sockets, token);
                self.note_unread(sockets, token);
            }
            Outcome::Failed(errors) => {
                client.forget(operation);
                client.tidy_work();
                self.end(sockets, token, Delivery::Failed { operation, errors });
            }
        }
    }

    /// Watches a client that has not read a response, since the router may have to give it up.
    fn note_unread(&mut self, sockets: &mut ClientSockets, token: Token) {
        let Some(client) = sockets.client(token) else { return };
        client.tidy_work();
        if client.work.is_some() && self.unread.insert(token) {
            let next = Instant::now() + EVICTION_INTERVAL;
            self.next_eviction.get_or_insert(next);
        }
    }

    /// Closes the connections whose unread responses take the memory of others, and forgets those that have read.
    fn close_evicted(&mut self, sockets: &mut ClientSockets) {
        let mut evicted = Vec::new();
        self.unread.retain(|&token| {
            let Some(client) = sockets.client(token) else { return false };
            client.tidy_work();
            let Some(work) = &client.work else { return false };
            let is_evicted = work.account().is_evicted();
            if is_evicted {
                evicted.push(token);
            }
            !is_evicted
        });
        for token in evicted {
            if let Some(client) = sockets.client(token) {
                client.backlog = None;
                client.stop_all();
            }
            if let Some(machine) = sockets.machine_mut(token) {
                machine.give_up();
            }
            self.keeps_up(token);
        }
        let next = Instant::now() + EVICTION_INTERVAL;
        self.next_eviction = (!self.unread.is_empty()).then_some(next);
    }

    /// Sends what waits, as long as the socket takes it.
    fn empty(&mut self, sockets: &mut ClientSockets, token: Token) {
        loop {
            // The end of the operation before may fill the socket, and what is taken then would be lost.
            sockets.write_now(token);
            if sockets.is_blocked(token) {
                return;
            }
            let Some(client) = sockets.client(token) else { return };
            let Some(backlog) = &mut client.backlog else { return };
            match backlog.take() {
                Taken::Delivery(delivery) => self.deliver(sockets, token, delivery),
                Taken::Nothing | Taken::Overflown => {
                    // What is owed to one operation, to be told with its next result, keeps nobody waiting.
                    if backlog.is_idle() {
                        client.backlog = None;
                    }
                    self.keeps_up(token);
                    return;
                }
            }
        }
    }

    /// To a socket that has room.
    fn deliver(&mut self, sockets: &mut ClientSockets, token: Token, delivery: Delivery) {
        // An operation that the client completed meanwhile is known no more; its results go nowhere.
        match delivery {
            Delivery::Next { operation, payload, missed } => {
                let payload = payload.with_missed(missed);
                // The response of a query is over by now.
                let is_event = sockets
                    .client(token)
                    .is_some_and(|client| client.operations.get_mut(operation).is_some());
                let shared = Shared::new(&payload, &self.deflation, is_event);
                let head = &mut self.head;
                let sent = sockets.send_with(token, |machine, _| {
                    head.clear();
                    let (body, tail) = machine.next(operation, &shared, head)?;
                    Some((&head[..], body, tail))
                });
                debug_assert_ne!(sent, Some(Sent::Blocked), "whoever calls this has looked");
            }
            // They wait nowhere here.
            Delivery::Position { .. } => {}
            Delivery::Complete { operation } => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.complete(operation);
                }
            }
            Delivery::Failed { operation, errors } => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.fail(operation, &errors);
                }
            }
        }
    }
}

/// How often connections are looked through for those whose token has expired: a hundred thousand of them take some
/// milliseconds.
const EXPIRY_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How often clients with unread responses are looked at, for those that must be given up.
const EVICTION_INTERVAL: Duration = Duration::from_millis(250);

fn new_backlog(router: &Router, outlet: &Arc<ReactorOutlet>, token: Token) -> Box<Backlog> {
    let backlog = Backlog::new(Arc::clone(&router.queue_total));
    let outlet = Arc::clone(outlet);
    backlog.on_shed(Box::new(move || outlet.mailbox().send(Message::Shed(token))));
    Box::new(backlog)
}

impl Application for Live {
    type Machine = ClientMachine;
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
                self.start(sockets, token, number, Wanted::Request(request));
            }
            Event::Complete { number, .. } => {
                if let Some(client) = sockets.client(token) {
                    client.stop(number);
                }
            }
            Event::Large(message) => self.read_apart(sockets, token, message),
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
            Message::Begin(router) => {
                self.deflation = RefCell::new(Deflation::new(router.websocket.deflate_bytes_min));
                self.router = Some(router);
            }
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
            Message::Shed(token) => self.shed(sockets, token),
            Message::FewStarted(token) => hold(sockets, token, false),
            Message::Filled(token) => pour(sockets, token),
            Message::Said(token, bytes) => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.receive(Instant::now(), &bytes);
                }
            }
            Message::Introduced(token, identified) => self.introduced(sockets, token, identified),
            Message::Read(token, message) => {
                if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
                    connection.resume(Instant::now(), message);
                }
            }
            Message::Sunk(reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(sockets.sunk());
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

    fn poll_timeout(&self) -> Option<Instant> {
        [self.next_expiry, self.next_eviction].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, sockets: &mut ClientSockets) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if is_due(self.next_expiry) {
            self.end_expired(sockets);
        }
        if is_due(self.next_eviction) {
            self.close_evicted(sockets);
        }
    }

    fn writable(&mut self, sockets: &mut ClientSockets, token: Token) {
        if let Some(work) = sockets.client(token).and_then(|client| client.work.as_ref()) {
            work.account().note_progress();
        }
        self.empty(sockets, token);
        pour(sockets, token);
        if let Some(client) = sockets.client(token) {
            client.tidy_work();
        }
    }

    fn closed(&mut self, token: Token, mut client: Client, end: End) {
        client.stop_all();
        self.unread.remove(&token);
        self.keeps_up(token);
        if let (End::Stalled, Some(router)) = (end, &self.router) {
            router.metrics.timeout(TimeoutPhase::stall);
        }
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

/// Writes what waits for a stream that many requests share, as long as its socket takes it.
fn pour(sockets: &mut ClientSockets, token: Token) {
    let Some(opened) = elsewhere(sockets, token) else { return };
    loop {
        let has_room = !sockets.is_blocked(token);
        let sse = sockets.machine_mut(token).and_then(ClientMachine::as_single_connection);
        if sse.is_none_or(|sse| opened.pour(sse, has_room) == Step::Quiet) {
            return;
        }
        sockets.write_now(token);
    }
}

fn elsewhere(sockets: &mut ClientSockets, token: Token) -> Option<Arc<Opened>> {
    match &sockets.client(token)?.operations {
        Operations::Elsewhere(opened) => Some(Arc::clone(opened)),
        _ => None,
    }
}

/// Handles nothing more that a client sends, or goes on with it.
fn hold(sockets: &mut ClientSockets, token: Token, is_held: bool) {
    if let Some(machine) = sockets.machine_mut(token) {
        machine.hold(Instant::now(), is_held);
    }
}

fn shut_down(sockets: &mut ClientSockets, token: Token) {
    let opened = elsewhere(sockets, token);
    let sse = sockets.machine_mut(token).and_then(ClientMachine::as_single_connection);
    if let (Some(opened), Some(sse)) = (opened, sse) {
        return opened.shut_down(sse);
    }
    if let Some(machine) = sockets.machine_mut(token) {
        machine.shut_down();
    }
}

/// An operation on its way to its outcome. If it breaks off by a defect its client is told so: it would wait for ever.
struct Starting {
    outlet: Arc<ReactorOutlet>,
    token: Token,
    number: u32,
    /// The client by its address.
    address: ClientKey,
    transport: Transport,
    /// What the live subscriptions of the connection kept when it was started.
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
                // The connection is about to be closed: it reads nothing.
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
        let mailbox: &Mailbox<Message> = self.outlet.mailbox();
        mailbox.send(Message::Operation(self.token, self.number, outcome));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.started.is_some() && std::thread::panicking() {
            self.conclude(Outcome::Failed(vec![running::broken_off()]));
        }
    }
}
