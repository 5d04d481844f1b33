//! The application of a reactor thread: it joins the connections of the thread to the operations and groups of the
//! router.

mod delivery;
mod introduction;
mod operations;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::AbortHandle;
use hub::GroupId;
use reactor::{Application, ConnectionEnd, Sockets, Token};
use wire::Machine;
use wire::graphql_transport_ws::Event;

use super::client::{Client, Operations, SharedCallers};
use super::deflation::Deflation;
use super::machine::{ClientMachine, ONLY_OPERATION};
use super::members::Members;
use super::message::{Adoption, Begin, Message};
use super::outlet::ReactorOutlet;
use crate::farewell;
use crate::live::dropped_events::count_dropped;
use crate::live::single::{Opened, Step};
use crate::live::websocket;
use crate::metrics::TimeoutPhase;
use crate::router::Router;
use operations::Wanted;

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
    /// The large messages that other threads read, by connection.
    reading: HashMap<Token, AbortHandle>,
    next_eviction: Option<Instant>,
    is_shutting_down: bool,
    deflation: RefCell<Deflation>,
    /// Heads of frames are written here.
    head: Vec<u8>,
}

type ClientSockets = Sockets<ClientMachine, Client>;

// The memory of an idle connection with its first subscription in the slab. Beside it are the id of the subscription,
// its place in the list of its group (`members`), and an entry in the timer wheel: some 350 bytes together, measured by
// `starling bench subscriptions --simulate`; 440 are allowed.
const _: () = assert!(ClientSockets::CONNECTION_BYTES <= 296);

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
            reading: HashMap::new(),
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
}

impl Application for Live {
    type Machine = ClientMachine;
    type Client = Client;
    type Message = Message;

    fn on_event(&mut self, sockets: &mut ClientSockets, token: Token, event: Event) {
        match event {
            Event::Init { payload } => self.initialise(sockets, token, payload),
            Event::Subscribe { number, request, .. } => {
                let request = websocket::operation_request(request);
                self.start(sockets, token, number, Wanted::Request(request));
            }
            Event::Complete { number, .. } => {
                if let Some(client) = sockets.client(token) {
                    client.stop(number);
                }
            }
            Event::Large(message) => self.read_apart(sockets, token, message),
            Event::Ended(_) => {
                self.stop_reading(token);
                if let Some(client) = sockets.client(token) {
                    client.backlog = None;
                    client.stop_all();
                }
            }
        }
    }

    fn on_message(&mut self, sockets: &mut ClientSockets, message: Message) {
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
                self.reading.remove(&token);
                if let Some(ClientMachine::WebSocket(connection)) = sockets.machine_mut(token) {
                    connection.resume(Instant::now(), message);
                }
            }
            Message::DiscardStats(reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(sockets.discard_stats());
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

    fn on_writable(&mut self, sockets: &mut ClientSockets, token: Token) {
        if let Some(work) = sockets.client(token).and_then(|client| client.work.as_ref()) {
            work.account().note_progress();
        }
        self.empty(sockets, token);
        pour(sockets, token);
        if let Some(client) = sockets.client(token) {
            client.tidy_work();
        }
    }

    fn on_closed(&mut self, token: Token, mut client: Client, end: ConnectionEnd) {
        client.stop_all();
        self.unread.remove(&token);
        self.stop_reading(token);
        self.keeps_up(token);
        if let (ConnectionEnd::Stalled, Some(router)) = (end, &self.router) {
            router.metrics.timeout(TimeoutPhase::stall);
        }
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

/// Stops or resumes the handling of a client's messages.
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
