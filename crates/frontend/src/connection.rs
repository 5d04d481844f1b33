//! One connection from its first byte to its last: the TLS handshake, the detection of the protocol, and HTTP/1.1.
//! HTTP/2 continues in [`super::http2`].

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use clients::byte_budget::ByteAccount;
use clients::connection_metrics::TimeoutPhase;
use clients::connections::{ConnectionPermit, TakenOver};
use clients::request_source::ConnectionOrigin;
use clients::served_connections::ServedConnection;
use http::response::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use net::{TlsServer, TlsServerStream};
use telemetry::LogLimit;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::body_wakes::ConnectionWaker;
use super::client_connection::{ClientConnection, ClientRequest};
use super::first_turn::serve_in_turn;
use super::handover::{self, FlushTrackedStream, Handover};
use super::head_timer::HeadTimer;
use super::http_server::HttpServer;
use super::paced_body::PacedBody;
use super::stream::{Carrier, ClientProtocol, ClientStream};
use super::takeover::Takeover;
use super::woken_signal::WokenSignal;
use super::write_timeout::{WriteTimeout, is_stall};
use super::{http2, pipeline};

/// The time that a client may take for its TLS handshake: a few round trips, some of them lost.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The time after which a TLS handshake does not begin any more, because it could hardly end within
/// [`HANDSHAKE_TIME_MAX`]. Without this bound, a storm that waits for as long as that has each handshake computed in
/// its last moment, and none succeeds.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(7);

/// The time for which a TLS handshake in progress occupies a place. The computing is done by then, and clients that let
/// their handshakes wait must not keep others out.
const TLS_PLACE_TIME_MAX: Duration = Duration::from_millis(100);

/// The time for which input is read from a client that speaks another protocol, until it closes its side too. The time
/// and [`CLOSE_BYTES_MAX`] bound a client that does not stop sending.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// The number of bytes that are read from such a client.
const CLOSE_BYTES_MAX: u64 = 64 * 1024;

/// The size of the pieces in which a response is passed to the HTTP library. Each costs a system call, so responses of
/// usual size are one piece.
const PIECE_BYTES: usize = 128 << 10;

/// A connection as a listener accepts it; it belongs to no runtime yet.
#[derive(Debug)]
pub(crate) enum AcceptedSocket {
    /// A TCP connection, and the certificates if the listener uses TLS.
    Tcp(std::net::TcpStream, Option<Arc<TlsServer>>),
    /// A connection to a Unix domain socket.
    Unix(std::os::unix::net::UnixStream),
}

/// Serves a connection to its end, or until it is taken over.
pub(super) async fn serve(
    server: Arc<HttpServer>,
    accepted: AcceptedSocket,
    permit: ConnectionPermit,
    served: Arc<ServedConnection>,
    origin: ConnectionOrigin,
) {
    let mut shutdown = server.shutdown.signal();
    let established = tokio::select! {
        established = establish(&server, accepted) => established,
        // No request has been received yet.
        _ = shutdown.wait_for(|stop| *stop) => return,
        () = served.closing() => return,
    };
    match established {
        Ok(Some((stream, ClientProtocol::Http1))) => {
            let places = server.pipeline.first_turns.places(stream.begins_with_get());
            let serving = serve_http1(Arc::clone(&server), stream, permit, served, origin);
            serve_in_turn(places, pin!(serving)).await;
        }
        Ok(Some((stream, ClientProtocol::Http2))) => {
            let places = server.pipeline.first_turns.places(false);
            let serving = http2::serve(Arc::clone(&server), stream, &permit, served, origin);
            serve_in_turn(places, pin!(serving)).await;
        }
        Ok(Some((stream, ClientProtocol::Other))) => close_gracefully(stream).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a connection ended before its first request"),
    }
}

/// Closes a connection in order. If it were closed while input waits to be read, the system would reset it, and the
/// client could not distinguish that from a failing network.
async fn close_gracefully(mut stream: ClientStream) {
    tracing::debug!("a client speaks neither HTTP/1.1 nor HTTP/2");
    let rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(CLOSE_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // The connection is over, whatever fails now.
    let _ = tokio::time::timeout(CLOSE_TIME_MAX, rest).await;
}

/// Does everything before the first request. `None`: the client has disconnected, or takes too long.
async fn establish(
    server: &HttpServer,
    accepted: AcceptedSocket,
) -> io::Result<Option<(ClientStream, ClientProtocol)>> {
    let http = &server.settings;
    // Nothing is known of it until its first bytes arrive. Listeners do not look at those of other connections.
    let _silent = matches!(accepted, AcceptedSocket::Tcp(_, None))
        .then(|| server.pipeline.first_turns.count_silent());
    let mut stream = match accepted {
        AcceptedSocket::Unix(socket) => {
            let socket = UnixStream::from_std(socket)?;
            ClientStream::new(Carrier::Unix(WriteTimeout::new(socket, http.stall_timeout)))
        }
        AcceptedSocket::Tcp(socket, tls) => {
            let socket = TcpStream::from_std(socket)?;
            match tls {
                None => {
                    let socket = WriteTimeout::new(socket, http.stall_timeout);
                    ClientStream::new(Carrier::Tcp(socket))
                }
                Some(tls) => {
                    let handshake = tls_handshake(server, &tls, socket);
                    match tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake).await {
                        Ok(Ok(Some(stream))) => ClientStream::new(Carrier::Tls(Box::new(stream))),
                        Ok(Err(error)) => {
                            server.metrics.count_tls_failure();
                            return Err(error);
                        }
                        Ok(Ok(None)) | Err(_) => {
                            server.metrics.count_timeout(TimeoutPhase::Handshake);
                            return Ok(None);
                        }
                    }
                }
            }
        }
    };
    // Also without HTTP/2: this waits for the first bytes.
    match tokio::time::timeout(http.header_timeout, stream.detect_protocol()).await {
        Ok(protocol) => Ok(protocol?.map(|protocol| match http.http2.enabled {
            true => (stream, protocol),
            // It responds to everything.
            false => (stream, ClientProtocol::Http1),
        })),
        Err(_) => Ok(None),
    }
}

