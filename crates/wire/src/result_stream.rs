//! The results of one operation as an HTTP response body, in the format that the client accepts. A new format is a
//! variant of [`StreamFormat`] and [`ResultStream`].

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Chunks;
use crate::body::{BodyMachine, BodyQueue};
use crate::multipart::{self, Multipart, MultipartForm};
use crate::sse::{self, EventId, Sse};

/// The format in which results are streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// `text/event-stream`, distinct connections mode.
    EventStream,
    /// `multipart/mixed`.
    Multipart(MultipartForm),
}

impl StreamFormat {
    /// Returns one result, a JSON object, in this format. A broadcast makes it once; its clones share it. `cursor` is
    /// the position at which the client may resume. It is included if the format has room for it beside a result.
    pub fn next(self, payload: Bytes, cursor: Option<&str>) -> Chunks {
        match self {
            StreamFormat::EventStream => sse::next_event(payload, cursor.and_then(EventId::new)),
            StreamFormat::Multipart(form) => multipart::next_part(form, payload),
        }
    }

    /// Returns the client's position without a result. The cursor, base64url text, is shared by all recipients. `None`
    /// if the format has no room for it.
    pub fn position(self, cursor: Bytes) -> Option<Chunks> {
        match self {
            StreamFormat::EventStream => Some(sse::position(cursor)),
            StreamFormat::Multipart(form) => multipart::position_part(form, cursor),
        }
    }
}

/// A response body of results, in either format.
pub enum ResultStream {
    /// Server-sent events.
    EventStream(Sse),
    /// `multipart/mixed`.
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
    /// Begins a response body. `heartbeat` is the idle time after which a heartbeat is sent; `None` sends none.
    pub fn new(kind: StreamFormat, heartbeat: Option<Duration>, now: Instant) -> ResultStream {
        match kind {
            StreamFormat::EventStream => {
                ResultStream::EventStream(Sse::new(&sse::SseConfig { heartbeat }, now))
            }
            StreamFormat::Multipart(form) => {
                ResultStream::Multipart(Multipart::new(form, heartbeat, now))
            }
        }
    }

    /// Returns the format in which results are streamed.
    pub fn format(&self) -> StreamFormat {
        match self {
            ResultStream::EventStream(_) => StreamFormat::EventStream,
            ResultStream::Multipart(multipart) => StreamFormat::Multipart(multipart.form()),
        }
    }

    /// Queues a result, a JSON object; see [`StreamFormat::next`]. Dropped after the end.
    pub fn next(&mut self, payload: Bytes, cursor: Option<&str>) {
        match self {
            ResultStream::EventStream(sse) => sse.next(payload, cursor.and_then(EventId::new)),
            ResultStream::Multipart(multipart) => multipart.next(payload),
        }
    }

    /// Queues the client's position, see [`StreamFormat::position`]. Dropped after the end.
    pub fn position(&mut self, cursor: Bytes) {
        each!(self, stream => stream.position(cursor));
    }

    /// Queues the end of an operation that failed. `response` is a JSON object with `errors`.
    pub fn fail(&mut self, response: Bytes) {
        match self {
            ResultStream::EventStream(sse) => {
                sse.next(response, None);
                sse.complete();
            }
            ResultStream::Multipart(multipart) => multipart.fail(&response),
        }
    }

    /// Queues the end.
    pub fn complete(&mut self) {
        each!(self, stream => stream.complete());
    }
}

impl BodyMachine for ResultStream {
    fn queue(&self) -> &BodyQueue {
        each!(self, stream => stream.queue())
    }

    fn queue_mut(&mut self) -> &mut BodyQueue {
        each!(self, stream => stream.queue_mut())
    }

    fn heartbeat(&self) -> Chunks {
        each!(self, stream => stream.heartbeat())
    }
}
