//! GraphQL over server-sent events, single connection mode: a client reserves a stream (PUT), opens it (GET), and
//! starts (POST) and stops (DELETE) operations by requests of their own, whose results all come over that stream.
//!
//! Those requests come in on whatever core. By HTTP/1.1 the stream is written by a reactor, by HTTP/2 by a task of the
//! core that opened it. What they share is a [`Stream`].

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{ClientKey, ErrorCode, GraphqlError};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use plan::OperationKind;
use prepare::OperationRequest;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wire::result_stream::Kind;
use wire::sse::{Config, Sse};

use super::client_work::ClientWork;
use super::dropped_events::count_dropped;
use super::end_reasons::{shutting_down_error, too_slow};
use super::kept_operations::KeptTotal;
#[cfg(target_os = "linux")]
use super::leaving::Leaving;
use super::outlet::{ConnectionOutlet, Delivery, Taken};
use super::running::{AbortOnDrop, Operations, Running, response_account};
use super::sse::head;
use super::timer::sleep_until;
use crate::authentication::Identity;
use crate::forwarding::ClientHeaders::OfMessage;
use crate::http::answer::{self, Answer, AnswerBody};
use crate::http::media::{self, AnswerType};
use crate::metrics::{Open, Transport};
use crate::offload::INLINE_BYTES_MAX;
use crate::operation::{self, Ready};
use crate::refusal;
use crate::request_extensions::string_member;
use crate::router::Router;

/// Streams that are reserved and not open yet. A client opens its own within a round trip, so this many are
/// thousands of clients that arrive in one second; each is some 300 bytes. With so many the client that has the most loses
/// its oldest.
const RESERVATIONS_MAX: usize = 10_000;

/// How long a stream stays reserved that nobody opens.
const RESERVATION_TIME_MAX: Duration = Duration::from_secs(30);

/// How often those that nobody came for are looked for: their operations run until then.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How often reservations look for room by themselves: it takes a look at all streams, for which a client over its bound
/// must not be able to ask with each request.
const FULL_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Events handed to the HTTP library ahead of the socket; more wait in the outlet, where the configured bounds hold.
const AHEAD: usize = 4;

/// Longest operation id in bytes, as on WebSockets: it goes out again with each event.
const ID_BYTES_MAX: usize = 1024;

/// Where a token is looked for: a header, or for `EventSource`, which sends none of its own, the URL.
const TOKEN_HEADER: &str = "x-graphql-event-stream-token";
const TOKEN_PARAMETER: &str = "token";

/// What our tokens begin with. A URL may have a parameter `token` of somebody else's, which is none of ours.
const TOKEN_PREFIX: &str = "stream-";

/// Of which no two are alike and none can be guessed.
const TOKEN_RANDOM_BYTES: usize = 16;

/// All streams of this mode, by token.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Box<str>, Entry>,
    /// How many of them are reserved and not open.
    reserved: usize,
    /// The same of each client; none without any.
    reserved_by: HashMap<ClientKey, usize>,
    /// When streams that were not opened were looked for last.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    stream: Arc<Stream>,
    /// The client that has reserved it.
    client: ClientKey,
    /// Until when it stays reserved; `None` once it is open.
    reserved_until: Option<Instant>,
}

/// One stream.
struct Stream {
    outlet: Arc<ConnectionOutlet>,
    operations: Operations,
    work: Arc<ClientWork>,
    kept: Arc<KeptTotal>,
    /// The task that ends the stream if its unread responses take the memory of others. Begins with its first operation.
    eviction: OnceLock<AbortOnDrop>,
    names: Mutex<Names>,
}

/// The operations in progress, under the client's names and ours.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Box<str>, u32>,
    ids: HashMap<u32, Box<str>>,
    next_number: u32,
    has_ended: bool,
}

/// Why an operation does not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    NotFound,
    InUse,
    TooMany,
    TooBusy,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The token that a request carries.
