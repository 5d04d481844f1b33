//! Accepting connections and serving HTTP/1.1 on them.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use execute::{ErrorCode, GraphqlError};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::media::AnswerType;
use super::patient::{Patient, STALL_TIME_MAX};
use super::pipeline;
use crate::router::Router;

/// How long a client may take to send a request's head; also how long an idle connection is kept.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);

/// A request's head may have this many headers.
const HEADERS_MAX: usize = 128;

/// A request's head, and each read of a body, may have this many bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long to wait when the process or system has no descriptor left: accepting at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often, at most, a failing `accept` is told: it fails twenty times a second then.
const ACCEPT_WARNINGS_APART: Duration = Duration::from_secs(10);

/// How many connections may wait for being accepted; the system cuts it to `somaxconn`.
const BACKLOG: u32 = 4_096;

/// Binds `address`.
///
/// # Errors
/// As the system says: taken, not ours, not allowed.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    if address.is_ipv6() {
        // Whether `[::]` takes IPv4 too is a setting of the system; ours says what it says everywhere.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    Ok(socket.into())
}

/// Accepts until shutdown and places each connection on the least loaded core.
pub(crate) async fn accept(router: Arc<Router>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener could not be watched");
            return;
        }
    };
    let mut shutdown = router.shutdown.clone();
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((socket, _)) => place(&router, socket),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                router.metrics.accept_failures.fetch_add(1, Ordering::Relaxed);
                if warned.is_none_or(|before| before.elapsed() >= ACCEPT_WARNINGS_APART) {
                    warned = Some(Instant::now());
                    tracing::warn!(%error, "connections cannot be accepted; trying again and again");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Errors that `accept` passes on from the connection and that say nothing of the listener (accept(2)).
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn place(router: &Arc<Router>, socket: TcpStream) {
    let Some(permit) = router.connections.enter() else {
        turn_away(socket);
        return;
    };
    let Ok(socket) = socket.into_std() else { return };
    let serving = Arc::clone(router);
    router.cores.run(Box::new(move || {
        Box::pin(async move {
            let _permit = permit;
            if let Ok(socket) = TcpStream::from_std(socket) {
                // Best effort: without these a connection is slower, or its loss is noticed later.
                let _ = socket.set_nodelay(true);
                let _ = SockRef::from(&socket).set_tcp_user_timeout(Some(STALL_TIME_MAX));
                serve(serving, socket).await;
            }
        })
    }));
}

/// For connections over `max_connections`: the one answer for whatever they would have asked.
///
/// Written without waiting, for a client that does not take it must not cost more than one that was let in.
fn turn_away(socket: TcpStream) {
    let error = GraphqlError::new(
        ErrorCode::Overloaded,
        "the router has as many connections as it may have (`subscriptions.max_connections`); try \
         again later",
    );
    let body = execute::request_error(&[error]).bytes;
    let mut answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        AnswerType::Json.content_type(),
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    if let Ok(mut socket) = socket.into_std() {
        // The buffer of a fresh socket has room for it; if not, nobody is told.
        let _ = socket.write_all(&answer);
        let _ = socket.shutdown(Shutdown::Write);
    }
}

async fn serve(router: Arc<Router>, socket: TcpStream) {
    let mut shutdown = router.shutdown.clone();
    let service = service_fn(|request| {
        let router = Arc::clone(&router);
        async move { Ok::<_, std::convert::Infallible>(pipeline::handle(&router, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // A client that closes its side has gone, and nobody wants its answer any more.
        .half_close(false)
        .serve_connection(TokioIo::new(Patient::new(socket)), service)
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
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_all_interfaces_can_have_the_same_port() {
        let v4 = bind(([0, 0, 0, 0], 0).into()).expect("a free port");
        let port = v4.local_addr().expect("bound").port();
        let v6 = std::net::Ipv6Addr::UNSPECIFIED;
        match bind((v6, port).into()) {
            Ok(_) => {}
            // A machine without IPv6 cannot show it.
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    }
}
