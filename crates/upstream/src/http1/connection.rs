//! An HTTP/1.1 connection: moves the bytes of one exchange after the other. Dropping it closes it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use execute::{FetchError, FormAborted};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, SizeHint};
use net::Unread;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::chunks::ChunkWriter;
use super::framing::{BodyPiece, Framing, Malformed};
use super::head::{ResponseHead, read_response, write_request};
use crate::byte_counter::CountedStream;
use crate::event_loop_turn::EventLoopTurn;
use crate::request_body::{RequestBody, WholeBody};
use crate::retry::{FailedAttempt, SentState};
use crate::reuse::{ReuseGuard, UNSOLICITED_BYTES};

/// Minimum capacity for reading when the size of the response is unknown.
const READ_BYTES_MIN: usize = 8 * 1024;

/// With less spare capacity than this, more is reserved before reading.
const ROOM_BYTES_MIN: usize = 1024;

/// Maximum capacity that is reserved because the last response was that long.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// Maximum capacity that is reserved for an announced body: a growing buffer is copied, and exists
/// twice meanwhile. A server may announce bytes that it never sends, but memory that is never
/// written to is only reserved, not used.
const BODY_BYTES_AHEAD_MAX: usize = 16 * 1024 * 1024;

/// An HTTP/1.1 connection. Dropping it closes it.
pub(crate) struct Http1Connection {
    stream: CountedStream,
    /// Bytes that were read and not consumed yet. Empty between exchanges.
    buffer: BytesMut,
    /// The head of the request, kept so that its memory is reused.
    head: Vec<u8>,
    /// Size of the last response, head and body: the next one is most likely as long, and read at
    /// once.
    last_response_bytes: usize,
    /// True if the response has been read to its end, and another request may follow.
    is_reusable: bool,
    /// True if the connection has carried an exchange before the current one.
    is_reused: bool,
    /// The turn of the event loop in which the last response was read to its end.
    last_turn: Option<EventLoopTurn>,
    /// Decides whether connections are reused after bytes that came while no request was open.
    reuse: Arc<ReuseGuard>,
}

/// The progress of sending a request.
#[derive(Default)]
struct Sending {
    written: usize,
    /// The part of a chunked body that is being written.
    chunks: ChunkWriter,
    is_done: bool,
    failed: Option<io::Error>,
    has_response: bool,
}