pub(crate) fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<Box<str>> {
    if let Some(token) = headers.get(TOKEN_HEADER) {
        return Some(String::from_utf8_lossy(token.as_bytes()).into());
    }
    let query = uri.query()?;
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    let token = parameters.find(|(name, _)| name == TOKEN_PARAMETER).map(|(_, value)| value);
    token.filter(|it| it.starts_with(TOKEN_PREFIX)).map(|it| it.into_owned().into())
}

/// Does a GET that carries a token open the stream? One with an operation, whose client takes no events, starts that, as
/// POST does.
pub(crate) fn is_opened_by(uri: &Uri, headers: &HeaderMap) -> bool {
    let parameters = uri.query().unwrap_or_default().as_bytes();
    let has_operation = url::form_urlencoded::parse(parameters).any(|(name, _)| name == "query");
    let takes_events =
        media::negotiate(headers).is_some_and(|it| it.stream == Some(Kind::EventStream));
    takes_events || !has_operation
}

/// Ends streams that were reserved and never opened, until the router does.
pub(crate) async fn sweep(router: Arc<Router>) {
    let mut shutdown = router.shutdown.clone();
    let mut looks = tokio::time::interval(SWEEP_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => router.streams.sweep(Instant::now()),
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}

/// PUT: reserves a stream and answers with its token.
pub(crate) fn reserve(router: &Router, client: ClientKey) -> Answer {
    let mut random = [0; TOKEN_RANDOM_BYTES];
    if let Err(error) = getrandom::fill(&mut random) {
        tracing::error!(%error, "the system gives no random bytes: streams cannot be reserved");
        return failed(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, "try again later");
    }
    let mut token = TOKEN_PREFIX.to_owned();
    token.extend(random.iter().map(|byte| format!("{byte:02x}")));
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    let stream = Arc::new(Stream {
        outlet,
        operations: Operations::default(),
        // No connection is read less because of it: its operations come by requests of their own.
        work: ClientWork::new(response_account(router, client), Box::new(|| {})),
        kept: KeptTotal::new(),
        eviction: OnceLock::new(),
        names: Mutex::default(),
    });
    let most = router.config.subscriptions.max_reserved_streams_per_client as usize;
    if !router.streams.reserve(&token, stream, (client, most), Instant::now()) {
        router.metrics.refused(ErrorCode::Overloaded);
        let message = "too many streams are reserved and not opened \
                       (`subscriptions.max_reserved_streams_per_client`); open one, or try again later";
        let mut answer = failed(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, message);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return answer;
    }
    answer::text(StatusCode::CREATED, token)
}

/// GET: opens a reserved stream.
pub(crate) fn open(router: &Arc<Router>, token: &str, version: Version) -> Answer {
    let stream = match router.streams.open(token, Instant::now()) {
        Ok(stream) => stream,
        Err(Refusal::InUse) => {
            return failed(
                StatusCode::CONFLICT,
                ErrorCode::BadRequest,
                "the stream is open already",
            );
        }
        Err(_) => return not_found(),
    };
    let opened = Opened { router: Arc::clone(router), token: token.into(), stream };
    #[cfg(target_os = "linux")]
    if version < Version::HTTP_2 && router.reactors.are_there() {
        let leaving = |framing| Leaving::SingleConnection(framing, Box::new(opened));
        return super::sse::leaving_as(AnswerType::EventStream, version, leaving);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = version;
    let (pieces, body) = mpsc::channel(AHEAD);
    let open = router.metrics.stream(Transport::sse);
    tokio::task::spawn_local(write(opened, pieces, open));
    head(AnswerType::EventStream, AnswerBody::Stream(body))
}

/// POST, and GET of a query: starts an operation whose results come over a stream.
pub(crate) async fn start(
    router: &Arc<Router>,
    token: &str,
    request: &OperationRequest,
    head: &Parts,
    (identity, address): (Identity, ClientKey),
) -> Answer {
    let Some(stream) = router.streams.find(token, Instant::now()) else { return not_found() };
    let id = if request.extensions.len() <= INLINE_BYTES_MAX {
        operation_id(&request.extensions)
    } else {
        let client = identity.client_key().unwrap_or(address);
        let deadline = Instant::now() + router.config.limits.time;
        let extensions = request.extensions.clone();
        let read = router.offload.run(client, deadline, move || operation_id(&extensions));
        match read.await {
            Ok(id) => id,
            Err(not_done) => {
                let error = not_done.error();
                router.metrics.refused(error.code);
                return answer::request_errors(&[error], AnswerType::Json, true);
            }
        }
    };
    let id = match id {
        Some(id) if id.len() <= ID_BYTES_MAX => id,
        Some(_) => {
            let message = "`extensions.operationId` is too long";
            return failed(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message);
        }
        None => {
            let message = "`extensions.operationId` must be a string that is not empty";
            return failed(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message);
        }
    };
    let headers = OfMessage(&head.headers);
    let ready = match operation::prepare_for(router, request, headers, identity, address).await {
        Ok(ready) => ready,
        Err(errors) if answer::is_overloaded(&errors) => {
            return answer::overloaded(&errors, AnswerType::Json);
        }
        Err(errors) => {
            let status =
                errors.first().map_or(StatusCode::BAD_REQUEST, |it| refusal::status(it.code));
            return answer::refused(status, &errors, AnswerType::Json);
        }
    };
    if head.method == Method::GET && ready.prepared.kind == OperationKind::Mutation {
        return answer::mutation_by_get();
    }
    match stream.start(router, &id, ready) {
        Ok(()) => answer::empty(StatusCode::ACCEPTED),
        Err(Refusal::NotFound) => not_found(),
        Err(Refusal::InUse) => {
            let message = "an operation with this id is in progress on the stream";
            failed(StatusCode::CONFLICT, ErrorCode::BadRequest, message)
        }
        Err(Refusal::TooBusy) => {
            let message =
                "too many operations of the stream have begun and not ended; try again later";
            router.metrics.refused(ErrorCode::Overloaded);
            let status = StatusCode::TOO_MANY_REQUESTS;
            let mut answer = failed(status, ErrorCode::Overloaded, message);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Err(Refusal::TooMany) => {
            let message = format!(
                "the stream has {} operations in progress, the most it may have \
                 (`websocket.max_subscriptions_per_connection`): stop one first",
                router.config.websocket.max_subscriptions_per_connection
            );
            router.metrics.refused(ErrorCode::Overloaded);
            failed(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Overloaded, &message)
        }
    }
}

/// DELETE: stops an operation.
pub(crate) fn stop(router: &Router, token: &str, uri: &Uri) -> Answer {
    let Some(stream) = router.streams.find(token, Instant::now()) else { return not_found() };
    let query = uri.query().unwrap_or_default().as_bytes();
    let id = url::form_urlencoded::parse(query).find(|(name, _)| name == "operationId");
    match id {
        Some((_, id)) if !id.is_empty() => {
            stream.stop(&id);
            answer::empty(StatusCode::OK)
        }
        _ => {
            let message = "the URL needs the parameter `operationId`";
            failed(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message)
        }
    }
}

fn not_found() -> Answer {
    let message = "no stream has this token: reserve one by PUT";
    failed(StatusCode::NOT_FOUND, ErrorCode::BadRequest, message)
}

fn failed(status: StatusCode, code: ErrorCode, message: &str) -> Answer {
    answer::refused(status, &[GraphqlError::new(code, message.to_owned())], AnswerType::Json)
}

/// `operationId` out of the extensions of a request.
fn operation_id(extensions: &Bytes) -> Option<String> {
    string_member(extensions, "operationId").ok().flatten().filter(|id| !id.is_empty())
}

impl Streams {
    /// Reserves a stream for a client, which may have `most`. False: it has so many, or there are too many in all.
    fn reserve(
        &self,
        token: &str,
        stream: Arc<Stream>,
        (client, most): (ClientKey, usize),
        now: Instant,
    ) -> bool {
        let is_full =
            |table: &Table| table.reserved >= RESERVATIONS_MAX || table.reserved_by(client) >= most;
        let mut table = self.lock();
        let is_due = |table: &Table| {
            let since = table.swept_at.map(|at| now.saturating_duration_since(at));
            since.is_none_or(|since| since >= FULL_SWEEP_INTERVAL)
        };
        if is_full(&table) && is_due(&table) {
            drop(table);
            self.sweep(now);
            table = self.lock();
        }
        if table.reserved_by(client) >= most {
            return false;
        }
        let mut replaced = None;
        if table.reserved >= RESERVATIONS_MAX {
            replaced = table.take_from_greediest(client);
            if replaced.is_none() {
                return false;
            }
        }
        let reserved_until = Some(now + RESERVATION_TIME_MAX);
        table.entries.insert(token.into(), Entry { stream, client, reserved_until });
        table.reserved += 1;
        *table.reserved_by.entry(client).or_default() += 1;
        // Its operations end when the list is free again.
        drop(table);
        drop(replaced);
        true
    }

    fn open(&self, token: &str, now: Instant) -> Result<Arc<Stream>, Refusal> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(token).ok_or(Refusal::NotFound)?;
        let until = entry.reserved_until.ok_or(Refusal::InUse)?;
        let (stream, client) = (Arc::clone(&entry.stream), entry.client);
        if until <= now {
            table.entries.remove(token);
        } else {
            entry.reserved_until = None;
        }
        table.count_out(client);
        drop(table);
        // One that came too late goes here, and its operations with it.
        if until <= now { Err(Refusal::NotFound) } else { Ok(stream) }
    }

    /// Forgets streams that nobody came for in time, and ends what was started on them.
    fn sweep(&self, now: Instant) {
        let mut table = self.lock();
        table.swept_at = Some(now);
        if table.reserved == 0 {
            return;
        }
        let entries = &mut table.entries;
        let over = entries.extract_if(|_, entry| entry.reserved_until.is_some_and(|it| it <= now));
        let over: Vec<_> = over.collect();
        for (_, entry) in &over {
            table.count_out(entry.client);
        }
        // What ends is nobody's business who waits for the list.
        drop(table);
        drop(over);
    }

    fn find(&self, token: &str, now: Instant) -> Option<Arc<Stream>> {
        let table = self.lock();
        let entry = table.entries.get(token)?;
        let is_there = entry.reserved_until.is_none_or(|until| now < until);
        is_there.then(|| Arc::clone(&entry.stream))
    }

    /// An open stream is over.
    fn remove(&self, token: &str) {
        let removed = self.lock().entries.remove(token);
        drop(removed);
    }

    /// Nothing runs user code under this lock, so a poisoned one holds a sound list.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a stream, and what waits for it, when its account says so. Its client may open it late or never.
async fn end_if_evicted(stream: Weak<Stream>) {
    let Some(account) = stream.upgrade().map(|it| Arc::clone(it.work.account())) else { return };
    account.evicted().await;
    if let Some(stream) = stream.upgrade() {
        stream.operations.stop_all();
        stream.outlet.give_up();
    }
}

impl Table {
    /// How many streams a client has reserved and not opened.
    fn reserved_by(&self, client: ClientKey) -> usize {
        self.reserved_by.get(&client).copied().unwrap_or(0)
    }

    /// A reserved stream of that client is open, or over.
    fn count_out(&mut self, client: ClientKey) {
        self.reserved -= 1;
        if let Some(count) = self.reserved_by.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.reserved_by.remove(&client);
            }
        }
    }

    /// Makes room for `client`: takes the oldest reservation of the client with the most. `None`: it has the most itself.
    fn take_from_greediest(&mut self, client: ClientKey) -> Option<Entry> {
        let (&greediest, &count) = self.reserved_by.iter().max_by_key(|(_, count)| **count)?;
        if count <= self.reserved_by(client) + 1 {
            return None;
        }
        let of_it = self.entries.iter().filter(|(_, entry)| entry.client == greediest);
        let reserved = of_it.filter_map(|(token, entry)| Some((entry.reserved_until?, token)));
        let oldest = reserved.min().map(|(_, token)| token.clone())?;
        self.count_out(greediest);
        self.entries.remove(&oldest)
    }
}

impl Drop for Stream {
    /// However it goes: operations would run for nobody, and what ends one with its token holds the list of all.
    fn drop(&mut self) {
        self.end();
    }
}

impl Stream {
    /// Starts an operation on this core. Its results come out of the outlet, wherever that is read.
    fn start(
        self: &Arc<Self>,
        router: &Arc<Router>,
        id: &str,
        ready: Ready,
    ) -> Result<(), Refusal> {
        self.eviction.get_or_init(|| {
            let task = tokio::task::spawn_local(end_if_evicted(Arc::downgrade(self)));
            AbortOnDrop(task.abort_handle())
        });
        let most = router.config.websocket.max_subscriptions_per_connection as usize;
        let (outlet, operations) = (&self.outlet, self.operations.clone());
        if self.work.is_full() {
            return Err(Refusal::TooBusy);
        }
        let (work, kept) = (Arc::clone(&self.work), Arc::clone(&self.kept));
        let running = Running::of(router, outlet, 0, Transport::sse, (operations, work, kept));
        // Held until the operation is in its list: a stream that ends meanwhile stops it.
        let mut names = self.lock();
        let number = names.begin(id, most)?;
        running.start_ready(number, ready);
        Ok(())
    }

    fn stop(&self, id: &str) {
        let mut names = self.lock();
        if let Some(number) = names.numbers.remove(id) {
            names.ids.remove(&number);
            self.operations.stop(number);
            self.outlet.forget(number);
        }
    }

    /// Ends all operations; none can begin any more. The ids of those that were in progress.
    fn end(&self) -> Vec<Box<str>> {
        let mut names = self.lock();
        names.has_ended = true;
        names.ids.clear();
        self.operations.stop_all();
        std::mem::take(&mut names.numbers).into_keys().collect()
    }

    /// Nothing runs user code under this lock, so a poisoned one holds sound lists.
    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, sse: &mut Sse, delivery: Delivery) {
        // An operation that the client stopped meanwhile has no id any more; its results go nowhere.
        let mut names = self.lock();
        match delivery {
            Delivery::Next { operation, payload, missed } => {
                if let Some(id) = names.ids.get(&operation) {
                    sse.next_of(id, payload.with_missed(missed).bytes);
                }
            }
            // The stream has one last id for all of its operations, and an event of another kind is an error to clients.
            Delivery::Position { .. } => {}
            Delivery::Complete { operation } => {
                self.operations.forget(operation);
                if let Some(id) = names.end(operation) {
                    sse.complete_of(&id);
                }
            }
            Delivery::Failed { operation, errors } => {
                self.operations.forget(operation);
                if let Some(id) = names.end(operation) {
                    sse.next_of(&id, execute::request_error(&errors).bytes);
                    sse.complete_of(&id);
                }
            }
        }
    }

    /// The stream is over: tells every operation why.
    fn give_up(&self, sse: &mut Sse, error: &GraphqlError) {
        let answer = execute::request_error(std::slice::from_ref(error)).bytes;
        for id in self.end() {
            sse.next_of(&id, answer.clone());
            sse.complete_of(&id);
        }
        sse.finish();
    }
}

