//! Tests of the takeover of connections from HTTP/1.1 by a reactor: data sent before, with or after the request is
//! neither lost nor reordered.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use server::SupergraphSource;
use wire::graphql_transport_ws::ClientEvent;

use crate::http::{connect, read_response, request};
use crate::router::{Router, SUPERGRAPH};
use crate::socket::Socket;

const UPGRADE: &str = "GET /graphql HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
                       upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: bm90IHZlcnkgcmFuZG9tLg==\r\n\
                       sec-websocket-protocol: graphql-transport-ws\r\n";

/// The request for `subscription{tick{id}}`, without its end.
const SUBSCRIBE: &str = "GET /graphql?query=subscription%7Btick%7Bid%7D%7D HTTP/1.1\r\n\
                         host: localhost\r\naccept: text/event-stream\r\n";

const QUERY: &str = "GET /graphql?query=%7B__typename%7D HTTP/1.1\r\nhost: localhost\r\n\r\n";

const EVENT: &str = r#"{"__typename":"Tick","id":"1"}"#;

/// A text frame with a mask that changes nothing.
fn frame(text: &str) -> Vec<u8> {
    let head = match u8::try_from(text.len()) {
        Ok(length @ 0..126) => vec![0x81, 0x80 | length],
        _ => [&[0x81, 0xfe][..], &(text.len() as u16).to_be_bytes()].concat(),
    };
    [&head[..], &[0; 4], text.as_bytes()].concat()
}

