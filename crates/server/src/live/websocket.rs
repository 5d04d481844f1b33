//! GraphQL over WebSocket (graphql-transport-ws and graphql-ws): the handshake, and where there is no reactor one task
//! that joins socket, protocol machine and outlet.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use execute::ClientKey;
use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use prepare::OperationRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::connection::{Connection, ReadApart};
use wire::graphql_transport_ws::{self, Event, FORBIDDEN, INVALID_MESSAGE};
use wire::subprotocol::{SUPPORTED, Subprotocol};
use wire::websocket::CloseCode;
use wire::websocket::handshake;

use super::caller::Caller;
use super::dropped_events::count_dropped;
use super::end_reasons::{AUTHENTICATION_UNAVAILABLE, SLOW_SUBSCRIBER, TOKEN_EXPIRED, too_slow};
use super::kept_operations::KeptTotal;
use super::leaving::{Leaving, WebSocket};
use super::outlet::{ConnectionOutlet, Delivery, Taken};
use super::running::Running;
use super::timer::sleep_until;
use super::{init_payload, large_messages, spread};
use crate::authentication::{
    Authentication, EXPIRED, Identity, InitOutcome, Introduced, PresentedToken, Refusal,
};
use crate::http::answer::{self, Answer};
use crate::http::cors;
use crate::http::stream::ClientStream;
use crate::metrics::Transport;
use crate::router::Router;

/// Bytes taken from a socket at once, and the room that an idle connection keeps for it.
const READ_BYTES: usize = 4 << 10;

/// How much may be written ahead of the socket; beyond it deliveries wait in the outlet, where the
/// configured bounds hold, and nothing is read of a client that takes nothing.
const WRITE_AHEAD_BYTES: usize = 64 << 10;

/// How long a client may take to read our last words. A live one needs a round trip.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a client may take to hang up after them. What it still sends is read and ignored meanwhile:
/// otherwise the system answers it by a reset, which can overtake our close frame.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(1);

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// Is a request meant as a WebSocket handshake, be it a bad one? Wishes for other protocols (curl asks
/// for `h2c`) may be ignored (RFC 9110, section 7.8).
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(SEC_WEBSOCKET_KEY)
        || headers.contains_key(SEC_WEBSOCKET_VERSION)
        || headers.get_all(UPGRADE).iter().any(|value| {
            let mut protocols = value.as_bytes().split(|byte| *byte == b',');
            protocols.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"websocket"))
        })
}

/// Answers an upgrade request; on success the connection leaves HTTP.
pub(crate) fn upgrade(
    router: &Arc<Router>,
    request: &Request<Incoming>,
    identity: Identity,
) -> Answer {
    if request.version() == Version::HTTP_2 {
        let text = "HTTP/2 is not spoken for WebSocket connections here: open them by HTTP/1.1\n";
        return answer::text(StatusCode::BAD_REQUEST, text);
    }
    if !cors::may_connect(&router.config.cors, request.headers()) {
        return answer::text(
            StatusCode::FORBIDDEN,
            "this origin may not connect: it is neither this host nor listed in `cors.origins` (\"*\" is for requests \
             without cookies)\n",
        );
    }
    if !request.body().is_end_stream() {
        // Its bytes would be taken for frames.
        return answer::text(StatusCode::BAD_REQUEST, "a WebSocket handshake has no body\n");
    }
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let method = request.method().as_str();
    let mut accept = match handshake::accept(method, headers, &SUPPORTED) {
        Ok(accept) => accept,
        Err(rejection) => {
            let status =
                StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
            let mut answer = answer::text(status, format!("{rejection}\n"));
            for (name, value) in rejection.headers() {
                let (name, value) =
                    (HeaderName::from_static(name), HeaderValue::from_static(value));
                answer.headers_mut().insert(name, value);
            }
            return answer;
        }
    };
    if !router.config.websocket.compression.enabled {
        accept.deflate = None;
    }
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in accept.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    let spoken = Spoken { subprotocol: accept.subprotocol, deflates: accept.deflate.is_some() };
    let leaving =
        WebSocket { spoken, caller: Caller { headers: request.headers().clone(), identity } };
    *answer.body_mut() = Leaving::WebSocket(leaving).into_body(router);
    answer
}

