//! graphql-transport-ws, example by example: a client and a server, joined under a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::connection::{Connection, Output, Protocol};
use wire::graphql_transport_ws::{
    Client, ClientEvent, GraphqlTransportWs, ProtocolConfig, Request, ServerEvent, next_frame,
};
use wire::pair::{Pair, Split};
use wire::websocket::{self, CloseCode, Closed, ClosedBy};

type GraphqlPair = Pair<Client, GraphqlTransportWs>;

const SUBSCRIBE: &[u8] = br#"{"query":"subscription { tick }"}"#;

fn pair() -> GraphqlPair {
    Pair::graphql_transport_ws(Default::default(), ProtocolConfig::default(), Split::Whole)
}

/// Returns a pair with an acknowledged connection.
fn ready_pair(config: ProtocolConfig, split: Split) -> GraphqlPair {
    let mut pair = Pair::graphql_transport_ws(Default::default(), config, split);
    pair.deliver();
    assert_eq!(pair.server_events(), [ServerEvent::Init { payload: None }]);
    pair.server.protocol.accept_init(None);
    pair.deliver();
    assert_eq!(pair.client_events(), [ClientEvent::Ack { payload: None }]);
    pair
}

fn ready() -> GraphqlPair {
    ready_pair(ProtocolConfig::default(), Split::Whole)
}

fn subscribed(id: &str, number: u32) -> ServerEvent {
    let query = Some("subscription { tick }".into());
    let request = Request {
        query,
        operation_name: None,
        variables: None,
        extensions: None,
        document_id: None,
    };
    ServerEvent::Subscribe { id: id.into(), number, request }
}

fn next(id: &str, payload: &'static str) -> ClientEvent {
    ClientEvent::Next { id: id.into(), payload: payload.into() }
}

fn completed(id: &str) -> ClientEvent {
    ClientEvent::Complete { id: id.into() }
}

/// Checks that both sides report the server's close with this code and reason, and that the transport may close.
#[track_caller]
fn assert_server_closes(pair: &mut GraphqlPair, code: u16, reason: &str) {
    pair.deliver();
    let closed = |by| Closed { code: CloseCode(code), reason: reason.into(), by };
    assert_eq!(pair.server_events().pop(), Some(ServerEvent::Ended(closed(ClosedBy::Us))));
    assert_eq!(pair.client_events().pop(), Some(ClientEvent::Ended(closed(ClosedBy::Peer))));
    assert!(pair.server.is_closed() && pair.client.is_closed());
}

