//! The WebSocket machine, example by example: frames in, events and frames out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::Chunks;
use wire::websocket::{CloseCode, Closed, ClosedBy, WebSocket, WebSocketConfig, WebSocketEvent};

const MASK: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

/// Returns a frame as a client sends it; `first` is FIN, reserved bits and opcode.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | len as u8),
        len @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().enumerate().map(|(i, byte)| byte ^ MASK[i % 4]));
    frame
}

fn server() -> (WebSocket, Instant) {
    let now = Instant::now();
    let config = WebSocketConfig { message_bytes_max: 1000, ..WebSocketConfig::default() };
    (WebSocket::server(Arc::new(config), now), now)
}

fn events(machine: &mut WebSocket) -> Vec<WebSocketEvent> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

fn written(machine: &mut WebSocket) -> Vec<u8> {
    std::iter::from_fn(|| machine.poll_transmit()).flat_map(|chunks| chunks.to_vec()).collect()
}

/// Returns the events and the output of a server after a client sent `frames`, and checks that they are the same however
/// the frames are cut.
#[track_caller]
fn serve(frames: &[Vec<u8>]) -> (Vec<WebSocketEvent>, Vec<u8>) {
    let bytes = frames.concat();
    let (mut at_once, now) = server();
    at_once.receive(now, &bytes);
    let expected = (events(&mut at_once), written(&mut at_once));

    let (mut bytewise, now) = server();
    for byte in &bytes {
        bytewise.receive(now, &[*byte]);
    }
    assert_eq!(events(&mut bytewise), expected.0);
    expected
}

fn text(text: &str) -> WebSocketEvent {
    WebSocketEvent::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn closed(code: u16, reason: &str, by: ClosedBy) -> WebSocketEvent {
    WebSocketEvent::Closed(Closed { code: CloseCode(code), reason: reason.into(), by })
}

fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    [&[0x88, 2 + reason.len() as u8], &code.to_be_bytes()[..], reason.as_bytes()].concat()
}

#[test]
fn messages_of_every_length_arrive_unmasked() {
    for len in [0, 1, 125, 126, 999, 1000] {
        let message = "x".repeat(len);
        assert_eq!(serve(&[masked(0x81, message.as_bytes())]), (vec![text(&message)], vec![]));
    }
    let binary = serve(&[masked(0x82, &[0xff, 0])]);
    assert_eq!(binary.0, [WebSocketEvent::Binary(Bytes::from_static(&[0xff, 0]))]);
}

