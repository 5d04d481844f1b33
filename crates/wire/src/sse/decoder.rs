//! The client's side: an incremental reader of event streams (HTML living standard, section 9.2.6).

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::lazy_state::pop_or_release;

/// Bounds on the memory that a server may make the client hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderConfig {
    /// The maximum size of an event in bytes, all its lines together.
    pub event_bytes_max: usize,
}

impl Default for DecoderConfig {
    /// 64 MiB: the default limit of a response from a subgraph.
    fn default() -> DecoderConfig {
        DecoderConfig { event_bytes_max: 64 * 1024 * 1024 }
    }
}

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty when there was none.
    pub kind: String,
    /// The `data` fields, joined by line feeds, as received: not checked to be UTF-8.
    pub data: Bytes,
    /// The most recent `id` of the stream. Events with the same id share it.
    pub last_id: Option<Arc<str>>,
}

/// The meaning of an event in GraphQL over SSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseMessage {
    /// A result of the operation.
    Next(Bytes),
    /// The operation has ended.
    Complete,
}

impl SseEvent {
    /// Returns the meaning of the event; `None` for events of other kinds, which must be ignored.
    pub fn message(self) -> Option<SseMessage> {
        match &*self.kind {
            "next" => Some(SseMessage::Next(self.data)),
            "complete" => Some(SseMessage::Complete),
            _ => None,
        }
    }
}

/// The reason that a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An event, or a line that is not complete, is over the limit.
    #[error("an event of the stream is larger than the limit of {limit} bytes")]
    EventTooBig {
        /// The limit in bytes.
        limit: usize,
    },
}

/// A reader that takes an event stream in pieces of any size.
///
/// Unlike a browser it also returns events that have a name and no data, because servers send `complete` like that.
/// `retry` fields and comments are skipped.
pub struct Decoder {
    config: DecoderConfig,
    /// The part of the current line that earlier pieces contained.
    line: Vec<u8>,
    kind: String,
    data: Vec<u8>,
    has_fields: bool,
    last_id: Option<Arc<str>>,
    events: VecDeque<SseEvent>,
    /// True if the last byte was a CR, so that an LF that follows belongs to the same line end.
    skips_line_feed: bool,
    is_first_line: bool,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// Begins a stream.
    pub fn new(config: DecoderConfig) -> Decoder {
        Decoder {
            config,
            line: Vec::new(),
            kind: String::new(),
            data: Vec::new(),
            has_fields: false,
            last_id: None,
            events: VecDeque::new(),
            skips_line_feed: false,
            is_first_line: true,
            failed: None,
        }
    }

    /// Takes bytes of the response body. After an error the stream stays failed; events before it can still be polled.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        while !bytes.is_empty() {
            if std::mem::take(&mut self.skips_line_feed) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let held = self.line.len() + self.data.len() + self.kind.len();
            if held.saturating_add(piece.len()) > self.config.event_bytes_max {
                let error = DecodeError::EventTooBig { limit: self.config.event_bytes_max };
                self.failed = Some(error);
                self.line = Vec::new();
                self.data = Vec::new();
                return Err(error);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                return Ok(());
            };
            self.skips_line_feed = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.take_line(piece);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(piece);
                self.take_line(&line);
            }
        }
        Ok(())
    }

    /// Returns the next event. An event that the end of the stream cuts off is not returned.
    pub fn poll_event(&mut self) -> Option<SseEvent> {
        pop_or_release(&mut self.events)
    }

    fn take_line(&mut self, mut line: &[u8]) {
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
            return;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => {
                self.kind = String::from_utf8_lossy(value).into_owned();
                self.has_fields = true;
            }
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
                self.has_fields = true;
            }
            b"id" if !value.contains(&0) => {
                let id = String::from_utf8_lossy(value);
                self.last_id = (!id.is_empty()).then(|| id.into());
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        let mut data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_fields) {
            data.pop_if(|byte| *byte == b'\n');
            let last_id = self.last_id.clone();
            self.events.push_back(SseEvent { kind, data: data.into(), last_id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let mut decoder = Decoder::new(DecoderConfig::default());
        for piece in pieces {
            decoder.receive(piece).unwrap();
        }
        std::iter::from_fn(|| decoder.poll_event()).collect()
    }

    fn event(kind: &str, data: &str, last_id: Option<&str>) -> SseEvent {
        let last_id = last_id.map(Arc::from);
        SseEvent { kind: kind.into(), data: Bytes::copy_from_slice(data.as_bytes()), last_id }
    }

    #[test]
    fn fields_comments_ids_and_line_ends_are_read_as_the_html_standard_says() {
        let stream = "\u{feff}: hello\r\nid: 1\r\ndata:first\rdata:  second\r\n\r\n\
                      event: next\ndata: {}\nid\nunknown: x\nretry: 10\n\n\n\n\
                      event: complete\n\nevent: next\ndata: cut off";
        let expected = [
            event("", "first\n second", Some("1")),
            event("next", "{}", None),
            event("complete", "", None),
        ];
        assert_eq!(read(&[stream.as_bytes()]), expected);
        for split in 0..stream.len() {
            let (left, right) = stream.as_bytes().split_at(split);
            assert_eq!(read(&[left, right]), expected, "split at {split}");
        }
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn the_decoder_reads_the_events_of_the_encoder() {
        let payload = "{\n  \"data\": {\"a\": \"é\"}\r\n}";
        let id = super::super::EventId::new("c1");
        let mut stream =
            super::super::next_event(Bytes::from_static(payload.as_bytes()), id).to_vec();
        super::super::complete_event().append_to(&mut stream);
        let messages: Vec<_> = read(&[&stream]).into_iter().filter_map(SseEvent::message).collect();
        let expected = Bytes::from("{\n  \"data\": {\"a\": \"é\"}\n}");
        assert_eq!(messages, [SseMessage::Next(expected), SseMessage::Complete]);
    }

    #[test]
    fn a_position_is_not_an_event_and_sets_the_id_of_later_events() {
        let mut stream = super::super::position("c7".into()).to_vec();
        assert_eq!(read(&[&stream]), []);
        stream.extend_from_slice(b"event: next\ndata: {}\n\n");
        assert_eq!(read(&[&stream]), [event("next", "{}", Some("c7"))]);
    }

    #[test]
    fn an_endless_event_is_refused_however_it_is_cut() {
        let config = DecoderConfig { event_bytes_max: 100 };
        let failure = Err(DecodeError::EventTooBig { limit: 100 });
        let mut one_line = Decoder::new(config);
        assert_eq!(one_line.receive(&[b'x'; 60]), Ok(()));
        assert_eq!(one_line.receive(&[b'x'; 60]), failure);
        assert_eq!(one_line.receive(b"\n\n"), failure);

        let mut many_lines = Decoder::new(config);
        many_lines.receive(b"data: ok\n\n").unwrap();
        let refused =
            (0..20).map(|_| many_lines.receive(b"data: xxxxxxxxx\n")).find(Result::is_err);
        assert_eq!(refused, Some(failure));
        assert_eq!(many_lines.poll_event(), Some(event("", "ok", None)));
    }
}