/// Returns the close with which a server responds to `messages`.
#[track_caller]
fn close_after(messages: &[&'static str]) -> (u16, String) {
    let now = std::time::Instant::now();
    let mut server = GraphqlTransportWs::new(Arc::default(), Some("graphql-transport-ws"), now);
    for message in messages {
        server.receive_text(Bytes::from_static(message.as_bytes()));
        server.accept_init(None);
    }
    let close = std::iter::from_fn(|| server.poll_output()).last();
    let Some(Output::Close(code, reason)) = close else { panic!("no close but {close:?}") };
    (code.0, reason.into())
}

const INIT: &str = r#"{"type":"connection_init"}"#;

#[test]
fn a_subscription_runs_from_init_to_complete_however_the_network_cuts() {
    for split in [Split::Whole, Split::Bytewise, Split::Seeded(1), Split::Seeded(2)] {
        let mut pair = ready_pair(ProtocolConfig::default(), split);
        pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
        pair.deliver();
        assert_eq!(pair.server_events(), [subscribed("1", 0)]);
        assert!(pair.server.protocol.next("1", r#"{"data":{"tick":1}}"#.into()));
        assert!(pair.server.protocol.next("1", r#"{"data":{"tick":2}}"#.into()));
        assert!(pair.server.protocol.complete("1"));
        assert!(!pair.server.protocol.next("1", "{}".into()));
        pair.deliver();
        let expected = [
            next("1", r#"{"data":{"tick":1}}"#),
            next("1", r#"{"data":{"tick":2}}"#),
            completed("1"),
        ];
        assert_eq!(pair.client_events(), expected);
        assert_eq!(pair.server_events(), []);
    }
}

#[test]
fn init_and_ack_carry_payloads() {
    let now = std::time::Instant::now();
    let protocol = GraphqlTransportWs::new(Arc::default(), Some("graphql-transport-ws"), now);
    let server = Connection::server(Arc::default(), protocol, now);
    let token = Bytes::from_static(br#"{"token":"t"}"#);
    let client = Connection::client(Arc::default(), Client::new(Some(token.clone())), now, 7);
    let mut pair = Pair::new(client, server, now, Split::Whole);
    pair.deliver();
    assert_eq!(pair.server_events(), [ServerEvent::Init { payload: Some(token) }]);
    pair.server.protocol.accept_init(Some(r#"{"hello":1}"#.into()));
    pair.deliver();
    let hello = Some(r#"{"hello":1}"#.into());
    assert_eq!(pair.client_events(), [ClientEvent::Ack { payload: hello }]);
}

#[test]
fn a_client_that_completes_gets_nothing_more() {
    let mut pair = ready();
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.subscribe("2", Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.complete("1");
    pair.client.protocol.complete("never was");
    pair.deliver();
    let done = ServerEvent::Complete { id: "1".into(), number: 0 };
    assert_eq!(pair.server_events(), [subscribed("1", 0), subscribed("2", 1), done]);
    assert_eq!(pair.server.protocol.id_of(0), None);
    assert_eq!(pair.server.protocol.id_of(1), Some("2"));
    assert!(!pair.server.protocol.next("1", "{}".into()));
    assert!(!pair.server.protocol.complete("1"));
    assert!(pair.server.protocol.next("2", "{}".into()));
    pair.deliver();
    assert_eq!(pair.client_events(), [next("2", "{}")]);
}

#[test]
fn an_id_can_be_used_again_after_its_operation() {
    let mut pair = ready();
    let ends = ["complete by client", "complete by server", "error"];
    for (end, number) in ends.into_iter().zip(0..) {
        pair.client.protocol.subscribe("same", Bytes::from_static(SUBSCRIBE));
        pair.deliver();
        assert_eq!(pair.server_events(), [subscribed("same", number)], "{end}");
        match end {
            "complete by client" => pair.client.protocol.complete("same"),
            "complete by server" => assert!(pair.server.protocol.complete("same")),
            _ => assert!(pair.server.protocol.error("same", "[]".into())),
        }
        pair.deliver();
        pair.server_events();
    }
}

#[test]
fn an_error_ends_its_operation_only() {
    let mut pair = ready();
    pair.client.protocol.subscribe("bad", Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.subscribe("good", Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    let errors = r#"[{"message":"no"}]"#;
    assert!(pair.server.protocol.error("bad", errors.into()));
    assert!(!pair.server.protocol.complete("bad"));
    assert!(pair.server.protocol.next("good", "{}".into()));
    pair.deliver();
    let error = ClientEvent::Error { id: "bad".into(), errors: errors.into() };
    assert_eq!(pair.client_events(), [error, next("good", "{}")]);
}

#[test]
fn both_sides_respond_to_pings() {
    let mut pair = ready();
    pair.client.protocol.ping(Some(r#"{"n":1}"#.into()));
    pair.deliver();
    assert_eq!(pair.client_events(), [ClientEvent::Pong]);
    let reported = pair.server_events();
    assert!(
        matches!(&reported[..], [ServerEvent::Ping { payload }] if &payload[..] == br#"{"n":1}"#)
    );
    pair.client.protocol.ping(None);
    pair.deliver();
    assert_eq!(pair.server_events(), [], "there is nothing to read");

    let mut client = Client::new(None);
    assert!(client.poll_output().is_some(), "connection_init");
    client.receive_text(r#"{"type":"ping","payload":{"n":1}}"#.into());
    let Some(Output::Text(pong)) = client.poll_output() else { panic!("no pong") };
    assert_eq!(pong.to_vec(), br#"{"type":"pong","payload":{"n":1}}"#);
}

#[test]
fn a_position_between_results_does_not_disturb_clients() {
    let mut pair = ready();
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    pair.server_events();
    assert!(pair.server.protocol.next("1", r#"{"data":1}"#.into()));
    assert!(pair.server.protocol.position("1", "Abc-_9".into()));
    assert!(!pair.server.protocol.position("never was", "Abc-_9".into()));
    assert!(pair.server.protocol.next("1", r#"{"data":2}"#.into()));
    pair.deliver();
    assert_eq!(pair.client_events(), [next("1", r#"{"data":1}"#), next("1", r#"{"data":2}"#)]);
    assert_eq!(pair.server_events(), [], "the answer is one to a ping");
    assert!(pair.server.is_open());
}

#[test]
fn a_flood_of_pings_gets_one_pong() {
    let now = std::time::Instant::now();
    let mut server = GraphqlTransportWs::new(Arc::default(), Some("graphql-transport-ws"), now);
    for _ in 0..1000 {
        server.receive_text(r#"{"type":"ping"}"#.into());
    }
    assert_eq!(std::iter::from_fn(|| server.poll_output()).count(), 1);
}

#[test]
fn a_ping_before_the_acknowledgement_is_only_answered() {
    let now = std::time::Instant::now();
    let mut server = GraphqlTransportWs::new(Arc::default(), Some("graphql-transport-ws"), now);
    server.receive_text(r#"{"type":"ping","payload":{"n":1}}"#.into());
    assert!(server.poll_output().is_some(), "the pong");
    assert_eq!(server.poll_event(), None);
}

#[test]
fn a_client_that_does_not_initialise_is_closed_after_three_seconds() {
    let now = std::time::Instant::now();
    let server = GraphqlTransportWs::new(Arc::default(), Some("graphql-transport-ws"), now);
    let server = Connection::server(Arc::default(), server, now);
    let client = Connection::client(Arc::default(), Client::new(None), now, 7);
    let mut pair = Pair::new(client, server, now, Split::Whole);
    pair.is_cut = true;
    pair.deliver();
    pair.is_cut = false;
    pair.advance(Duration::from_millis(2999));
    assert_eq!(pair.server_events(), []);
    pair.advance(Duration::from_millis(1));
    assert_server_closes(&mut pair, 4408, "Connection initialisation timeout");
}

#[test]
fn a_client_that_initialised_in_time_is_not_closed() {
    let mut pair = ready();
    pair.advance(Duration::from_secs(600));
    assert!(pair.server.is_open());
    assert_eq!((pair.server_events(), pair.client_events()), (vec![], vec![]));
}

#[test]
fn a_forbidden_client_is_closed() {
    let mut pair = pair();
    pair.deliver();
    pair.server.protocol.forbid();
    assert_server_closes(&mut pair, 4403, "Forbidden");
}

#[test]
fn a_client_without_the_subprotocol_is_closed() {
    for subprotocol in [None, Some("graphql-ws")] {
        let now = std::time::Instant::now();
        let server = GraphqlTransportWs::new(Arc::default(), subprotocol, now);
        let server = Connection::server(Arc::default(), server, now);
        let client = Connection::client(Arc::default(), Client::new(None), now, 7);
        let mut pair = Pair::new(client, server, now, Split::Whole);
        assert_server_closes(&mut pair, 4406, "Subprotocol not acceptable");
    }
}

#[test]
fn each_broken_rule_closes_with_its_code() {
    let subscribe = r#"{"id":"1","type":"subscribe","payload":{"query":"{a}"}}"#;
    let close = |code: u16, reason: &str| (code, reason.to_owned());
    assert_eq!(close_after(&[subscribe]), close(4401, "Unauthorized"));
    assert_eq!(close_after(&[INIT, INIT]), close(4429, "Too many initialisation requests"));
    assert_eq!(
        close_after(&[INIT, subscribe, subscribe]),
        close(4409, "Subscriber for 1 already exists")
    );
    assert_eq!(close_after(&["nonsense"]), close(4400, "Invalid message: not JSON"));
    assert_eq!(
        close_after(&[INIT, r#"{"id":"1","type":"start","payload":{"query":"{a}"}}"#]),
        close(4400, "Invalid message: unknown message type `start`")
    );
}

#[test]
fn a_client_that_subscribes_before_the_ack_is_unauthorized() {
    let mut pair = pair();
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    assert_server_closes(&mut pair, 4401, "Unauthorized");
}

#[test]
fn nothing_is_processed_after_a_broken_rule() {
    let mut pair = ready();
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.subscribe("2", Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    let reason = "Subscriber for 1 already exists".into();
    let closed = Closed { code: CloseCode(4409), reason, by: ClosedBy::Us };
    assert_eq!(pair.server_events(), [subscribed("1", 0), ServerEvent::Ended(closed)]);
    assert!(!pair.server.protocol.next("1", "{}".into()));
}

#[test]
fn a_long_id_is_named_in_a_reason_that_fits_its_frame() {
    let mut pair = ready();
    let id = "é".repeat(500);
    pair.client.protocol.subscribe(&id, Bytes::from_static(SUBSCRIBE));
    pair.client.protocol.subscribe(&id, Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    let reason = format!("Subscriber for {}", "é".repeat(54));
    let closed = Closed { code: CloseCode(4409), reason: reason.into(), by: ClosedBy::Peer };
    assert_eq!(pair.client_events(), [ClientEvent::Ended(closed)]);
}

#[test]
fn an_id_over_the_limit_is_an_invalid_message() {
    let mut pair = ready();
    pair.client.protocol.subscribe(&"x".repeat(1025), Bytes::from_static(SUBSCRIBE));
    assert_server_closes(&mut pair, 4400, "Invalid message: `id` is over 1024 bytes");
}

#[test]
fn one_operation_too_many_gets_an_error_and_costs_the_others_nothing() {
    let mut pair = ready_pair(
        ProtocolConfig { subscriptions_max: 2, ..ProtocolConfig::default() },
        Split::Whole,
    );
    for id in ["1", "2", "3"] {
        pair.client.protocol.subscribe(id, Bytes::from_static(SUBSCRIBE));
    }
    pair.deliver();
    assert_eq!(pair.server_events(), [subscribed("1", 0), subscribed("2", 1)]);
    let errors = r#"[{"message":"This connection has 2 operations in progress, the most it may have: complete one first.","extensions":{"code":"TOO_MANY_SUBSCRIPTIONS"}}]"#;
    let refused = ClientEvent::Error { id: "3".into(), errors: errors.into() };
    assert_eq!(pair.client_events(), [refused]);
    pair.client.protocol.complete("1");
    pair.client.protocol.subscribe("3", Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    assert_eq!(
        pair.server_events(),
        [ServerEvent::Complete { id: "1".into(), number: 0 }, subscribed("3", 2)]
    );
}

#[test]
fn a_peer_that_falls_silent_is_detected() {
    let mut pair = ready();
    pair.client.protocol.subscribe("1", Bytes::from_static(SUBSCRIBE));
    pair.deliver();
    assert_eq!(pair.server_events(), [subscribed("1", 0)]);
    pair.is_cut = true;
    pair.advance(Duration::from_secs(59));
    assert_eq!(pair.server_events(), []);
    pair.advance(Duration::from_secs(1));
    let reason = "no response to a ping".into();
    let closed = Closed { code: CloseCode::ABNORMAL, reason, by: ClosedBy::Loss };
    assert_eq!(pair.server_events(), [ServerEvent::Ended(closed)]);
    assert!(pair.server.is_closed());
}

#[test]
fn a_client_closes_normally() {
    let mut pair = ready();
    pair.client.protocol.close(CloseCode::NORMAL, "done");
    pair.deliver();
    let closed = Closed { code: CloseCode::NORMAL, reason: "done".into(), by: ClosedBy::Peer };
    assert_eq!(pair.server_events(), [ServerEvent::Ended(closed)]);
    assert!(pair.server.is_closed() && pair.client.is_closed());
}

#[test]
fn a_message_over_the_limit_closes_with_1009() {
    let config = websocket::WebSocketConfig { message_bytes_max: 1000, ..Default::default() };
    let mut pair = Pair::graphql_transport_ws(config, ProtocolConfig::default(), Split::Whole);
    let request = format!(r#"{{"query":"{}"}}"#, "x".repeat(1000));
    pair.client.protocol.subscribe("1", request.into());
    assert_server_closes(&mut pair, 1009, "message is too big");
}

#[test]
fn a_broadcast_frame_written_beside_the_machine_is_read_by_a_client() {
    let mut pair = ready();
    let shared = Bytes::from(format!(r#"{{"data":"{}"}}"#, "7".repeat(300)));
    for id in ["1", "a \"quoted\" id"] {
        let frame = next_frame(id, shared.clone());
        assert_eq!(frame.body.as_ptr(), shared.as_ptr());
        pair.client.receive(pair.now, &frame.to_vec());
        let event = ClientEvent::Next { id: id.into(), payload: shared.clone() };
        assert_eq!(pair.client_events(), [event]);
    }
}

#[test]
fn a_client_leaves_a_server_that_breaks_the_protocol() {
    for message in ["nonsense", r#"{"type":"next","id":"1","payload":[]}"#, r#"{"type":"data"}"#] {
        let mut client = Client::new(None);
        client.receive_text(message.into());
        let close = std::iter::from_fn(|| client.poll_output()).last();
        assert!(matches!(close, Some(Output::Close(CloseCode(4400), _))), "{message}");
    }
}
