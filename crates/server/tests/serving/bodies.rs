//! Tests of bodies: compressed requests and responses, batches, and bodies that arrive too late.

use std::io::{Read, Write};

use coding::{Coding, compress, expand};
use expect_test::expect;

use crate::http::{TestResponse, connect, request, stream};
use crate::router::Router;

const JSON: (&str, &str) = ("content-type", "application/json");

fn post(router: &Router, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> TestResponse {
    request(router.address, "POST", "/graphql", &[&[JSON], headers].concat(), body)
}

/// A query with a large response that needs no subgraph.
const LARGE: &str =
    r#"{"query":"{ __schema { types { name kind description fields { name } } } }"}"#;

#[test]
fn a_large_response_is_compressed_with_the_coding_that_the_client_prefers() {
    let router = Router::start("");
    let plain = post(&router, &[], LARGE);
    assert_eq!((plain.status, &*plain.header("content-encoding")), (200, ""));
    assert_eq!(plain.header("vary"), "accept, accept-encoding");
    for coding in Coding::ALL {
        let response = post(&router, &[("accept-encoding", coding.name())], LARGE);
        assert_eq!(response.header("content-encoding"), coding.name());
        assert_eq!(response.header("content-length"), response.bytes.len().to_string());
        assert_eq!(response.header("content-type"), plain.header("content-type"));
        assert!(response.bytes.len() * 2 < plain.bytes.len());
        let expanded = expand(coding, &response.bytes, plain.bytes.len());
        assert_eq!(expanded.as_ref(), Ok(&plain.bytes), "{coding:?}");
    }
    let response = post(&router, &[("accept-encoding", "gzip;q=0.5, br;q=0.9, x")], LARGE);
    assert_eq!(response.header("content-encoding"), "br");
}

#[test]
fn small_responses_and_event_streams_are_not_compressed() {
    let router = Router::start("");
    let headers = [("accept-encoding", "gzip, zstd, br")];
    let response = post(&router, &headers, r#"{"query":"{ __typename }"}"#);
    assert_eq!(response.body, r#"{"data":{"__typename":"Query"}}"#);
    assert_eq!(response.header("content-encoding"), "");
    let streamed = [headers[0], ("accept", "text/event-stream")];
    let response = post(&router, &streamed, LARGE);
    assert!(response.body.contains("event: next"), "{}", response.body);
    assert_eq!(response.header("content-encoding"), "");
}

#[test]
fn compression_can_be_turned_off() {
    let router = Router::start("http: {compression: {enabled: false}}");
    let response = post(&router, &[("accept-encoding", "gzip")], LARGE);
    assert_eq!((&*response.header("content-encoding"), &*response.header("vary")), ("", "accept"));
}

#[test]
fn a_compressed_request_is_expanded() {
    let router = Router::start("");
    let body =
        format!(r#"{{"query":"{{ __typename }}","extensions":{{"x":"{}"}}}}"#, "y".repeat(500));
    for coding in Coding::ALL {
        let compressed = compress(coding, body.as_bytes()).unwrap();
        let response = post(&router, &[("content-encoding", coding.name())], compressed);
        assert_eq!((response.status, &*response.body), (200, r#"{"data":{"__typename":"Query"}}"#));
    }
}

#[test]
fn a_compressed_request_that_is_a_bomb_or_invalid_or_of_unknown_coding_is_refused() {
    let router = Router::start("limits: {body: 64KiB}");
    let bomb = compress(Coding::Zstd, &vec![b' '; 1 << 20]).unwrap();
    let body = r#"{"query":"{ __typename }"}"#;
    let gzip = compress(Coding::Gzip, body.repeat(9).as_bytes()).unwrap();
    let mut outcomes = String::new();
    for (encoding, body) in [
        ("zstd", &bomb[..]),
        ("gzip", body.as_bytes()),
        ("gzip", &gzip[..gzip.len() - 1]),
        ("compress", body.as_bytes()),
        ("gzip, gzip", body.as_bytes()),
    ] {
        let response = post(&router, &[("content-encoding", encoding)], body);
        let accepted = response.header("accept-encoding");
        outcomes += &format!("{encoding}: {} [{accepted}]\n{}\n", response.status, response.body);
    }
    expect![[r#"
        zstd: 413 []
        {"errors":[{"message":"the request body expands to more than 65536 bytes (`limits.body`)","extensions":{"code":"BAD_REQUEST"}}]}
        gzip: 400 []
        {"errors":[{"message":"the request body: it is not valid gzip: invalid gzip header","extensions":{"code":"BAD_REQUEST"}}]}
        gzip: 400 []
        {"errors":[{"message":"the request body: it is not valid gzip: unexpected end of file","extensions":{"code":"BAD_REQUEST"}}]}
        compress: 415 [zstd, br, gzip, deflate]
        {"errors":[{"message":"the compression of the request body is not supported: send `content-encoding` with one of zstd, br, gzip, deflate, or without any","extensions":{"code":"BAD_REQUEST"}}]}
        gzip, gzip: 415 [zstd, br, gzip, deflate]
        {"errors":[{"message":"the compression of the request body is not supported: send `content-encoding` with one of zstd, br, gzip, deflate, or without any","extensions":{"code":"BAD_REQUEST"}}]}
    "#]].assert_eq(&outcomes);
}

#[test]
fn a_batch_gets_responses_in_order_and_an_invalid_operation_affects_only_itself() {
    let router = Router::start("http: {batching: {enabled: true, max_operations: 3}}");
    let batch = r#"[
        {"query":"query A { a: __typename }"},
        {"query":"{ nothing }"},
        {"query":"subscription { tick { id } }"}
    ]"#;
    let response = post(&router, &[("accept", "application/graphql-response+json")], batch);
    expect![[r#"
        200 application/json; charset=utf-8
        [{"data":{"a":"Query"}},{"errors":[{"message":"type `Query` does not have a field `nothing`","locations":[{"line":1,"column":3}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]},{"errors":[{"message":"a subscription needs a stream: send it with `Accept: text/event-stream` or `multipart/mixed`, over a WebSocket with the subprotocol graphql-transport-ws, or with the URL parameter `once` for the first event only","extensions":{"code":"BAD_REQUEST"}}]}]
    "#]].assert_eq(&format!(
        "{} {}\n{}\n",
        response.status,
        response.header("content-type"),
        response.body
    ));
    router.wait_for("starling_http_batches_total", 1);
    router.wait_for("starling_http_batched_operations_total", 3);
}

#[test]
fn a_batch_that_is_too_large_or_not_acceptable_is_refused_as_a_whole() {
    let router = Router::start("http: {batching: {enabled: true, max_operations: 3}}");
    let one = r#"{"query":"{ __typename }"}"#;
    let mut outcomes = String::new();
    for (name, accept, body) in [
        ("too many", "application/json", format!("[{one},{one},{one},{one}]")),
        ("none", "application/json", "[]".to_owned()),
        ("no object", "application/json", format!("[{one},7]")),
        ("for a stream", "text/event-stream", format!("[{one}]")),
    ] {
        let response = post(&router, &[("accept", accept)], body);
        outcomes += &format!("{name}: {}\n{}\n", response.status, response.body);
    }
    expect![[r#"
        too many: 400
        {"errors":[{"message":"the request body is an array: it has 4 operations, and a batch may have 3 (`http.batching.max_operations`)","extensions":{"code":"BAD_REQUEST"}}]}
        none: 400
        {"errors":[{"message":"the request body is an array: it has no operation in it","extensions":{"code":"BAD_REQUEST"}}]}
        no object: 400
        {"errors":[{"message":"operation 1 of the batch: it must be a JSON object with the member `query`","extensions":{"code":"BAD_REQUEST"}}]}
        for a stream: 406
        {"errors":[{"message":"the response to a batch is JSON: ask with `Accept: application/json`","extensions":{"code":"BAD_REQUEST"}}]}
    "#]].assert_eq(&outcomes);
}

#[test]
fn a_body_that_arrives_too_late_gets_status_408() {
    let router = Router::start("http: {body_timeout: 100ms}");
    let mut socket = connect(router.address);
    let head = "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 26\r\n\r\n{";
    socket.write_all(head.as_bytes()).unwrap();
    let response = crate::http::read_response(&mut socket);
    expect![[r#"
        408
        {"errors":[{"message":"the request body did not arrive within 100ms (`http.body_timeout`)","extensions":{"code":"BAD_REQUEST"}}]}
    "#]].assert_eq(&format!("{}\n{}\n", response.status, response.body));
    assert_eq!(response.header("connection"), "close");
    router.wait_for(r#"starling_http_timeouts_total{phase="body"}"#, 1);
}

#[test]
fn a_head_that_arrives_too_late_closes_only_its_own_connection() {
    let router = Router::start("http: {header_timeout: 1s}");
    let mut sockets = Vec::new();
    for begun in ["", "P", "PRI * HTT", "POST /graphql HTTP/1.1\r\nhost: "] {
        let mut socket = connect(router.address);
        socket.write_all(begun.as_bytes()).unwrap();
        sockets.push(socket);
    }
    // A connection that outlives the time limit for heads is not affected by it.
    let _stream = stream(router.address, "subscription { tick { id } }");
    for mut socket in sockets {
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
    router.wait_for("starling_http_connections", 1);
}