/// What client and router have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spoken {
    pub(super) subprotocol: Option<&'static str>,
    pub(super) deflates: bool,
}

impl Spoken {
    /// The machine of a connection that begins.
    pub(crate) fn machine(self, router: &Router, now: Instant) -> Connection<Subprotocol> {
        let protocol = Subprotocol::new(Arc::clone(&router.protocol), self.subprotocol, now);
        // As if it had been quiet for a while: those that come together are not pinged together.
        let interval = router.websocket.ping_interval.unwrap_or_default();
        let quiet_since = now.checked_sub(spread::part_of(interval)).unwrap_or(now);
        let connection = Connection::server(Arc::clone(&router.websocket), protocol, quiet_since);
        connection.with_deflate(self.deflates)
    }
}

/// Where there is no reactor: the connection to its end.
pub(super) async fn run(
    router: &Arc<Router>,
    socket: ClientStream,
    early: Bytes,
    spoken: Spoken,
    caller: Caller,
    address: ClientKey,
) {
    let now = Instant::now();
    let mut connection = spoken.machine(router, now);
    let outlet = Arc::new(ConnectionOutlet::new(&router.config.subscriptions, &router.queue_total));
    let _open = router.metrics.stream(Transport::websocket);
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let running =
        Running::new(router, &outlet, number, Transport::websocket, (address, KeptTotal::new()));
    let mut caller = Arc::new(caller);
    // A token that is being verified. The client waits for it, and for nothing else.
    let mut introduction = Introduction::None;
    let account = Arc::clone(running.work().account());
    let mut evicted = pin!(account.evicted());
    let mut time_to_leave = pin!(router.time_to_leave());
    let mut shutting_down = false;
    let mut incoming = BytesMut::with_capacity(READ_BYTES);
    let mut outgoing = BytesMut::new();
    let (mut reader, mut writer) = tokio::io::split(socket);
    let mut reading = true;
    let mut wrote = false;
    let mut is_full = false;
    let mut farewell_until = None;
    connection.receive(now, &early);
    drop(early);
    loop {
        while let Some(event) = connection.poll_event() {
            if let Event::Large(message) = event {
                // The connection waits: nothing it says is handled before this message.
                let parse = connection.protocol.parser();
                let client = caller.identity.client_key().unwrap_or(address);
                let deadline = Instant::now() + router.config.limits.time;
                let read =
                    large_messages::read(&router.offload, client, deadline, message, parse).await;
                connection.resume(Instant::now(), read);
                continue;
            }
            let parts = (&mut connection, &running, address);
            obey(router, parts, &mut caller, &mut introduction, event);
        }
        fill(router, &mut connection, &outlet, &running, &mut outgoing);
        if connection.is_closed() {
            if outgoing.is_empty() {
                break;
            }
            farewell_until.get_or_insert_with(|| Instant::now() + FAREWELL_TIME_MAX);
        }
        // A client that sends and never reads would fill our memory with answers to its pings. Whoever takes
        // something, if slowly, is listened to: its `complete` and its pongs count.
        // `filled` is notified when a connection that was held may be read again.
        connection.hold(Instant::now(), running.work().hold());
        let may_read =
            reading && (wrote || outgoing.len() < WRITE_AHEAD_BYTES) && !connection.is_paused();
        if connection.has_input() && may_read {
            connection.receive(Instant::now(), &[]);
            // Other connections of this core have their turn first.
            tokio::task::yield_now().await;
            continue;
        }
        let timeout = farewell_until.or_else(|| connection.poll_timeout());
        let until = timeout.map(tokio::time::Instant::from_std);
        tokio::select! {
            read = reader.read_buf(&mut incoming), if may_read => match read {
                Ok(0) | Err(_) => {
                    reading = false;
                    connection.receive_eof(Instant::now());
                    if connection.is_closed() {
                        // Nobody is there to read what is left.
                        outgoing.clear();
                    }
                }
                Ok(_) => {
                    wrote = false;
                    connection.receive(Instant::now(), &incoming);
                    incoming.clear();
                }
            },
            written = writer.write(&outgoing), if !outgoing.is_empty() => match written {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    wrote = true;
                    running.work().account().note_progress();
                    if is_full {
                        // There is room again: the client has taken something.
                        connection.taken(Instant::now());
                    }
                    outgoing.advance(count);
                    is_full = !outgoing.is_empty();
                    if outgoing.is_empty() {
                        // Gives back what a large answer needed.
                        outgoing = BytesMut::new();
                    }
                }
            },
            () = outlet.filled.notified() => {}
            () = sleep_until(until) => {
                if farewell_until.is_some() {
                    break;
                }
                connection.handle_timeout(Instant::now());
                if connection.is_closed() {
                    // The peer is dead or does not finish the closing handshake.
                    outgoing.clear();
                    while connection.poll_transmit(Instant::now()).is_some() {}
                }
            }
            identified = introduction.finish(router), if introduction.is_some() => {
                introduced(router, &mut connection, &mut caller, identified);
                introduction = Introduction::None;
            }
            () = caller.identity.expiry(), if connection.is_open() => {
                router.metrics.unauthenticated(EXPIRED);
                connection.protocol.close(FORBIDDEN, TOKEN_EXPIRED);
                caller = Arc::default();
            }
            () = evicted.as_mut(), if connection.is_open() => {
                connection.protocol.close(SLOW_SUBSCRIBER, &too_slow().message);
                running.stop_all();
            }
            () = &mut time_to_leave, if !shutting_down => {
                shutting_down = true;
                connection.protocol.close(CloseCode(1001), "The router is shutting down");
            }
        }
    }
    running.stop_all();
    // Says goodbye with FIN rather than RST, so that the client reads our close frame.
    let _ = writer.shutdown().await;
    if reading {
        let hung_up = async {
            while reader.read_buf(&mut incoming).await.is_ok_and(|count| count > 0) {
                incoming.clear();
            }
        };
        let _ = tokio::time::timeout(HANG_UP_TIME_MAX, hung_up).await;
    }
}

