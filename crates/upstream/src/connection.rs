//! One connection to a server: opening it, sending one request after the other.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use execute::FetchError;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::target::Origin;

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Bytes that have come so far. Tells whether a failed request had begun to be answered.
    received: Rc<Cell<u64>>,
}

/// Why a request got no response head.
pub(crate) struct SendError {
    pub(crate) error: FetchError,
    /// Nothing of an answer has come: on a reused connection it may just have been closed by the
    /// server as idle.
    pub(crate) unanswered: bool,
    /// Not even the request has gone out.
    pub(crate) unsent: bool,
}

impl Connection {
    /// Opens a connection. Must be called on a `LocalSet`: the task that drives the connection
    /// stays on this core.
    pub(crate) async fn open(origin: &Origin, timeout: Duration) -> Result<Self, FetchError> {
        let stream = net::connect(&origin.host, origin.port, origin.tls.as_ref(), timeout)
            .await
            .map_err(|error| FetchError::Connect(error.to_string()))?;
        let received = Rc::new(Cell::new(0));
        let io = TokioIo::new(Counted { stream, received: Rc::clone(&received) });
        let (sender, connection) =
            http1::handshake(io).await.map_err(|error| FetchError::Connect(error.to_string()))?;
        tokio::task::spawn_local(async move {
            // How it ends is told to the request that is in flight, if any.
            let _ = connection.await;
        });
        Ok(Self { sender, received })
    }

    /// Waits until a request can be sent. `false`: the connection is closed.
    pub(crate) async fn is_usable(&mut self) -> bool {
        !self.sender.is_closed() && self.sender.ready().await.is_ok()
    }

    /// Is it known to be closed?
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        let before = self.received.get();
        self.sender.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message().is_some();
            SendError {
                error: describe(failed.error()),
                unanswered: self.received.get() == before,
                unsent,
            }
        })
    }
}

/// hyper's errors as ours. Their texts name no hosts.
pub(crate) fn describe(error: &hyper::Error) -> FetchError {
    if error.is_parse() {
        return FetchError::Protocol(format!("the answer is not valid HTTP ({error})"));
    }
    FetchError::Closed(if error.is_incomplete_message() {
        "unexpected end".into()
    } else {
        let cause = std::error::Error::source(error)
            .and_then(|cause| cause.downcast_ref::<io::Error>())
            .map(|cause| cause.kind().to_string());
        cause.unwrap_or_else(|| error.to_string())
    })
}

/// Counts what comes.
struct Counted {
    stream: Stream,
    received: Rc<Cell<u64>>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = (buffer.filled().len() - before) as u64;
        self.received.set(self.received.get().wrapping_add(count));
        result
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
