//! The application of a reactor thread: connects the sockets of the thread with the operations and groups of the
//! router.

mod broadcast;
mod connection_init;
mod delivery;
mod operations;
mod renewal;
mod send_times;
pub(super) mod token_renewal;
mod watching;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use clients::authentication::TokenIdentity;
use clients::connection_metrics::TimeoutPhase;
use clients::drain;
use clients::handshake_pace::OperationLoad as _;
use execute::ErrorCode;
use futures_util::future::AbortHandle;
use hub::GroupId;
use reactor::{Application, ConnectionEnd, Sockets, Token};
use wire::Machine;
use wire::graphql_transport_ws::ServerEvent;

use self::broadcast::Recipient;
use self::renewal::Renewal;
use super::client::{Client, ClientOperations, SharedContexts};
use super::client_machine::{ClientMachine, ONLY_OPERATION};
use super::context::ReactorContext;
use super::deflation::Deflation;
use super::group_members::GroupMembers;
use super::message::{Adoption, FirstOperation, Message, StartRequest};
use super::outlet::ReactorOutlet;
use super::watched_members::WatchedMembers;
use crate::access_records::{SubscriptionRecords, WebSocketRecord};
use crate::client_context::{ClientContext, KeptContext};
use crate::end_reasons::{CLIENT_COMPLETED, CONNECTION_CLOSED};
use crate::operation_start::OperationStart;
use crate::sse_single_connection::open_stream::{FlushStep, OpenStream};
use crate::websocket;

/// The application of one reactor thread.
pub(crate) struct SubscriptionServer {
    /// The parts of the router that the thread uses; `None` until [`Message::Serve`].
    reactor: Option<Arc<ReactorContext>>,
    outlet: Arc<ReactorOutlet>,
    groups: HashMap<GroupId, GroupMembers>,
    /// The groups that have something in the backlog of a client with a full socket.
    behind: HashMap<Token, Vec<GroupId>>,
    contexts: SharedContexts,
    /// The time at which the first token of a client expires.
    next_expiry: Option<Instant>,
    /// The clients with unread responses. They are checked at `next_eviction`.
    unread: HashSet<Token>,
    /// The large messages that other threads read, by connection.
    reading: HashMap<Token, AbortHandle>,
    next_eviction: Option<Instant>,
    /// The records of live subscriptions for the access log; none if that is not written.
    records: SubscriptionRecords,
    /// The records of open WebSockets for the access log; none if that is not written.
    // Kept beside the connections, because they would need its memory also while no log is written.
    websockets: HashMap<Token, Box<WebSocketRecord>>,
    /// The subscribers with a watched history.
    watched: WatchedMembers,
    /// The number of operations that rate limits have refused, by connection; only connections that had any.
    rate_limited: HashMap<Token, u32>,
    /// The number of operations that overload has refused since the last one that it has not, by connection; only
    /// connections that had any.
    overloaded: HashMap<Token, u32>,
    /// The connections with a renewal in progress.
    renewals: HashMap<Token, Renewal>,
    is_shutting_down: bool,
    deflation: RefCell<Deflation>,
    /// A buffer for the heads of messages.
    head: Vec<u8>,
    /// A buffer for the recipients of a pass, 256 KiB at most. The memory of one that is created for each pass comes
    /// from the system each time, which takes as long as a part of the messages.
    unsent: Vec<Recipient>,
}

type ClientSockets = Sockets<ClientMachine, Client>;

// The memory of an idle connection with its first subscription in the slab. In addition there are the id of the
// subscription, its place in the list of its group (`group_members`), and an entry in the timer wheel: some 375 bytes
// together, measured by `starling bench subscriptions --simulate`; 440 are allowed.
const _: () = assert!(ClientSockets::CONNECTION_BYTES <= 328);

impl SubscriptionServer {
    pub(super) fn new(outlet: Arc<ReactorOutlet>) -> Self {
        Self {
            reactor: None,
            outlet,
            groups: HashMap::new(),
            behind: HashMap::new(),
            contexts: SharedContexts::default(),
            next_expiry: None,
            unread: HashSet::new(),
            reading: HashMap::new(),
            next_eviction: None,
            records: SubscriptionRecords::default(),
            websockets: HashMap::new(),
            watched: WatchedMembers::default(),
            rate_limited: HashMap::new(),
            overloaded: HashMap::new(),
            renewals: HashMap::new(),
            is_shutting_down: false,
            deflation: RefCell::new(Deflation::new(usize::MAX)),
            head: Vec::new(),
            unsent: Vec::new(),
        }
    }

