//! A connection between the listener that accepts it and the worker that serves it: it is counted, looked at, and
//! assigned to a worker or rejected. `listener` and `connection_storm` have the pace.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use clients::connections::{ConnectionPermit, ConnectionRefused};
use clients::request_source::ConnectionOrigin;
use execute::GraphqlError;
use tokio::sync::OwnedSemaphorePermit;

use super::connection::{self, AcceptedSocket};
use super::http_server::HttpServer;
use super::media::ResponseFormat;
use super::parked_handshakes::{FirstBytes, has_gone};

/// The time for which a connection waits until workers serve those before. After it the worker that has them stands
/// still, and others may serve.
pub(super) const PLACE_WAIT_MAX: Duration = Duration::from_millis(100);

/// The bytes of a refused request that are read at most.
const REJECTED_BYTES: usize = 4096;

/// The status of most refusals.
const UNAVAILABLE: &str = "503 Service Unavailable";

/// A connection that the listener has accepted and that no worker serves yet.
#[derive(Debug)]
pub(super) struct NewConnection {
    accepted: AcceptedSocket,
    origin: ConnectionOrigin,
    permit: ConnectionPermit,
}

/// A place among the connections that wait for their workers; `None` if a connection needs none.
pub(super) type Place = Option<OwnedSemaphorePermit>;

/// Counts a connection, unless it is refused.
pub(super) fn enter(
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

impl NewConnection {
    /// Returns the kind of the first bytes. They are not looked at behind TLS and at Unix domain sockets.
    pub(super) fn first_bytes(&self) -> FirstBytes {
        match &self.accepted {
            AcceptedSocket::Tcp(socket, None) => FirstBytes::of(socket),
            AcceptedSocket::Tcp(_, Some(_)) | AcceptedSocket::Unix(_) => FirstBytes::Undecided,
        }
    }

    /// True if the client has closed the connection. Only parked connections are looked at.
    pub(super) fn has_gone(&self) -> bool {
        match &self.accepted {
            AcceptedSocket::Tcp(socket, None) => has_gone(socket),
            AcceptedSocket::Tcp(_, Some(_)) | AcceptedSocket::Unix(_) => false,
        }
    }

    /// Waits until bytes have arrived, or the connection has ended.
    pub(super) async fn wait_for_first_bytes(self) -> std::io::Result<Self> {
        let AcceptedSocket::Tcp(socket, None) = self.accepted else { return Ok(self) };
        let socket = tokio::net::TcpStream::from_std(socket)?;
        socket.readable().await?;
        Ok(Self { accepted: AcceptedSocket::Tcp(socket.into_std()?, None), ..self })
    }
}

/// Has a connection served. False if it was refused, because there is no memory for it.
pub(super) fn assign_to_worker(server: &Arc<HttpServer>, new: NewConnection, place: Place) -> bool {
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

/// Responds to a connection over a limit, whatever its request would have been.
pub(super) fn reject(accepted: AcceptedSocket, no_room: ConnectionRefused) {
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
pub(super) fn reject_handshake(server: &HttpServer, new: NewConnection) {
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
