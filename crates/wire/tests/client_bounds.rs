//! The work that a client may cause for a server that serves many connections on one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::connection::{Connection, OffThreadParse};
use wire::graphql_transport_ws::ServerEvent;
use wire::subprotocol::Subprotocol;
use wire::websocket::{ClientBounds, CloseCode, LargeMessage, WebSocketConfig};

type Server = Connection<Subprotocol>;

fn server(bounds: ClientBounds) -> Server {
    let now = Instant::now();
    let config = WebSocketConfig { client_bounds: Some(bounds), ..WebSocketConfig::default() };
    let protocol = Subprotocol::new(Arc::default(), Some("graphql-transport-ws"), now);
    Connection::server(Arc::new(config), protocol, now).with_deflate(true)
}

fn acknowledged(bounds: ClientBounds) -> Server {
    let mut server = server(bounds);
    server.receive(Instant::now(), &frame(br#"{"type":"connection_init"}"#));
    assert_eq!(server.poll_event(), Some(ServerEvent::Init { payload: None }));
    server.protocol.accept_init(None);
    drain(&mut server);
    server
}

/// Returns all that the server sends, without frame headers.
fn drain(server: &mut Server) -> String {
    let mut said = Vec::new();
    while let Some(chunks) = server.poll_transmit(Instant::now()) {
        said.extend(chunks.to_vec());
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns a masked frame; the mask is zero.
fn framed(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | 127];
    frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn frame(payload: &[u8]) -> Vec<u8> {
    framed(0x81, payload)
}

fn compressed(payload: &[u8]) -> Vec<u8> {
    framed(0xc1, &coding::deflate_message(&[payload]).expect("it is repetitive"))
}

fn padded(kind: &str, bytes: usize) -> Vec<u8> {
    format!(r#"{{"type":"{kind}","payload":{{"x":"{}"}}}}"#, "0".repeat(bytes)).into_bytes()
}

fn subscribe(id: &str, bytes: usize) -> Vec<u8> {
    let padding = "0".repeat(bytes);
    format!(r#"{{"id":"{id}","type":"subscribe","payload":{{"query":"{{a}}","variables":{{"x":"{padding}"}}}}}}"#)
        .into_bytes()
}

fn close_code(server: &mut Server) -> u16 {
    loop {
        match server.poll_event() {
            Some(ServerEvent::Ended(closed)) => return closed.code.0,
            Some(_) => {}
            None => panic!("the connection is open"),
        }
    }
}

fn large(server: &mut Server) -> LargeMessage {
    match server.poll_event() {
        Some(ServerEvent::Large(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_before_the_acknowledgement_is_small_also_after_it_is_expanded() {
    let bounds = ClientBounds::default();
    for message in [
        frame(&padded("connection_init", 20 << 10)),
        compressed(&padded("connection_init", 20 << 10)),
    ] {
        let mut server = server(bounds);
        server.receive(Instant::now(), &message);
        assert_eq!(close_code(&mut server), 1009);
    }
    let mut server = server(bounds);
    server.receive(Instant::now(), &compressed(&padded("connection_init", 10 << 10)));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Init { payload: Some(_) })));
}

#[test]
fn messages_before_the_acknowledgement_are_bounded_together() {
    let mut server = server(ClientBounds::default());
    let ping = compressed(&padded("ping", 12 << 10));
    for _ in 0..5 {
        server.receive(Instant::now(), &ping);
        server.receive(Instant::now(), &[]);
    }
    assert!(!server.is_closed(), "60 KiB are within the bound");
    server.receive(Instant::now(), &ping);
    server.receive(Instant::now(), &[]);
    assert_eq!(close_code(&mut server), 1008);
}

#[test]
fn a_message_that_expands_a_thousandfold_is_refused_unless_it_is_small() {
    let mut server = acknowledged(ClientBounds::default());
    // 60 KiB are below the size that any message may expand to.
    server.receive(Instant::now(), &compressed(&padded("ping", 60 << 10)));
    let (message, parse) = (large(&mut server), server.protocol.parser());
    server.resume(Instant::now(), message.read(parse));
    // The response to the ping; it is compressed.
    assert!(!drain(&mut server).is_empty() && !server.is_closed());
    assert!(matches!(server.poll_event(), Some(ServerEvent::Ping { .. })));
    server.receive(Instant::now(), &compressed(&padded("ping", 900 << 10)));
    let (message, parse) = (large(&mut server), server.protocol.parser());
    server.resume(Instant::now(), message.read(parse));
    assert_eq!(close_code(&mut server), 1009);
}

#[test]
fn a_large_message_is_read_elsewhere_and_nothing_overtakes_it() {
    for large_one in [frame(&subscribe("1", 100 << 10)), compressed(&subscribe("1", 50 << 10))] {
        let mut server = acknowledged(ClientBounds::default());
        let together = [large_one, frame(&subscribe("2", 10))].concat();
        server.receive(Instant::now(), &together);
        let message = large(&mut server);
        assert!(server.is_paused());
        // A message that arrives meanwhile waits as well.
        server.receive(Instant::now(), &frame(&subscribe("3", 10)));
        assert_eq!(server.poll_event(), None);
        let parse = server.protocol.parser();
        server.resume(Instant::now(), message.read(parse));
        server.receive(Instant::now(), &[]);
        let ids: Vec<_> = std::iter::from_fn(|| server.poll_event())
            .map(|event| match event {
                ServerEvent::Subscribe { id, .. } => id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, ["1", "2", "3"].map(Box::from));
        assert!(!server.is_paused() && !server.has_input());
    }
}

#[test]
fn a_pause_in_reading_restarts_the_deadline_of_a_message() {
    let mut server = acknowledged(ClientBounds::default());
    let message = frame(&subscribe("1", 10));
    let (first, rest) = message.split_at(20);
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    server.receive(start, first);
    server.hold(start, true);
    assert!(server.is_paused());
    // A silent peer is pinged meanwhile, and has no deadline for its pong.
    for minute in 1..10 {
        server.handle_timeout(after(60 * minute));
        drain(&mut server);
        assert!(server.is_open(), "after {minute} minutes");
    }
    server.receive(after(600), rest);
    assert_eq!(server.poll_event(), None, "it is held");
    server.hold(after(600), false);
    server.handle_timeout(after(605));
    assert!(server.is_open() && server.has_input() && !server.is_paused());
    server.receive(after(605), &[]);
    assert!(matches!(server.poll_event(), Some(ServerEvent::Subscribe { .. })));
    server.receive(after(606), first);
    server.handle_timeout(after(606 + 60));
    assert_eq!(close_code(&mut server), 1008);
}

#[test]
fn a_close_frame_is_seen_though_the_connection_was_held() {
    let mut server = acknowledged(ClientBounds::default());
    let now = Instant::now();
    server.hold(now, true);
    server.protocol.close(CloseCode(4000), "enough");
    drain(&mut server);
    assert!(!server.is_paused());
    server.receive(now, &framed(0x88, &4000u16.to_be_bytes()));
    assert!(server.is_closed());
}

#[test]
fn one_turn_processes_a_bounded_number_of_messages() {
    let mut server = acknowledged(ClientBounds::default());
    let ping = compressed(&padded("pong", 10 << 10));
    let all: Vec<u8> = ping.iter().copied().cycle().take(12 * ping.len()).collect();
    server.receive(Instant::now(), &all);
    let mut turns = 1;
    while server.has_input() {
        server.receive(Instant::now(), &[]);
        turns += 1;
    }
    // Each turn takes four of 10 KiB: the last of them reaches the bound of 32 KiB.
    assert_eq!(turns, 3);
    assert!(server.is_open());
}