/// Handshake, a ping and `connection_init` in one piece, as a client may send them without waiting.
pub(crate) fn all_at_once() -> Vec<u8> {
    let (ping, init) = (frame(r#"{"type":"ping"}"#), frame(r#"{"type":"connection_init"}"#));
    [format!("{UPGRADE}\r\n").as_bytes(), &ping, &init].concat()
}

/// The last message of the response to that.
pub(crate) const ALL_AT_ONCE_RESPONSE: &str = r#"{"type":"connection_ack"}"#;

/// Reads until this text has arrived. Returns everything that has arrived.
fn hear(socket: &mut TcpStream, expected: &str) -> String {
    hear_all(socket, &[expected])
}

/// The same for several texts, in any order.
fn hear_all(socket: &mut TcpStream, expected: &[&str]) -> String {
    let mut text = String::new();
    while !expected.iter().all(|it| text.contains(it)) {
        let mut buffer = [0; 1024];
        let length = socket.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    text
}

/// Runs a test with one reactor thread and with two.
fn with_one_reactor_and_two(test: impl Fn(&Router)) {
    for reactors in [1, 2] {
        test(&Router::start(&format!("reactors: {reactors}")));
    }
}

#[test]
fn frames_that_arrive_with_the_handshake_are_processed() {
    with_one_reactor_and_two(|router| {
        let mut socket = connect(router.address);
        socket.write_all(&all_at_once()).unwrap();
        let text = hear(&mut socket, ALL_AT_ONCE_RESPONSE);
        assert!(text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text}");
        assert!(text.contains(r#"{"type":"pong"}"#), "{text}");
    });
}

#[test]
fn a_handshake_with_a_body_is_refused() {
    with_one_reactor_and_two(|router| {
        let mut socket = connect(router.address);
        let text = format!("{UPGRADE}content-length: 5\r\n\r\nhello");
        socket.write_all(text.as_bytes()).unwrap();
        let text = hear(&mut socket, "a WebSocket handshake has no body\n");
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    });
}

#[test]
fn a_handshake_over_http_1_0_is_refused() {
    with_one_reactor_and_two(|router| {
        let mut socket = connect(router.address);
        let text = format!("{}\r\n", UPGRADE.replace("HTTP/1.1", "HTTP/1.0"));
        socket.write_all(text.as_bytes()).unwrap();
        let response = read_response(&mut socket);
        assert_eq!((response.status, &*response.header("upgrade")), (400, ""));
    });
}

#[test]
fn responses_before_a_stream_are_complete_and_requests_after_it_are_ignored() {
    with_one_reactor_and_two(|router| {
        let mut socket = connect(router.address);
        let text = format!("{QUERY}{QUERY}{SUBSCRIBE}\r\n{QUERY}");
        socket.write_all(text.as_bytes()).unwrap();
        let text = hear(&mut socket, ":\n\n");
        let responses = text.matches(r#"{"data":{"__typename":"Query"}}HTTP/1.1 200 OK"#).count();
        assert_eq!(responses, 2, "{text}");
        router.wait_for("starling_hub_subscribers", 1);
        router.publish(EVENT);
        let text = hear(&mut socket, "tick");
        assert!(!text.contains("__typename"), "{text}");
        // A client is also noticed when it disconnects after such a takeover.
        drop(socket);
        router.wait_for("starling_hub_subscribers", 0);
        router.wait_for("starling_http_connections", 0);
    });
}

#[test]
fn the_head_of_a_stream_announces_that_the_connection_ends_with_it() {
    let router = Router::start("cors: {origins: ['https://a.example']}");
    let mut socket = connect(router.address);
    let text = format!("{SUBSCRIBE}origin: https://a.example\r\n\r\n");
    socket.write_all(text.as_bytes()).unwrap();
    let text = hear(&mut socket, ":\n\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "3\r\n:\n\n\r\n");
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("date: ")).collect();
    assert_eq!(lines.len() + 1, head.lines().count(), "{head}");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "HTTP/1.1 200 OK",
            "access-control-allow-credentials: true",
            "access-control-allow-origin: https://a.example",
            "access-control-expose-headers: retry-after, www-authenticate, ratelimit, ratelimit-policy",
            "cache-control: no-cache, no-transform",
            "connection: close",
            "content-type: text/event-stream; charset=utf-8",
            "transfer-encoding: chunked",
            "vary: accept, origin",
            "x-accel-buffering: no",
            "x-content-type-options: nosniff",
        ]
    );
}

#[test]
fn a_client_of_http_1_0_reads_a_stream_until_the_connection_ends() {
    with_one_reactor_and_two(|router| {
        let text = "GET /graphql?query=%7B__typename%7D HTTP/1.0\r\naccept: text/event-stream\r\n\
                    host: localhost\r\n\r\n";
        let mut socket = connect(router.address);
        socket.write_all(text.as_bytes()).unwrap();
        let response = read_response(&mut socket);
        assert_eq!((response.status, &*response.header("transfer-encoding")), (200, ""));
        let events = ":\n\nevent: next\ndata: {\"data\":{\"__typename\":\"Query\"}}\n\n\
                      event: complete\ndata:\n\n";
        assert_eq!(response.body, events);
    });
}

#[test]
fn the_response_to_a_query_on_a_stream_is_an_event_and_an_end() {
    with_one_reactor_and_two(|router| {
        let mut socket = connect(router.address);
        let text = SUBSCRIBE.replace("subscription%7Btick%7Bid%7D%7D", "%7B__typename%7D");
        socket.write_all(format!("{text}connection: close\r\n\r\n").as_bytes()).unwrap();
        let response = read_response(&mut socket);
        let next = "event: next\ndata: {\"data\":{\"__typename\":\"Query\"}}\n\n";
        assert!(response.body.contains(next), "{}", response.body);
        let end = "event: complete\ndata:\n\n\r\n0\r\n\r\n";
        assert!(response.body.ends_with(end), "{}", response.body);
        router.wait_for(r#"starling_streams_open{transport="sse"}"#, 0);
    });
}

#[test]
fn a_stream_whose_client_keeps_sending_data_is_closed() {
    let router = Router::start("");
    let mut socket = connect(router.address);
    socket.write_all(format!("{SUBSCRIBE}\r\n").as_bytes()).unwrap();
    hear(&mut socket, ":\n\n");
    let mut sent = 0;
    while sent < 64 << 20 && socket.write_all(&[b'x'; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 64 << 20, "the router reads everything");
    router.wait_for(r#"starling_streams_open{transport="sse"}"#, 0);
}

#[test]
fn a_stream_whose_client_reads_nothing_is_closed() {
    for reactors in [1, 2] {
        let router = Router::start(&format!(
            "reactors: {reactors}\nhttp: {{stall_timeout: 1s}}\nsubscriptions: {{policy: latest}}"
        ));
        let mut socket = connect(router.address);
        let text = SUBSCRIBE.replace("%7Bid%7D", "%7Bid,note%7D");
        socket.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        hear(&mut socket, ":\n\n");
        router.wait_for("starling_hub_subscribers", 1);
        let note = "x".repeat(1_000_000);
        // More than the buffers of the systems in between.
        for _ in 0..16 {
            router.publish(&format!(r#"{{"__typename":"Tick","id":"1","note":"{note}"}}"#));
        }
        router.wait_for(r#"starling_http_timeouts_total{phase="stall"}"#, 1);
        router.wait_for(r#"starling_streams_open{transport="sse"}"#, 0);
        router.wait_for("starling_subscriptions_queue_bytes", 0);
    }
}

/// Reserves a stream for many operations without opening it.
fn reserved(router: &Router) -> String {
    let response = request(router.address, "PUT", "/graphql", &[], "");
    assert_eq!(response.status, 201, "{}", response.body);
    response.body
}

/// Starts an operation on a reserved stream.
fn start(router: &Router, token: &str, id: &str, query: &str) {
    let body = format!(r#"{{"query":"{query}","extensions":{{"operationId":"{id}"}}}}"#);
    let headers = [("x-graphql-event-stream-token", token), ("content-type", "application/json")];
    let response = request(router.address, "POST", "/graphql", &headers, body);
    assert_eq!(response.status, 202, "{}", response.body);
}

/// Opens a reserved stream.
fn open(router: &Router, token: &str) -> TcpStream {
    let mut socket = connect(router.address);
    let head = format!(
        "GET /graphql?token={token} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket
}

const OPEN_STREAMS: &str = r#"starling_streams_open{transport="sse"}"#;
const OPEN_SUBSCRIPTIONS: &str = r#"starling_subscriptions_open{transport="sse"}"#;

#[test]
fn a_stream_of_many_operations_delivers_earlier_results_and_ends_all_operations_when_it_closes() {
    with_one_reactor_and_two(|router| {
        let token = reserved(router);
        start(router, &token, "early", "{ __typename }");
        start(router, &token, "a", "subscription { tick { id } }");
        router.wait_for("starling_hub_subscribers", 1);
        router.publish(EVENT);
        router.wait_for("starling_hub_deliveries_total", 1);
        let mut socket = open(router, &token);
        let end = "event: complete\ndata: {\"id\":\"early\"}\n\n";
        let early = r#"{"id":"early","payload":{"data":{"__typename":"Query"}}}"#;
        let first = r#"{"id":"a","payload":{"data":{"tick":{"id":"1"}}}}"#;
        let text = hear_all(&mut socket, &[early, end, first]);
        assert_eq!(text.matches("event: ").count(), 3, "{text}");
        start(router, &token, "b", "subscription { tick { note } }");
        router.wait_for("starling_hub_subscribers", 2);
        router.publish(r#"{"__typename":"Tick","id":"2","note":"n"}"#);
        let second = r#"{"id":"a","payload":{"data":{"tick":{"id":"2"}}}}"#;
        let other = r#"{"id":"b","payload":{"data":{"tick":{"note":"n"}}}}"#;
        hear_all(&mut socket, &[second, other]);
        let target = "/graphql?operationId=a";
        let stopped = [("x-graphql-event-stream-token", &*token)];
        assert_eq!(request(router.address, "DELETE", target, &stopped, "").status, 200);
        router.wait_for("starling_hub_subscribers", 1);
        router.wait_for(OPEN_STREAMS, 1);
        drop(socket);
        router.wait_for("starling_hub_subscribers", 0);
        router.wait_for(OPEN_STREAMS, 0);
        router.wait_for("starling_http_connections", 0);
        // No operation can be added to it any more.
        let response = request(router.address, "DELETE", target, &stopped, "");
        assert_eq!(response.status, 404);
    });
}

#[test]
fn a_query_for_a_stream_of_many_operations_may_be_sent_by_get() {
    with_one_reactor_and_two(|router| {
        let token = reserved(router);
        let mut socket = open(router, &token);
        hear(&mut socket, ":\n\n");
        let target = "/graphql?query=%7B__typename%7D&extensions=%7B%22operationId%22%3A%22a%22%7D";
        let headers = [("x-graphql-event-stream-token", &*token), ("accept", "application/json")];
        let response = request(router.address, "GET", target, &headers, "");
        assert_eq!((response.status, &*response.body), (202, ""));
        hear(&mut socket, r#"{"id":"a","payload":{"data":{"__typename":"Query"}}}"#);
    });
}

#[test]
fn an_operation_that_ends_before_its_stream_of_many_operations_leaves_no_state() {
    for reactors in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.graphql");
        fs::write(&file, SUPERGRAPH).unwrap();
        let graph = SupergraphSource::File(file.clone());
        let router = Router::serving(graph, &format!("reactors: {reactors}"));
        let token = reserved(&router);
        let mut socket = open(&router, &token);
        hear(&mut socket, ":\n\n");
        start(&router, &token, "1", "subscription { tick { note } }");
        router.wait_for(OPEN_SUBSCRIPTIONS, 1);
        // The next graph has no such field.
        fs::write(&file, SUPERGRAPH.replace("note", "remark")).unwrap();
        let text = hear(&mut socket, "event: complete\ndata: {\"id\":\"1\"}\n\n");
        assert!(text.contains("GRAPH_RELOADED"), "{text}");
        router.wait_for(OPEN_SUBSCRIPTIONS, 0);
        router.wait_for(OPEN_STREAMS, 1);
    }
}

#[test]
fn a_stream_of_many_operations_that_is_read_too_slowly_is_closed() {
    for (reactors, policy, metric) in [
        (1, "latest", r#"starling_http_timeouts_total{phase="stall"}"#),
        (1, "disconnect", r#"starling_subscribers_slow_total{policy="disconnect"}"#),
    ] {
        let router = Router::start(&format!(
            "reactors: {reactors}\nhttp: {{stall_timeout: 1s}}\nsubscriptions: {{policy: {policy}}}"
        ));
        let token = reserved(&router);
        let mut socket = open(&router, &token);
        hear(&mut socket, ":\n\n");
        start(&router, &token, "1", "subscription { tick { id note } }");
        router.wait_for("starling_hub_subscribers", 1);
        let note = "x".repeat(1_000_000);
        // More than the buffers of the systems in between.
        for _ in 0..16 {
            router.publish(&format!(r#"{{"__typename":"Tick","id":"1","note":"{note}"}}"#));
        }
        router.wait_for(metric, 1);
        router.wait_for(OPEN_STREAMS, 0);
        router.wait_for("starling_hub_subscribers", 0);
        router.wait_for("starling_subscriptions_queue_bytes", 0);
    }
}

#[test]
fn a_stream_of_many_operations_ends_with_the_router_and_every_operation_gets_the_reason() {
    for reactors in [1, 2] {
        let router = Router::start(&format!("reactors: {reactors}"));
        let token = reserved(&router);
        let mut socket = open(&router, &token);
        let head = hear(&mut socket, ":\n\n");
        // A connection that was taken over from HTTP has no further response.
        assert!(head.contains("connection: close\r\n"), "{head}");
        start(&router, &token, "1", "subscription { tick { id } }");
        start(&router, &token, "2", "subscription { tick { note } }");
        router.wait_for("starling_hub_subscribers", 2);
        let stopping = router.stop();
        let mut rest = String::new();
        socket.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.matches(r#""code":"SHUTTING_DOWN""#).count(), 2, "{rest}");
        assert_eq!(rest.matches("event: complete\n").count(), 2, "{rest}");
        assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
        stopping.wait();
    }
}

#[test]
fn an_address_with_too_many_connections_is_refused_until_one_ends() {
    let router = Router::start("http: {max_connections_per_ip: 2}");
    let mut socket = Socket::open(router.address);
    let other = connect(router.address);
    let refused = request(router.address, "GET", "/graphql", &[], "");
    assert_eq!(refused.status, 429);
    let message = r#"{"errors":[{"message":"this address has as many connections as it may have (`http.max_connections_per_ip`); close one first","extensions":{"code":"OVERLOADED","retryAfter":"#;
    assert!(refused.body.starts_with(message), "{}", refused.body);
    router.wait_for("starling_http_connections_refused_per_ip_total", 1);
    drop(other);
    router.wait_for("starling_http_connections", 1);
    let answered = request(router.address, "GET", "/graphql?query=%7B__typename%7D", &[], "");
    assert_eq!(answered.status, 200);
    // A WebSocket still counts as a connection.
    socket.subscribe("1", "{ __typename }");
    assert!(matches!(socket.hear(), ClientEvent::Next { .. }));
}

#[test]
fn an_operation_of_a_stream_of_many_that_becomes_invalid_leaves_no_state() {
    for reactors in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supergraph.graphql");
        fs::write(&file, SUPERGRAPH).unwrap();
        let source = SupergraphSource::File(file.clone());
        let router = Router::serving(source, &format!("reactors: {reactors}"));
        let token = reserved(&router);
        let mut socket = open(&router, &token);
        hear(&mut socket, ":\n\n");
        start(&router, &token, "1", "subscription { tick { id } }");
        router.wait_for(r#"starling_subscriptions_open{transport="sse"}"#, 1);
        // The operation is not valid any more.
        fs::write(&file, SUPERGRAPH.replace("tick:", "tock:")).unwrap();
        hear(&mut socket, "event: complete\ndata: {\"id\":\"1\"}\n\n");
        router.wait_for(r#"starling_subscriptions_open{transport="sse"}"#, 0);
        router.wait_for(OPEN_STREAMS, 1);
    }
}
