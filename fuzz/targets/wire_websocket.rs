//! Any bytes as a WebSocket connection, in both roles, with and without compression: the machine
//! never panics, gives no message over its limit, and reads the same however the bytes are cut.
//!
//! The first byte is the size of the pieces, the rest is the stream.

#![no_main]

use std::sync::Arc;
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use wire::websocket::{WebSocketConfig, WebSocketEvent, WebSocket};

const MESSAGE_BYTES_MAX: usize = 1000;
const HEAD_BYTES_MAX: usize = 50;

fn events(
    machine: &mut WebSocket,
    now: Instant,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Vec<WebSocketEvent> {
    let mut events = Vec::new();
    for piece in pieces {
        machine.receive(now, piece);
        while let Some(chunks) = machine.poll_transmit() {
            assert!(!chunks.is_empty());
        }
        events.extend(std::iter::from_fn(|| machine.poll_event()));
    }
    machine.receive_eof();
    events.extend(std::iter::from_fn(|| machine.poll_event()));
    assert!(machine.is_closed());
    events
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else { return };
    let now = Instant::now();
    let config = WebSocketConfig { message_bytes_max: MESSAGE_BYTES_MAX, ..WebSocketConfig::default() };
    let skipping = Arc::new(WebSocketConfig { oversized_head_bytes_max: HEAD_BYTES_MAX, ..config.clone() });
    let config = Arc::new(config);
    let deflating = |mut machine: WebSocket| {
        machine.set_deflate(true);
        machine
    };
    let machines: [&dyn Fn() -> WebSocket; 6] = [
        &|| WebSocket::server(config.clone(), now),
        &|| WebSocket::client(config.clone(), now, 7),
        &|| deflating(WebSocket::server(config.clone(), now)),
        &|| deflating(WebSocket::client(config.clone(), now, 7)),
        &|| WebSocket::client(skipping.clone(), now, 7),
        &|| WebSocket::server(skipping.clone(), now),
    ];
    for machine in machines {
        let whole = events(&mut machine(), now, &mut [stream].into_iter());
        let cut = events(&mut machine(), now, &mut stream.chunks(usize::from(*size).max(1)));
        assert_eq!(whole, cut);
        for event in &whole {
            match event {
                WebSocketEvent::Text(text) => {
                    assert!(text.len() <= MESSAGE_BYTES_MAX && std::str::from_utf8(text).is_ok());
                }
                WebSocketEvent::Binary(bytes) => assert!(bytes.len() <= MESSAGE_BYTES_MAX),
                WebSocketEvent::Large(_) => unreachable!("this configuration has no bounds for clients"),
                WebSocketEvent::Oversized(head) => assert!(head.len() <= HEAD_BYTES_MAX),
                WebSocketEvent::Closed(_) => {}
            }
        }
        let closed = whole.iter().filter(|event| matches!(event, WebSocketEvent::Closed(_))).count();
        assert!(closed == 1 && matches!(whole.last(), Some(WebSocketEvent::Closed(_))));
    }
});
