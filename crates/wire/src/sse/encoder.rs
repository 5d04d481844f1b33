//! The server's side: events and heartbeats (HTML living standard, section 9.2.5).

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Chunks;
use crate::body::{BodyMachine, BodyQueue};

/// The text before the payload of a `next` event.
pub const NEXT_PREFIX: &[u8] = b"event: next\ndata: ";
/// The text behind the payload.
pub const NEXT_SUFFIX: &[u8] = b"\n\n";
/// The `complete` event. It has an empty `data` field because browsers do not dispatch an event without one.
const COMPLETE: &[u8] = b"event: complete\ndata:\n\n";
/// A comment. It keeps proxies from closing a quiet connection.
const HEARTBEAT: &[u8] = b":\n\n";

/// The id of an event: a cursor, which a browser sends back in `Last-Event-ID` when it reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId<'a>(&'a str);

impl<'a> EventId<'a> {
    /// Returns the id, or `None` for text that cannot be one: it would end its line, or be ignored because of a NUL.
    pub fn new(id: &'a str) -> Option<EventId<'a>> {
        (!id.bytes().any(|byte| matches!(byte, b'\n' | b'\r' | 0))).then_some(EventId(id))
    }
}

/// Returns a `next` event. The payload is shared and not copied, unless it contains line breaks: JSON may have them
/// between its tokens only, and each line then gets a `data` field of its own. A broadcast makes the event once and
/// clones it.
pub fn next_event(payload: Bytes, id: Option<EventId<'_>>) -> Chunks {
    let has_lines = memchr::memchr2(b'\n', b'\r', &payload).is_some();
    let mut head = match id {
        None if !has_lines => {
            let head = Bytes::from_static(NEXT_PREFIX);
            return Chunks { head, body: payload, tail: NEXT_SUFFIX };
        }
        None => Vec::new(),
        Some(EventId(id)) => [b"id: ", id.as_bytes(), b"\n"].concat(),
    };
    head.extend_from_slice(NEXT_PREFIX);
    if !has_lines {
        return Chunks { head: head.into(), body: payload, tail: NEXT_SUFFIX };
    }
    let mut rest = &payload[..];
    while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
        head.extend_from_slice(&rest[..end]);
        head.extend_from_slice(b"\ndata: ");
        rest = rest[end..].strip_prefix(b"\r\n").unwrap_or(&rest[end + 1..]);
    }
    head.extend_from_slice(rest);
    Chunks { head: head.into(), body: Bytes::new(), tail: NEXT_SUFFIX }
}

/// The text before an id that is sent without an event.
const ID_PREFIX: &[u8] = b"id: ";

/// Returns the client's position without an event: `id` becomes the last event id, and nothing is dispatched (HTML
/// living standard, section 9.2.6). The caller ensures that `id` is a valid one, see [`EventId::new`]. It is shared and
/// not copied.
pub fn position(id: Bytes) -> Chunks {
    Chunks { head: Bytes::from_static(ID_PREFIX), body: id, tail: NEXT_SUFFIX }
}

/// Returns the `complete` event, after which the response body ends.
pub fn complete_event() -> Chunks {
    Chunks::whole(COMPLETE)
}

/// The text before the data of a `complete` event in single connection mode.
const COMPLETE_PREFIX: &[u8] = b"event: complete\ndata: ";

