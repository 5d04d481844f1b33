//! Writes a chunked body (RFC 9112, section 7.1), a chunk for each piece.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

/// The chunk that is being written.
#[derive(Default)]
pub(super) struct ChunkWriter {
    /// The end of the last chunk, and the size of this one.
    head: Vec<u8>,
    piece: Bytes,
    /// The bytes of both that have been written.
    written: usize,
    has_begun: bool,
    is_last: bool,
}

impl ChunkWriter {
    /// Sets the next piece, or the end of the body. The last piece must have been written.
    pub(super) fn set(&mut self, piece: Option<Bytes>) {
        // A chunk without bytes would end the body.
        if piece.as_ref().is_some_and(Bytes::is_empty) {
            return;
        }
        self.head.clear();
        if self.has_begun {
            self.head.extend_from_slice(b"\r\n");
        }
        match &piece {
            // Writing to a `Vec` cannot fail.
            Some(piece) => drop(write!(self.head, "{:x}\r\n", piece.len())),
            None => self.head.extend_from_slice(b"0\r\n\r\n"),
        }
        self.is_last = piece.is_none();
        self.piece = piece.unwrap_or_default();
        self.written = 0;
        self.has_begun = true;
    }

    /// Writes the piece, and adds the number of written bytes to `total`. True if another piece is needed.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut S,
        total: &mut usize,
    ) -> Poll<io::Result<bool>> {
        while self.written < self.head.len() + self.piece.len() {
            let in_head = self.written.min(self.head.len());
            let parts = [
                IoSlice::new(&self.head[in_head..]),
                IoSlice::new(&self.piece[self.written - in_head..]),
            ];
            let parts = if in_head < self.head.len() { &parts[..] } else { &parts[1..] };
            let count = ready!(Pin::new(&mut *stream).poll_write_vectored(context, parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            *total += count;
        }
        // The memory of the piece counts until it is released.
        self.piece = Bytes::new();
        self.head.clear();
        self.written = 0;
        Poll::Ready(Ok(!self.is_last))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn each_piece_is_a_chunk() {
        let mut chunks = ChunkWriter::default();
        let (mut out, mut total) = (Vec::new(), 0);
        for piece in [Some("hello"), Some(""), Some("0123456789abcdef"), None] {
            chunks.set(piece.map(|it| Bytes::from_static(it.as_bytes())));
            let more = poll_fn(|context| chunks.poll_write(context, &mut out, &mut total)).await;
            assert_eq!(more.unwrap(), piece.is_some());
        }
        assert_eq!(out, b"5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
        assert_eq!(total, out.len());
    }
}
