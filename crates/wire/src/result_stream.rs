//! The results of one operation as an HTTP response body, in whichever form the client accepts: the verbs
//! that [`Sse`] and [`Multipart`] share.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Chunks;
use crate::http1::Body;
use crate::multipart::{self, Form, Multipart};
use crate::sse::{self, EventId, Sse};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `text/event-stream`, distinct connections mode.
    EventStream,
    /// `multipart/mixed`.
    Multipart(Form),
}

impl Kind {
    /// One result, a JSON object: shared by all who get it in this form, made once and cloned. `cursor` is what the
    /// client may come again with, where the form has a place for it beside the result.
    pub fn next(self, payload: Bytes, cursor: Option<&str>) -> Chunks {
        match self {
            Kind::EventStream => sse::next_event(payload, cursor.and_then(EventId::new)),
            Kind::Multipart(form) => multipart::next_part(form, payload),
        }
    }

    /// Where the client is, without a result: the cursor, base64url text, is shared by all who get it. `None`: the form
    /// has no place for it.
    pub fn position(self, cursor: Bytes) -> Option<Chunks> {
        match self {
            Kind::EventStream => Some(sse::position(cursor)),
            Kind::Multipart(form) => multipart::position_part(form, cursor),
        }
    }
}

/// See the module.
pub enum ResultStream {
    /// Server-sent events.
    EventStream(Sse),
    /// Parts.
    Multipart(Multipart),
}

const _: () = assert!(size_of::<ResultStream>() <= 80);

macro_rules! each {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this {
            ResultStream::EventStream($stream) => $call,
            ResultStream::Multipart($stream) => $call,
        }
    };
}

impl ResultStream {
    /// Begins a response body. `heartbeat` is how long nothing may be sent before a sign of life is; `None`
    /// gives none.
    pub fn new(kind: Kind, heartbeat: Option<Duration>, now: Instant) -> ResultStream {
        match kind {
            Kind::EventStream => {
                ResultStream::EventStream(Sse::new(&sse::Config { heartbeat }, now))
            }
            Kind::Multipart(form) => ResultStream::Multipart(Multipart::new(form, heartbeat, now)),
        }
    }

    /// How results are written.
    pub fn kind(&self) -> Kind {
        match self {
            ResultStream::EventStream(_) => Kind::EventStream,
            ResultStream::Multipart(multipart) => Kind::Multipart(multipart.form()),
        }
    }

    /// Queues a result, a JSON object; see [`Kind::next`]. Dropped after the end.
    pub fn next(&mut self, payload: Bytes, cursor: Option<&str>) {
        match self {
            ResultStream::EventStream(sse) => sse.next(payload, cursor.and_then(EventId::new)),
            ResultStream::Multipart(multipart) => multipart.next(payload),
        }
    }

    /// Queues where the client is, see [`Kind::position`]. Dropped after the end.
    pub fn position(&mut self, cursor: Bytes) {
        each!(self, stream => stream.position(cursor));
    }

    /// Queues the end of an operation that could not run, or not go on. `answer` is a JSON object with
    /// `errors`.
    pub fn fail(&mut self, answer: Bytes) {
        match self {
            ResultStream::EventStream(sse) => {
                sse.next(answer, None);
                sse.complete();
            }
            ResultStream::Multipart(multipart) => multipart.fail(&answer),
        }
    }

    /// Queues the end.
    pub fn complete(&mut self) {
        each!(self, stream => stream.complete());
    }

    /// The next bytes to write.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        each!(self, stream => stream.poll_transmit(now))
    }

    /// Says that the caller wrote a result by itself, see [`Kind::next`].
    pub fn sent(&mut self, now: Instant) {
        each!(self, stream => stream.sent(now));
    }

    /// When a sign of life is due; a caller may keep its timer and call early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        each!(self, stream => stream.poll_timeout())
    }

    /// Gives a sign of life when one is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        each!(self, stream => stream.handle_timeout(now));
    }

    /// Whether the body ends once everything is written.
    pub fn is_finished(&self) -> bool {
        each!(self, stream => stream.is_finished())
    }
}

impl Body for ResultStream {
    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        ResultStream::poll_transmit(self, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        ResultStream::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        ResultStream::handle_timeout(self, now);
    }

    fn sent(&mut self, now: Instant) {
        ResultStream::sent(self, now);
    }

    fn is_finished(&self) -> bool {
        ResultStream::is_finished(self)
    }
}
