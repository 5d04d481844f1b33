//! graphql-ws, example by example: messages in, messages and events out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::connection::{Output, Protocol};
use wire::graphql_transport_ws::{ProtocolConfig, Request, ServerEvent};
use wire::graphql_ws::GraphqlWs;
use wire::subprotocol::{SUPPORTED, Subprotocol};
use wire::websocket::handshake::accept;
use wire::websocket::{CloseCode, Closed, ClosedBy};

const INIT: &str = r#"{"type":"connection_init","payload":{"token":"t"}}"#;
const START: &str = r#"{"type":"start","id":"1","payload":{"query":"subscription { tick }"}}"#;

struct Server {
    machine: GraphqlWs,
    began: Instant,
}

impl Server {
    fn new(config: ProtocolConfig) -> Server {
        let began = Instant::now();
        Server { machine: GraphqlWs::new(Arc::new(config), Some("graphql-ws"), began), began }
    }

    /// Returns a server with an acknowledged connection.
    fn ready() -> Server {
        let mut server = Server::new(ProtocolConfig::default());
        server.hear(INIT);
        assert_eq!(server.events().len(), 1);
        server.machine.accept_init(None);
        assert_eq!(server.says(), [r#"{"type":"connection_ack"}"#, r#"{"type":"ka"}"#]);
        server
    }

    fn hear(&mut self, message: &str) {
        self.machine.receive_text(Bytes::copy_from_slice(message.as_bytes()));
    }

    fn pass(&mut self, seconds: u64) {
        self.machine.handle_timeout(self.began + Duration::from_secs(seconds));
    }

    fn events(&mut self) -> Vec<ServerEvent> {
        std::iter::from_fn(|| self.machine.poll_event()).collect()
    }

    /// Returns the outputs: messages as text, a close as `code reason`.
    fn says(&mut self) -> Vec<String> {
        let outputs = std::iter::from_fn(|| self.machine.poll_output());
        outputs
            .map(|output| match output {
                Output::Text(text) => String::from_utf8(text.to_vec()).expect("UTF-8"),
                Output::Binary(_) => panic!("a binary message"),
                Output::Close(code, reason) => format!("{code} {reason}"),
            })
            .collect()
    }
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

#[test]
fn a_subscription_runs_from_init_to_complete() {
    let mut server = Server::ready();
    server.hear(START);
    assert_eq!(server.events(), [subscribed("1", 0)]);
    assert!(server.machine.next("1", r#"{"data":{"tick":1}}"#.into()));
    assert!(server.machine.complete("1"));
    assert!(!server.machine.next("1", "{}".into()), "it is over");
    let expected = [
        r#"{"id":"1","type":"data","payload":{"data":{"tick":1}}}"#,
        r#"{"id":"1","type":"complete"}"#,
    ];
    assert_eq!(server.says(), expected);
}

#[test]
fn operations_that_begin_before_the_acknowledgement_wait_for_it() {
    let mut server = Server::new(ProtocolConfig::default());
    server.hear(INIT);
    server.hear(START);
    let init = ServerEvent::Init { payload: Some(r#"{"token":"t"}"#.into()) };
    assert_eq!(server.events(), [init]);
    server.machine.accept_init(Some(r#"{"hello":1}"#.into()));
    assert_eq!(server.events(), [subscribed("1", 0)]);
    let expected = [r#"{"type":"connection_ack","payload":{"hello":1}}"#, r#"{"type":"ka"}"#];
    assert_eq!(server.says(), expected);
}

#[test]
fn operations_that_wait_for_the_acknowledgement_are_bounded_by_the_operations_in_progress() {
    let mut server = Server::new(ProtocolConfig::default());
    server.hear(INIT);
    assert_eq!(server.events().len(), 1);
    for _ in 0..1000 {
        // Each operation is started, started again, and stopped.
        server.hear(&START.replace('1', "2"));
        server.hear(START);
        server.hear(START);
        server.hear(r#"{"type":"stop","id":"2"}"#);
    }
    server.machine.accept_init(None);
    assert_eq!(server.events(), [subscribed("1", 2999)]);
    assert_eq!(server.machine.in_progress(), 1);
}

#[test]
fn a_rejected_client_gets_an_error_and_starts_no_operation() {
    let mut server = Server::new(ProtocolConfig::default());
    server.hear(INIT);
    server.hear(START);
    assert_eq!(server.events().len(), 1);
    server.machine.forbid();
    let expected =
        [r#"{"type":"connection_error","payload":{"message":"Forbidden"}}"#, "4403 Forbidden"];
    assert_eq!(server.says(), expected);
    let (code, by) = (CloseCode(4403), ClosedBy::Us);
    assert_eq!(
        server.events(),
        [ServerEvent::Ended(Closed { code, reason: "Forbidden".into(), by })]
    );
}

#[test]
fn stop_ends_an_operation_without_a_response() {
    let mut server = Server::ready();
    server.hear(START);
    server.hear(r#"{"type":"stop","id":"1"}"#);
    server.hear(r#"{"type":"stop","id":"unknown"}"#);
    let completed = ServerEvent::Complete { id: "1".into(), number: 0 };
    assert_eq!(server.events(), [subscribed("1", 0), completed]);
    assert!(!server.machine.complete("1"));
    assert!(server.says().is_empty() && server.machine.in_progress() == 0);
}

#[test]
fn an_id_that_is_used_again_replaces_its_operation() {
    let mut server = Server::ready();
    server.hear(START);
    server.hear(START);
    let replaced = ServerEvent::Complete { id: "1".into(), number: 0 };
    assert_eq!(server.events(), [subscribed("1", 0), replaced, subscribed("1", 1)]);
    assert_eq!(server.machine.in_progress(), 1);
}

#[test]
fn an_operation_that_cannot_run_gets_one_error_object() {
    let mut server = Server::ready();
    server.hear(START);
    assert!(server.machine.error("1", r#"[{"message":"no"},{"message":"never"}]"#.into()));
    let payload = r#"{"message":"no","errors":[{"message":"no"},{"message":"never"}]}"#;
    assert_eq!(server.says(), [format!(r#"{{"id":"1","type":"error","payload":{payload}}}"#)]);
    assert!(!server.machine.complete("1"));
}

#[test]
fn keep_alive_messages_are_sent_at_an_interval_after_the_acknowledgement() {
    let mut server = Server::ready();
    server.pass(11);
    assert!(server.says().is_empty());
    for seconds in [12, 24, 36] {
        server.pass(seconds);
        server.pass(seconds);
        assert_eq!(server.says(), [r#"{"type":"ka"}"#]);
    }
    let mut silent = Server::new(ProtocolConfig { keep_alive: None, ..ProtocolConfig::default() });
    silent.hear(INIT);
    silent.machine.accept_init(None);
    assert_eq!(silent.says(), [r#"{"type":"connection_ack"}"#]);
    assert_eq!(silent.machine.poll_timeout(), None);
}

#[test]
fn an_invalid_message_gets_a_response_and_the_connection_stays_open() {
    let mut server = Server::ready();
    for (message, reason) in [
        ("nonsense", "Invalid message: not JSON"),
        (r#"{"type":"subscribe"}"#, "Invalid message: unknown message type `subscribe`"),
        (INIT, "Too many initialisation requests"),
    ] {
        server.hear(message);
        let payload = format!(r#"{{"message":"{reason}"}}"#);
        let expected = format!(r#"{{"type":"connection_error","payload":{payload}}}"#);
        assert_eq!(server.says(), [expected], "{message}");
    }
    server.hear(START);
    assert_eq!(server.events(), [subscribed("1", 0)]);
}

#[test]
fn each_way_to_lose_the_connection_has_its_code() {
    let mut early = Server::new(ProtocolConfig::default());
    early.hear(START);
    assert_eq!(early.says(), ["4401 Unauthorized"]);

    let mut late = Server::new(ProtocolConfig::default());
    late.pass(2);
    assert!(late.says().is_empty());
    late.pass(3);
    assert_eq!(late.says(), ["4408 Connection initialisation timeout"]);

    let mut binary = Server::ready();
    binary.machine.receive_binary(Bytes::from_static(b"x"));
    let reason = "4400 Invalid message: binary messages are not part of the protocol";
    assert_eq!(binary.says(), [reason]);

    let mut long = Server::ready();
    long.hear(&START.replace('1', &"1".repeat(1025)));
    assert_eq!(long.says(), ["4400 Invalid message: `id` is over 1024 bytes"]);

    let mut polite = Server::ready();
    polite.hear(START);
    polite.hear(r#"{"type":"connection_terminate"}"#);
    assert_eq!(polite.says(), ["1000 Terminated"]);
    assert!(matches!(polite.events().pop(), Some(ServerEvent::Ended(_))));
    polite.hear(START);
    assert!(polite.events().is_empty() && polite.says().is_empty());
}

#[test]
fn one_operation_too_many_is_refused_alone() {
    let mut server =
        Server::new(ProtocolConfig { subscriptions_max: 1, ..ProtocolConfig::default() });
    server.hear(INIT);
    server.events();
    server.machine.accept_init(None);
    server.says();
    server.hear(START);
    server.hear(&START.replace('1', "2"));
    let [refusal] = &server.says()[..] else { panic!("one message") };
    assert!(refusal.starts_with(r#"{"id":"2","type":"error","payload":{"message":"#), "{refusal}");
    assert!(refusal.contains("TOO_MANY_SUBSCRIPTIONS"), "{refusal}");
    assert_eq!(server.machine.in_progress(), 1);
}

#[test]
fn the_order_of_the_client_decides_the_subprotocol() {
    let negotiated = |offer: &'static str| {
        let headers = [
            ("connection", &b"upgrade"[..]),
            ("upgrade", b"websocket"),
            ("sec-websocket-version", b"13"),
            ("sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", offer.as_bytes()),
        ];
        let name = accept("GET", headers, &SUPPORTED).unwrap().subprotocol;
        let mut machine = Subprotocol::new(Arc::default(), name, Instant::now());
        let mut said = Vec::new();
        machine.receive_text(INIT.into());
        machine.accept_init(None);
        machine.receive_text(START.replace("start", "subscribe").into());
        machine.receive_text(START.into());
        machine.append_result_head(0, 2, &mut said);
        (machine.name(), machine.in_progress(), String::from_utf8_lossy(&said).into_owned())
    };
    let head = |kind| format!(r#"{{"id":"1","type":"{kind}","payload":"#);
    let (name, count, said) = negotiated("graphql-ws, graphql-transport-ws");
    assert_eq!((name, count), ("graphql-ws", 1));
    assert!(said.ends_with(&head("data")), "{said}");
    let (name, count, said) = negotiated("graphql-transport-ws, graphql-ws");
    // This protocol has no message `start`, so the connection closes.
    assert_eq!((name, count, &*said), ("graphql-transport-ws", 0, ""));
    let (name, count, _) = negotiated("soap");
    assert_eq!((name, count), ("graphql-transport-ws", 0));
}
