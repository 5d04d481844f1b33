//! A connection: the bytes of one exchange after the other. Dropping it closes it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use execute::FetchError;
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, SizeHint};
use net::Unread;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::framing::{Framing, Malformed, Piece};
use super::head::{ResponseHead, read_response, write_request};
use crate::counted::Counted;
use crate::retry::{Failure, Sent};
use crate::reuse::{ReuseGuard, UNSOLICITED_BYTES};
use crate::turn::Turn;

/// Room to read into when nothing is known of what comes.
const READ_BYTES_MIN: usize = 8 * 1024;

/// With less room than this nothing is read.
const ROOM_BYTES_MIN: usize = 1024;

/// Room made ahead for what was so long the last time.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// Room made ahead for what is announced: a buffer that grows under a large body is copied, and for a while there twice. A
/// server may announce what it never sends; memory that nothing is written to is promised and not taken.
const BODY_BYTES_AHEAD_MAX: usize = 16 * 1024 * 1024;

/// See the module.
pub(crate) struct Connection {
    stream: Counted,
    /// What was read and not taken yet. Empty between exchanges.
    buffer: BytesMut,
    /// The head of the request, kept for its memory.
    head: Vec<u8>,
    /// Bytes of the response before, head and body: the next one is most likely as long, and read at once.
    usual: usize,
    /// Has the response been read to its end, and may another request follow?
    is_reusable: bool,
    /// True if it has carried an exchange before the present one.
    is_reused: bool,
    /// The turn of the event loop in which the response before was read to its end.
    last_turn: Option<Turn>,
    /// Decides whether connections are reused after bytes that came while no request was open.
    reuse: Arc<ReuseGuard>,
}

/// How far sending a request is.
#[derive(Default)]
struct Sending {
    written: usize,
    is_over: bool,
    failed: Option<io::Error>,
    is_answered: bool,
}

