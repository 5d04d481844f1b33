//! The client's side towards a subgraph, example by example: it is joined to the server's machines of this crate, or
//! reads the bytes of a server that breaks the protocol.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be built must fail the test")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::Machine;
use wire::connection::{Connection, Output, Protocol};
use wire::graphql_transport_ws::ServerEvent;
use wire::pair::{Pair, Split};
use wire::subprotocol::Subprotocol;
use wire::upstream::{
    ConnectionEnd, IgnoredMessage, OperationError, OperationId, SubprotocolChoice, SubscribeError,
    UpgradeRequest, UpstreamClient, UpstreamEvent, UpstreamSettings, UpstreamSocket,
};
use wire::websocket::handshake::{HandshakeError, accept};
use wire::websocket::{CloseCode, FrameHeader, Opcode, WebSocketConfig};

const TRANSPORT_WS: &str = "graphql-transport-ws";
const LEGACY: &str = "graphql-ws";
const REQUEST: Bytes = Bytes::from_static(br#"{"query":"subscription { tick }"}"#);

fn request(subprotocols: SubprotocolChoice) -> UpgradeRequest<'static> {
    UpgradeRequest {
        authority: "subgraph:4001",
        target: "/graphql",
        subprotocols,
        headers: &[("authorization", "Bearer t")],
        init_payload: Some(r#"{"token":"t"}"#.into()),
        key_entropy: [7; 16],
        mask_seed: 7,
    }
}

fn socket(subprotocols: SubprotocolChoice, now: Instant) -> UpstreamSocket {
    UpstreamSocket::new(Arc::default(), request(subprotocols), now).unwrap()
}

fn sent(machine: &mut impl Machine, now: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunks) = machine.poll_transmit(now) {
        chunks.append_to(&mut bytes);
    }
    bytes
}

fn events(socket: &mut UpstreamSocket) -> Vec<UpstreamEvent> {
    std::iter::from_fn(|| socket.poll_event()).collect()
}

/// Returns the server's response to the upgrade request, and its machine.
fn upgrade(
    socket: &mut UpstreamSocket,
    supported: &[&'static str],
    now: Instant,
) -> (Vec<u8>, Connection<Subprotocol>) {
    let text = sent(socket, now);
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut parsed = httparse::Request::new(&mut headers);
    assert!(parsed.parse(&text).unwrap().is_complete());
    let headers = parsed.headers.iter().map(|header| (header.name, header.value));
    let accepted = accept(parsed.method.unwrap(), headers, supported).unwrap();
    let protocol = Subprotocol::new(Arc::default(), accepted.subprotocol, now);
    (accepted.response(), Connection::server(Arc::default(), protocol, now))
}

/// Returns the bytes of a server that accepts `subprotocol` and then sends these text messages, and the client that
/// reads them. The key of the handshake is always the same, so both fit any client of this file.
fn server_bytes(subprotocol: &'static str, messages: &[&str]) -> (UpstreamSocket, Vec<u8>) {
    let now = Instant::now();
    let mut socket = socket(SubprotocolChoice::Auto, now);
    let (mut bytes, _) = upgrade(&mut socket, &[subprotocol], now);
    for message in messages {
        append_frame(Opcode::Text, message.as_bytes(), &mut bytes);
    }
    (socket, bytes)
}

fn append_frame(opcode: Opcode, payload: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&FrameHeader::new(opcode, payload.len()));
    bytes.extend_from_slice(payload);
}

const ACK: &str = r#"{"type":"connection_ack"}"#;
const READY: UpstreamEvent = UpstreamEvent::Ready { payload: None };

/// Returns the events of a client with two operations that reads these messages, and the text that it sent.
fn events_after(subprotocol: &'static str, messages: &[&str]) -> (Vec<UpstreamEvent>, String) {
    let (mut socket, bytes) = server_bytes(subprotocol, messages);
    socket.subscribe(REQUEST).unwrap();
    socket.subscribe(REQUEST).unwrap();
    let now = Instant::now();
    socket.receive(now, &bytes);
    (events(&mut socket), unmasked(&sent(&mut socket, now)))
}