/// Does the TLS handshake with a client that has begun it, once there is a place for it
/// ([`HttpServer::tls_handshakes`]). `None`: there is a place too late for it to end in time, and nothing is computed.
///
/// # Errors
/// The handshake fails, or the client has gone before it begins: then nothing is computed for it.
async fn tls_handshake(
    server: &HttpServer,
    tls: &TlsServer,
    socket: TcpStream,
) -> io::Result<Option<TlsServerStream<WriteTimeout<TcpStream>>>> {
    let latest = tokio::time::Instant::now() + HANDSHAKE_WAIT_MAX;
    // A client that sends nothing needs no place.
    wait_for_input(&socket).await?;
    let Some(place) = place_until(latest, &server.tls_handshakes).await else { return Ok(None) };
    // It may have gone while it waited.
    wait_for_input(&socket).await?;
    let socket = WriteTimeout::new(socket, server.settings.stall_timeout);
    let mut handshake = pin!(tls.handshake(socket));
    tokio::select! {
        biased;
        done = &mut handshake => return done.map(Some),
        () = tokio::time::sleep(TLS_PLACE_TIME_MAX) => {}
    }
    drop(place);
    handshake.await.map(Some)
}

/// Waits for a place, until `latest` at most.
async fn place_until(
    latest: tokio::time::Instant,
    places: &Semaphore,
) -> Option<SemaphorePermit<'_>> {
    // The semaphore is never closed.
    let place = tokio::time::timeout_at(latest, places.acquire()).await.ok()?.ok()?;
    (tokio::time::Instant::now() <= latest).then_some(place)
}

/// Waits until a client has sent something.
///
/// # Errors
/// The client has closed the connection.
async fn wait_for_input(socket: &TcpStream) -> io::Result<()> {
    // A new socket counts as readable until a look at it finds nothing. Bytes that wait hide the end behind them, which
    // only the readiness shows.
    let is_at_end = socket.peek(&mut [0]).await? == 0;
    if is_at_end || socket.ready(Interest::READABLE).await?.is_read_closed() {
        let reason = "the client has gone before its TLS handshake began";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
    }
    Ok(())
}

async fn serve_http1(
    server: Arc<HttpServer>,
    stream: ClientStream,
    permit: ConnectionPermit,
    served: Arc<ServedConnection>,
    origin: ConnectionOrigin,
) {
    let mut shutdown = server.shutdown.signal();
    let http = &server.settings;
    let handover = Handover::default();
    let client = Rc::new(ClientConnection::new(&server.limits, &permit, origin));
    let requests = served.track_requests();
    let service = service_fn(|request| {
        let (server, handover) = (Arc::clone(&server), handover.clone());
        let client = Rc::clone(&client);
        let in_progress = requests.begin();
        async move {
            let client_request = ClientRequest::alone(&client);
            let response = pipeline::handle(&server.pipeline, &client_request, request).await;
            let response = handover.intercept(response).await;
            let paced = |body| {
                let body = PacedBody::new(client.charge(body), client.account(), PIECE_BYTES);
                body.of_request(in_progress)
            };
            Ok::<_, Infallible>(response.map(paced))
        }
    });
    let tracked = FlushTrackedStream { stream, handover: handover.clone() };
    let mut connection = http1::Builder::new()
        .timer(HeadTimer::default())
        .header_read_timeout(http.header_timeout)
        .max_headers(usize::from(http.max_headers))
        .max_buf_size(http.max_header_size)
        // A client that closes its side has disconnected and does not read its response.
        .half_close(false)
        .serve_connection(TokioIo::new(tracked), service);
    let mut waker = ConnectionWaker::default();
    let mut is_draining = false;
    let ended = loop {
        let signal = next_signal(&mut shutdown, &served, client.account(), is_draining);
        let signal = pin!(signal);
        let signal = WokenSignal::new(signal);
        let step = std::future::poll_fn(|context| {
            client.begin_turn();
            let mut context = Context::from_waker(waker.of(context.waker()));
            let ended = Pin::new(&mut connection).poll(&mut context);
            if handover.is_ready() { Poll::Ready(None) } else { ended.map(Some) }
        });
        tokio::select! {
            ended = step => break ended,
            signal = signal => match signal {
                ConnectionSignal::Shutdown => {
                    // Ends when the request in progress has its response.
                    Pin::new(&mut connection).graceful_shutdown();
                    is_draining = true;
                }
                ConnectionSignal::CloseIdle => {
                    tracing::debug!("an idle connection is closed, because the memory is short");
                    if !served.has_requested() {
                        // The HTTP library would wait for the end of a head.
                        return;
                    }
                    Pin::new(&mut connection).graceful_shutdown();
                    is_draining = true;
                }
                ConnectionSignal::Evicted => {
                    tracing::debug!("a connection with unread responses is closed: there are too many");
                    return;
                }
            },
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            if is_stall(&error) {
                server.metrics.count_timeout(TimeoutPhase::Stall);
            }
            tracing::debug!(%error, "a connection ended early");
        }
        None => {
            let parts = connection.into_parts();
            let stream = parts.io.into_inner().stream;
            if let Some((head, takeover)) = handover.take() {
                let Some(stream) = write_last_head(&server, stream, &head).await else { return };
                complete_takeover(takeover, stream, &parts.read_buf, permit);
            }
        }
    }
}

