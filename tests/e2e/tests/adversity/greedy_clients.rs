//! Clients that send little and consume many resources: processing time before they are authenticated, or memory for
//! responses that they never read.

use std::io::{Read, Write};
use std::net::TcpStream;

use e2e::request;
use serde_json::json;

use crate::shop::Shop;
use crate::socket::Socket;
use crate::stream::Stream;

/// A query with a response of about 20 KB.
const LARGE_QUERY: &str = "{ __schema { types { name kind description fields { name description args { name } \
                     type { name kind ofType { name kind ofType { name kind } } } } } } }";

/// The metric of the bytes of unread responses.
const QUEUE_BYTES_METRIC: &str = "starling_http_response_queue_bytes";

/// A configuration with which a client may leave 64 KiB unread, in addition to the responses of 16 operations that are
/// executed at the same time.
const SMALL_QUEUE_CONFIGURATION: &str = "http: {response_queue_bytes: 64KiB}";

/// Opens a WebSocket that offers compression, byte by byte.
fn handshake(shop: &Shop) -> TcpStream {
    let mut stream = TcpStream::connect(shop.address()).unwrap();
    let head = "GET /graphql HTTP/1.1\r\nhost: router\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                sec-websocket-protocol: graphql-transport-ws\r\n\
                sec-websocket-extensions: permessage-deflate; client_no_context_takeover\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    let response = String::from_utf8(response).unwrap().to_lowercase();
    assert!(response.starts_with("http/1.1 101"), "{response}");
    assert!(response.contains("sec-websocket-extensions: permessage-deflate"), "{response}");
    stream
}

/// Builds a compressed text frame; its mask is zero.
fn compressed(text: &str) -> Vec<u8> {
    let blocks = coding::deflate_message(&[text.as_bytes()]).unwrap();
    let mut frame = vec![0xc1, 0x80 | 126];
    frame.extend_from_slice(&u16::try_from(blocks.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&blocks);
    frame
}

/// Reads a close frame and returns its code.
fn close_code(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0x88, "{head:x?}");
    u16::from_be_bytes([head[2], head[3]])
}