impl Http1Connection {
    pub(crate) fn new(stream: CountedStream, reuse: Arc<ReuseGuard>) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            head: Vec::new(),
            last_response_bytes: 0,
            is_reusable: true,
            is_reused: false,
            last_turn: None,
            reuse,
        }
    }

    /// True if the connection may carry another request, as far as is known.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Completes when an idle connection has ended. Unsolicited bytes end it too. While it is
    /// pending the connection is usable, and the task of `context` is woken when that changes.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_reusable {
            let mut bytes = [0; UNSOLICITED_BYTES];
            let mut bytes = ReadBuf::new(&mut bytes);
            // Any result, data or end or error, ends the connection.
            let _ = ready!(Pin::new(&mut self.stream).poll_read(context, &mut bytes));
            self.is_reusable = false;
            self.reuse.note_unsolicited(bytes.filled());
        }
        Poll::Ready(())
    }

    /// Sends a request and waits for the head of its response. `is_mutation` means that the request
    /// cannot be sent again on another connection if this one turns out to be closed.
    pub(crate) async fn send(
        &mut self,
        target: &str,
        headers: &HeaderMap,
        body: &RequestBody,
        is_mutation: bool,
    ) -> Result<Response<ResponseBody<'_>>, FailedAttempt> {
        self.is_reusable = false;
        if self.is_reused && (is_mutation || !self.was_watched()) {
            self.check_unread().await?;
        }
        self.head.clear();
        let length = match body {
            RequestBody::Whole(body) => Some(body.len()),
            RequestBody::Streamed(_) => None,
        };
        write_request(target, headers, length, &mut self.head);
        let mut sending = Sending::default();
        let head = poll_fn(|context| self.poll_exchange(context, body, &mut sending)).await?;
        let ResponseHead { head, framing, keeps_alive } = head;
        // A server cannot respond to a query that it has not read, so an earlier response belongs
        // to no request. Refusals may come early.
        if self.is_reused && !sending.is_done && head.status().is_success() {
            self.reuse.pause_reuse();
            let failure = malformed_error("the response came before the request was complete");
            return Err(FailedAttempt { sent: SentState::NoResponse, ..failure.into() });
        }
        // A server that responds before it has read the whole request may take the rest for another
        // request.
        let keeps_alive = keeps_alive && sending.is_done && sending.failed.is_none();
        let body = ResponseBody { connection: self, framing, keeps_alive };
        Ok(head.map(|()| body))
    }

    /// True if the event loop has checked its sockets since the last response was read. It has then
    /// noticed all bytes that came until then, and [`Self::poll_end`] reports them without a system
    /// call.
    fn was_watched(&self) -> bool {
        self.last_turn.is_some_and(|last| EventLoopTurn::now() != Some(last))
    }

    /// Checks that nothing was received since the last response, because it would be matched to the
    /// next request. The event loop may not have noticed such bytes yet, so the socket itself is
    /// asked. hot path: a system call, so only for mutations, and for connections that are used
    /// twice in one turn of the event loop.
    async fn check_unread(&mut self) -> Result<(), FailedAttempt> {
        let unread = self.stream.unread();
        if unread == Unread::Nothing {
            return Ok(());
        }
        let mut bytes = [0; UNSOLICITED_BYTES];
        let mut bytes = ReadBuf::new(&mut bytes);
        let reading = poll_fn(|context| {
            match Pin::new(&mut self.stream).poll_read(context, &mut bytes) {
                // Bytes of TLS may concern the session only, and then there is nothing to wait for.
                Poll::Pending if unread != Unread::Bytes => Poll::Ready(()),
                // Otherwise the event loop will notice the data.
                read => read.map(drop),
            }
        });
        reading.await;
        self.reuse.note_unsolicited(bytes.filled());
        Err(FailedAttempt { sent: SentState::NotSent, ..closed_error(None).into() })
    }

    /// Writes the request, and reads the head of the response meanwhile: a server that responds
    /// early may never read the rest.
    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        body: &RequestBody,
        sending: &mut Sending,
    ) -> Poll<Result<ResponseHead, FailedAttempt>> {
        if !sending.is_done {
            match self.poll_send(context, body, sending) {
                Poll::Pending => {}
                // The rest of the body will not come, so a response would not be about this request.
                Poll::Ready(Err(error)) if is_abort(&error) => {
                    let failure = FetchError::Closed(error.to_string());
                    return Poll::Ready(Err(failure.into()));
                }
                Poll::Ready(result) => {
                    sending.is_done = true;
                    // The server may have responded before it closed the connection.
                    sending.failed = result.err();
                }
            }
        }
        loop {
            let read = ready!(self.poll_read(context, self.last_response_bytes));
            if !matches!(read, Ok(1..)) {
                let sent = match &sending.failed {
                    _ if sending.has_response => SentState::ResponseBegun,
                    Some(_) if sending.written == 0 => SentState::NotSent,
                    _ => SentState::NoResponse,
                };
                let cause = read.err().or(sending.failed.take());
                let failure = FailedAttempt { sent, ..closed_error(cause.as_ref()).into() };
                return Poll::Ready(Err(failure));
            }
            sending.has_response = true;
            let before = self.buffer.len();
            match read_response(&mut self.buffer) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    let length = before - self.buffer.len();
                    let body = head.framing.left().min(READ_BYTES_MAX as u64) as usize;
                    self.last_response_bytes = length + body;
                    return Poll::Ready(Ok(head));
                }
                Err(reason) => return Poll::Ready(Err(malformed_error(reason).into())),
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        body: &RequestBody,
        sending: &mut Sending,
    ) -> Poll<io::Result<()>> {
        match body {
            RequestBody::Whole(body) => {
                ready!(self.poll_write(context, body, &mut sending.written))?;
            }
            RequestBody::Streamed(form) => {
                ready!(self.poll_write(context, &WholeBody::default(), &mut sending.written))?;
                let chunks = &mut sending.chunks;
                while ready!(chunks.poll_write(context, &mut self.stream, &mut sending.written))? {
                    let piece = form.poll_piece(context);
                    if piece.is_pending() {
                        // The subgraph gets the bytes so far.
                        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                    }
                    let piece = ready!(piece);
                    chunks.set(piece.map_err(io::Error::other)?);
                }
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Writes the head and a body, of which `written` bytes have been written.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        body: &WholeBody,
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        let stream = &mut self.stream;
        while *written < self.head.len() + body.len() {
            let in_head = (*written).min(self.head.len());
            let in_body = *written - in_head;
            let parts = [IoSlice::new(&self.head[in_head..]), IoSlice::new(body.piece_at(in_body))];
            let parts = if in_head < self.head.len() { &parts[..] } else { &parts[1..] };
            let count = ready!(Pin::new(&mut *stream).poll_write_vectored(context, parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += count;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what has arrived, ideally `wanted` bytes and a few more: a read that does not fill the
    /// buffer shows that there is nothing left to read.
    fn poll_read(&mut self, context: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        let room = self.buffer.capacity() - self.buffer.len();
        if room < wanted.clamp(ROOM_BYTES_MIN, READ_BYTES_MAX) {
            let spare = (wanted / 8).min(READ_BYTES_MIN) + 1;
            let more = wanted.saturating_add(spare);
            self.buffer.reserve(more.clamp(READ_BYTES_MIN, BODY_BYTES_AHEAD_MAX));
        }
        pin!(self.stream.read_buf(&mut self.buffer)).poll(context)
    }

    fn finish(&mut self, keeps_alive: bool) {
        self.is_reusable = keeps_alive && self.buffer.is_empty();
        self.is_reused = true;
        self.last_turn = EventLoopTurn::now();
        if keeps_alive && !self.buffer.is_empty() {
            self.reuse.note_unsolicited(&self.buffer);
        }
        // The body keeps the memory.
        self.buffer = BytesMut::new();
    }
}

/// The body of a response, still to be read from its connection.
pub(crate) struct ResponseBody<'a> {
    connection: &'a mut Http1Connection,
    framing: Framing,
    keeps_alive: bool,
}

impl Body for ResponseBody<'_> {
    type Data = Bytes;
    type Error = FetchError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        let this = self.get_mut();
        loop {
            match this.framing.take_piece(&mut this.connection.buffer) {
                Ok(BodyPiece::Data(data)) => {
                    if this.is_end_stream() {
                        this.connection.finish(this.keeps_alive);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(BodyPiece::End) => {
                    this.connection.finish(this.keeps_alive);
                    return Poll::Ready(None);
                }
                Ok(BodyPiece::Incomplete) => {}
                Err(reason) => return Poll::Ready(Some(Err(malformed_error(reason)))),
            }
            let read = this.connection.buffer.len() as u64;
            let left = this.framing.left().saturating_sub(read);
            let wanted = left.min(BODY_BYTES_AHEAD_MAX as u64);
            match ready!(this.connection.poll_read(context, wanted as usize)) {
                Ok(0) if this.framing == Framing::UntilClose => return Poll::Ready(None),
                Ok(0) => return Poll::Ready(Some(Err(closed_error(None)))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(closed_error(Some(&error))))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.framing == Framing::Length(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}

/// True for the error of a body that ends too early.
fn is_abort(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<FormAborted>())
}

fn malformed_error(reason: Malformed) -> FetchError {
    FetchError::Protocol(format!("the response is not valid HTTP ({reason})"))
}

/// Without a cause the connection was closed in order, but too early.
fn closed_error(cause: Option<&io::Error>) -> FetchError {
    FetchError::Closed(
        cause.map_or_else(|| "unexpected end".into(), |error| error.kind().to_string()),
    )
}
