//! Tests of WebSocket clients that read nothing, or send much at once.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::time::Duration;

use server::SupergraphSource;
use wire::graphql_transport_ws::ClientEvent;
use wire::websocket::CloseCode;

use crate::router::{Router, SUPERGRAPH};
use crate::socket::Socket;

const OPEN: &str = r#"starling_streams_open{transport="websocket"}"#;

/// A text frame with a mask that changes nothing.
fn frame(text: &[u8]) -> Vec<u8> {
    [&b"\x81\xff"[..], &(text.len() as u64).to_be_bytes(), &[0; 4], text].concat()
}

#[test]
fn a_client_that_sends_and_never_reads_is_throttled_and_disconnected() {
    let router = Router::start("websocket: {ping_interval: 1s}");
    let mut socket = Socket::open(router.address);
    socket.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let text = format!(r#"{{"type":"ping","payload":{{"x":"{}"}}}}"#, "y".repeat(60_000));
    let ping = frame(text.as_bytes());
    let mut sent = 0;
    // Buffers of the system take some megabytes in each direction.
    while sent < 256 << 20 && socket.stream.write_all(&ping).is_ok() {
        sent += ping.len();
    }
    assert!(sent < 256 << 20, "the router continues to read although its responses are not read");
    // The socket is still open on this side.
    router.wait_for(OPEN, 0);
}

#[test]
fn a_client_that_violates_the_protocol_gets_the_reason_although_it_keeps_sending() {
    let router = Router::start("websocket: {max_message_size: 1KiB}");
    let mut socket = Socket::open(router.address);
    let message = frame(&vec![b' '; 4 << 20]);
    // The router may close before it has read everything.
    let _ = socket.stream.write_all(&message);
    let (_, closed) = socket.read_to_end();
    assert_eq!(closed.code, CloseCode::TOO_BIG);
    router.wait_for(OPEN, 0);
}

#[test]
fn many_subscriptions_of_one_connection_get_each_event_with_any_bound() {
    let router = Router::start("subscriptions: {queue_events: 1}");
    let mut socket = Socket::open(router.address);
    for id in 0..100 {
        socket.subscribe(&id.to_string(), "subscription { tick { id } }");
    }
    router.wait_for("starling_hub_subscribers", 100);
    router.wait_for(r#"starling_subscriptions_open{transport="websocket"}"#, 100);
    router.publish(r#"{"__typename":"Tick","id":"1"}"#);
    for _ in 0..100 {
        let heard = socket.hear();
        assert!(matches!(heard, ClientEvent::Next { .. }), "{heard:?}");
    }
}

#[test]
fn a_refused_subscription_is_one_request_and_one_error_whichever_thread_refuses_it() {
    let router = Router::start("subscriptions: {max_topics_per_connection: 1}");
    let mut socket = Socket::open(router.address);
    let query = "subscription Ticks { tick { id } }";
    // Both join their group before one of them is live, so the reactor refuses the other one.
    socket.subscribe_together(&[("a", query), ("b", query)]);
    let heard = socket.hear();
    assert!(matches!(heard, ClientEvent::Error { .. }), "{heard:?}");
    // A worker refuses this one.
    socket.subscribe("c", query);
    let heard = socket.hear();
    assert!(matches!(&heard, ClientEvent::Error { id, .. } if *id == "c"), "{heard:?}");
    let operation = r#"operation="Ticks",kind="subscription""#;
    let client = r#"client="unnamed",client_version="""#;
    let code = r#"code="OVERLOADED""#;
    for (metric, value) in [
        (format!("starling_operations_refused_total{{{code}}}"), 2),
        (r#"starling_operations_total{kind="subscription",outcome="ok"}"#.to_owned(), 1),
        (r#"starling_operations_total{kind="subscription",outcome="errors"}"#.to_owned(), 0),
        (format!("starling_named_operation_requests_total{{{operation}}}"), 3),
        (format!("starling_named_operation_errors_total{{{operation},{code}}}"), 2),
        (format!("starling_client_requests_total{{{client}}}"), 3),
        (format!("starling_client_errors_total{{{client},{code}}}"), 2),
    ] {
        router.wait_for(&metric, value);
    }
}

#[test]
fn a_client_gets_a_trace_if_its_handshake_requests_it() {
    for reactors in [1, 2] {
        let router = Router::start(&format!("reactors: {reactors}\ntrace: {{enabled: true}}"));
        for (headers, is_traced) in [(&[][..], false), (&[("starling-trace", "1")], true)] {
            let mut socket = Socket::open_with(router.address, headers);
            socket.subscribe("1", "{ __typename }");
            let ClientEvent::Next { payload, .. } = socket.hear() else { panic!("no response") };
            let text = String::from_utf8_lossy(&payload);
            assert_eq!(text.contains(r#""trace":{"#), is_traced, "{reactors}: {text}");
        }
    }
}

#[test]
fn a_client_that_the_condition_does_not_name_gets_no_trace() {
    let when = "request.headers[?'x-team'].orValue('') == 'core' && operation.kind == 'query'";
    let router = Router::start(&format!("trace: {{enabled: true, when: \"{when}\"}}"));
    for (team, is_traced) in [("core", true), ("other", false)] {
        let headers = [("starling-trace", "1"), ("x-team", team)];
        let mut socket = Socket::open_with(router.address, &headers);
        socket.subscribe("1", "{ __typename }");
        let ClientEvent::Next { payload, .. } = socket.hear() else { panic!("no response") };
        let text = String::from_utf8_lossy(&payload);
        assert_eq!(text.contains(r#""trace":{"#), is_traced, "{team}: {text}");
    }
}

#[test]
fn a_response_larger_than_the_queue_is_delivered() {
    for policy in ["disconnect", "drop_oldest", "latest"] {
        let router =
            Router::start(&format!("subscriptions: {{queue_bytes: 1KiB, policy: {policy}}}"));
        let mut socket = Socket::open(router.address);
        socket.subscribe("1", "{ __schema { types { name fields { name description } } } }");
        let ClientEvent::Next { payload, .. } = socket.hear() else { panic!("no response") };
        assert!(payload.len() > 1024, "{}", payload.len());
        assert_eq!(socket.hear(), ClientEvent::Complete { id: "1".into() });
    }
}

#[test]
fn an_event_larger_than_the_queue_is_delivered() {
    let router = Router::start("subscriptions: {queue_bytes: 1KiB}");
    let mut socket = Socket::open(router.address);
    socket.subscribe("1", "subscription { tick { id note } }");
    router.wait_for("starling_hub_subscribers", 1);
    let note = "x".repeat(5000);
    router.publish(&format!(r#"{{"__typename":"Tick","id":"1","note":"{note}"}}"#));
    let heard = socket.hear();
    assert!(matches!(heard, ClientEvent::Next { .. }), "{heard:?}");
}

#[test]
fn a_subscriber_with_an_unannounced_loss_gets_the_end_although_its_queue_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("supergraph.graphql");
    fs::write(&file, SUPERGRAPH).unwrap();
    let router = Router::serving(
        SupergraphSource::File(file.clone()),
        "websocket: {ping_interval: 1h}\nsubscriptions: {policy: drop_oldest, queue_bytes: 1KiB}",
    );
    let mut socket = Socket::open(router.address);
    socket.subscribe("a", "subscription { tick { id } }");
    socket.subscribe("b", "subscription { tick { id note } }");
    router.wait_for("starling_hub_subscribers", 2);
    // More than the buffers of the systems in between. One of the two subscriptions finds no room for its last event.
    let note = "x".repeat(1_000_000);
    for number in 1..=16 {
        let event = format!(r#"{{"__typename":"Tick","id":"e{number}","note":"{note}"}}"#);
        router.publish(&event);
    }
    router.wait_for("starling_hub_deliveries_total", 32);
    let last = br#""id":"e16""#;
    loop {
        let ClientEvent::Next { payload, .. } = socket.hear() else { panic!("no result") };
        if payload.windows(last.len()).any(|it| it == last) {
            break;
        }
    }
    router.wait_for("starling_subscriptions_queue_bytes", 0);
    fs::write(&file, SUPERGRAPH.replace("tick:", "tock:")).unwrap();
    let mut ended = BTreeSet::new();
    while ended.len() < 2 {
        match socket.hear() {
            ClientEvent::Next { .. } => {}
            ClientEvent::Error { id, .. } => assert!(ended.insert(id)),
            other => panic!("{other:?}"),
        }
    }
}
