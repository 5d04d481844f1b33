//! The body of a streamed HTTP/1.1 response: the rest of a connection behind a response head, on which no other
//! response follows. This module frames the body (RFC 9112, sections 6.3 and 7.1), whatever its contents.

use std::convert::Infallible;
use std::time::Instant;

use bytes::Bytes;

use crate::body::BodyMachine;
use crate::multipart::{PAYLOAD_TAIL, POSITION_TAIL, RESULT_TAIL};
use crate::sse::NEXT_SUFFIX;
use crate::{Chunks, Machine};

/// The number of bytes that a client may send behind its request before it is disconnected. The response head says
/// `connection: close`, so the router responds to none of them.
const IGNORED_BYTES_MAX: u32 = 64 << 10;

/// The last chunk, without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The way in which the client finds the end of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// `transfer-encoding: chunked`: HTTP/1.1.
    Chunked,
    /// The end of the connection is the end of the body: HTTP/1.0.
    UntilClose,
}

/// The tails of results and positions, each with the bytes that end its chunk.
const TAILS: [(&[u8], &[u8]); 5] = [
    (b"", b"\r\n"),
    (NEXT_SUFFIX, b"\n\n\r\n"),
    (RESULT_TAIL, b"\r\n--graphql\r\n"),
    (PAYLOAD_TAIL, b"}\r\n--graphql\r\n"),
    (POSITION_TAIL, b"\r\n\r\n{}\r\n--graphql\r\n"),
];

