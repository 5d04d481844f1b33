//! One connection from its first byte to its last: the TLS handshake, which protocol it speaks, HTTP/1.1.
//! HTTP/2 goes on in [`super::http2`].

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::response::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::TlsServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::client_connection::{ClientConnection, ClientRequest};
use super::departure::{self, Departure, Watched};
use super::paced_body::PacedBody;
use super::patient::{Patient, is_stall};
use super::stream::{Carrier, ClientStream, Protocol};
use super::takeover::{Left, Takeover};
use super::{http2, pipeline};
use crate::connections::ConnectionPermit;
use crate::metrics::TimeoutPhase;
use crate::router::Router;

/// How long a client may take for its TLS handshake: a few round trips, some of them lost.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long, and for how many bytes, somebody is listened to who speaks another protocol: until their side is
/// closed too, but not to a stranger who goes on talking.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(1);
const HANG_UP_BYTES_MAX: u64 = 64 * 1024;

/// The size of the pieces in which a response goes to the HTTP library. Each costs a system call, so responses of usual
/// size are one piece.
const PIECE_BYTES: usize = 128 << 10;

/// A connection as it comes from a listener; it belongs to no runtime yet.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// TCP, and what to shake hands with.
    Tcp(std::net::TcpStream, Option<Arc<TlsServer>>),
    /// A Unix domain socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    /// Where its client is.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(socket, _) => socket.peer_addr().ok().map(|address| address.ip()),
            Self::Unix(_) => None,
        }
    }
}

/// Serves a connection to its end, or until it leaves HTTP.
pub(super) async fn serve(router: Arc<Router>, accepted: Accepted, permit: ConnectionPermit) {
    let mut shutdown = router.shutdown.clone();
    let begun = tokio::select! {
        begun = begin(&router, accepted) => begun,
        // Nothing has been asked yet.
        _ = shutdown.wait_for(|stop| *stop) => return,
    };
    match begun {
        Ok(Some((stream, Protocol::Http1))) => serve_http1(router, stream, permit).await,
        Ok(Some((stream, Protocol::Http2))) => http2::serve(router, stream, &permit).await,
        Ok(Some((stream, Protocol::Other))) => hang_up(stream).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a connection ended before its first request"),
    }
}

/// Ends a connection in order: were it closed while something waits to be read, the system would reset it, and the
/// client could not tell that from a network that fails.
async fn hang_up(mut stream: ClientStream) {
    tracing::debug!("a client speaks neither HTTP/1.1 nor HTTP/2");
    let rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(HANG_UP_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // Whatever goes wrong now, the connection is over.
    let _ = tokio::time::timeout(HANG_UP_TIME_MAX, rest).await;
}

/// Everything before the first request. `None`: the client has left, or takes too long.
async fn begin(
    router: &Router,
    accepted: Accepted,
) -> io::Result<Option<(ClientStream, Protocol)>> {
    let http = &router.config.http;
    let mut stream = match accepted {
        Accepted::Unix(socket) => {
            let socket = UnixStream::from_std(socket)?;
            ClientStream::new(Carrier::Unix(Patient::new(socket, http.stall_timeout)))
        }
        Accepted::Tcp(socket, tls) => {
            let socket = TcpStream::from_std(socket)?;
            // Best effort: without these a connection is slower, or its loss is noticed later.
            let _ = socket.set_nodelay(true);
            #[cfg(target_os = "linux")]
            let _ = socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(http.stall_timeout));
            let socket = Patient::new(socket, http.stall_timeout);
            match tls {
                None => ClientStream::new(Carrier::Tcp(socket)),
                Some(tls) => {
                    let handshake = tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.handshake(socket));
                    match handshake.await {
                        Ok(Ok(stream)) => ClientStream::new(Carrier::Tls(Box::new(stream))),
                        Ok(Err(error)) => {
                            router.metrics.tls_failed();
                            return Err(error);
                        }
                        Err(_) => {
                            router.metrics.timeout(TimeoutPhase::handshake);
                            return Ok(None);
                        }
                    }
                }
            }
        }
    };
    if !http.http2.enabled {
        return Ok(Some((stream, Protocol::Http1)));
    }
    match tokio::time::timeout(http.header_timeout, stream.protocol()).await {
        Ok(protocol) => Ok(protocol?.map(|protocol| (stream, protocol))),
        Err(_) => Ok(None),
    }
}

async fn serve_http1(router: Arc<Router>, stream: ClientStream, permit: ConnectionPermit) {
    let mut shutdown = router.shutdown.clone();
    let http = &router.config.http;
    let departure = Departure::default();
    let client = Rc::new(ClientConnection::new(&router, &permit));
    let service = service_fn(|request| {
        let (router, departure) = (Arc::clone(&router), departure.clone());
        let client = Rc::clone(&client);
        async move {
            let whose = ClientRequest::alone(&client);
            let answer = pipeline::handle(&router, &whose, request).await;
            let answer = departure.unless_leaving(answer).await;
            let paced = |body| PacedBody::new(client.charge(body), client.account(), PIECE_BYTES);
            Ok::<_, Infallible>(answer.map(paced))
        }
    });
    let watched = Watched { stream, departure: departure.clone() };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http.header_timeout)
        .max_headers(usize::from(http.max_headers))
        .max_buf_size(http.max_header_size)
        // A client that closes its side has gone, and nobody wants its answer any more.
        .half_close(false)
        .serve_connection(TokioIo::new(watched), service);
    let mut is_told = false;
    let ended = loop {
        let step = std::future::poll_fn(|context| {
            client.begin_turn();
            let ended = Pin::new(&mut connection).poll(context);
            if departure.is_due() { Poll::Ready(None) } else { ended.map(Some) }
        });
        tokio::select! {
            ended = step => break ended,
            _ = shutdown.wait_for(|stop| *stop), if !is_told => {
                // Ends when the request that runs has its answer.
                Pin::new(&mut connection).graceful_shutdown();
                is_told = true;
            }
            () = client.account().evicted() => {
                tracing::debug!("a connection with unread responses is closed: there are too many");
                return;
            }
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            if is_stall(&error) {
                router.metrics.timeout(TimeoutPhase::stall);
            }
            tracing::debug!(%error, "a connection ended early");
        }
        None => {
            let parts = connection.into_parts();
            let stream = parts.io.into_inner().stream;
            if let Some((head, takeover)) = departure.take() {
                let left = Left { stream, early: parts.read_buf, permit };
                leave(&router, left, &head, takeover).await;
            }
        }
    }
}

/// Writes the last head of a connection, and lets it go on as what follows it.
async fn leave(router: &Router, mut left: Left, head: &Parts, takeover: Takeover) {
    let head = departure::head_text(head, SystemTime::now());
    let written = async {
        left.stream.write_all(&head).await?;
        left.stream.flush().await
    };
    match written.await {
        Ok(()) => takeover.run(left).await,
        Err(error) => {
            if error.kind() == io::ErrorKind::TimedOut {
                router.metrics.timeout(TimeoutPhase::stall);
            }
            tracing::debug!(%error, "a client left before its stream began");
        }
    }
}
