//! A NATS server that is unavailable at the start or later.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use e2e::nats::NatsServer;
use e2e::request;
use expect_test::expect;
use serde_json::json;

use crate::responses::{case, format_response};
use crate::shop::{Shop, assert_no_defects};
use crate::socket::Socket;
use crate::stream::Stream;

const EVENT: &str = r#"{"__typename":"Product","id":"1"}"#;
const SUBSCRIPTION: &str = "subscription { productChanged { id name } }";
const CONNECTED: &str = r#"starling_events_provider_connected{provider="nats/default"}"#;

/// Starts a shop with fast reconnection, since the tests wait for it.
fn shop(port: u16) -> Shop {
    let provider = format!(
        "{{id: default, url: \"nats://127.0.0.1:{port}\", retry: {{initial: 20ms, max: 100ms}}}}"
    );
    Shop::with_provider(
        "nats/default",
        &format!("events: {{publish_timeout: 3s, providers: {{nats: [{provider}]}}}}"),
    )
}

/// Returns a port without a listener.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Publishes like any NATS client, and waits until the server has processed the message.
fn publish(port: u16, subject: &str, event: &[u8]) {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("CONNECT {{\"verbose\":false}}\r\nPUB {subject} {}\r\n", event.len());
    client.write_all(&[head.as_bytes(), event, b"\r\nPING\r\n"].concat()).unwrap();
    let mut output = String::new();
    let mut buffer = [0; 4096];
    while !output.contains("PONG\r\n") {
        let length = client.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "the server hung up: {output}");
        output.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}