fn obey(
    router: &Router,
    (connection, running, address): (&mut Connection<Subprotocol>, &Running, ClientKey),
    caller: &mut Arc<Caller>,
    introduction: &mut Introduction,
    event: Event,
) {
    match event {
        Event::Init { payload } => {
            let allowed = &router.config.websocket.init_payload_headers;
            let tokens = router.authentication.as_ref().map(Authentication::token_source);
            let init = match init_payload::read(allowed, tokens, payload, &caller.headers) {
                Ok(init) => init,
                Err(reason) => return connection.protocol.close(INVALID_MESSAGE, &reason),
            };
            let identity = caller.identity.clone();
            *caller = Arc::new(Caller { headers: init.headers, identity });
            match router.on_connection_init(init.token, &caller.identity) {
                Introduced::Known(identified) => {
                    introduced(router, connection, caller, identified);
                }
                Introduced::By(token) => *introduction = Introduction::Of(token),
            }
        }
        Event::Subscribe { number, request, .. } => {
            running.start(number, operation_request(request), Arc::clone(caller), address);
        }
        Event::Complete { number, .. } => running.stop(number),
        // Handled by the caller, which can wait for it.
        Event::Large(_) => {}
        Event::Ended(_) => running.stop_all(),
    }
}

/// Returns the operation of a `subscribe` message in the form that operations of all transports have.
pub(super) fn operation_request(request: graphql_transport_ws::Request) -> OperationRequest {
    let graphql_transport_ws::Request { query, operation_name, variables, extensions } = request;
    OperationRequest {
        query: query.map(|it| Bytes::from(it.into_string())).unwrap_or_default(),
        operation_name,
        variables: variables.unwrap_or_default(),
        extensions: extensions.unwrap_or_default(),
    }
}