fn numbers(kind: &str, bytes: usize) -> String {
    format!(r#"{{"type":"{kind}","payload":{{"x":[{}0]}}}}"#, "0,".repeat(bytes / 2))
}

#[test]
fn a_message_that_expands_before_any_token_closes_its_connection() {
    let shop = Shop::open();
    let init = compressed(&numbers("connection_init", 1 << 20));
    assert!(init.len() < 6 << 10, "{} bytes", init.len());
    // A pong has no response.
    let pong = compressed(&numbers("pong", 12 << 10));
    for (messages, code) in [(vec![init], 1009), (vec![pong; 6], 1008)] {
        let mut streams: Vec<_> = (0..20).map(|_| handshake(&shop)).collect();
        for stream in &mut streams {
            // The router closes the connection as soon as it has seen enough.
            let _ = stream.write_all(&messages.concat());
        }
        for stream in &mut streams {
            assert_eq!(close_code(stream), code);
        }
    }
    shop.assert_unaffected();
}

#[test]
fn a_large_message_after_the_acknowledgement_is_handled_in_its_turn() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    let filler = "0,".repeat(200 << 10);
    for id in ["large", "small"] {
        let filler = if id == "large" { &filler } else { "" };
        let variables = format!(r#"{{"unused":[{filler}0]}}"#);
        let query = "{ warehouse { city } }";
        socket.send(&format!(
            r#"{{"id":"{id}","type":"subscribe","payload":{{"query":"{query}","variables":{variables}}}}}"#
        ));
    }
    let mut responded = Vec::new();
    while responded.len() < 2 {
        let message = socket.message();
        if message["type"] == "next" {
            assert_eq!(message["payload"]["data"]["warehouse"]["city"], "Bergen");
            responded.push(message["id"].as_str().unwrap().to_owned());
        }
    }
    responded.sort();
    assert_eq!(responded, ["large", "small"]);
    shop.assert_unaffected();
}

/// The maximum of unread bytes of one connection: its bound, the responses of running operations, and the response
/// that exceeded the bound.
fn unread_bytes_max(response: usize) -> u64 {
    (64 << 10) + 17 * response as u64
}

#[test]
fn unread_responses_pause_the_work_of_their_connection_and_none_is_lost() {
    let shop = Shop::with(SMALL_QUEUE_CONFIGURATION);
    let response = shop.query(LARGE_QUERY).body.len();
    let most = unread_bytes_max(response);
    let mut socket = Socket::ready(shop.address());
    const COUNT: usize = 400;
    assert!((COUNT * response) as u64 > 5 * most, "{response} bytes are too few for this test");
    for id in 0..COUNT {
        socket.subscribe(&id.to_string(), LARGE_QUERY);
    }
    // The client does not read: the bytes held for it grow to the bound, and are counted.
    e2e::eventually("unread bytes to be counted", || {
        shop.router.metric(QUEUE_BYTES_METRIC).filter(|bytes| *bytes > 64 << 10)
    });
    for _ in 0..20 {
        let unread = shop.router.metric(QUEUE_BYTES_METRIC).unwrap();
        assert!(unread <= most, "{unread} bytes are unread, of {most}");
    }
    let mut completed = 0;
    while completed < COUNT {
        let message = socket.message();
        match message["type"].as_str() {
            Some("next") => assert!(message["payload"]["data"].is_object()),
            Some("complete") => completed += 1,
            other => panic!("{other:?}"),
        }
    }
    shop.wait_for_metric(QUEUE_BYTES_METRIC, 0);
    shop.assert_unaffected();
}

#[test]
fn queued_responses_of_a_completed_operation_are_dropped() {
    let shop = Shop::with(SMALL_QUEUE_CONFIGURATION);
    let mut socket = Socket::ready(shop.address());
    for round in 0..3 {
        for id in 0..30 {
            socket.subscribe(&format!("{round}.{id}"), LARGE_QUERY);
        }
        for id in 0..30 {
            let id = format!("{round}.{id}");
            socket.send(&json!({ "id": id, "type": "complete" }).to_string());
        }
    }
    // A response of which the socket has accepted the first bytes stays.
    let response = shop.query(LARGE_QUERY).body.len() as u64;
    e2e::eventually("the bytes to be released with their operations", || {
        shop.router.metric(QUEUE_BYTES_METRIC).filter(|bytes| *bytes <= 2 * response)
    });
    shop.assert_unaffected();
}

#[test]
fn a_reserved_stream_that_is_never_opened_holds_a_bounded_amount() {
    let shop = Shop::with(SMALL_QUEUE_CONFIGURATION);
    let most = unread_bytes_max(shop.query(LARGE_QUERY).body.len());
    let reserved = request(shop.address(), "PUT", "/graphql", &[], b"").unwrap();
    assert_eq!(reserved.status, 201);
    let token = reserved.text();
    let mut refused = 0;
    for id in 0..200 {
        let body = json!({ "query": LARGE_QUERY, "extensions": { "operationId": id.to_string() } });
        let headers = [
            ("content-type", "application/json"),
            ("x-graphql-event-stream-token", token.as_str()),
        ];
        let body = body.to_string();
        let response = request(shop.address(), "POST", "/graphql", &headers, body.as_bytes());
        match response.unwrap().status {
            202 => {}
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(refused > 0, "everything was started");
    let unread = shop.router.metric(QUEUE_BYTES_METRIC).unwrap();
    assert!(unread > 64 << 10 && unread <= most, "{unread} bytes are unread, of {most}");
    shop.assert_unaffected();
}

#[test]
fn one_client_reserves_a_bounded_number_of_streams() {
    let shop = Shop::with("subscriptions: {max_reserved_streams_per_client: 3}");
    let reserve = || request(shop.address(), "PUT", "/graphql", &[], b"").unwrap();
    let tokens: Vec<String> = (0..3).map(|_| reserve().text()).collect();
    let refused = reserve();
    let seconds = refused.header("retry-after").and_then(|it| it.parse::<u64>().ok());
    assert!(refused.status == 503 && (1..=5).contains(&seconds.unwrap()), "{seconds:?}");
    assert!(refused.text().contains("subscriptions.max_reserved_streams_per_client"));
    // A stream that is open does not count.
    let _open = Stream::open_reserved(shop.address(), &tokens[0]);
    e2e::eventually("a free connection", || (reserve().status == 201).then_some(()));
    shop.assert_unaffected();
}

/// The metric of the bytes that live subscriptions of all clients keep.
const KEPT: &str = "starling_subscriptions_operation_bytes";

#[test]
fn a_live_subscription_keeps_neither_comments_nor_variables_that_it_does_not_declare() {
    let shop = Shop::open();
    let before = shop.router.metric(KEPT).unwrap();
    let mut socket = Socket::ready(shop.address());
    for number in 0..20 {
        let padding = format!("# {}\n", "x".repeat(20_000));
        let query = format!(
            "{padding} subscription S{number}($place: String!) {{ productChangedAt(place: $place) {{ id }} }}"
        );
        let variables = json!({ "place": number.to_string(), "unused": "y".repeat(20_000) });
        let payload = json!({ "query": query, "variables": variables });
        let message = json!({ "id": number.to_string(), "type": "subscribe", "payload": payload });
        socket.send(&message.to_string());
    }
    shop.wait_for_subscribers(20);
    let kept = shop.router.metric(KEPT).unwrap() - before;
    assert!((20 * 70..20 * 150).contains(&kept), "{kept} bytes for 20 subscriptions");
    drop(socket);
    shop.wait_for_metric(KEPT, before);
    shop.assert_unaffected();
}

#[test]
fn live_subscriptions_of_one_connection_keep_a_bounded_number_of_bytes() {
    let shop = Shop::with("subscriptions: {max_operation_bytes: 4KiB}");
    let mut socket = Socket::ready(shop.address());
    let query =
        |alias: &str| format!("subscription {{ {}: productChanged {{ id }} }}", alias.repeat(2500));
    socket.subscribe("a", &query("a"));
    shop.wait_for_subscribers(1);
    socket.subscribe("b", &query("b"));
    let message = socket.message();
    let error = &message["payload"][0];
    assert_eq!((&message["id"], &error["extensions"]["code"]), (&json!("b"), &json!("OVERLOADED")));
    assert!(error["message"].as_str().unwrap().contains("subscriptions.max_operation_bytes"));
    shop.wait_for_subscribers(1);
    // The end of the first subscription frees its bytes.
    socket.send(r#"{"id":"a","type":"complete"}"#);
    shop.wait_for_subscribers(0);
    socket.subscribe("c", &query("c"));
    shop.wait_for_subscribers(1);
    shop.assert_unaffected();
}

/// Returns the message that refuses an operation, by its id.
fn refusal(socket: &mut Socket, id: &str) -> String {
    let message = socket.message();
    let error = &message["payload"][0];
    assert_eq!((&message["id"], &error["extensions"]["code"]), (&json!(id), &json!("OVERLOADED")));
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn one_connection_listens_to_a_bounded_number_of_topics() {
    let shop = Shop::with("subscriptions: {max_topics_per_connection: 3}");
    let mut socket = Socket::ready(shop.address());
    let at =
        |place: &str| format!(r#"subscription {{ productChangedAt(place: "{place}") {{ id }} }}"#);
    for (place, count) in [("a", 1), ("b", 2), ("c", 3)] {
        socket.subscribe(place, &at(place));
        shop.wait_for_subscribers(count);
    }
    socket.subscribe("d", &at("d"));
    assert!(refusal(&mut socket, "d").contains("subscriptions.max_topics_per_connection"));
    socket.send(r#"{"id":"a","type":"complete"}"#);
    shop.wait_for_subscribers(2);
    socket.subscribe("d", &at("d"));
    shop.wait_for_subscribers(3);
    shop.assert_unaffected();
}

#[test]
fn one_client_makes_a_bounded_number_of_groups_of_one_source() {
    let shop = Shop::with("subscriptions: {max_groups_per_client: 3}");
    let mut socket = Socket::ready(shop.address());
    let query = |number: u64| format!("subscription {{ a{number}: productChanged {{ id }} }}");
    for number in 0..3 {
        socket.subscribe(&number.to_string(), &query(number));
        shop.wait_for_subscribers(number + 1);
    }
    socket.subscribe("3", &query(3));
    assert!(refusal(&mut socket, "3").contains("subscriptions.max_groups_per_client"));
    // Other sources and other clients are not affected.
    socket.subscribe("place", r#"subscription { productChangedAt(place: "a") { id } }"#);
    shop.wait_for_subscribers(4);
    let mut other = Socket::ready(shop.address());
    other.subscribe("3", &query(3));
    shop.wait_for_subscribers(5);
    // The end of a group frees its slot.
    socket.send(r#"{"id":"0","type":"complete"}"#);
    shop.wait_for_subscribers(4);
    socket.subscribe("4", &query(4));
    shop.wait_for_subscribers(5);
    shop.assert_unaffected();
}

#[test]
fn operations_that_are_started_and_completed_at_once_leave_nothing_behind() {
    let shop = Shop::open();
    let mut sockets: Vec<_> = (0..8).map(|_| Socket::ready(shop.address())).collect();
    for round in 0..40 {
        for socket in &mut sockets {
            for number in 0..20 {
                let id = format!("{round}.{number}");
                socket.subscribe(&id, "subscription { productChanged { id } }");
                socket.send(&json!({ "id": id, "type": "complete" }).to_string());
            }
        }
    }
    // The router stops reading from the connections while too many operations have started, and reads again
    // afterwards.
    for socket in &mut sockets {
        socket.subscribe("last", "{ warehouse { city } }");
        loop {
            let message = socket.message();
            if message["id"] == "last" && message["type"] == "next" {
                break;
            }
        }
    }
    shop.wait_for_subscribers(0);
    shop.assert_unaffected();
}

#[test]
fn a_reader_that_pauses_loses_nothing_because_others_fill_all_queues() {
    let shop = Shop::with(
        "subscriptions: {policy: drop_oldest, queue_bytes_total: 4MiB, queue_bytes: 4MiB, kernel_queue_bytes: 4KiB}",
    );
    let mut silent: Vec<_> = (0..2).map(|_| Socket::ready(shop.address())).collect();
    for socket in &mut silent {
        socket.subscribe("1", "subscription { productChanged { id note } }");
    }
    let mut reader = Socket::ready(shop.address());
    reader.subscribe("1", r#"subscription { productChangedAt(place: "reader") { id note } }"#);
    shop.wait_for_subscribers(3);
    let event = |number: usize, bytes: usize| {
        json!({ "__typename": "Product", "id": number.to_string(), "note": "x".repeat(bytes) })
            .to_string()
    };
    e2e::eventually("the queues to be full", || {
        shop.publish("products", event(0, 200_000));
        (shop.router.metric("starling_subscriptions_queue_full_total") > Some(0)).then_some(())
    });
    // The reader does not read meanwhile: these events need space that the silent clients occupy.
    const COUNT: usize = 30;
    for number in 0..COUNT {
        shop.publish("products.reader", event(number, 50_000));
    }
    for number in 0..COUNT {
        let payload = reader.message()["payload"].take();
        assert_eq!(payload["data"]["productChangedAt"]["id"], number.to_string());
        assert_eq!(payload["extensions"]["lost"], json!(null), "event {number}");
    }
    shop.assert_unaffected();
}
