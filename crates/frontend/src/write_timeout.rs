//! A socket whose peer must read the data that is written, if slowly. The HTTP library waits for ever for a peer that
//! stops reading; the response, its memory and the descriptor would stay as long.
//!
//! Reading is bounded elsewhere: a head by the HTTP library's timer, a body in `body`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The time for which a peer of the admin listener may read nothing at all while data waits for it.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(60);

/// A socket that fails a write if its peer reads nothing for too long.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    socket: S,
    /// The time for which the peer may read nothing at all while data waits for it.
    stall_time_max: Duration,
    /// Runs while a write waits.
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> WriteTimeout<S> {
    /// Wraps a socket. Its peer may take nothing for `stall_time_max`.
    pub fn new(socket: S, stall_time_max: Duration) -> Self {
        Self { socket, stall_time_max, stall_timer: None }
    }

    /// Returns the socket without the timeout.
    pub fn into_inner(self) -> S {
        self.socket
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = write(Pin::new(&mut self.socket), context);
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        let sleep = || Box::pin(tokio::time::sleep(self.stall_time_max));
        ready!(self.stall_timer.get_or_insert_with(sleep).as_mut().poll(context));
        let reason = "the peer has stopped reading";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |socket, context| socket.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |socket, context| socket.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// True if a connection of the HTTP library ended because its peer read nothing for too long ([`WriteTimeout`]).
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_reads_is_given_up() {
        let (ours, _theirs) = duplex(4);
        let written = WriteTimeout::new(ours, STALL_TIME_MAX).write_all(b"more than fits").await;
        assert_eq!(written.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_gets_everything() {
        let (ours, mut theirs) = duplex(1);
        let reading = async {
            let mut read = [0; 5];
            for at in 0..5 {
                tokio::time::sleep(STALL_TIME_MAX * 9 / 10).await;
                theirs.read_exact(&mut read[at..=at]).await.expect("a byte");
            }
            read
        };
        let mut patient = WriteTimeout::new(ours, STALL_TIME_MAX);
        let (written, read) = tokio::join!(patient.write_all(b"hello"), reading);
        assert_eq!((written.is_ok(), &read), (true, b"hello"));
    }
}