impl Names {
    /// A number for an operation that begins.
    fn begin(&mut self, id: &str, most: usize) -> Result<u32, Refusal> {
        if self.has_ended {
            return Err(Refusal::NotFound);
        }
        if self.numbers.contains_key(id) {
            return Err(Refusal::InUse);
        }
        if self.numbers.len() >= most {
            return Err(Refusal::TooMany);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.numbers.insert(id.into(), number);
        self.ids.insert(number, id.into());
        Ok(number)
    }

    /// The operation is over.
    fn end(&mut self, number: u32) -> Option<Box<str>> {
        let id = self.ids.remove(&number)?;
        self.numbers.remove(&id);
        Some(id)
    }
}

/// An open stream, for whoever writes it: dropping it forgets the stream and ends its operations.
pub(crate) struct Opened {
    router: Arc<Router>,
    token: Box<str>,
    stream: Arc<Stream>,
}

/// What a stream that is written beside the HTTP library does next.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It has said something: look whether there is room, and go on.
    Said,
    /// There is nothing to say.
    Quiet,
}

#[cfg(target_os = "linux")]
impl Opened {
    /// Calls `tell` from now on whenever there is something to write; what came before is to be looked for at once.
    pub(crate) fn tell(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.stream.outlet.filled.tell(tell);
    }