#[test]
fn the_unmasked_text_of_the_specification_reads_back_in_a_client() {
    // RFC 6455, section 5.7: "Hello" in one frame, then in two fragments.
    let now = Instant::now();
    let mut client = WebSocket::client(Arc::default(), now, 1);
    client.receive(now, &[0x81, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    client.receive(now, &[0x01, 3, 0x48, 0x65, 0x6c, 0x80, 2, 0x6c, 0x6f]);
    assert_eq!(events(&mut client), [text("Hello"), text("Hello")]);
}

#[test]
fn control_frames_pass_between_the_fragments_of_a_message() {
    let (events, written) = serve(&[
        masked(0x01, b"one "),
        masked(0x89, b"are you there"),
        masked(0x00, b"two "),
        masked(0x8a, b"unsolicited"),
        masked(0x80, b"three"),
    ]);
    assert_eq!(events, [text("one two three")]);
    assert_eq!(written, [&[0x8a, 13], &b"are you there"[..]].concat());
}

#[test]
fn the_first_few_and_the_last_of_many_pings_in_one_read_get_a_pong() {
    let pings: Vec<_> = (0..1000u32).map(|i| masked(0x89, &i.to_be_bytes())).collect();
    let answered = (0..16).chain([999u32]);
    let pongs: Vec<u8> =
        answered.flat_map(|i| [&[0x8a, 4][..], &i.to_be_bytes()].concat()).collect();
    assert_eq!(serve(&pings), (vec![], pongs));
}

#[test]
fn a_character_may_be_cut_by_fragments() {
    let euro = "€".as_bytes();
    let frames = [masked(0x01, &euro[..1]), masked(0x00, &euro[1..2]), masked(0x80, &euro[2..])];
    assert_eq!(serve(&frames).0, [text("€")]);
}

#[test]
fn each_broken_rule_closes_with_its_code() {
    let unmasked = vec![0x81, 1, b'x'];
    let long_ping = [vec![0x89, 0x80 | 126, 0, 126], MASK.to_vec()].concat();
    let huge = [vec![0x82, 0xff, 0x80], vec![0; 7], MASK.to_vec()].concat();
    let cases: Vec<(&str, Vec<Vec<u8>>, u16)> = vec![
        ("first reserved bit", vec![masked(0xc1, b"x")], 1002),
        ("second reserved bit", vec![masked(0xa1, b"x")], 1002),
        ("third reserved bit", vec![masked(0x91, b"x")], 1002),
        ("reserved data opcode", vec![masked(0x83, b"x")], 1002),
        ("reserved control opcode", vec![masked(0x8b, b"x")], 1002),
        ("no mask", vec![unmasked], 1002),
        ("fragmented ping", vec![masked(0x09, b"x")], 1002),
        ("long ping", vec![long_ping], 1002),
        ("length over 63 bits", vec![huge], 1002),
        ("continuation of nothing", vec![masked(0x80, b"x")], 1002),
        ("message in a message", vec![masked(0x01, b"x"), masked(0x81, b"y")], 1002),
        ("close with half a code", vec![masked(0x88, &[3])], 1002),
        ("close with 1005", vec![masked(0x88, &1005u16.to_be_bytes())], 1002),
        ("close with 999", vec![masked(0x88, &999u16.to_be_bytes())], 1002),
        ("invalid close reason", vec![masked(0x88, &[3, 232, 0xff])], 1007),
        ("invalid text", vec![masked(0x81, b"ok\xff")], 1007),
        ("surrogate in text", vec![masked(0x81, &[0xed, 0xa0, 0x80])], 1007),
        ("character that never ends", vec![masked(0x81, &[0xe2, 0x82])], 1007),
        ("invalid before the end", vec![masked(0x01, b"\xc3("), masked(0x80, b"x")], 1007),
        ("message too big", vec![masked(0x82, &[0; 1001])], 1009),
        ("fragments too big", vec![masked(0x02, &[0; 999]), masked(0x80, &[0; 2])], 1009),
    ];
    for (name, frames, code) in cases {
        let (events, written) = serve(&frames);
        let [WebSocketEvent::Closed(closed)] = &events[..] else { panic!("{name}: {events:?}") };
        assert_eq!((closed.code, closed.by), (CloseCode(code), ClosedBy::Us), "{name}");
        assert_eq!(written, close_frame(code, &closed.reason), "{name}");
    }
}

#[test]
fn text_is_refused_before_its_message_is_whole() {
    let (mut server, now) = server();
    server.receive(now, &masked(0x01, b"\xff"));
    assert_eq!(events(&mut server), [closed(1007, "text is not UTF-8", ClosedBy::Us)]);
}

#[test]
fn a_size_over_the_limit_is_refused_by_the_header_alone() {
    let (mut server, now) = server();
    server.receive(now, &masked(0x82, &[0; 70_000])[..14]);
    assert_eq!(events(&mut server), [closed(1009, "message is too big", ClosedBy::Us)]);
}

#[test]
fn nothing_is_processed_after_a_broken_rule() {
    let (events, _) = serve(&[masked(0x81, b"a"), masked(0x83, b""), masked(0x81, b"b")]);
    assert_eq!(events, [text("a"), closed(1002, "reserved opcode", ClosedBy::Us)]);
}

#[test]
fn a_clients_close_is_repeated_with_its_code_and_ends_the_connection() {
    let goodbye = [&1000u16.to_be_bytes()[..], b"bye"].concat();
    let (events, written) = serve(&[masked(0x88, &goodbye), masked(0x81, b"late")]);
    assert_eq!(events, [closed(1000, "bye", ClosedBy::Peer)]);
    assert_eq!(written, close_frame(1000, ""));

    let (events, written) = serve(&[masked(0x88, b"")]);
    assert_eq!(events, [closed(1005, "", ClosedBy::Peer)]);
    assert_eq!(written, [0x88, 0]);
}

#[test]
fn a_servers_close_waits_for_the_clients_and_ignores_messages_on_the_way() {
    let (mut server, now) = server();
    server.receive(now, &masked(0x01, b"half a mess"));
    server.close(now, CloseCode(4400), "no");
    server.send_text(Chunks::whole("too late"));
    assert_eq!(written(&mut server), close_frame(4400, "no"));
    server.receive(now, &masked(0x80, b"age"));
    server.receive(now, &masked(0x81, &[b'x'; 5000]));
    server.receive(now, &masked(0x89, b"ping"));
    assert_eq!((events(&mut server), written(&mut server)), (vec![], vec![]));
    assert!(!server.is_closed());
    server.receive(now, &masked(0x88, &4400u16.to_be_bytes()));
    assert_eq!(events(&mut server), [closed(4400, "", ClosedBy::Us)]);
    assert!(server.is_closed());
    assert_eq!((written(&mut server), server.poll_timeout()), (vec![], None));
}

#[test]
fn a_servers_close_does_not_wait_forever() {
    let (mut server, now) = server();
    server.close(now, CloseCode::GOING_AWAY, "");
    let deadline = server.poll_timeout().unwrap();
    assert_eq!(deadline, now + Duration::from_secs(5));
    server.handle_timeout(deadline);
    assert_eq!(events(&mut server), [closed(1006, "", ClosedBy::Us)]);
}

#[test]
fn a_code_that_must_not_be_sent_is_replaced() {
    let (mut server, now) = server();
    server.close(now, CloseCode::NO_STATUS, "x");
    assert_eq!(written(&mut server), close_frame(1011, "x"));
}

#[test]
fn a_silent_peer_is_pinged_and_then_given_up() {
    let (mut server, start) = server();
    let at = |seconds| start + Duration::from_secs(seconds);
    server.handle_timeout(at(29));
    assert_eq!(written(&mut server), []);
    server.handle_timeout(at(30));
    assert_eq!(written(&mut server), [0x89, 0]);
    server.receive(at(31), &masked(0x8a, b""));
    assert_eq!(server.poll_timeout(), Some(at(61)));
    server.handle_timeout(at(61));
    assert_eq!(written(&mut server), [0x89, 0]);
    server.handle_timeout(at(91));
    assert_eq!(events(&mut server), [closed(1006, "no response to a ping", ClosedBy::Loss)]);
}

#[test]
fn a_peer_that_reads_slowly_is_alive_though_it_has_not_reached_the_ping() {
    let (mut server, start) = server();
    let at = |seconds| start + Duration::from_secs(seconds);
    server.taken(at(10));
    assert_eq!(server.poll_timeout(), Some(at(40)));
    server.handle_timeout(at(40));
    assert_eq!(written(&mut server), [0x89, 0]);
    server.taken(at(60));
    server.handle_timeout(at(70));
    assert_eq!((events(&mut server), server.poll_timeout()), (vec![], Some(at(90))));
    server.handle_timeout(at(90));
    assert_eq!(events(&mut server), [closed(1006, "no response to a ping", ClosedBy::Loss)]);
    // The closing handshake is not delayed.
    let (mut server, start) = self::server();
    server.close(start, CloseCode::GOING_AWAY, "");
    server.taken(start + Duration::from_secs(4));
    assert_eq!(server.poll_timeout(), Some(start + Duration::from_secs(5)));
}

#[test]
fn bytes_of_a_slow_message_are_a_sign_of_life() {
    let (mut server, start) = server();
    let frame = masked(0x81, b"slowly");
    let mut now = start;
    for byte in &frame {
        now += Duration::from_secs(4);
        server.handle_timeout(now);
        server.receive(now, &[*byte]);
    }
    assert_eq!(events(&mut server), [text("slowly")]);
    assert_eq!(written(&mut server), []);
}

#[test]
fn a_message_that_takes_a_minute_is_refused_whatever_comes_between() {
    let (mut server, start) = server();
    server.receive(start, &masked(0x01, b"fragment"));
    for second in 1..60 {
        let now = start + Duration::from_secs(second);
        server.handle_timeout(now);
        server.receive(now, &masked(0x8a, b""));
        server.receive(now, &masked(0x00, b"."));
    }
    assert_eq!(events(&mut server), []);
    let deadline = start + Duration::from_secs(60);
    assert_eq!(server.poll_timeout(), Some(deadline));
    server.handle_timeout(deadline);
    assert_eq!(events(&mut server), [closed(1008, "message took too long", ClosedBy::Us)]);
    assert_eq!(written(&mut server), close_frame(1008, "message took too long"));
}

#[test]
fn a_stream_of_messages_that_is_always_cut_within_one_takes_as_long_as_it_likes() {
    let (mut server, start) = server();
    let frame = masked(0x81, b"on and on");
    let (left, right) = frame.split_at(4);
    server.receive(start, left);
    for second in 1..200 {
        let now = start + Duration::from_secs(second);
        server.handle_timeout(now);
        server.receive(now, &[right, left].concat());
        assert_eq!(events(&mut server), [text("on and on")]);
    }
    assert!(server.is_open());
}

#[test]
fn a_lost_transport_ends_the_connection_once() {
    let (mut server, now) = server();
    server.receive(now, &masked(0x01, b"half"));
    server.receive_eof();
    server.receive_eof();
    server.receive(now, &masked(0x80, b"more"));
    assert_eq!(events(&mut server), [closed(1006, "", ClosedBy::Loss)]);
}

#[test]
fn a_server_frames_a_shared_payload_without_copying_it() {
    let (mut server, _) = server();
    let shared = Bytes::from(vec![b'7'; 300]);
    let head = Bytes::from_static(b"{\"payload\":");
    server.send_text(Chunks { head, body: shared.clone(), tail: b"}" });
    let sent = server.poll_transmit().unwrap();
    assert_eq!(&sent.head[..], b"\x81\x7e\x01\x38{\"payload\":");
    assert_eq!((sent.body.as_ptr(), sent.tail), (shared.as_ptr(), &b"}"[..]));
}

#[test]
fn a_client_masks_each_frame_differently_and_a_server_reads_them() {
    let now = Instant::now();
    let mut client = WebSocket::client(Arc::default(), now, 42);
    client.send_text(Chunks::whole("same"));
    client.send_text(Chunks::whole("same"));
    let bytes = written(&mut client);
    assert_ne!(bytes[..10], bytes[10..]);
    let (mut server, now) = server();
    server.receive(now, &bytes);
    assert_eq!(events(&mut server), [text("same"), text("same")]);
}

#[test]
fn a_client_refuses_a_masked_frame() {
    let now = Instant::now();
    let mut client = WebSocket::client(Arc::default(), now, 42);
    client.receive(now, &masked(0x81, b"x"));
    assert_eq!(events(&mut client), [closed(1002, "server frame is masked", ClosedBy::Us)]);
}