    fn adopt(&mut self, sockets: &mut ClientSockets, adoption: Adoption) {
        let Adoption { stream, machine, early, context, record, permit, open, first, later } =
            adoption;
        let (context, kept_token) = self.keep(context);
        self.schedule_expiry(kept_token.as_ref());
        let transport = machine.transport();
        let client = Client {
            context,
            token: kept_token,
            operations: ClientOperations::None,
            backlog: None,
            work: None,
            first_start: OperationStart::now(),
            transport,
            permit,
            open,
        };
        let token = match sockets.adopt(stream, machine, &early, client) {
            Ok(token) => token,
            Err((error, client)) => {
                // The system cannot watch one more descriptor: the client sees its socket close.
                tracing::warn!(%error, "a connection cannot be watched and is closed");
                if let (Some(record), Some(reactor)) = (record, &self.reactor) {
                    record.finish(&reactor.runner, &client.context, None);
                }
                return;
            }
        };
        if let Some(record) = record {
            self.websockets.insert(token, record);
        }
        if let Some(input) = later {
            // The message is handled after the effects of the greeting.
            self.outlet.mailbox().send(Message::SimulatedInput(token, input));
        }
        match first {
            FirstOperation::FromClient => {}
            FirstOperation::Prepared(ready) if !self.is_shutting_down => {
                self.start_operation(sockets, token, ONLY_OPERATION, StartRequest::Prepared(ready));
            }
            FirstOperation::Prepared(_) => {}
            FirstOperation::SharedStream(shared_stream) => {
                self.attach_stream(sockets, token, *shared_stream);
            }
        }
        if self.is_shutting_down {
            shut_down_client(sockets, token);
        }
    }

    /// Splits the context of a client into the part that it shares with others and its token.
    fn keep(&mut self, context: ClientContext) -> (Arc<KeptContext>, Option<TokenIdentity>) {
        let ClientContext { headers, identity, origin } = context;
        let read = self.reactor.as_ref().map(|it| it.runner.serving.read_claims());
        let claims = identity.claims().map(|claims| match &read {
            Some(read) => claims.keep(read),
            None => claims.clone(),
        });
        let context = self.contexts.share(KeptContext { headers, claims, origin });
        (context, identity.token().copied())
    }

    /// Returns the reason for which the subscriptions of a connection end with it.
    fn reason_of_close(&self) -> &'static str {
        match self.is_shutting_down {
            true => ErrorCode::ShuttingDown.as_str(),
            false => CONNECTION_CLOSED,
        }
    }

    /// Attaches a stream that many requests share. Some of them may have started operations already.
    fn attach_stream(&self, sockets: &mut ClientSockets, token: Token, shared_stream: OpenStream) {
        let Some(client) = sockets.client(token) else { return };
        let shared_stream = Arc::new(shared_stream);
        client.operations = ClientOperations::SharedStream(Arc::clone(&shared_stream));
        let outlet = Arc::clone(&self.outlet);
        let output_ready = move || outlet.mailbox().send(Message::OutputReady(token));
        shared_stream.set_callback(Box::new(output_ready));
        flush_stream(sockets, token);
    }
}

impl Application for SubscriptionServer {
    type Machine = ClientMachine;
    type Client = Client;
    type Message = Message;

    fn on_event(&mut self, sockets: &mut ClientSockets, token: Token, event: ServerEvent) {
        match event {
            ServerEvent::Init { payload } => self.on_connection_init(sockets, token, payload),
            ServerEvent::Ping { payload } => self.on_ping(sockets, token, payload),
            ServerEvent::Subscribe { number, request, .. } => {
                let request = websocket::operation_request(request);
                self.start_operation(sockets, token, number, StartRequest::Unprepared(request));
            }
            ServerEvent::Complete { number, .. } => {
                if let Some(client) = sockets.client(token) {
                    client.stop(number);
                }
                self.note_waiting(sockets, token);
                self.end_records(token, number, CLIENT_COMPLETED);
                // An aborted task does not report.
                self.records.take_opening(token, number);
                self.check_started(sockets, token, number, None);
            }
            ServerEvent::Large(message) => self.read_large_message(sockets, token, message),
            ServerEvent::Ended(closed) => {
                self.stop_reading(token);
                let client = sockets.client(token).map(|client| {
                    client.backlog = None;
                    client.stop_all();
                    &*client
                });
                self.end_all_records(token, self.reason_of_close());
                if let Some(client) = client {
                    self.end_websocket_record(token, client, Some(&closed));
                }
            }
        }
    }

