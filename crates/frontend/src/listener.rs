//! Listeners: they accept connections and assign each to a worker. `connection` serves the connection.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU16;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use admission::Pace;
use clients::connections::{ConnectionPermit, ConnectionRefused};
use clients::handshake_pace::HandshakePace;
use clients::request_source::ConnectionOrigin;
use execute::GraphqlError;
use futures_util::FutureExt;
use net::TlsServer;
use telemetry::{LogLimit, read};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::{self, AcceptedSocket};
use super::http_server::{HttpServer, UNPARKED_PER_CORE};
use super::media::ResponseFormat;
use super::parked_handshakes::{FirstBytes, ParkedHandshakes, Unparked, has_gone};
use super::unix::{BoundSocket, SocketFile};
use crate::descriptors::SpareDescriptor;

/// The pause after the process or the system ran out of descriptors: accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time for which a connection waits until workers serve those before. After it the worker that has them stands
/// still, and others may serve.
const PLACE_WAIT_MAX: Duration = Duration::from_millis(100);

/// How often the listener looks for responses meanwhile.
const PLACE_POLL: Duration = Duration::from_millis(1);

/// The time between two looks at the handshakes that wait. Several connections are then served together, because each
/// run of the listener costs two switches between threads.
const HANDSHAKES_POLL: Duration = Duration::from_millis(20);

/// The number of connections that a listener accepts in a second for each core in a storm of handshakes, to look at
/// what they begin with. This has a higher priority than requests. But where it is slow, the kernel's queue overflows:
/// clients then try to connect again after one second, three and seven, while the router has nothing to do.
const PARKED_PER_CORE: u64 = 10_000;

/// The part of that pace (one in this number) while operations are slow.
const PRESSED_PARKING_PART: u32 = 2;

/// The number of connections that a listener looks at in the time of [`STORM_WINDOW`] above which they make operations
/// slow.
const STORM_CONNECTIONS: u32 = 50;
const STORM_WINDOW: Duration = Duration::from_millis(100);

/// The time between two looks at whether there is room for a further connection.
const ROOM_POLL: Duration = Duration::from_millis(5);

/// The pause of a listener that has done so for as many as it may.
const PARKING_POLL: Duration = Duration::from_millis(5);

/// The bytes of a refused request that are read at most.
const REJECTED_BYTES: usize = 4096;

/// The status of most refusals.
const UNAVAILABLE: &str = "503 Service Unavailable";

/// A bound address at which clients connect.
#[derive(Debug)]
pub enum BoundListener {
    /// A TCP address, and the certificates if the listener uses TLS.
    Tcp(std::net::TcpListener, Option<Arc<TlsServer>>),
    /// A Unix domain socket.
    Unix(BoundSocket),
}

impl BoundListener {
    /// Returns the address, unless the listener is a Unix domain socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// Writes the name of the listener in the log.
impl fmt::Display for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener, tls) => match listener.local_addr() {
                Ok(address) if tls.is_some() => write!(f, "{address} (TLS)"),
                Ok(address) => address.fmt(f),
                Err(error) => write!(f, "an unknown address ({error})"),
            },
            Self::Unix(bound) => write!(f, "unix:{}", bound.file.path().display()),
        }
    }
}

/// A [`BoundListener`] that the runtime watches.
enum WatchedListener {
    Tcp {
        listener: TcpListener,
        /// The same listener, of which many waiting connections are accepted: Tokio would register each of them with
        /// this runtime, and a worker serves it.
        direct: std::net::TcpListener,
        tls: Option<Arc<TlsServer>>,
    },
    Unix(UnixListener, #[expect(dead_code, reason = "removed when it is dropped")] SocketFile),
}

impl WatchedListener {
    /// Watches a listener. `stall_timeout` is the time for which a client may acknowledge nothing that is sent to it.
    fn new(bound: BoundListener, stall_timeout: Duration) -> std::io::Result<Self> {
        Ok(match bound {
            BoundListener::Tcp(listener, tls) => {
                inherit_options(&listener, stall_timeout);
                let direct = listener.try_clone()?;
                Self::Tcp { listener: TcpListener::from_std(listener)?, direct, tls }
            }
            BoundListener::Unix(bound) => {
                bound.listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(bound.listener)?, bound.file)
            }
        })
    }