impl Framing {
    /// Appends the text before `len` bytes of body.
    pub fn append_head(self, len: usize, out: &mut Vec<u8>) {
        if self == Framing::Chunked {
            let digits = usize::BITS.div_ceil(4) - len.leading_zeros() / 4;
            for digit in (0..digits).rev() {
                out.push(b"0123456789abcdef"[len >> (4 * digit) & 15]);
            }
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns `tail` with the bytes that end its chunk, if `tail` is one of the known constants.
    pub fn tail(self, tail: &'static [u8]) -> Option<&'static [u8]> {
        match self {
            Framing::UntilClose => Some(tail),
            Framing::Chunked => {
                TAILS.iter().find(|(known, _)| *known == tail).map(|(_, framed)| *framed)
            }
        }
    }

    /// Frames one run of the body without copying its shared part.
    fn frame(self, chunks: Chunks) -> Chunks {
        let mut head = Vec::with_capacity(chunks.head.len() + 10);
        self.append_head(chunks.len(), &mut head);
        head.extend_from_slice(&chunks.head);
        match self.tail(chunks.tail) {
            Some(tail) => Chunks { head: head.into(), body: chunks.body, tail },
            None => {
                head.extend_from_slice(&chunks.body);
                head.extend_from_slice(chunks.tail);
                Chunks { head: head.into(), body: Bytes::new(), tail: b"\r\n" }
            }
        }
    }
}

/// A connection from the end of the response head to its own end.
pub struct FramedBody<B> {
    framing: Framing,
    state: BodyState,
    ignored: u32,
    /// The contents of the response, for their commands.
    pub body: B,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Open,
    /// The last chunk was returned by `poll_transmit`.
    Ended,
    /// The client has disconnected.
    Gone,
}

impl<B: BodyMachine> FramedBody<B> {
    /// Begins behind the response head.
    pub fn new(framing: Framing, body: B) -> Self {
        Self { framing, state: BodyState::Open, ignored: 0, body }
    }

    /// Returns the framing of the body.
    pub fn framing(&self) -> Framing {
        self.framing
    }
}

impl<B: BodyMachine> Machine for FramedBody<B> {
    /// There are no events: input of the client has no meaning here.
    type Event = Infallible;

    fn receive(&mut self, _: Instant, bytes: &[u8]) {
        self.ignored = self.ignored.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        if self.ignored > IGNORED_BYTES_MAX {
            self.state = BodyState::Gone;
        }
    }

    fn receive_eof(&mut self, _: Instant) {
        self.state = BodyState::Gone;
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Chunks> {
        if self.state != BodyState::Open {
            return None;
        }
        if let Some(chunks) = self.body.poll_transmit(now) {
            return Some(self.framing.frame(chunks));
        }
        if !self.body.is_finished() {
            return None;
        }
        self.state = BodyState::Ended;
        match self.framing {
            Framing::Chunked => Some(Chunks::whole(LAST_CHUNK)),
            Framing::UntilClose => None,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            BodyState::Open => self.body.poll_timeout(),
            BodyState::Ended | BodyState::Gone => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.body.handle_timeout(now);
    }

    fn is_open(&self) -> bool {
        self.state == BodyState::Open && !self.body.is_finished()
    }

    fn is_closed(&self) -> bool {
        self.state != BodyState::Open
    }

    fn sent(&mut self, now: Instant) {
        self.body.sent(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::multipart::MultipartForm;
    use crate::result_stream::StreamFormat;
    use crate::sse::{self, Sse};

    fn all(machine: &mut FramedBody<Sse>, now: Instant) -> String {
        let mut out = Vec::new();
        while let Some(chunks) = machine.poll_transmit(now) {
            chunks.append_to(&mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn events_are_chunks_and_the_last_chunk_ends_the_body() {
        let now = Instant::now();
        let sse = Sse::new(&sse::SseConfig::default(), now);
        let mut machine = FramedBody::new(Framing::Chunked, sse);
        assert_eq!(all(&mut machine, now), "3\r\n:\n\n\r\n");
        machine.body.next(r#"{"data":{"a":1}}"#.into(), None);
        let event = "event: next\ndata: {\"data\":{\"a\":1}}\n\n";
        assert_eq!(event.len(), 0x24);
        assert_eq!(all(&mut machine, now), format!("24\r\n{event}\r\n"));
        assert!(machine.is_open() && !machine.is_closed());
        machine.body.complete();
        assert!(!machine.is_open() && !machine.is_closed());
        let end = "17\r\nevent: complete\ndata:\n\n\r\n0\r\n\r\n";
        assert_eq!(all(&mut machine, now), end);
        assert!(machine.is_closed() && machine.poll_timeout().is_none());
    }

    #[test]
    fn without_chunks_the_end_of_the_connection_ends_the_body() {
        let now = Instant::now();
        let sse = Sse::new(&sse::SseConfig::default(), now);
        let mut machine = FramedBody::new(Framing::UntilClose, sse);
        machine.body.complete();
        assert_eq!(all(&mut machine, now), ":\n\nevent: complete\ndata:\n\n");
        assert!(machine.is_closed());
    }

    #[test]
    fn heartbeats_come_when_nothing_else_was_sent_also_beside_the_machine() {
        let now = Instant::now();
        let sse = Sse::new(&sse::SseConfig { heartbeat: Some(Duration::from_secs(10)) }, now);
        let mut machine = FramedBody::new(Framing::Chunked, sse);
        all(&mut machine, now);
        let later = now + Duration::from_secs(7);
        machine.sent(later);
        machine.handle_timeout(now + Duration::from_secs(10));
        assert_eq!(all(&mut machine, later), "");
        assert_eq!(machine.poll_timeout(), Some(later + Duration::from_secs(10)));
        machine.handle_timeout(later + Duration::from_secs(10));
        assert_eq!(all(&mut machine, later), "3\r\n:\n\n\r\n");
    }

    #[test]
    fn input_of_the_client_is_ignored_up_to_a_bound() {
        let now = Instant::now();
        let sse = Sse::new(&sse::SseConfig::default(), now);
        let mut machine = FramedBody::new(Framing::Chunked, sse);
        machine.receive(now, b"GET / HTTP/1.1\r\n\r\n");
        assert!(machine.is_open());
        machine.receive(now, &[b'x'; IGNORED_BYTES_MAX as usize]);
        assert!(machine.is_closed());
    }

    #[test]
    fn results_of_every_format_are_framed_without_copying() {
        for (tail, framed) in TAILS {
            assert_eq!([tail, b"\r\n"].concat(), framed);
        }
        let forms =
            [MultipartForm::Subscription, MultipartForm::Incremental].map(StreamFormat::Multipart);
        for kind in [StreamFormat::EventStream].iter().chain(&forms) {
            let result = kind.next(r#"{"data":null}"#.into(), None);
            assert!(Framing::Chunked.tail(result.tail).is_some(), "{kind:?}");
            let position = kind.position("c".into());
            let is_framed = |it: Chunks| Framing::Chunked.tail(it.tail).is_some();
            assert!(position.is_none_or(is_framed), "{kind:?}");
        }
    }

    #[test]
    fn lengths_are_hexadecimal_without_leading_zeros() {
        for len in [0, 1, 9, 10, 15, 16, 255, 256, 4096, 0xabcde, usize::MAX] {
            let mut head = Vec::new();
            Framing::Chunked.append_head(len, &mut head);
            let digits = if len == 0 { String::new() } else { format!("{len:x}") };
            assert_eq!(String::from_utf8(head).unwrap(), format!("{digits}\r\n"));
        }
    }
}