/// The token that a `connection_init` waits for.
enum Introduction {
    None,
    Of(PresentedToken),
}

impl Introduction {
    fn is_some(&self) -> bool {
        matches!(self, Self::Of(_))
    }

    /// Begins anew when it was given up: what has been verified is remembered.
    async fn finish(&self, router: &Router) -> Result<InitOutcome, Refusal> {
        match self {
            Self::Of(token) => router.verify_presented(token).await,
            Self::None => std::future::pending().await,
        }
    }
}

/// It is known who has sent `connection_init`.
fn introduced(
    router: &Router,
    connection: &mut Connection<Subprotocol>,
    caller: &mut Arc<Caller>,
    identified: Result<InitOutcome, Refusal>,
) {
    let admitted = identified.and_then(|it| router.admit(&it.identity).map(|()| it));
    let refusal = admitted.as_ref().err().cloned();
    if let Ok(outcome) = admitted {
        let mut headers = caller.headers.clone();
        outcome.set_header(&mut headers);
        *caller = Arc::new(Caller { headers, identity: outcome.identity });
    }
    conclude_init(&mut connection.protocol, refusal.as_ref());
}

/// Accepts a `connection_init`, unless its client is refused.
pub(super) fn conclude_init(protocol: &mut Subprotocol, refusal: Option<&Refusal>) {
    match refusal {
        None => protocol.accept_init(None),
        Some(refusal) if refusal.is_temporary() => {
            protocol.close(CloseCode::TRY_AGAIN_LATER, AUTHENTICATION_UNAVAILABLE);
        }
        Some(_) => protocol.forbid(),
    }
}

/// Moves deliveries into the machine and frames out of it, as long as the socket keeps up.
fn fill(
    router: &Router,
    connection: &mut Connection<Subprotocol>,
    outlet: &ConnectionOutlet,
    running: &Running,
    outgoing: &mut BytesMut,
) {
    loop {
        while let Some(chunks) = connection.poll_transmit(Instant::now()) {
            for part in chunks.parts() {
                outgoing.extend_from_slice(part);
            }
        }
        if !connection.is_open() {
            break;
        }
        // Who reads too slowly is told so behind what waits already, and cut off if that is not read either:
        // the closing handshake has its own deadline.
        if outgoing.len() >= WRITE_AHEAD_BYTES && !outlet.is_overflown() {
            break;
        }
        match outlet.take() {
            Taken::Nothing => break,
            Taken::Overflown => {
                let message = too_slow().message;
                connection.protocol.close(SLOW_SUBSCRIBER, &message);
                running.stop_all();
            }
            Taken::Delivery(delivery) => deliver(connection, running, delivery),
        }
    }
    count_dropped(router, outlet.take_dropped());
}

fn deliver(connection: &mut Connection<Subprotocol>, running: &Running, delivery: Delivery) {
    let machine = &mut connection.protocol;
    // An operation that the client completed meanwhile has no id any more; its results go nowhere.
    match delivery {
        Delivery::Next { operation, payload, missed } => {
            if let Some(id) = machine.id_of(operation).map(Box::<str>::from) {
                machine.next(&id, payload.with_missed(missed).bytes);
            }
        }
        Delivery::Position { operation, cursor } => {
            if let Some(id) = machine.id_of(operation).map(Box::<str>::from) {
                machine.position(&id, cursor);
            }
        }
        Delivery::Complete { operation } => {
            running.forget(operation);
            if let Some(id) = machine.id_of(operation).map(Box::<str>::from) {
                machine.complete(&id);
            }
        }
        Delivery::Failed { operation, errors } => {
            running.forget(operation);
            if let Some(id) = machine.id_of(operation).map(Box::<str>::from) {
                let mut text = Vec::new();
                execute::print_errors(&errors, &mut text);
                machine.error(&id, text.into());
            }
        }
    }
}