    /// Accepts the next connection. `many` tells whether others are likely to wait as well.
    async fn accept(&self, many: bool) -> std::io::Result<(AcceptedSocket, ConnectionOrigin)> {
        match self {
            Self::Tcp { listener, direct, tls } => {
                let waiting = match many {
                    true => {
                        // Other tasks of this thread have their turns as well.
                        tokio::task::coop::consume_budget().await;
                        accept_waiting(direct).ok()
                    }
                    false => None,
                };
                let (socket, address) = match waiting {
                    Some(waiting) => waiting,
                    None => {
                        let (socket, address) = listener.accept().await?;
                        (socket.into_std()?, Some(address))
                    }
                };
                let address = address.map(|it| it.ip().to_canonical());
                let origin = ConnectionOrigin { address, is_tls: tls.is_some() };
                Ok((AcceptedSocket::Tcp(socket, tls.clone()), origin))
            }
            Self::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                Ok((AcceptedSocket::Unix(socket.into_std()?), ConnectionOrigin::default()))
            }
        }
    }
}

/// Accepts a connection that waits at a listener, as one that does not block. The listener must not block either.
fn accept_waiting(
    listener: &std::net::TcpListener,
) -> std::io::Result<(std::net::TcpStream, Option<SocketAddr>)> {
    #[cfg(target_os = "linux")]
    let accepted = {
        use rustix::net::{SocketFlags, acceptfrom_with};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, address) = acceptfrom_with(listener, flags)?;
        (socket.into(), address.and_then(|it| it.try_into().ok()))
    };
    #[cfg(not(target_os = "linux"))]
    let accepted = {
        let (socket, address) = listener.accept()?;
        socket.set_nonblocking(true)?;
        (socket, Some(address))
    };
    Ok(accepted)
}

/// Sets the options of a listener that each accepted socket inherits (socket(7), tcp(7)), which saves two system calls
/// for each. Best effort: without them connections are slower, or their loss is noticed later.
fn inherit_options(listener: &std::net::TcpListener, stall_timeout: Duration) {
    let options = socket2::SockRef::from(listener);
    let _ = options.set_tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = options.set_tcp_user_timeout(Some(stall_timeout));
    #[cfg(not(target_os = "linux"))]
    let _ = stall_timeout;
}

/// A connection that the listener has accepted and that no worker serves yet.
#[derive(Debug)]
struct NewConnection {
    accepted: AcceptedSocket,
    origin: ConnectionOrigin,
    permit: ConnectionPermit,
}

/// A place among the connections that wait for their workers; `None` if a connection needs none.
type Place = Option<OwnedSemaphorePermit>;

/// Accepts connections until shutdown and assigns each to the least loaded worker: as fast as the workers begin to
/// serve them, and some for the responses that they send meanwhile ([`crate::accept_pace`]). While many WebSocket
/// handshakes wait for their turn ([`clients::handshake_pace`]), it parks further ones (`parked_handshakes`),
/// and accepts slowly where it cannot know what a connection is for.
pub async fn accept_connections(server: Arc<HttpServer>, bound: BoundListener) {
    let listener = match WatchedListener::new(bound, server.settings.stall_timeout) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener could not be watched");
            return;
        }
    };
    let total = Arc::clone(server.pipeline.first_turns.parked());
    let parked = Arc::new(ParkedHandshakes::new(total));
    let mut shutdown = server.shutdown.signal();
    tokio::select! {
        () = accept_all(&server, &listener, &parked) => {}
        () = unpark_all(&server, &parked) => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
}

