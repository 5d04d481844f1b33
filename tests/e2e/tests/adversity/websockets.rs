//! WebSocket clients that violate the handshake, the framing or `graphql-transport-ws`.

use std::io::Write;

use e2e::request;
use expect_test::expect;
use serde_json::json;

use crate::responses::{case, format_response};
use crate::shop::Shop;
use crate::socket::Socket;

#[test]
fn an_invalid_handshake_is_refused_with_the_missing_part() {
    let shop = Shop::open();
    let connection = ("connection", "Upgrade");
    let upgrade = ("upgrade", "websocket");
    let version = ("sec-websocket-version", "13");
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut outcomes = String::new();
    for (name, method, headers) in [
        ("by POST", "POST", vec![connection, upgrade, version, key]),
        ("without connection", "GET", vec![upgrade, version, key]),
        ("without version", "GET", vec![connection, upgrade, key]),
        ("an old version", "GET", vec![connection, upgrade, ("sec-websocket-version", "8"), key]),
        ("without key", "GET", vec![connection, upgrade, version]),
        (
            "a short key",
            "GET",
            vec![connection, upgrade, version, ("sec-websocket-key", "c2hvcnQ=")],
        ),
        ("two keys", "GET", vec![connection, upgrade, version, key, key]),
        (
            "a foreign origin",
            "GET",
            vec![connection, upgrade, version, key, ("origin", "https://evil.example")],
        ),
    ] {
        // The helper adds `connection: close`, which is a separate header and changes nothing here.
        let response = request(shop.address(), method, "/graphql", &headers, b"").unwrap();
        outcomes += &case(name, &format_response(&response));
    }
    expect![[r#"
        --- by POST
        405 text/plain; charset=utf-8
        allow: GET
        a WebSocket handshake is a GET request

        --- without connection
        426 text/plain; charset=utf-8
        upgrade: websocket
        sec-websocket-version: 13
        the headers `Connection: Upgrade` and `Upgrade: websocket` are required

        --- without version
        426 text/plain; charset=utf-8
        upgrade: websocket
        sec-websocket-version: 13
        the header `Sec-WebSocket-Version: 13` is required: no other version is supported

        --- an old version
        426 text/plain; charset=utf-8
        upgrade: websocket
        sec-websocket-version: 13
        the header `Sec-WebSocket-Version: 13` is required: no other version is supported

        --- without key
        400 text/plain; charset=utf-8
        the header `Sec-WebSocket-Key` is missing

        --- a short key
        400 text/plain; charset=utf-8
        the header `Sec-WebSocket-Key` must be given once, as base64 of 16 bytes

        --- two keys
        400 text/plain; charset=utf-8
        the header `Sec-WebSocket-Key` must be given once, as base64 of 16 bytes

        --- a foreign origin
        403 text/plain; charset=utf-8
        this origin may not connect: it is neither this host nor allowed by `cors` ("*" is for requests without cookies)

    "#]]
    .assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_client_without_a_known_subprotocol_is_closed_with_a_code() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for subprotocols in [&[][..], &["soap"]] {
        let mut socket = Socket::open_with(shop.address(), subprotocols);
        outcomes += &case(&format!("{subprotocols:?}"), &socket.transcript());
    }
    expect![[r#"
        --- []
        closed 4406 Subprotocol not acceptable

        --- ["soap"]
        closed 4406 Subprotocol not acceptable

    "#]]
    .assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn messages_that_violate_the_protocol_close_the_connection_with_a_reason() {
    let shop = Shop::with("websocket: {max_message_size: 4KiB}");
    let init = r#"{"type":"connection_init"}"#;
    let subscribe = r#"{"id":"1","type":"subscribe","payload":{"query":"subscription { productChanged { id } }"}}"#;
    let huge = format!(r#"{{"type":"ping","payload":{{"x":"{}"}}}}"#, "y".repeat(5000));
    let long_id = format!(
        r#"{{"id":"{}","type":"subscribe","payload":{{"query":"{{ a }}"}}}}"#,
        "i".repeat(2000)
    );
    let deep = format!(r#"{{"type":"ping","payload":{}"#, r#"{"a":"#.repeat(700));
    let mut outcomes = String::new();
    for (name, messages) in [
        ("subscribe before init", vec![subscribe]),
        ("init twice", vec![init, init]),
        ("an id twice", vec![init, subscribe, subscribe]),
        ("no JSON", vec![init, "hello"]),
        ("nothing", vec![init, ""]),
        ("a list", vec![init, "[]"]),
        ("no type", vec![init, "{}"]),
        ("an unknown type", vec![init, r#"{"type":"start","id":"1"}"#]),
        ("a type that is no text", vec![init, r#"{"type":7}"#]),
        ("an init payload that is no object", vec![r#"{"type":"connection_init","payload":7}"#]),
        ("no id", vec![init, r#"{"type":"subscribe","payload":{"query":"{ a }"}}"#]),
        ("an empty id", vec![init, r#"{"type":"subscribe","id":"","payload":{"query":"{ a }"}}"#]),
        ("a long id", vec![init, &long_id]),
        ("no payload", vec![init, r#"{"type":"subscribe","id":"1"}"#]),
        ("no query", vec![init, r#"{"type":"subscribe","id":"1","payload":{}}"#]),
        (
            "variables that are a list",
            vec![
                init,
                r#"{"type":"subscribe","id":"1","payload":{"query":"{ a }","variables":[]}}"#,
            ],
        ),
        ("an oversized message", vec![init, &huge]),
        ("nesting without end", vec![init, &deep]),
    ] {
        let mut socket = Socket::open(shop.address());
        for message in messages {
            socket.send(message);
        }
        outcomes += &case(name, &socket.transcript());
    }
    expect![[r#"
        --- subscribe before init
        closed 4401 Unauthorized

        --- init twice
        {"type":"connection_ack"}
        closed 4429 Too many initialisation requests

        --- an id twice
        {"type":"connection_ack"}
        closed 4409 Subscriber for 1 already exists

        --- no JSON
        {"type":"connection_ack"}
        closed 4400 Invalid message: not JSON

        --- nothing
        {"type":"connection_ack"}
        closed 4400 Invalid message: not JSON

        --- a list
        {"type":"connection_ack"}
        closed 4400 Invalid message: not a JSON object

        --- no type
        {"type":"connection_ack"}
        closed 4400 Invalid message: `type` must be a string

        --- an unknown type
        {"type":"connection_ack"}
        closed 4400 Invalid message: unknown message type `start`

        --- a type that is no text
        {"type":"connection_ack"}
        closed 4400 Invalid message: `type` must be a string

        --- an init payload that is no object
        closed 4400 Invalid message: `payload` must be an object

        --- no id
        {"type":"connection_ack"}
        closed 4400 Invalid message: `id` must be a non-empty string

        --- an empty id
        {"type":"connection_ack"}
        closed 4400 Invalid message: `id` must be a non-empty string

        --- a long id
        {"type":"connection_ack"}
        closed 4400 Invalid message: `id` is over 1024 bytes

        --- no payload
        {"type":"connection_ack"}
        closed 4400 Invalid message: `payload` must be an object

        --- no query
        {"type":"connection_ack"}
        closed 4400 Invalid message: `query` must be a string

        --- variables that are a list
        {"type":"connection_ack"}
        closed 4400 Invalid message: `variables` must be an object

        --- an oversized message
        {"type":"connection_ack"}
        closed 1009 message is too big

        --- nesting without end
        {"type":"connection_ack"}
        closed 4400 Invalid message: not JSON

    "#]]
    .assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn frames_that_violate_the_protocol_close_the_connection_with_a_reason() {
    let shop = Shop::open();
    let mask = [0; 4];
    let frame = |head: &[u8], payload: &[u8]| [head, &mask, payload].concat();
    let mut outcomes = String::new();
    for (name, bytes) in [
        ("unmasked", b"\x81\x02{}".to_vec()),
        ("reserved bits", frame(&[0xf1, 0x82], b"{}")),
        ("an unknown opcode", frame(&[0x83, 0x82], b"{}")),
        ("binary", frame(&[0x82, 0x82], b"{}")),
        ("a fragmented ping", frame(&[0x09, 0x80], b"")),
        ("a long ping", frame(&[0x89, 0xfe, 0x00, 0x7e], &[b'x'; 126])),
        ("a continuation of nothing", frame(&[0x80, 0x82], b"{}")),
        ("text that is not UTF-8", frame(&[0x81, 0x81], b"\xff")),
        ("a length of 2^63", frame(&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], b"")),
        ("a length of 1 TB", frame(&[0x81, 0xff, 0, 0, 1, 0, 0, 0, 0, 0], b"")),
        ("a close code that must not be sent", frame(&[0x88, 0x82], &1006_u16.to_be_bytes())),
        ("half a close code", frame(&[0x88, 0x81], b"\x03")),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        let mut socket = Socket::ready(shop.address());
        socket.stream.write_all(&bytes).unwrap();
        outcomes += &case(name, &socket.transcript());
    }
    expect![[r#"
        --- unmasked
        closed 1002 client frame is not masked

        --- reserved bits
        closed 1002 reserved bits are set

        --- an unknown opcode
        closed 1002 reserved opcode

        --- binary
        closed 4400 Invalid message: binary messages are not part of the protocol

        --- a fragmented ping
        closed 1002 control frame is fragmented or over 125 bytes

        --- a long ping
        closed 1002 control frame is fragmented or over 125 bytes

        --- a continuation of nothing
        closed 1002 continuation of no message

        --- text that is not UTF-8
        closed 1007 text is not UTF-8

        --- a length of 2^63
        closed 1002 length with its highest bit set

        --- a length of 1 TB
        closed 1009 message is too big

        --- a close code that must not be sent
        closed 1002 close code that must not be sent

        --- half a close code
        closed 1002 close frame with half a code

        --- HTTP
        closed 1002 reserved opcode

    "#]]
    .assert_eq(&outcomes);
    shop.assert_unaffected();
}

#[test]
fn a_client_without_connection_init_is_closed_after_the_configured_time() {
    let shop = Shop::with("websocket: {init_timeout: 100ms}");
    let mut socket = Socket::open(shop.address());
    expect![[r#"
        closed 4408 Connection initialisation timeout
    "#]]
    .assert_eq(&socket.transcript());
    shop.assert_unaffected();
}

#[test]
fn the_hash_of_an_operation_instead_of_its_text_is_answered_as_clients_expect() {
    let shop = Shop::with("apq: {enabled: false}");
    for protocol in ["graphql-transport-ws", "graphql-ws"] {
        let mut socket = Socket::open_with(shop.address(), &[protocol]);
        socket.send(r#"{"type":"connection_init"}"#);
        assert_eq!(socket.message()["type"], "connection_ack");
        let kind = if protocol == "graphql-ws" { "start" } else { "subscribe" };
        let extensions = json!({ "persistedQuery": { "version": 1, "sha256Hash": "ab" } });
        let hash = json!({ "id": "1", "type": kind, "payload": { "extensions": extensions } });
        socket.send(&hash.to_string());
        let refusal = message_of(&mut socket, "1");
        for expected in ["PersistedQueryNotSupported", "PERSISTED_QUERY_NOT_SUPPORTED"] {
            assert!(refusal.contains(expected), "{protocol}: {refusal}");
        }
        // The client then sends the text, under another id.
        let payload = json!({ "query": "{ warehouse { city } }", "extensions": extensions });
        socket.send(&json!({ "id": "2", "type": kind, "payload": payload }).to_string());
        let response = message_of(&mut socket, "2");
        assert!(response.contains(r#""city":"#), "{protocol}: {response}");
    }
    shop.assert_unaffected();
}

/// Returns the next message of an operation; `graphql-ws` sends other messages between them.
fn message_of(socket: &mut Socket, id: &str) -> String {
    loop {
        let message = socket.message();
        if message["id"] == id {
            return message.to_string();
        }
    }
}

#[test]
fn an_operation_that_cannot_run_ends_with_an_error_and_the_connection_stays_open() {
    let shop = Shop::with("websocket: {max_subscriptions_per_connection: 2}\nlimits: {depth: 3}");
    let mut socket = Socket::ready(shop.address());
    let mut outcomes = String::new();
    for query in [
        "{",
        "{ nothing }",
        "query A { warehouse { city } } query B { warehouse { city } }",
        "{ latestReview { product { reviews { text } } } }",
        "subscription ($place: String!) { productChangedAt(place: $place) { id } }",
        "subscription { productChangedAt(place: \"\") { id } }",
    ] {
        socket.subscribe("1", query);
        outcomes += &case(query, &format!("{}\n", socket.message()));
    }
    // The same id can be used again each time; at most two operations may run at once, and the third is refused.
    for id in ["a", "b", "c"] {
        socket.subscribe(id, "subscription { productChanged { id } }");
    }
    outcomes += &case("one too many", &format!("{}\n", socket.message()));
    expect![[r#"
        --- {
        {"id":"1","type":"error","payload":[{"message":"syntax error: expected at least one Selection in Selection Set","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]}

        --- { nothing }
        {"id":"1","type":"error","payload":[{"message":"type `Query` does not have a field `nothing`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}

        --- query A { warehouse { city } } query B { warehouse { city } }
        {"id":"1","type":"error","payload":[{"message":"the document has several operations (A, B); choose one with `operationName`","extensions":{"code":"OPERATION_NOT_FOUND"}}]}

        --- { latestReview { product { reviews { text } } } }
        {"id":"1","type":"error","payload":[{"message":"the operation exceeds the limit of 3 levels of nesting (`limits.depth`)","extensions":{"code":"OPERATION_LIMIT_EXCEEDED"}}]}

        --- subscription ($place: String!) { productChangedAt(place: $place) { id } }
        {"id":"1","type":"error","payload":[{"message":"Variable \"$place\" of required type \"String!\" was not provided.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- subscription { productChangedAt(place: "") { id } }
        {"id":"1","type":"error","payload":[{"message":"Argument \"place\" cannot be part of a topic: it is empty.","extensions":{"code":"BAD_USER_INPUT"}}]}

        --- one too many
        {"id":"c","type":"error","payload":[{"message":"This connection has 2 operations in progress, the most it may have: complete one first.","extensions":{"code":"TOO_MANY_SUBSCRIPTIONS"}}]}

    "#]].assert_eq(&outcomes);
    shop.wait_for_subscribers(2);
    shop.publish("products", r#"{"__typename":"Product","id":"1"}"#);
    let mut received = [socket.message(), socket.message()];
    received.sort_by_key(|message| message["id"].to_string());
    let next = |id: &str| json!({ "id": id, "type": "next", "payload": { "data": { "productChanged": { "id": "1" } } } });
    assert_eq!(received, [next("a"), next("b")]);
    shop.assert_unaffected();
}

#[test]
fn a_broken_connection_leaves_nothing_behind() {
    let shop = Shop::open();
    let mut socket = Socket::ready(shop.address());
    for id in 0..10 {
        socket.subscribe(&id.to_string(), "subscription { productChanged { id } }");
    }
    shop.wait_for_subscribers(10);
    drop(socket);
    shop.wait_for_subscribers(0);
    shop.wait_for_metric("starling_hub_triggers", 1);
    shop.assert_unaffected();
}