#[test]
fn a_broker_that_is_down_at_the_start_fails_its_fields_until_it_is_available() {
    // The test requires a server that can be started later.
    let Some(server) = NatsServer::start() else { return };
    let port = server.kill();
    let shop = shop(port);
    let ready = request(shop.router.admin(), "GET", "/health/ready", &[], b"").unwrap();
    assert_eq!(ready.text(), "ready; providers not connected: nats/default\n");

    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut outcomes = case("over WebSocket", &format!("{}\n", socket.message()));
    outcomes += &case("over SSE", &Stream::open(shop.address(), SUBSCRIPTION).transcript());
    let mutation = r#"mutation { announce(id: 1, place: "here") { success } }"#;
    outcomes += &case("a mutation", &format_response(&shop.query(mutation)));
    let target = "/admin/publish?provider=nats/default&topic=products";
    let admin = request(shop.router.admin(), "POST", target, &[], EVENT.as_bytes()).unwrap();
    outcomes += &case("a test event", &format_response(&admin).replace(&port.to_string(), "PORT"));
    expect![[r#"
        --- over WebSocket
        {"id":"1","type":"error","payload":[{"message":"The event provider nats/default is not connected at present; try again later.","extensions":{"code":"PROVIDER_UNAVAILABLE"}}]}

        --- over SSE
        next {"errors":[{"message":"The event provider nats/default is not connected at present; try again later.","extensions":{"code":"PROVIDER_UNAVAILABLE"}}]}
        complete
        end

        --- a mutation
        200 application/graphql-response+json; charset=utf-8
        {"data":{"announce":{"success":false}}}

        --- a test event
        502 text/plain; charset=utf-8
        provider nats/default is not connected: IO error: Connection refused (os error 111)

    "#]].assert_eq(&outcomes);

    let Some(_server) = NatsServer::restart_on(port) else { return };
    shop.wait_for_metric(CONNECTED, 1);
    socket.subscribe("2", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    publish(port, "products", EVENT.as_bytes());
    let data = json!({ "productChanged": { "id": "1", "name": "Kettle" } });
    assert_eq!(socket.message(), json!({ "id": "2", "type": "next", "payload": { "data": data } }));
    assert_eq!(shop.ask(mutation), json!({ "data": { "announce": { "success": true } } }));
    shop.assert_unaffected();
}

#[test]
fn a_broker_that_is_lost_keeps_its_subscriptions_and_the_gap_is_announced() {
    let Some(server) = NatsServer::start() else { return };
    let shop = shop(server.port());
    shop.wait_for_metric(CONNECTED, 1);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    let mut stream = Stream::open(shop.address(), SUBSCRIPTION);
    shop.wait_for_subscribers(2);
    publish(server.port(), "products", EVENT.as_bytes());
    let data = json!({ "productChanged": { "id": "1", "name": "Kettle" } });
    let next =
        |payload: serde_json::Value| json!({ "id": "1", "type": "next", "payload": payload });
    assert_eq!(socket.message(), next(json!({ "data": data })));
    assert!(stream.event().unwrap().starts_with("next {\"data\""));

    let port = server.kill();
    shop.wait_for_metric(CONNECTED, 0);
    // Existing subscribers stay; a new subscription to another topic is refused.
    let mut late = Socket::ready(shop.address());
    late.subscribe("1", r#"subscription { productChangedAt(place: "late") { id } }"#);
    expect![[r#"{"id":"1","type":"error","payload":[{"message":"The event provider nats/default is not connected at present; try again later.","extensions":{"code":"PROVIDER_UNAVAILABLE"}}]}"#]].assert_eq(&late.message().to_string());

    let Some(server) = NatsServer::restart_on(port) else { return };
    shop.wait_for_metric(CONNECTED, 1);
    shop.wait_for_metric(r#"starling_events_reconnects_total{provider="nats/default"}"#, 1);
    // A connected provider is not subscribed yet: events published in between are the reason for the announced gap.
    let received = r#"starling_events_received_total{provider="nats/default"}"#;
    let before = shop.router.metric(received);
    e2e::eventually("an event to be delivered", || {
        publish(server.port(), "products", EVENT.as_bytes());
        (shop.router.metric(received) > before).then_some(())
    });
    let with_gap = json!({ "data": data, "extensions": { "gap": true } });
    assert_eq!(socket.message(), next(with_gap));
    assert_eq!(
        stream.event().unwrap(),
        r#"next {"data":{"productChanged":{"id":"1","name":"Kettle"}},"extensions":{"gap":true}}"#
    );
    publish(server.port(), "products", EVENT.as_bytes());
    assert_eq!(socket.message(), next(json!({ "data": data })));
    shop.assert_unaffected();
}

#[test]
fn a_malformed_event_from_a_broker_is_an_error_and_the_subscription_continues() {
    let Some(server) = NatsServer::start() else { return };
    let shop = shop(server.port());
    shop.wait_for_metric(CONNECTED, 1);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("1", SUBSCRIPTION);
    shop.wait_for_subscribers(1);
    let mut outcomes = String::new();
    for (name, event) in
        [("nothing", &b""[..]), ("not UTF-8", b"\xff\xfe"), ("a good one", EVENT.as_bytes())]
    {
        publish(server.port(), "products", event);
        outcomes += &case(name, &format!("{}\n", socket.message()));
    }
    expect![[r#"
        --- nothing
        {"id":"1","type":"next","payload":{"data":{"productChanged":null},"errors":[{"message":"The event is not valid JSON: the text ends too early at byte 0.","path":["productChanged"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- not UTF-8
        {"id":"1","type":"next","payload":{"data":{"productChanged":null},"errors":[{"message":"The event is not valid JSON: the text is not valid UTF-8 at byte 0.","path":["productChanged"],"extensions":{"code":"INVALID_EVENT"}}]}}

        --- a good one
        {"id":"1","type":"next","payload":{"data":{"productChanged":{"id":"1","name":"Kettle"}}}}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_value_with_a_wildcard_or_an_empty_token_never_becomes_a_subject() {
    let Some(server) = NatsServer::start() else { return };
    let shop = shop(server.port());
    shop.wait_for_metric(CONNECTED, 1);
    let mut outcomes = String::new();
    for place in ["*", ">", "a.*", "a..b", ".a", "a.", "a b", ""] {
        let query = format!("subscription {{ productChangedAt(place: \"{place}\") {{ id }} }}");
        outcomes += &case(place, &Stream::open(shop.address(), &query).transcript());
    }
    expect![[r#"
        --- *
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a wildcard (* or >).","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- >
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a wildcard (* or >).","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a.*
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a wildcard (* or >).","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a..b
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a character that separates the parts of this topic.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- .a
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a character that separates the parts of this topic.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a.
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a character that separates the parts of this topic.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- a b
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it contains a space.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

        --- 
        next {"errors":[{"message":"Argument \"place\" cannot be part of a topic: it is empty.","extensions":{"code":"BAD_USER_INPUT"}}]}
        complete
        end

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_router_that_requires_its_brokers_does_not_start_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let graph = crate::shop::SUPERGRAPH.replace("$SERVER", "http://127.0.0.1:1");
    std::fs::write(
        folder.path().join("supergraph.graphql"),
        graph.replace("$PROVIDER", "nats/default"),
    )
    .unwrap();
    let file = folder.path().join("starling.yaml");
    let configuration = format!(
        "events: {{require_all: true, providers: {{nats: [{{id: default, url: \"nats://secret@127.0.0.1:{}\"}}]}}}}\nlog: {{format: text}}\n",
        free_port()
    );
    std::fs::write(&file, configuration).unwrap();
    let listen = "127.0.0.1:0";
    let words =
        ["serve", "--config", file.to_str().unwrap(), "--listen", listen, "--admin-listen", listen];
    let (code, _, err) = e2e::router::run(words);
    assert_eq!(code, Some(1), "{err}");
    assert_no_defects(&err);
    assert!(!err.contains("secret"), "{err}");
    let last = err.lines().last().unwrap();
    expect!["error: provider nats/default is not connected and `events.require_all` is true"]
        .assert_eq(last);
}