/// Returns a `next` event in single connection mode: the payload, shared and not copied, beside the id of its
/// operation. The payload must not contain line breaks.
fn next_event_of(operation: &str, payload: Bytes) -> Chunks {
    let mut head = NEXT_PREFIX.to_vec();
    head.extend_from_slice(br#"{"id":"#);
    astjson::print_string(operation, &mut head);
    head.extend_from_slice(br#","payload":"#);
    Chunks { head: head.into(), body: payload, tail: b"}\n\n" }
}

/// Returns the `complete` event of one operation in single connection mode.
fn complete_event_of(operation: &str) -> Chunks {
    let mut event = COMPLETE_PREFIX.to_vec();
    event.extend_from_slice(br#"{"id":"#);
    astjson::print_string(operation, &mut event);
    event.extend_from_slice(b"}\n\n");
    Chunks::whole(event)
}

/// Settings that many responses share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseConfig {
    /// The idle time after which a heartbeat is sent; `None` sends none.
    pub heartbeat: Option<Duration>,
}

impl Default for SseConfig {
    /// 12 s, as graphql-sse does: under the 15 s that the HTML standard names for old proxies.
    fn default() -> SseConfig {
        SseConfig { heartbeat: Some(Duration::from_secs(12)) }
    }
}

/// One response body of server-sent events.
///
/// It opens with a heartbeat, so that the client sees the response head before the first event.
pub struct Sse {
    queue: BodyQueue,
}

const _: () = assert!(size_of::<Sse>() <= 80);

impl Sse {
    /// Begins a response body.
    pub fn new(config: &SseConfig, now: Instant) -> Sse {
        Sse { queue: BodyQueue::new(Chunks::whole(HEARTBEAT), config.heartbeat, now) }
    }

    /// Queues a result. Dropped after [`Sse::complete`].
    pub fn next(&mut self, payload: Bytes, id: Option<EventId<'_>>) {
        self.queue.push([next_event(payload, id)]);
    }

    /// Queues the client's position, see [`position`]. Dropped after [`Sse::complete`].
    pub fn position(&mut self, id: Bytes) {
        self.queue.push([position(id)]);
    }

    /// Queues the end.
    pub fn complete(&mut self) {
        self.queue.push([complete_event()]);
        self.queue.complete();
    }

    /// Queues a result of one of several operations, without line breaks. Dropped after [`Sse::finish`].
    pub fn next_of(&mut self, operation: &str, payload: Bytes) {
        self.queue.push([next_event_of(operation, payload)]);
    }

    /// Queues the end of one of several operations.
    pub fn complete_of(&mut self, operation: &str) {
        self.queue.push([complete_event_of(operation)]);
    }

    /// Ends a body of several operations.
    pub fn finish(&mut self) {
        self.queue.complete();
    }
}

impl BodyMachine for Sse {
    fn queue(&self) -> &BodyQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut BodyQueue {
        &mut self.queue
    }

    fn heartbeat(&self) -> Chunks {
        Chunks::whole(HEARTBEAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chunks: &Chunks) -> String {
        String::from_utf8(chunks.to_vec()).unwrap()
    }

    #[test]
    fn a_next_event_shares_its_payload() {
        let payload = Bytes::from_static(br#"{"data":null}"#);
        let event = next_event(payload.clone(), None);
        assert_eq!(text(&event), "event: next\ndata: {\"data\":null}\n\n");
        assert_eq!(event.body.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn an_id_comes_before_its_event() {
        let event = next_event(Bytes::from_static(b"{}"), EventId::new("k7"));
        assert_eq!(text(&event), "id: k7\nevent: next\ndata: {}\n\n");
        assert_eq!(EventId::new("a\nevent: x"), None);
        assert_eq!(EventId::new("a\rb"), None);
        assert_eq!(EventId::new("a\0b"), None);
    }

    #[test]
    fn a_position_is_an_id_without_an_event_and_shared() {
        let id = Bytes::from_static(b"k7");
        let said = position(id.clone());
        assert_eq!(text(&said), "id: k7\n\n");
        assert_eq!(said.body.as_ptr(), id.as_ptr());
        let now = Instant::now();
        let mut sse = Sse::new(&SseConfig { heartbeat: None }, now);
        sse.position(id.clone());
        sse.complete();
        sse.position(id);
        let mut said = String::new();
        while let Some(chunks) = sse.poll_transmit(now) {
            said += &text(&chunks);
        }
        assert_eq!(said, ":\n\nid: k7\n\nevent: complete\ndata:\n\n");
    }

    #[test]
    fn each_line_of_a_payload_is_a_data_field() {
        let event = next_event(Bytes::from_static(b"{\n  \"a\": 1,\r\n\"b\":2\r}"), None);
        let expected = "event: next\ndata: {\ndata:   \"a\": 1,\ndata: \"b\":2\ndata: }\n\n";
        assert_eq!(text(&event), expected);
    }

    #[test]
    fn several_operations_on_one_stream_are_distinguished_by_their_ids() {
        let now = Instant::now();
        let mut sse = Sse::new(&SseConfig { heartbeat: None }, now);
        sse.next_of("a\"1", Bytes::from_static(b"{\"data\":1}"));
        sse.complete_of("a\"1");
        sse.next_of("b", Bytes::from_static(b"{\"data\":2}"));
        sse.finish();
        sse.next_of("b", Bytes::from_static(b"late"));
        let mut said = String::new();
        while let Some(chunks) = sse.poll_transmit(now) {
            said += &text(&chunks);
        }
        let expected = ":\n\nevent: next\ndata: {\"id\":\"a\\\"1\",\"payload\":{\"data\":1}}\n\n\
                        event: complete\ndata: {\"id\":\"a\\\"1\"}\n\n\
                        event: next\ndata: {\"id\":\"b\",\"payload\":{\"data\":2}}\n\n";
        assert_eq!(said, expected);
        assert!(sse.is_finished());
    }

    #[test]
    fn a_quiet_response_sends_heartbeats_until_it_completes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut sse = Sse::new(&SseConfig::default(), at(0));
        let drain = |sse: &mut Sse, now| {
            let mut out = String::new();
            while let Some(chunks) = sse.poll_transmit(now) {
                out += &text(&chunks);
            }
            out
        };
        assert_eq!(drain(&mut sse, at(1)), ":\n\n");
        assert_eq!(sse.poll_timeout(), Some(at(13)));
        sse.handle_timeout(at(12));
        assert_eq!(drain(&mut sse, at(12)), "");
        sse.handle_timeout(at(13));
        assert_eq!(drain(&mut sse, at(13)), ":\n\n");
        sse.next(Bytes::from_static(b"{}"), None);
        sse.complete();
        sse.next(Bytes::from_static(b"late"), None);
        assert_eq!(drain(&mut sse, at(14)), "event: next\ndata: {}\n\nevent: complete\ndata:\n\n");
        assert!(sse.is_finished());
        assert_eq!(sse.poll_timeout(), None);
    }
}