    /// Moves the oldest delivery into `sse`, if the socket `has_room` for it. Who reads too slowly is told so in any case.
    pub(crate) fn pour(&self, sse: &mut Sse, has_room: bool) -> Step {
        let Self { router, stream, .. } = self;
        let outlet = &stream.outlet;
        outlet.filled.heard();
        if sse.is_finished() {
            return Step::Quiet;
        }
        let step = if outlet.is_overflown() {
            stream.give_up(sse, &too_slow());
            Step::Said
        } else {
            match has_room.then(|| outlet.take()) {
                Some(Taken::Delivery(delivery)) => {
                    stream.deliver(sse, delivery);
                    Step::Said
                }
                _ => Step::Quiet,
            }
        };
        count_dropped(router, outlet.take_dropped());
        step
    }

    /// The router goes down.
    pub(crate) fn shut_down(&self, sse: &mut Sse) {
        self.stream.give_up(sse, &shutting_down_error());
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token would let others in.
        f.debug_struct("Opened").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.router.streams.remove(&self.token);
        self.stream.end();
    }
}

async fn write(opened: Opened, pieces: mpsc::Sender<Bytes>, _open: Open) {
    let Opened { router, stream, .. } = &opened;
    let heartbeat = Some(router.config.subscriptions.heartbeat);
    let mut sse = Sse::new(&Config { heartbeat }, Instant::now());
    let mut time_to_leave = pin!(router.time_to_leave());
    // What the HTTP library has no room for. While it waits here, deliveries wait in the outlet.
    let mut piece: Option<Bytes> = None;
    loop {
        piece = piece.or_else(|| sse.poll_transmit(Instant::now()).map(|it| it.to_vec().into()));
        if stream.outlet.is_overflown() && !sse.is_finished() {
            // Whether the client reads that or nothing any more: `http::patient` ends the wait.
            stream.give_up(&mut sse, &too_slow());
            continue;
        }
        if piece.is_none() {
            if sse.is_finished() {
                break;
            }
            if let Taken::Delivery(delivery) = stream.outlet.take() {
                stream.deliver(&mut sse, delivery);
                continue;
            }
        }
        count_dropped(router, stream.outlet.take_dropped());
        // A heartbeat would only wait behind the piece.
        let heartbeat = if piece.is_some() { None } else { sse.poll_timeout() };
        tokio::select! {
            room = pieces.reserve(), if piece.is_some() => match (room, piece.take()) {
                (Ok(room), Some(piece)) => room.send(piece),
                _ => break,
            },
            () = stream.outlet.filled.notified() => {}
            () = pieces.closed() => break,
            () = sleep_until(heartbeat.map(tokio::time::Instant::from_std)) => {
                sse.handle_timeout(Instant::now());
            }
            () = &mut time_to_leave, if !sse.is_finished() => {
                stream.give_up(&mut sse, &shutting_down_error());
            }
        }
    }
    count_dropped(router, stream.outlet.take_dropped());
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;
    use crate::config::Subscriptions;
    use crate::live::QueueTotal;

    /// A client, and how many streams it may reserve.
    const ALONE: (ClientKey, usize) = (ClientKey::UNKNOWN, RESERVATIONS_MAX);

    fn stream() -> Arc<Stream> {
        Arc::new(Stream {
            outlet: Arc::new(ConnectionOutlet::new(
                &Subscriptions::default(),
                &Arc::new(QueueTotal::new(1 << 20)),
            )),
            operations: Operations::default(),
            work: ClientWork::unbounded(),
            kept: KeptTotal::new(),
            eviction: OnceLock::new(),
            names: Mutex::default(),
        })
    }

    #[test]
    fn a_stream_is_opened_once_and_in_time() {
        let (streams, now) = (Streams::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(["a", "b"].iter().all(|it| streams.reserve(it, stream(), ALONE, at(0))));
        assert!(streams.open("a", at(29)).is_ok());
        assert_eq!(streams.open("a", at(29)).err(), Some(Refusal::InUse));
        assert_eq!(streams.open("b", at(30)).err(), Some(Refusal::NotFound));
        assert_eq!(streams.open("c", at(0)).err(), Some(Refusal::NotFound));
        assert!(streams.find("a", at(1000)).is_some(), "an open stream does not expire");
        streams.remove("a");
        assert!(streams.find("a", at(0)).is_none());
    }

    #[test]
    fn reservations_are_bounded_and_those_that_nobody_uses_make_room() {
        let (streams, now) = (Streams::default(), Instant::now());
        let shared = stream();
        for number in 0..RESERVATIONS_MAX {
            assert!(streams.reserve(&number.to_string(), Arc::clone(&shared), ALONE, now));
        }
        assert!(!streams.reserve("one more", Arc::clone(&shared), ALONE, now));
        assert!(streams.open("7", now).is_ok());
        assert!(streams.reserve("one more", Arc::clone(&shared), ALONE, now));
        assert!(streams.reserve("later", shared, ALONE, now + RESERVATION_TIME_MAX));
        assert_eq!(streams.lock().entries.len(), 2, "the open one and the new one");
    }

    #[test]
    fn a_client_over_its_bound_does_not_have_all_streams_looked_at_each_time() {
        let (streams, now, shared) = (Streams::default(), Instant::now(), stream());
        let reserve = |token: &str, now| {
            streams.reserve(token, Arc::clone(&shared), (ClientKey::UNKNOWN, 1), now)
        };
        assert!(reserve("first", now) && !reserve("second", now));
        let soon = now + FULL_SWEEP_INTERVAL / 2;
        assert!(!reserve("second", soon));
        assert_eq!(streams.lock().swept_at, Some(now));
        assert!(reserve("second", now + RESERVATION_TIME_MAX));
    }

    #[test]
    fn a_client_that_reserves_all_streams_makes_room_for_others() {
        let (streams, now, shared) = (Streams::default(), Instant::now(), stream());
        let [greedy, polite] = [b"greedy", b"polite"].map(|it| ClientKey::of_identity(it));
        let reserve = |token: &str, client, most, now| {
            streams.reserve(token, Arc::clone(&shared), (client, most), now)
        };
        assert!((0..10).all(|number| reserve(&number.to_string(), greedy, 10, now)));
        assert!(!reserve("one more", greedy, 10, now), "that is its own bound");
        let later = now + Duration::from_secs(1);
        let rest = (10..RESERVATIONS_MAX).map(|number| number.to_string());
        assert!(rest.clone().all(|token| reserve(&token, greedy, RESERVATIONS_MAX, later)));
        assert!(!reserve("one more", greedy, RESERVATIONS_MAX + 1, later));
        assert!(reserve("polite", polite, 10, later));
        let table = streams.lock();
        assert_eq!((table.reserved, table.reserved_by(polite)), (RESERVATIONS_MAX, 1));
        let oldest = (0..10).filter(|number| table.entries.contains_key(&*number.to_string()));
        assert_eq!(oldest.count(), 9, "the oldest has made room");
    }

    #[tokio::test]
    async fn what_was_started_on_a_stream_that_nobody_opens_in_time_ends_with_it() {
        let (streams, now) = (Streams::default(), Instant::now());
        let reserve = |token, now| {
            let (stream, task) = (stream(), tokio::spawn(std::future::pending::<()>()));
            stream.operations.begin(0, task.abort_handle());
            assert!(streams.reserve(token, stream, ALONE, now));
            task
        };
        let tasks = [reserve("never", now), reserve("too late", now)];
        let later = reserve("later", now + Duration::from_secs(1));
        let opened = reserve("opened", now);
        let stream = streams.open("opened", now);
        let end = now + RESERVATION_TIME_MAX;
        assert_eq!(streams.open("too late", end).err(), Some(Refusal::NotFound));
        streams.sweep(end);
        for task in tasks {
            let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
            assert!(ended.expect("it was stopped").is_err_and(|error| error.is_cancelled()));
        }
        assert!(!later.is_finished() && !opened.is_finished());
        assert!(streams.find("later", end).is_some() && stream.is_ok());
        let table = streams.lock();
        assert_eq!((table.entries.len(), table.reserved), (2, 1));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_an_operation_that_has_ended() {
        let stream = stream();
        let mut sse = Sse::new(&Config { heartbeat: None }, Instant::now());
        let errors = Vec::new();
        for end in [Delivery::Complete { operation: 0 }, Delivery::Failed { operation: 1, errors }]
        {
            let number = stream.lock().begin("a", 1).expect("room for one");
            stream.operations.begin(number, tokio::spawn(async {}).abort_handle());
            stream.deliver(&mut sse, end);
        }
        assert!(stream.operations.are_none());
    }

    #[test]
    fn ids_are_unique_while_they_last_and_none_begins_after_the_end() {
        let stream = stream();
        let begin = |id| stream.lock().begin(id, 2);
        assert_eq!((begin("a"), begin("a"), begin("b")), (Ok(0), Err(Refusal::InUse), Ok(1)));
        assert_eq!(begin("c"), Err(Refusal::TooMany));
        stream.stop("a");
        assert_eq!(begin("a"), Ok(2));
        let mut sse = Sse::new(&Config { heartbeat: None }, Instant::now());
        stream.deliver(&mut sse, Delivery::Complete { operation: 0 });
        stream.deliver(&mut sse, Delivery::Complete { operation: 1 });
        assert_eq!(stream.end(), [Box::from("a")]);
        assert_eq!(begin("d"), Err(Refusal::NotFound));
        let mut said = Vec::new();
        while let Some(chunks) = sse.poll_transmit(Instant::now()) {
            chunks.append_to(&mut said);
        }
        assert_eq!(said, b":\n\nevent: complete\ndata: {\"id\":\"b\"}\n\n");
    }

    #[test]
    fn a_token_is_in_a_header_or_looks_like_one_of_ours() {
        let mut headers = HeaderMap::new();
        let token = |uri, headers: &HeaderMap| token_of(&Uri::from_static(uri), headers);
        assert_eq!(token("/graphql?token=stream-7", &headers).as_deref(), Some("stream-7"));
        assert_eq!(token("/graphql?token=eyJhbGciOi", &headers), None);
        assert_eq!(token("/graphql", &headers), None);
        headers.insert(TOKEN_HEADER, HeaderValue::from_static("any"));
        assert_eq!(token("/graphql", &headers).as_deref(), Some("any"));
    }

    #[test]
    fn a_get_with_a_token_opens_a_stream_unless_it_asks_for_an_operation_and_no_events() {
        for (uri, accept, expected) in [
            ("/graphql", "application/json", true),
            ("/graphql?token=stream-7", "*/*", true),
            ("/graphql?query=x", "text/event-stream", true),
            ("/graphql?query=x", "application/json, text/event-stream", true),
            ("/graphql?query=x", "application/json", false),
            ("/graphql?query=x", "*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(is_opened_by(&Uri::from_static(uri), &headers), expected, "{uri} {accept}");
        }
    }

    #[test]
    fn the_operation_id_is_a_string_in_the_extensions() {
        for (extensions, expected) in [
            (r#"{"operationId":"1"}"#, Some("1")),
            (r#"{"operationId":""}"#, None),
            (r#"{"operationId":1}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(operation_id(&extensions.into()).as_deref(), expected, "{extensions}");
        }
    }
}