/// Accepts connections; never returns.
async fn accept_all(
    server: &Arc<HttpServer>,
    listener: &WatchedListener,
    parked: &Arc<ParkedHandshakes<NewConnection>>,
) {
    let warnings = LogLimit::new();
    let mut spare = SpareDescriptor::take();
    let mut storm = Storm::new(server.workers.count());
    loop {
        wait_for_room(server).await;
        match listener.accept(!parked.is_empty()).await {
            Ok((accepted, origin)) => {
                spare.take_again();
                let Some(new) = enter(server, accepted, origin) else { continue };
                let Some(new) = park_in_storm(server, parked, &mut storm, new).await else {
                    continue;
                };
                let place = take_place(server).await;
                assign_to_worker(server, new, place);
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                server.metrics.count_accept_failure();
                if let Some(suppressed) = warnings.admit(Instant::now()) {
                    tracing::warn!(
                        %error,
                        suppressed,
                        "connections cannot be accepted; the listener tries again"
                    );
                }
                if spare.free() {
                    // A connection that already waits, if there is still one.
                    if let Some(Ok((accepted, _))) = listener.accept(false).now_or_never() {
                        reject(accepted, ConnectionRefused::Descriptors);
                    }
                    spare.take_again();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits while there is no room for a further connection, and others end in a moment. When all clients return at once,
/// their old connections are still there.
async fn wait_for_room(server: &HttpServer) {
    while server.limits.connections.is_full() && (server.hurry_leaving)() > 0 {
        tokio::time::sleep(ROOM_POLL).await;
    }
}

/// Counts a connection, unless it is refused.
fn enter(
    server: &HttpServer,
    accepted: AcceptedSocket,
    origin: ConnectionOrigin,
) -> Option<NewConnection> {
    match server.limits.connections.enter(origin.address) {
        Ok(permit) => Some(NewConnection { accepted, origin, permit }),
        Err(no_room) => {
            (server.hurry_leaving)();
            reject(accepted, no_room);
            None
        }
    }
}

/// A pace with its clock.
struct ClockedPace {
    pace: Option<Pace>,
    started: Instant,
}

impl ClockedPace {
    /// Creates a pace of this number of turns in a second. A pace of 0 has no turns.
    fn new(per_second: u64) -> Self {
        Self { pace: Pace::new(per_second), started: Instant::now() }
    }

    /// Takes a turn, if one is due.
    fn take(&mut self) -> bool {
        let now = self.started.elapsed();
        self.pace.as_mut().is_some_and(|pace| pace.take(now, Duration::ZERO).is_some())
    }

    /// Leaves out the next turns.
    fn skip(&mut self, turns: u32) {
        if let Some(pace) = &mut self.pace {
            pace.skip(turns);
        }
    }
}

/// The connections of a storm at which a listener looks.
struct Storm {
    parking: ClockedPace,
    /// The number since `counted_from`.
    count: u32,
    counted_from: Instant,
}

impl Storm {
    fn new(cores: usize) -> Self {
        let parking = ClockedPace::new(PARKED_PER_CORE * cores as u64);
        Self { parking, count: 0, counted_from: Instant::now() }
    }

    /// Counts a connection. True once for each window with very many.
    fn has_many(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.counted_from) >= STORM_WINDOW {
            (self.count, self.counted_from) = (0, now);
        }
        self.count += 1;
        self.count == STORM_CONNECTIONS
    }
}

/// Parks a connection that begins with a handshake while enough others wait, or may do so in a moment. Returns any
/// other connection when it may be served.
async fn park_in_storm(
    server: &Arc<HttpServer>,
    parked: &Arc<ParkedHandshakes<NewConnection>>,
    storm: &mut Storm,
    new: NewConnection,
) -> Option<NewConnection> {
    let Some(handshakes) = &server.limits.handshakes else { return Some(new) };
    // The clients of a storm connect first and send later, most of them when all have connected.
    let first_turns = &server.pipeline.first_turns;
    let beginning = first_turns.waiting_gets() + first_turns.silent();
    if parked.is_empty() && !handshakes.has_enough(beginning, &server.limits.memory) {
        return Some(new);
    }
    while !storm.parking.take() {
        tokio::time::sleep(PARKING_POLL).await;
    }
    if let Some(operations) = &server.operations {
        if storm.has_many(Instant::now()) {
            operations.note_storm();
        }
        if operations.is_pressed() {
            storm.parking.skip(PRESSED_PARKING_PART - 1);
        }
    }
    match new.first_bytes() {
        FirstBytes::Handshake => {
            park(server, parked, new);
            None
        }
        FirstBytes::None => {
            tokio::spawn(serve_after_first_bytes(Arc::clone(server), Arc::clone(parked), new));
            None
        }
        FirstBytes::Undecided => {
            wait_for_undecided(handshakes).await;
            Some(new)
        }
        FirstBytes::Other => Some(new),
    }
}

/// Waits until a connection may be served that may turn out to be for a handshake.
async fn wait_for_undecided(handshakes: &HandshakePace) {
    while !handshakes.may_accept() {
        tokio::time::sleep(HANDSHAKES_POLL).await;
    }
}

/// Parks a handshake, unless it would have to wait for too long.
fn park(server: &HttpServer, parked: &ParkedHandshakes<NewConnection>, new: NewConnection) {
    let most = server.limits.handshakes.as_ref().map_or(0, HandshakePace::waiting_max);
    if read(server.pipeline.first_turns.parked()) < most {
        parked.push(new);
    } else {
        reject_handshake(server, new);
    }
}

/// Waits for the first bytes of a connection that was accepted in a storm of handshakes, and parks it or has it served.
async fn serve_after_first_bytes(
    server: Arc<HttpServer>,
    parked: Arc<ParkedHandshakes<NewConnection>>,
    new: NewConnection,
) {
    let mut shutdown = server.shutdown.signal();
    let first = tokio::time::timeout(server.settings.header_timeout, new.wait_for_first_bytes());
    let new = tokio::select! {
        first = first => match first {
            Ok(Ok(new)) => new,
            // It was silent for too long, or cannot be watched.
            Ok(Err(_)) | Err(_) => return,
        },
        _ = shutdown.wait_for(|stop| *stop) => return,
    };
    match (new.first_bytes(), &server.limits.handshakes) {
        (FirstBytes::Handshake, _) => return park(&server, &parked, new),
        (FirstBytes::Undecided, Some(handshakes)) => wait_for_undecided(handshakes).await,
        (FirstBytes::Undecided | FirstBytes::None | FirstBytes::Other, _) => {}
    }
    // It earns no place by responses: very many such connections may wait, and each would look for one every
    // millisecond.
    let place = Arc::clone(&server.accepting).acquire_owned();
    let place = tokio::time::timeout(PLACE_WAIT_MAX, place).await;
    assign_to_worker(&server, new, place.ok().and_then(Result::ok));
}

/// Has parked handshakes served, several together, while not enough others wait; never returns.
async fn unpark_all(server: &Arc<HttpServer>, parked: &ParkedHandshakes<NewConnection>) {
    let cores = server.workers.count();
    let least = server.limits.handshakes.as_ref().map_or(0, HandshakePace::waiting_enough);
    let mut unparking = Unparking {
        places: Arc::new(Semaphore::new(UNPARKED_PER_CORE * cores)),
        least: ClockedPace::new(least),
    };
    loop {
        parked.arrived().await;
        while !parked.is_empty() {
            tokio::time::sleep(HANDSHAKES_POLL).await;
            unparking.unpark(server, parked);
        }
    }
}

/// The bounds of handshakes that are not parked any more.
struct Unparking {
    /// The places of connections that workers have and do not serve yet.
    places: Arc<Semaphore>,
    /// The least pace, while enough handshakes wait: as many in a second as are enough. Without it, those of other
    /// listeners could keep these out.
    least: ClockedPace,
}

impl Unparking {
    /// Has as many parked handshakes served as there is room for.
    fn unpark(&mut self, server: &Arc<HttpServer>, parked: &ParkedHandshakes<NewConnection>) {
        let waiting_gets = server.pipeline.first_turns.waiting_gets();
        let has_room = match &server.limits.handshakes {
            Some(handshakes) => !handshakes.has_enough(waiting_gets, &server.limits.memory),
            None => true,
        };
        loop {
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
            match parked.pop(|| place.is_some() && (has_room || self.least.take())) {
                Some(Unparked::Begins(new)) if new.has_gone() => {}
                Some(Unparked::Begins(new)) => {
                    if !assign_to_worker(server, new, place) {
                        // The others wait for memory.
                        return;
                    }
                }
                Some(Unparked::IsLate(new)) => reject_handshake(server, new),
                None => return,
            }
        }
    }
}

/// Waits until a connection may be assigned to a worker. Returns its place among those that wait for their workers.
async fn take_place(server: &HttpServer) -> Place {
    let place = Arc::clone(&server.accepting).acquire_owned();
    tokio::select! {
        // Responses earn connections for the time in which there is no place.
        biased;
        // Never fails, because the semaphore is never closed.
        place = place => place.ok(),
        () = earn_place(server) => None,
    }
}

/// Waits until a connection may be accepted although as many as may wait for their workers do so.
async fn earn_place(server: &HttpServer) {
    let began = Instant::now();
    let is_earned = || {
        let responses = server.pipeline.metrics.served_responses();
        let mut pace = server.accept_pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.take(responses)
    };
    // Nothing announces responses: that would cost each of them.
    while !is_earned() && began.elapsed() < PLACE_WAIT_MAX {
        tokio::time::sleep(PLACE_POLL).await;
    }
}

/// True for errors that `accept` passes on from the connection and that do not concern the listener (accept(2)).
pub fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Has a connection served. False if it was refused, because there is no memory for it.
fn assign_to_worker(server: &Arc<HttpServer>, new: NewConnection, place: Place) -> bool {
    let NewConnection { accepted, origin, permit } = new;
    let Some(served) = server.limits.served.enter() else {
        (server.hurry_leaving)();
        reject(accepted, ConnectionRefused::Memory);
        return false;
    };
    let serving = Arc::clone(server);
    server.workers.run(Box::new(move || {
        Box::pin(async move {
            // The earlier work of the worker comes first.
            tokio::task::yield_now().await;
            drop(place);
            connection::serve(serving, accepted, permit, served, origin).await;
        })
    }));
    true
}

impl NewConnection {
    /// Returns the kind of the first bytes. They are not looked at behind TLS and at Unix domain sockets.
    fn first_bytes(&self) -> FirstBytes {
        match &self.accepted {
            AcceptedSocket::Tcp(socket, None) => FirstBytes::of(socket),
            AcceptedSocket::Tcp(_, Some(_)) | AcceptedSocket::Unix(_) => FirstBytes::Undecided,
        }
    }

    /// True if the client has closed the connection. Only parked connections are looked at.
    fn has_gone(&self) -> bool {
        match &self.accepted {
            AcceptedSocket::Tcp(socket, None) => has_gone(socket),
            AcceptedSocket::Tcp(_, Some(_)) | AcceptedSocket::Unix(_) => false,
        }
    }

    /// Waits until bytes have arrived, or the connection has ended.
    async fn wait_for_first_bytes(self) -> std::io::Result<Self> {
        let AcceptedSocket::Tcp(socket, None) = self.accepted else { return Ok(self) };
        let socket = tokio::net::TcpStream::from_std(socket)?;
        socket.readable().await?;
        Ok(Self { accepted: AcceptedSocket::Tcp(socket.into_std()?, None), ..self })
    }
}

/// Responds to a connection over a limit, whatever its request would have been.
fn reject(accepted: AcceptedSocket, no_room: ConnectionRefused) {
    let (status, message) = match no_room {
        ConnectionRefused::All => (
            UNAVAILABLE,
            "the router has as many connections as it may have (`http.max_connections`); try \
             again later",
        ),
        ConnectionRefused::Descriptors => {
            (UNAVAILABLE, "the router may open no further file; try again later")
        }
        ConnectionRefused::Memory => (
            UNAVAILABLE,
            "the router has no memory left for further connections (`limits.memory`); try again \
             later",
        ),
        ConnectionRefused::OfAddress => (
            "429 Too Many Requests",
            "this address has as many connections as it may have \
             (`http.max_connections_per_ip`); close one first",
        ),
    };
    reject_with(accepted, status, &GraphqlError::no_room(message));
}

/// Responds to a handshake that would have to wait for its turn for too long.
fn reject_handshake(server: &HttpServer, new: NewConnection) {
    let Some(handshakes) = &server.limits.handshakes else { return };
    let seconds = handshakes.refuse().retry_after_seconds;
    let message = format!("the router is overloaded: try again in {seconds} s");
    reject_with(new.accepted, UNAVAILABLE, &GraphqlError::overloaded(message, seconds));
}

/// Sends an error to a connection that is not served.
///
/// The response is written without waiting, because a client that does not read it must not cost more than an accepted
/// one. For the same reason a client that would have to do a TLS handshake first gets no response.
fn reject_with(accepted: AcceptedSocket, status: &str, error: &GraphqlError) {
    let retry_after = error.retry_after_seconds.map_or(1, NonZeroU16::get);
    let body = execute::request_error(std::slice::from_ref(error)).bytes;
    let mut response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\nretry-after: {retry_after}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        ResponseFormat::Json.content_type(),
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(&body);
    // The buffer of a fresh socket has room for the response; if not, the client gets none. Without reading the
    // request, which fits into the buffer as a rule, the system would reset the connection.
    let mut request = [0; REJECTED_BYTES];
    match accepted {
        AcceptedSocket::Tcp(mut socket, None) => {
            let _ = socket.read(&mut request);
            let _ = socket.write_all(&response);
            let _ = socket.shutdown(Shutdown::Write);
        }
        AcceptedSocket::Unix(mut socket) => {
            let _ = socket.read(&mut request);
            let _ = socket.write_all(&response);
            let _ = socket.shutdown(Shutdown::Write);
        }
        AcceptedSocket::Tcp(_, Some(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_noted_once_for_each_window_with_very_many_connections() {
        let (mut storm, began) = (Storm::new(1), Instant::now());
        let mut noted = |from: Instant, count: u32, gap: Duration| {
            (0..count).filter(|number| storm.has_many(from + *number * gap)).count()
        };
        assert_eq!(noted(began, 1000, Duration::from_millis(3)), 0, "330 in a second");
        let later = began + Duration::from_secs(10);
        assert_eq!(noted(later, 1000, Duration::from_millis(1)), 10, "1,000 in a second");
    }

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options_of_the_listener() {
        let bound = crate::tcp::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = bound.local_addr().expect("bound");
        let stall_timeout = Duration::from_secs(7);
        let listener = WatchedListener::new(BoundListener::Tcp(bound, None), stall_timeout);
        let listener = listener.expect("a runtime");
        for many in [false, true] {
            let client = std::net::TcpStream::connect(address).expect("the listener is bound");
            let accepted = listener.accept(many).await.expect("a client connects");
            let (AcceptedSocket::Tcp(mut socket, None), origin) = accepted else {
                panic!("not a TCP connection: {accepted:?}");
            };
            assert_eq!(origin.address, client.local_addr().ok().map(|it| it.ip()));
            let blocked = socket.read(&mut [0]).expect_err("nothing was sent");
            assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock, "{many}");
            let options = socket2::SockRef::from(&socket);
            assert!(options.tcp_nodelay().expect("an option of TCP"));
            #[cfg(target_os = "linux")]
            assert_eq!(options.tcp_user_timeout().expect("an option of TCP"), Some(stall_timeout));
        }
    }
}
