//! A byte stream that counts the bytes, and holds the permit of an open connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use net::{Stream, Unread};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::UpstreamStats;
use crate::stats::OwnedGauge;

/// A byte stream that counts the bytes, and holds the permit of an open connection.
pub(crate) struct CountedStream {
    stream: Stream,
    stats: Arc<UpstreamStats>,
    _open: OwnedGauge,
    /// Returned when the socket closes, and not earlier.
    _permit: OwnedSemaphorePermit,
}

impl CountedStream {
    pub(crate) fn new(
        stream: Stream,
        stats: &Arc<UpstreamStats>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            stream,
            stats: Arc::clone(stats),
            _open: OwnedGauge::up(stats, |it| &it.connections),
            _permit: permit,
        }
    }

    /// The state of the receive buffer. See [`Stream::unread`].
    pub(crate) fn unread(&self) -> Unread {
        self.stream.unread()
    }

    fn sent(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &result {
            self.stats.bytes_sent.fetch_add(*count as u64, Ordering::Relaxed);
        }
        result
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = (buffer.filled().len() - before) as u64;
        if count > 0 {
            self.stats.bytes_received.fetch_add(count, Ordering::Relaxed);
        }
        result
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(result)
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
