//! permessage-deflate, example by example: messages alone, and broadcasts that are compressed once.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wire::Chunks;
use wire::connection::Protocol;
use wire::subprotocol::Subprotocol;
use wire::websocket::{WebSocket, WebSocketConfig, WebSocketEvent, deflate_shared};

/// Both sides of a connection with permessage-deflate, and the events of the client.
struct Deflating {
    server: WebSocket,
    client: WebSocket,
    now: Instant,
}

impl Deflating {
    fn new(config: WebSocketConfig) -> Deflating {
        let (now, config) = (Instant::now(), Arc::new(config));
        let mut server = WebSocket::server(config.clone(), now);
        let mut client = WebSocket::client(config, now, 7);
        server.set_deflate(true);
        client.set_deflate(true);
        Deflating { server, client, now }
    }

    /// Moves everything from the server to the client, byte by byte, and returns the number of bytes.
    fn send_down(&mut self) -> usize {
        carry(&mut self.server, &mut self.client, self.now)
    }

    /// Moves everything from the client to the server in the same way.
    fn send_up(&mut self) -> usize {
        carry(&mut self.client, &mut self.server, self.now)
    }
}

fn carry(from: &mut WebSocket, to: &mut WebSocket, now: Instant) -> usize {
    let mut count = 0;
    while let Some(chunks) = from.poll_transmit() {
        let bytes = chunks.to_vec();
        bytes.chunks(1).for_each(|byte| to.receive(now, byte));
        count += bytes.len();
    }
    count
}

fn json(count: usize) -> String {
    (0..count).map(|n| format!("{{\"id\":{n},\"name\":\"näme\"}},")).collect()
}

#[test]
fn large_messages_are_compressed_both_ways_and_small_ones_are_not() {
    let mut pair = Deflating::new(WebSocketConfig::default());
    let (small, large) = (json(5), json(500));
    for text in [&small, &large] {
        pair.server.send_text(Chunks::whole(text.clone()));
        let sent = pair.send_down();
        assert_eq!(sent < text.len(), text.len() >= 1400, "{sent} bytes of {}", text.len());
        assert_eq!(pair.client.poll_event(), Some(WebSocketEvent::Text(text.clone().into())));
        pair.client.send_binary(Chunks::whole(text.clone()));
        let sent = pair.send_up();
        assert_eq!(sent < text.len(), text.len() >= 1400, "{sent} bytes of {}", text.len());
        assert_eq!(pair.server.poll_event(), Some(WebSocketEvent::Binary(text.clone().into())));
    }
    assert!(pair.server.is_open() && pair.client.is_open());
}

/// Returns a masked frame of a client; the mask is zero.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | 126];
    frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn a_compressed_message_may_come_in_fragments_with_a_ping_between_them() {
    let text = json(100);
    let blocks = coding::deflate_message(&[text.as_bytes()]).unwrap();
    let (left, right) = blocks.split_at(blocks.len() / 2);
    let mut pair = Deflating::new(WebSocketConfig::default());
    pair.server.receive(pair.now, &client_frame(0x41, left));
    pair.server.receive(pair.now, &[0x89, 0x80, 0, 0, 0, 0]);
    pair.server.receive(pair.now, &client_frame(0x80, right));
    assert_eq!(pair.server.poll_event(), Some(WebSocketEvent::Text(text.into())));
    assert_eq!(pair.server.poll_transmit().map(|it| it.to_vec()), Some(vec![0x8a, 0]));
}

#[test]
fn each_defect_of_a_compressed_message_has_its_close_code() {
    let zeros = coding::deflate_message(&[&[b'0'; 60_000]]).unwrap();
    let not_utf8 = coding::deflate_message(&[&[0xff; 2000]]).unwrap();
    let cases: [(&str, Vec<u8>, u16); 6] = [
        ("a bomb", client_frame(0xc1, &zeros), 1009),
        ("not deflate", client_frame(0xc1, &[0xff; 30]), 1007),
        ("text that is not UTF-8", client_frame(0xc1, &not_utf8), 1007),
        ("a compressed ping", vec![0xc9, 0x80, 0, 0, 0, 0], 1002),
        (
            "a continuation that says so",
            [client_frame(0x41, b""), client_frame(0xc0, b"")].concat(),
            1002,
        ),
        ("another reserved bit", vec![0xa1, 0x80, 0, 0, 0, 0], 1002),
    ];
    for (what, bytes, code) in cases {
        let mut pair = Deflating::new(WebSocketConfig {
            message_bytes_max: 50_000,
            ..WebSocketConfig::default()
        });
        pair.server.receive(pair.now, &bytes);
        let Some(WebSocketEvent::Closed(closed)) = pair.server.poll_event() else {
            panic!("{what}")
        };
        assert_eq!(closed.code.0, code, "{what}");
    }
    let mut plain = WebSocket::server(Arc::default(), Instant::now());
    plain.receive(Instant::now(), &client_frame(0xc1, &zeros));
    let Some(WebSocketEvent::Closed(closed)) = plain.poll_event() else {
        panic!("it was not negotiated")
    };
    assert_eq!(closed.code.0, 1002);
}

#[test]
fn a_broadcast_is_compressed_once_and_read_by_each_client_under_its_own_id() {
    let payload = Bytes::from(format!("{{\"data\":[{}null]}}", json(100)));
    let shared = deflate_shared(&payload, b"}").unwrap();
    let small = Bytes::from_static(b"{\"data\":null}");
    assert_eq!(deflate_shared(&small, b"}"), None);
    for (subprotocol, start, kind) in
        [("graphql-transport-ws", "subscribe", "next"), ("graphql-ws", "start", "data")]
    {
        for id in ["1".to_owned(), "\"quoted\"".repeat(12), "x".repeat(1024), "\\".repeat(120)] {
            let now = Instant::now();
            let mut protocol = Subprotocol::new(Arc::default(), Some(subprotocol), now);
            protocol.receive_text(r#"{"type":"connection_init"}"#.into());
            protocol.accept_init(None);
            let mut quoted = Vec::new();
            astjson::print_string(&id, &mut quoted);
            let quoted = String::from_utf8(quoted).unwrap();
            let query = r#"{"query":"{a}"}"#;
            let message = format!(r#"{{"id":{quoted},"type":"{start}","payload":{query}}}"#);
            protocol.receive_text(message.into());
            let mut frame = Vec::new();
            assert!(protocol.append_deflated_head(0, shared.len(), &mut frame), "{id}");
            frame.extend_from_slice(&shared);

            let mut pair = Deflating::new(WebSocketConfig::default());
            pair.client.receive(now, &frame);
            let payload = std::str::from_utf8(&payload).unwrap();
            let expected = format!(r#"{{"id":{quoted},"type":"{kind}","payload":{payload}}}"#);
            assert_eq!(
                pair.client.poll_event(),
                Some(WebSocketEvent::Text(expected.into())),
                "{id}"
            );
            assert!(!protocol.append_deflated_head(1, shared.len(), &mut frame));
        }
    }
}
