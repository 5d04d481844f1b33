//! One connection from its first byte to its last: the TLS handshake, which protocol it speaks, HTTP/1.1.
//! HTTP/2 goes on in [`super::http2`].

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::TlsServer;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

use super::patient::Patient;
use super::stream::{Carrier, ClientStream, Protocol};
use super::{http2, pipeline};
use crate::metrics::TimeoutPhase;
use crate::router::Router;

/// How long a client may take for its TLS handshake: a few round trips, some of them lost.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// A connection as it comes from a listener; it belongs to no runtime yet.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// TCP, and what to shake hands with.
    Tcp(std::net::TcpStream, Option<Arc<TlsServer>>),
    /// A Unix domain socket.
    Unix(std::os::unix::net::UnixStream),
}

/// Serves a connection to its end.
pub(super) async fn serve(router: Arc<Router>, accepted: Accepted) {
    let mut shutdown = router.shutdown.clone();
    let begun = tokio::select! {
        begun = begin(&router, accepted) => begun,
        // Nothing has been asked yet.
        _ = shutdown.wait_for(|stop| *stop) => return,
    };
    match begun {
        Ok(Some((stream, Protocol::Http1))) => serve_http1(router, stream).await,
        Ok(Some((stream, Protocol::Http2))) => http2::serve(router, stream).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a connection ended before its first request"),
    }
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
            let _ = SockRef::from(&socket).set_tcp_user_timeout(Some(http.stall_timeout));
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

async fn serve_http1(router: Arc<Router>, stream: ClientStream) {
    let mut shutdown = router.shutdown.clone();
    let http = &router.config.http;
    let service = service_fn(|request| {
        let router = Arc::clone(&router);
        async move { Ok::<_, Infallible>(pipeline::handle(&router, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http.header_timeout)
        .max_headers(usize::from(http.max_headers))
        .max_buf_size(http.max_header_size)
        // A client that closes its side has gone, and nobody wants its answer any more.
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = shutdown.wait_for(|stop| *stop) => {
            // Ends when the request that runs has its answer.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        if is_stall(&error) {
            router.metrics.timeout(TimeoutPhase::stall);
        }
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Did the client take nothing for too long ([`Patient`])?
pub(super) fn is_stall(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::TimedOut;
        }
        source = error.source();
    }
    false
}