    fn on_message(
        &mut self,
        sockets: &mut ClientSockets,
        message: Message,
        following: &mut VecDeque<Message>,
    ) {
        match message {
            Message::Serve(reactor) => {
                let bytes_min = reactor.websocket.deflate_bytes_min();
                self.deflation = RefCell::new(Deflation::new(bytes_min));
                self.reactor = Some(reactor);
            }
            Message::Adopt(adoption) => self.adopt(sockets, *adoption),
            Message::Hub(command) => {
                self.apply_command(sockets, command, following);
                if let Some(reactor) = &self.reactor {
                    reactor.runner.count_dropped(self.outlet.take_dropped());
                }
            }
            Message::OperationDone(token, number, outcome) => {
                self.on_operation_outcome(sockets, token, number, outcome);
            }
            Message::Shed(token) => self.shed(sockets, token),
            Message::ResumeReading(token) => set_hold(sockets, token, false),
            Message::OutputReady(token) => flush_stream(sockets, token),
            Message::SimulatedInput(token, bytes) => {
                if let Some(machine) = sockets.machine_mut(token) {
                    machine.receive(Instant::now(), &bytes);
                }
            }
            Message::TokenVerified(token, identified) => {
                self.on_token_verified(sockets, token, identified);
            }
            Message::TokenRenewed(token, renewed) => {
                self.on_verification_done(sockets, token, renewed);
            }
            Message::RenewalChecked(token, number, fingerprint, step) => {
                self.on_renewal_checked(sockets, token, number, fingerprint, step);
            }
            Message::LargeMessageRead(token, message) => {
                self.reading.remove(&token);
                if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
                    connection.resume(Instant::now(), message);
                }
            }
            Message::DiscardStats(reply) => {
                // The receiver may be gone.
                let _ = reply.send(sockets.discard_stats());
            }
            Message::ListSubscribers(group, reply) => {
                // The receiver may be gone.
                let _ = reply.send(self.list_subscribers(sockets, group));
            }
            Message::Watch(id, member, reply) => {
                let _ = reply.send(self.watch(sockets, id, member));
            }
            Message::ShutDown { portion } => {
                self.is_shutting_down = true;
                for token in sockets.tokens() {
                    if drain::batch_of(token.to_u64()) == portion {
                        shut_down_client(sockets, token);
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

    fn on_many_leaving(&mut self) {
        let Some(reactor) = &self.reactor else { return };
        if let Some(overload) = &reactor.runner.serving.overload {
            overload.note_storm();
        }
    }

    fn on_writable(&mut self, sockets: &mut ClientSockets, token: Token) {
        if let Some(work) = sockets.client(token).and_then(|client| client.work.as_ref()) {
            work.account().note_progress();
        }
        self.drain_backlog(sockets, token);
        flush_stream(sockets, token);
        if let Some(client) = sockets.client(token) {
            client.drop_idle_work();
        }
    }

    fn on_closed(&mut self, token: Token, mut client: Client, end: ConnectionEnd) {
        client.stop_all();
        self.end_all_records(token, self.reason_of_close());
        self.records.forget(token);
        self.end_websocket_record(token, &client, None);
        self.unread.remove(&token);
        self.renewals.remove(&token);
        self.rate_limited.remove(&token);
        self.overloaded.remove(&token);
        self.stop_reading(token);
        self.mark_caught_up(token);
        if let (ConnectionEnd::Stalled, Some(reactor)) = (end, &self.reactor) {
            reactor.connection_metrics.count_timeout(TimeoutPhase::Stall);
        }
    }
}

/// Writes the output of a stream that many requests share, as long as its socket has room.
fn flush_stream(sockets: &mut ClientSockets, token: Token) {
    let Some(shared_stream) = shared_stream_of(sockets, token) else { return };
    loop {
        let has_room = !sockets.is_blocked(token);
        let sse = sockets.machine_mut(token).and_then(ClientMachine::as_single_connection);
        if sse.is_none_or(|sse| shared_stream.flush_one(sse, has_room) == FlushStep::Idle) {
            return;
        }
        sockets.flush_machine(token);
    }
}

fn shared_stream_of(sockets: &mut ClientSockets, token: Token) -> Option<Arc<OpenStream>> {
    match &sockets.client(token)?.operations {
        ClientOperations::SharedStream(shared_stream) => Some(Arc::clone(shared_stream)),
        _ => None,
    }
}

/// Stops or resumes the handling of a client's messages.
fn set_hold(sockets: &mut ClientSockets, token: Token, is_held: bool) {
    if let Some(machine) = sockets.machine_mut(token) {
        machine.hold(Instant::now(), is_held);
    }
}

fn shut_down_client(sockets: &mut ClientSockets, token: Token) {
    let shared_stream = shared_stream_of(sockets, token);
    let sse = sockets.machine_mut(token).and_then(ClientMachine::as_single_connection);
    if let (Some(shared_stream), Some(sse)) = (shared_stream, sse) {
        return shared_stream.shut_down(sse);
    }
    if let Some(machine) = sockets.machine_mut(token) {
        machine.shut_down();
    }
}