/// A reason to end a connection.
enum ConnectionSignal {
    /// The router shuts down.
    Shutdown,
    /// The connection is idle, and the memory is short.
    CloseIdle,
    /// The client leaves too many bytes unread.
    Evicted,
}

/// Waits for a reason to end a connection. One that is draining already ends at once only if it is evicted.
async fn next_signal(
    shutdown: &mut watch::Receiver<bool>,
    served: &ServedConnection,
    account: &ByteAccount,
    is_draining: bool,
) -> ConnectionSignal {
    tokio::select! {
        _ = shutdown.wait_for(|stop| *stop), if !is_draining => ConnectionSignal::Shutdown,
        () = served.closing(), if !is_draining => ConnectionSignal::CloseIdle,
        () = account.evicted() => ConnectionSignal::Evicted,
    }
}

/// Writes the last HTTP head of a connection. Returns the connection, unless it broke.
async fn write_last_head(
    server: &HttpServer,
    mut stream: ClientStream,
    head: &Parts,
) -> Option<ClientStream> {
    let head = handover::head_text(head, SystemTime::now());
    let written = async {
        stream.write_all(&head).await?;
        stream.flush().await
    };
    match written.await {
        Ok(()) => Some(stream),
        Err(error) => {
            if error.kind() == io::ErrorKind::TimedOut {
                server.metrics.count_timeout(TimeoutPhase::Stall);
            }
            tracing::debug!(%error, "a client disconnected before its stream began");
            None
        }
    }
}

/// Passes a connection that has left HTTP to its takeover. The HTTP library has read `early` ahead.
fn complete_takeover(
    takeover: Takeover,
    stream: ClientStream,
    early: &[u8],
    permit: ConnectionPermit,
) {
    let (socket, session, unread) = match stream.into_parts() {
        Ok(parts) => parts,
        Err(error) => {
            static LIMIT: LogLimit = LogLimit::new();
            if let Some(suppressed) = LIMIT.admit(Instant::now()) {
                tracing::error!(
                    %error,
                    suppressed,
                    "a socket cannot be taken from its runtime, and its connection is closed; please report this"
                );
            }
            return;
        }
    };
    let early = [early, &*unread].concat();
    takeover.complete(TakenOver { socket, session, early, permit });
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn no_tls_handshake_begins_with_a_client_that_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).await.expect("the listener is there");
        let (socket, _) = listener.accept().await.expect("the client is there");
        let nothing = tokio::time::timeout(Duration::from_millis(20), wait_for_input(&socket));
        assert!(nothing.await.is_err(), "the client has sent nothing");
        client.write_all(b"\x16").await.expect("the router is there");
        wait_for_input(&socket).await.expect("the client is still there");
        drop(client);
        let noticed = async {
            while wait_for_input(&socket).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let noticed = tokio::time::timeout(Duration::from_secs(10), noticed).await;
        noticed.expect("input that waits does not hide that the client has gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tls_handshake_that_could_not_end_in_time_gets_no_place() {
        let places = Semaphore::new(1);
        let began = tokio::time::Instant::now();
        let latest = began + HANDSHAKE_WAIT_MAX;
        let first = place_until(latest, &places).await.expect("a free place");
        assert!(place_until(latest, &places).await.is_none(), "no place is given back");
        assert_eq!(began.elapsed(), HANDSHAKE_WAIT_MAX);
        drop(first);
        assert!(place_until(latest, &places).await.is_some(), "the last moment");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(place_until(latest, &places).await.is_none(), "too late for a free place");
    }
}