impl Connection {
    pub(crate) fn new(stream: Counted, reuse: Arc<ReuseGuard>) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            head: Vec::new(),
            usual: 0,
            is_reusable: true,
            is_reused: false,
            last_turn: None,
            reuse,
        }
    }

    /// May it carry another request, as far as is known?
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Has an idle connection come to its end? What it says unasked ends it too. `Pending`: it is as it should be, and
    /// the task of `context` is woken when that changes.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_reusable {
            let mut bytes = [0; UNSOLICITED_BYTES];
            let mut bytes = ReadBuf::new(&mut bytes);
            // Whatever there is to read, the end or an error, it ends it.
            let _ = ready!(Pin::new(&mut self.stream).poll_read(context, &mut bytes));
            self.is_reusable = false;
            self.reuse.note_unsolicited(bytes.filled());
        }
        Poll::Ready(())
    }

    /// Sends a request and waits for the head of its response. `is_mutation`: the request cannot be sent again on
    /// another connection if this one turns out to be closed.
    pub(crate) async fn send(
        &mut self,
        target: &str,
        headers: &HeaderMap,
        body: &Bytes,
        is_mutation: bool,
    ) -> Result<Response<ResponseBody<'_>>, Failure> {
        self.is_reusable = false;
        if self.is_reused && (is_mutation || !self.was_watched()) {
            self.check_unread().await?;
        }
        self.head.clear();
        write_request(target, headers, body.len(), &mut self.head);
        let mut sending = Sending::default();
        let head = poll_fn(|context| self.poll_exchange(context, body, &mut sending)).await?;
        let ResponseHead { head, framing, keeps_alive } = head;
        // A server cannot respond to a query that it has not read, so an earlier response belongs to no request.
        // Refusals may come early.
        if self.is_reused && !sending.is_over && head.status().is_success() {
            self.reuse.pause_reuse();
            let failure = malformed("the response came before the request was complete");
            return Err(Failure { sent: Sent::Unanswered, ..failure.into() });
        }
        // Who answers before it has read everything may take the rest for another request.
        let keeps_alive = keeps_alive && sending.is_over && sending.failed.is_none();
        let body = ResponseBody { connection: self, framing, keeps_alive };
        Ok(head.map(|()| body))
    }

    /// True if the event loop has looked at its sockets since the last response was read. It has then noticed what came
    /// until then, and [`Self::poll_end`] says so without a system call.
    fn was_watched(&self) -> bool {
        self.last_turn.is_some_and(|last| Turn::now() != Some(last))
    }

    /// Checks that nothing has come since the last response: it would be matched to the next request. The event loop
    /// may not have noticed such bytes yet, so the socket itself is asked. hot path: a system call, so only for
    /// mutations, and for connections that are used twice in one turn of the event loop.
    async fn check_unread(&mut self) -> Result<(), Failure> {
        let unread = self.stream.unread();
        if unread == Unread::Nothing {
            return Ok(());
        }
        let mut bytes = [0; UNSOLICITED_BYTES];
        let mut bytes = ReadBuf::new(&mut bytes);
        let reading = poll_fn(|context| {
            match Pin::new(&mut self.stream).poll_read(context, &mut bytes) {
                // Bytes of TLS may be about the session only, and then there is nothing to wait for.
                Poll::Pending if unread != Unread::Bytes => Poll::Ready(()),
                // Otherwise the event loop will notice what is there.
                read => read.map(drop),
            }
        });
        reading.await;
        self.reuse.note_unsolicited(bytes.filled());
        Err(Failure { sent: Sent::Nothing, ..closed(None).into() })
    }

    /// Writes while there is something to write, and reads the head of the response meanwhile: a server that answers
    /// early may never read the rest.
    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        sending: &mut Sending,
    ) -> Poll<Result<ResponseHead, Failure>> {
        if !sending.is_over {
            match self.poll_send(context, body, sending) {
                Poll::Pending => {}
                Poll::Ready(result) => {
                    sending.is_over = true;
                    // It may have answered before it closed.
                    sending.failed = result.err();
                }
            }
        }
        loop {
            let read = ready!(self.poll_read(context, self.usual));
            if !matches!(read, Ok(1..)) {
                let sent = match &sending.failed {
                    _ if sending.is_answered => Sent::Answered,
                    Some(_) if sending.written == 0 => Sent::Nothing,
                    _ => Sent::Unanswered,
                };
                let cause = read.err().or(sending.failed.take());
                let failure = Failure { sent, ..closed(cause.as_ref()).into() };
                return Poll::Ready(Err(failure));
            }
            sending.is_answered = true;
            let before = self.buffer.len();
            match read_response(&mut self.buffer) {
                Ok(None) => {}
                Ok(Some(head)) => {
                    let length = before - self.buffer.len();
                    let body = head.framing.left().min(READ_BYTES_MAX as u64) as usize;
                    self.usual = length + body;
                    return Poll::Ready(Ok(head));
                }
                Err(reason) => return Poll::Ready(Err(malformed(reason).into())),
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        sending: &mut Sending,
    ) -> Poll<io::Result<()>> {
        let stream = &mut self.stream;
        while sending.written < self.head.len() + body.len() {
            let in_head = sending.written.min(self.head.len());
            let in_body = sending.written - in_head;
            let parts = [IoSlice::new(&self.head[in_head..]), IoSlice::new(&body[in_body..])];
            let parts = if in_head < self.head.len() { &parts[..] } else { &parts[1..] };
            let written = ready!(Pin::new(&mut *stream).poll_write_vectored(context, parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            sending.written += written;
        }
        Pin::new(stream).poll_flush(context)
    }

    /// Reads what has come, at best `wanted` bytes and a few more: who gets less than there was room for knows that
    /// there is nothing left to read.
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
        self.last_turn = Turn::now();
        if keeps_alive && !self.buffer.is_empty() {
            self.reuse.note_unsolicited(&self.buffer);
        }
        // The body keeps the memory.
        self.buffer = BytesMut::new();
    }
}

/// The body of a response, still to be read from its connection.
pub(crate) struct ResponseBody<'a> {
    connection: &'a mut Connection,
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
            match this.framing.take(&mut this.connection.buffer) {
                Ok(Piece::Data(data)) => {
                    if this.is_end_stream() {
                        this.connection.finish(this.keeps_alive);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(Piece::End) => {
                    this.connection.finish(this.keeps_alive);
                    return Poll::Ready(None);
                }
                Ok(Piece::Wanted) => {}
                Err(reason) => return Poll::Ready(Some(Err(malformed(reason)))),
            }
            let read = this.connection.buffer.len() as u64;
            let left = this.framing.left().saturating_sub(read);
            let wanted = left.min(BODY_BYTES_AHEAD_MAX as u64);
            match ready!(this.connection.poll_read(context, wanted as usize)) {
                Ok(0) if this.framing == Framing::UntilClose => return Poll::Ready(None),
                Ok(0) => return Poll::Ready(Some(Err(closed(None)))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(closed(Some(&error))))),
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

fn malformed(reason: Malformed) -> FetchError {
    FetchError::Protocol(format!("the answer is not valid HTTP ({reason})"))
}

/// No cause: it was closed in order, but too early.
fn closed(cause: Option<&io::Error>) -> FetchError {
    FetchError::Closed(
        cause.map_or_else(|| "unexpected end".into(), |error| error.kind().to_string()),
    )
}
