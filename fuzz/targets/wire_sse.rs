//! Any bytes as an event stream: reading never panics, holds no more than it was given, and gives
//! the same result however the bytes are cut. Every payload that is sent is received.
//!
//! The first byte is the size of the pieces, the rest is the stream, and then a payload.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::sse::{Decoder, DecoderConfig, SseEvent, EventId, SseMessage, complete_event, next_event};

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<SseEvent> {
    let mut decoder = Decoder::new(DecoderConfig::default());
    for piece in pieces {
        assert_eq!(decoder.receive(piece), Ok(()));
    }
    std::iter::from_fn(move || decoder.poll_event()).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else { return };
    let size = usize::from(*size).max(1);
    let whole = events([stream].into_iter());
    assert_eq!(events(stream.chunks(size)), whole);
    assert!(whole.iter().map(|event| event.data.len()).sum::<usize>() <= stream.len());

    let id = std::str::from_utf8(stream).ok().and_then(EventId::new);
    let mut sent = next_event(Bytes::copy_from_slice(stream), id).to_vec();
    complete_event().append_to(&mut sent);
    let messages: Vec<_> =
        events(sent.chunks(size)).into_iter().filter_map(SseEvent::message).collect();
    let mut lines = Vec::new();
    let mut rest = stream.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte == b'\r' {
            rest.next_if_eq(&b'\n');
        }
        lines.push(if byte == b'\r' { b'\n' } else { byte });
    }
    assert_eq!(messages, [SseMessage::Next(lines.into()), SseMessage::Complete]);
});