/// Returns the payloads of a client's short frames, one a line.
fn unmasked(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while let [first, len, rest @ ..] = bytes {
        let len = usize::from(len & 0x7f);
        assert!(len < 126, "a short frame");
        let payload = rest[4..4 + len].iter().zip(rest[..4].iter().cycle()).map(|(a, b)| a ^ b);
        let payload: Vec<u8> = payload.collect();
        match first & 0xf {
            1 => text.push_str(std::str::from_utf8(&payload).unwrap()),
            8 => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                write!(text, "close {code}").unwrap();
            }
            other => write!(text, "opcode {other}").unwrap(),
        }
        text.push('\n');
        bytes = &rest[4 + len..];
    }
    text
}

fn next(id: u64, payload: &'static str) -> UpstreamEvent {
    UpstreamEvent::Next { id: OperationId(id), payload: payload.into() }
}

fn completed(id: u64) -> UpstreamEvent {
    UpstreamEvent::Complete { id: OperationId(id) }
}

fn failed(id: u64, error: OperationError) -> UpstreamEvent {
    UpstreamEvent::Failed { id: OperationId(id), error }
}

#[test]
fn the_server_chooses_the_subprotocol_and_operations_run_to_their_end() {
    for (supported, chosen) in [(&[TRANSPORT_WS, LEGACY][..], TRANSPORT_WS), (&[LEGACY], LEGACY)] {
        let now = Instant::now();
        let mut client = socket(SubprotocolChoice::Auto, now);
        let first = client.subscribe(REQUEST).unwrap();
        let (response, mut server) = upgrade(&mut client, supported, now);
        assert_eq!(server.protocol.name(), chosen);
        client.receive(now, &response);
        server.receive(now, &sent(&mut client, now));
        let init = ServerEvent::Init { payload: Some(r#"{"token":"t"}"#.into()) };
        assert_eq!(server.poll_event(), Some(init));
        assert_eq!(server.poll_event(), None, "the operation waits for the acknowledgement");
        server.protocol.accept_init(Some(r#"{"hello":1}"#.into()));
        client.receive(now, &sent(&mut server, now));
        let payload = Some(r#"{"hello":1}"#.into());
        assert_eq!(events(&mut client), [UpstreamEvent::Ready { payload }]);

        let second = client.subscribe(REQUEST).unwrap();
        assert_eq!((first, second), (OperationId(1), OperationId(2)));
        server.receive(now, &sent(&mut client, now));
        for id in ["1", "2"] {
            let event = server.poll_event();
            assert!(matches!(&event, Some(ServerEvent::Subscribe { id: it, .. }) if **it == *id));
            assert!(server.protocol.next(id, r#"{"data":{"tick":1}}"#.into()));
        }
        assert!(server.protocol.error("1", r#"[{"message":"no"}]"#.into()));
        client.receive(now, &sent(&mut server, now));
        let expected = [
            next(1, r#"{"data":{"tick":1}}"#),
            next(2, r#"{"data":{"tick":1}}"#),
            failed(1, OperationError::Errors(r#"[{"message":"no"}]"#.into())),
        ];
        assert_eq!(events(&mut client), expected);

        assert!(client.unsubscribe(second) && !client.unsubscribe(second));
        assert!(server.protocol.next("2", r#"{"data":"late"}"#.into()));
        client.receive(now, &sent(&mut server, now));
        assert_eq!((events(&mut client), client.client().late_messages()), (vec![], 1));
        server.receive(now, &sent(&mut client, now));
        assert!(matches!(server.poll_event(), Some(ServerEvent::Complete { .. })));
        // Some servers of the older subprotocol forget a `stop`, so it is repeated. The test's server ignores that.
        assert!(server.poll_event().is_none());
        client.send_ping(r#"{"token":"new"}"#.into());
        let is_ping = sent(&mut client, now).is_empty() != (chosen == TRANSPORT_WS);
        assert!(is_ping, "only one of the subprotocols has pings");

        client.close();
        assert_eq!(events(&mut client), [UpstreamEvent::Ended(ConnectionEnd::ClosedByRouter)]);
        server.receive(now, &sent(&mut client, now));
        assert!(
            matches!(server.poll_event(), Some(ServerEvent::Ended(closed)) if closed.code == CloseCode::NORMAL)
        );
        client.receive(now, &sent(&mut server, now));
        assert!(client.is_closed() && server.is_closed());
        assert_eq!(client.subscribe(REQUEST), Err(SubscribeError::Ended));
    }
}

#[test]
fn an_operation_that_ends_before_the_acknowledgement_is_never_sent() {
    let (mut socket, bytes) = server_bytes(TRANSPORT_WS, &[ACK]);
    let now = Instant::now();
    let first = socket.subscribe(REQUEST).unwrap();
    socket.subscribe(REQUEST).unwrap();
    assert!(socket.unsubscribe(first));
    socket.receive(now, &bytes);
    let said = unmasked(&sent(&mut socket, now));
    assert!(said.contains(r#"{"id":"2","type":"subscribe""#) && !said.contains(r#""id":"1""#));
    assert_eq!(socket.client().in_progress(), 1);
}

#[test]
fn a_connection_has_a_limit_of_operations() {
    let settings = UpstreamSettings { operations_max: 1, ..UpstreamSettings::default() };
    let now = Instant::now();
    let mut socket =
        UpstreamSocket::new(Arc::new(settings), request(SubprotocolChoice::Auto), now).unwrap();
    let id = socket.subscribe(REQUEST).unwrap();
    let error = Err(SubscribeError::TooManyOperations { limit: 1 });
    assert_eq!(socket.subscribe(REQUEST), error);
    assert!(socket.unsubscribe(id));
    assert!(socket.subscribe(REQUEST).is_ok());
}

#[test]
fn a_response_that_is_no_upgrade_ends_the_connection_before_it_began() {
    let end_after = |response: &[u8]| {
        let now = Instant::now();
        let mut socket = socket(SubprotocolChoice::Auto, now);
        sent(&mut socket, now);
        socket.receive(now, response);
        assert!(socket.is_closed() && !socket.is_open());
        assert_eq!((socket.poll_timeout(), sent(&mut socket, now)), (None, vec![]));
        socket.receive(now, b"more");
        socket.receive_eof(now);
        let [UpstreamEvent::Ended(end)] = &events(&mut socket)[..] else { panic!("no end") };
        end.clone()
    };
    let json = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"data\":null}";
    assert_eq!(end_after(json), HandshakeError::Refused(200).into());
    let foreign = b"HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n";
    assert_eq!(end_after(foreign), HandshakeError::InvalidHeader("sec-websocket-accept").into());

    let now = Instant::now();
    let (response, _) = upgrade(&mut socket(SubprotocolChoice::Auto, now), &[], now);
    let offered = "graphql-transport-ws, graphql-ws".into();
    assert_eq!(end_after(&response), ConnectionEnd::SubprotocolRefused { offered });
}

#[test]
fn handshake_and_acknowledgement_have_deadlines() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut silent = socket(SubprotocolChoice::Ws, start);
    assert_eq!(silent.poll_timeout(), Some(at(5)));
    silent.handle_timeout(at(4));
    assert_eq!(events(&mut silent), []);
    silent.handle_timeout(at(5));
    let end = ConnectionEnd::HandshakeTimeout(Duration::from_secs(5));
    assert_eq!(events(&mut silent), [UpstreamEvent::Ended(end)]);

    let mut client = socket(SubprotocolChoice::TransportWs, start);
    let (response, _) = upgrade(&mut client, &[TRANSPORT_WS], start);
    client.receive(at(3), &response);
    assert_eq!(client.poll_timeout(), Some(at(13)));
    sent(&mut client, at(3));
    client.handle_timeout(at(13));
    let end = ConnectionEnd::AckTimeout(Duration::from_secs(10));
    assert_eq!(events(&mut client), [UpstreamEvent::Ended(end)]);
    assert_eq!(unmasked(&sent(&mut client, at(13))), "close 4504\n");
    client.handle_timeout(at(18));
    assert!(client.is_closed(), "the server did not respond to the close frame");
}

#[test]
fn a_transport_that_ends_during_the_handshake_is_a_loss() {
    let now = Instant::now();
    let mut client = socket(SubprotocolChoice::Auto, now);
    client.receive_eof(now);
    let ended = events(&mut client);
    assert!(
        matches!(&ended[..], [UpstreamEvent::Ended(end @ ConnectionEnd::Lost(_))] if end.is_transient())
    );
}

#[test]
fn messages_that_belong_to_no_operation_are_ignored_and_affect_nothing() {
    let messages = [
        ACK,
        r#"{"type":"next","id":"3","payload":{}}"#,
        r#"{"type":"next","id":"01","payload":{}}"#,
        r#"{"type":"complete","id":"x"}"#,
        r#"{"type":"complete","id":"1"}"#,
        r#"{"type":"next","id":"1","payload":{}}"#,
        r#"{"type":"complete","id":"1"}"#,
        ACK,
        r#"{"type":"next","id":"2","payload":{"data":1}}"#,
    ];
    let ignored = UpstreamEvent::Ignored;
    let unknown = |id: &str| ignored(IgnoredMessage::UnknownId(id.into()));
    let after_end = || ignored(IgnoredMessage::AfterEnd(OperationId(1)));
    let expected = [
        READY,
        unknown("3"),
        unknown("01"),
        unknown("x"),
        completed(1),
        after_end(),
        after_end(),
        ignored(IgnoredMessage::RepeatedAck),
        next(2, r#"{"data":1}"#),
    ];
    assert_eq!(events_after(TRANSPORT_WS, &messages).0, expected);
}

#[test]
fn an_invalid_result_ends_its_operation_only() {
    let messages = [
        ACK,
        r#"{"type":"next","id":"1","payload":[1]}"#,
        r#"{"type":"next","id":"1","payload":{}}"#,
        r#"{"type":"next","id":"2","payload":{}}"#,
        r#"{"type":"error","id":"2","payload":"no"}"#,
    ];
    let invalid = |defect: &str| OperationError::InvalidResult(defect.into());
    let expected = [
        READY,
        failed(1, invalid("`payload` must be an object")),
        next(2, "{}"),
        failed(2, invalid("`payload` must be a list of errors")),
    ];
    let (events, said) = events_after(TRANSPORT_WS, &messages);
    assert_eq!(events, expected);
    let stops = [r#"{"id":"1","type":"complete"}"#, r#"{"id":"2","type":"complete"}"#];
    assert!(said.ends_with(&format!("{}\n{}\n", stops[0], stops[1])), "{said}");
}

#[test]
fn an_invalid_message_that_names_an_operation_ends_only_that() {
    let messages = [
        ACK,
        r#"{"id":"1","type":"next","payload":{"data":NaN}}"#,
        r#"{"id":"9","type":"next","payload":{"data":NaN}}"#,
        r#"{"id":"2","type":"next","payload":{}}"#,
        r#"{"id":"2","type":"hello"}"#,
    ];
    let invalid = |defect: &str| OperationError::InvalidResult(defect.into());
    let expected = [
        READY,
        failed(1, invalid("not JSON")),
        UpstreamEvent::Ignored(IgnoredMessage::UnknownId("9".into())),
        next(2, "{}"),
        failed(2, invalid("unknown message type `hello`")),
    ];
    assert_eq!(events_after(TRANSPORT_WS, &messages).0, expected);
}

#[test]
fn nonsense_ends_the_connection_with_a_reason() {
    let cases = [
        ("?", "not JSON"),
        (r#"{"type":"hello"}"#, "unknown message type `hello`"),
        (r#"{"type":"next","id":"1","id":"2","payload":{}}"#, "`id` occurs twice"),
    ];
    for (message, reason) in cases {
        let (events, said) = events_after(TRANSPORT_WS, &[ACK, message, ACK]);
        let end = ConnectionEnd::InvalidMessage(reason.into());
        assert_eq!(events, [READY, UpstreamEvent::Ended(end)], "{message}");
        assert!(said.ends_with("close 4004\n"), "{said}");
    }
    let early = r#"{"type":"next","id":"1","payload":{}}"#;
    let reason = "a message of an operation came before `connection_ack`".into();
    let end = UpstreamEvent::Ended(ConnectionEnd::InvalidMessage(reason));
    assert_eq!(events_after(TRANSPORT_WS, &[early]).0, [end]);
}

#[test]
fn a_message_over_the_limit_ends_the_operation_that_it_names() {
    let now = Instant::now();
    let large = format!(r#"{{"id":"1","type":"next","payload":{{"a":"{}"}}}}"#, "é".repeat(200));
    for piece_bytes in [1, 7, 64, usize::MAX] {
        let (_, mut bytes) = server_bytes(TRANSPORT_WS, &[ACK]);
        // The second time in fragments, with a ping between them, and after the end of the operation.
        append_frame(Opcode::Text, large.as_bytes(), &mut bytes);
        let (first, rest) = large.as_bytes().split_at(99);
        bytes.extend([1, first.len() as u8]);
        bytes.extend_from_slice(first);
        append_frame(Opcode::Ping, b"?", &mut bytes);
        append_frame(Opcode::Continuation, rest, &mut bytes);
        append_frame(Opcode::Text, br#"{"id":"2","type":"next","payload":{}}"#, &mut bytes);
        let mut client = limited_socket(now);
        client.subscribe(REQUEST).unwrap();
        client.subscribe(REQUEST).unwrap();
        bytes.chunks(piece_bytes.min(bytes.len())).for_each(|piece| client.receive(now, piece));
        let error = OperationError::ResultTooBig { limit: 100 };
        assert_eq!(events(&mut client), [READY, failed(1, error), next(2, "{}")]);
        assert_eq!(client.client().late_messages(), 1);
        let said = unmasked(&sent(&mut client, now));
        assert!(said.contains(r#"{"id":"1","type":"complete"}"#), "{said}");
    }
}

/// Returns a client that takes messages of 100 bytes, and keeps 60 bytes of larger ones.
fn limited_socket(now: Instant) -> UpstreamSocket {
    let websocket = WebSocketConfig {
        message_bytes_max: 100,
        oversized_head_bytes_max: 60,
        ..WebSocketConfig::default()
    };
    let websocket = Arc::new(websocket);
    let settings = Arc::new(UpstreamSettings { websocket, ..UpstreamSettings::default() });
    UpstreamSocket::new(settings, request(SubprotocolChoice::Auto), now).unwrap()
}

#[test]
fn text_that_is_not_utf8_and_large_messages_that_name_no_operation_end_the_connection() {
    let now = Instant::now();
    let id_last = format!(r#"{{"type":"next","payload":{{"a":"{}"}},"id":"1"}}"#, "x".repeat(100));
    for (payload, code) in [(&b"\xff"[..], 1007), (id_last.as_bytes(), 1009)] {
        let (_, mut bytes) = server_bytes(TRANSPORT_WS, &[ACK]);
        append_frame(Opcode::Text, payload, &mut bytes);
        let mut client = limited_socket(now);
        client.receive(now, &bytes);
        let events = events(&mut client);
        let [READY, UpstreamEvent::Ended(ConnectionEnd::BrokenRule(closed))] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(closed.code, CloseCode(code));
        assert!(unmasked(&sent(&mut client, now)).ends_with(&format!("close {code}\n")));
    }
    let (mut client, mut bytes) = server_bytes(TRANSPORT_WS, &[ACK]);
    append_frame(Opcode::Binary, b"x", &mut bytes);
    client.receive(now, &bytes);
    let reason = "binary messages are not part of the protocol".into();
    let end = UpstreamEvent::Ended(ConnectionEnd::InvalidMessage(reason));
    assert_eq!(events(&mut client), [READY, end]);
}

#[test]
fn a_close_frame_of_the_server_ends_all_operations_with_its_code() {
    let (mut client, mut bytes) = server_bytes(TRANSPORT_WS, &[]);
    let now = Instant::now();
    append_frame(Opcode::Close, b"\x11\x33Forbidden", &mut bytes);
    client.receive(now, &bytes);
    let ended = events(&mut client);
    let [UpstreamEvent::Ended(end)] = &ended[..] else { panic!("{ended:?}") };
    let message = "the subgraph closed the connection with code 4403: Forbidden";
    assert_eq!((end.to_string().as_str(), end.is_transient()), (message, false));
    assert!(client.is_closed());
}

#[test]
fn the_predecessor_has_keep_alive_messages_and_messages_of_its_own() {
    let messages = [
        r#"{"type":"ka"}"#,
        ACK,
        r#"{"type":"ka"}"#,
        r#"{"type":"data","id":"1","payload":{"data":1}}"#,
        r#"{"type":"error","id":"2","payload":{"message":"no"}}"#,
        r#"{"type":"complete","id":"1"}"#,
    ];
    let expected = [
        READY,
        next(1, r#"{"data":1}"#),
        failed(2, OperationError::Errors(r#"[{"message":"no"}]"#.into())),
        completed(1),
    ];
    let (events, said) = events_after(LEGACY, &messages);
    assert_eq!(events, expected);
    assert!(said.contains(r#"{"id":"1","type":"start","payload":"#), "{said}");

    let refused = r#"{"type":"connection_error","payload":{"message":"bad token"}}"#;
    let end = ConnectionEnd::Refused("bad token".into());
    assert_eq!(events_after(LEGACY, &[refused]).0, [UpstreamEvent::Ended(end)]);
}

#[test]
fn both_sides_of_a_connection_respond_to_pings() {
    let now = Instant::now();
    let protocol = UpstreamClient::new(Arc::default(), TRANSPORT_WS, None, now).unwrap();
    let server = Subprotocol::new(Arc::default(), Some(TRANSPORT_WS), now);
    let mut pair = Pair::new(
        Connection::client(Arc::default(), protocol, now, 7),
        Connection::server(Arc::default(), server, now),
        now,
        Split::Bytewise,
    );
    pair.deliver();
    pair.server.protocol.accept_init(None);
    pair.advance(Duration::from_secs(300));
    assert_eq!(pair.client_events(), [READY], "the server's machine responds to each ping");
    pair.is_cut = true;
    pair.advance(Duration::from_secs(70));
    let ended = pair.client_events();
    assert!(matches!(&ended[..], [UpstreamEvent::Ended(end)] if end.is_transient()), "{ended:?}");

    let mut client = UpstreamClient::new(Arc::default(), TRANSPORT_WS, None, now).unwrap();
    assert!(client.poll_output().is_some(), "connection_init");
    client.receive_text(r#"{"type":"ping","payload":{"n":1}}"#.into());
    let Some(Output::Text(pong)) = client.poll_output() else { panic!("no pong") };
    assert_eq!(pong.to_vec(), br#"{"type":"pong","payload":{"n":1}}"#);
}

const PING_FRAME: &str = "opcode 9\n";
const PING_MESSAGE: &str = "{\"type\":\"ping\"}\n";

/// Returns a client that the server has acknowledged at `start`. The server is silent since then.
fn acknowledged(subprotocol: &'static str, start: Instant) -> UpstreamSocket {
    let (mut client, bytes) = server_bytes(subprotocol, &[ACK]);
    client.receive(start, &bytes);
    sent(&mut client, start);
    assert_eq!(events(&mut client), [READY]);
    client
}

/// Returns the bytes of one frame of a server.
fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_frame(opcode, payload, &mut bytes);
    bytes
}

/// Lets a time pass, and returns what the client sends then.
fn sent_at(client: &mut UpstreamSocket, time: Instant) -> String {
    assert_eq!(client.poll_timeout(), Some(time));
    client.handle_timeout(time);
    unmasked(&sent(client, time))
}

#[test]
fn a_server_that_responds_to_the_first_ping_message_gets_no_more_ping_frames() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut client = acknowledged(TRANSPORT_WS, start);
    // The server may know frames only.
    assert_eq!(sent_at(&mut client, at(30)), format!("{PING_FRAME}{PING_MESSAGE}"));
    client.receive(at(31), &frame(Opcode::Text, br#"{"type":"pong"}"#));
    assert_eq!(sent_at(&mut client, at(61)), PING_MESSAGE);
    // Anything that arrives shows that the server is there.
    client.receive(at(62), &frame(Opcode::Pong, b""));
    assert_eq!(sent_at(&mut client, at(92)), PING_MESSAGE);
    assert_eq!(sent_at(&mut client, at(122)), "");
    let ended = events(&mut client);
    let [UpstreamEvent::Ended(end)] = &ended[..] else { panic!("{ended:?}") };
    let message = "the connection to the subgraph was lost: no response to a ping";
    assert_eq!((end.to_string().as_str(), end.is_transient()), (message, true));
}

#[test]
fn a_server_that_ignores_ping_messages_stays_connected_by_its_pong_frames() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut client = acknowledged(TRANSPORT_WS, start);
    for seconds in [30, 60, 90] {
        let pings = format!("{PING_FRAME}{PING_MESSAGE}");
        assert_eq!(sent_at(&mut client, at(seconds)), pings);
        client.receive(at(seconds), &frame(Opcode::Pong, b""));
    }
    assert_eq!(events(&mut client), []);
}

#[test]
fn servers_without_ping_messages_get_frames_only() {
    let start = Instant::now();
    let ping_due = start + Duration::from_secs(30);
    let end_after = |client: &mut UpstreamSocket, response: &[u8]| {
        client.receive(ping_due, response);
        let ended = events(client);
        let [UpstreamEvent::Ended(end)] = &ended[..] else { panic!("{ended:?}") };
        end.clone()
    };
    let close = frame(Opcode::Close, b"\x11\x30Invalid message");
    let mut client = acknowledged(TRANSPORT_WS, start);
    let end = end_after(&mut client, &close);
    assert!(matches!(end, ConnectionEnd::ClosedByServer(_)) && !end.is_transient(), "no ping yet");

    let error = frame(Opcode::Text, br#"{"type":"connection_error"}"#);
    let policy = frame(Opcode::Close, &1008_u16.to_be_bytes());
    for (response, reason) in [
        (&close, "it closed the connection with code 4400: Invalid message"),
        (&policy, "it closed the connection with code 1008"),
        (&error, "it sent an invalid message: unknown message type `connection_error`"),
    ] {
        let mut client = acknowledged(TRANSPORT_WS, start);
        sent_at(&mut client, ping_due);
        let end = end_after(&mut client, response);
        assert_eq!(end, ConnectionEnd::PingRefused(reason.into()));
        assert!(end.is_transient());
    }

    let mut next_client = acknowledged(TRANSPORT_WS, start);
    next_client.disable_ping_messages();
    assert_eq!(sent_at(&mut next_client, ping_due), PING_FRAME);
    let mut predecessor = acknowledged(LEGACY, start);
    assert_eq!(sent_at(&mut predecessor, ping_due), PING_FRAME);
}

#[test]
fn only_an_end_within_the_time_for_a_pong_may_be_due_to_a_ping_message() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let pinged = || {
        let mut client = acknowledged(TRANSPORT_WS, start);
        sent_at(&mut client, at(30));
        // It shows that the server is there, and not that it knows the message.
        client.receive(at(30), &frame(Opcode::Pong, b""));
        client
    };
    let end_of = |client: &mut UpstreamSocket| {
        let ended = events(client);
        let [UpstreamEvent::Ended(end)] = &ended[..] else { panic!("{ended:?}") };
        (end.to_string(), client.client().ended_after_ping())
    };
    let failure = frame(Opcode::Close, &4500_u16.to_be_bytes());
    let closed = "the subgraph closed the connection with code 4500";

    let mut unasked = acknowledged(TRANSPORT_WS, start);
    unasked.receive(at(29), &failure);
    assert_eq!(end_of(&mut unasked), (closed.to_owned(), false));

    let mut refusing = pinged();
    assert!(!refusing.client().ended_after_ping(), "it goes on");
    refusing.receive(at(59), &failure);
    assert_eq!(end_of(&mut refusing), (closed.to_owned(), true));

    let mut dropping = pinged();
    dropping.receive_eof(at(31));
    assert!(end_of(&mut dropping).1);

    let invalid = frame(Opcode::Text, br#"{"type":"connection_error"}"#);
    let message = "the subgraph sent an invalid message: unknown message type `connection_error`";
    for (response, expected) in [(&failure, closed), (&invalid, message)] {
        let mut tolerant = pinged();
        sent_at(&mut tolerant, at(60));
        tolerant.receive(at(61), response);
        assert_eq!(end_of(&mut tolerant), (expected.to_owned(), false));
    }

    // All of the server is gone, not only its support of the message.
    let mut silent = acknowledged(TRANSPORT_WS, start);
    sent_at(&mut silent, at(30));
    sent_at(&mut silent, at(60));
    let lost = "the connection to the subgraph was lost: no response to a ping";
    assert_eq!(end_of(&mut silent), (lost.to_owned(), false));
}

/// Generates messages of a server, right and wrong ones.
fn messages() -> impl Strategy<Value = Vec<String>> {
    let id = prop_oneof![Just("1"), Just("2"), Just("3"), Just("x"), Just("")];
    let kind = prop_oneof![
        Just("next"),
        Just("data"),
        Just("error"),
        Just("complete"),
        Just("ping"),
        Just("pong"),
        Just("ka"),
        Just("connection_ack"),
        Just("connection_error"),
    ];
    let payload = prop_oneof![
        Just(r#","payload":{"data":{"a":"é"}}"#),
        Just(r#","payload":[{"message":"m"}]"#),
        Just(""),
    ];
    let message = (id, kind, payload)
        .prop_map(|(id, kind, payload)| format!(r#"{{"type":"{kind}","id":"{id}"{payload}}}"#));
    vec(message, 0..12)
}

proptest! {
    #[test]
    fn cuts_do_not_change_the_events_of_a_connection(
        messages in messages(), is_legacy in any::<bool>(), cuts in vec(any::<usize>(), 0..20),
    ) {
        let subprotocol = if is_legacy { LEGACY } else { TRANSPORT_WS };
        let texts: Vec<&str> = [ACK].into_iter().chain(messages.iter().map(String::as_str)).collect();
        let now = Instant::now();
        let read = |cuts: &[usize]| {
            let (mut socket, bytes) = server_bytes(subprotocol, &texts);
            socket.subscribe(REQUEST).unwrap();
            socket.subscribe(REQUEST).unwrap();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            for ends in cuts.windows(2) {
                socket.receive(now, &bytes[ends[0]..ends[1]]);
            }
            socket.receive_eof(now);
            (events(&mut socket), socket.client().late_messages())
        };
        let whole = read(&[]);
        prop_assert_eq!(&read(&cuts), &whole);
        let ends = whole.0.iter().filter(|event| matches!(event, UpstreamEvent::Ended(_))).count();
        prop_assert!(ends == 1 && matches!(whole.0.last(), Some(UpstreamEvent::Ended(_))));
    }
}
