//! Tests of overload: excessive clients are refused in a way that clients and proxies understand, and do not affect
//! others.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use coding::{Coding, compress};
use socket2::{Domain, Socket, Type};

use crate::http::{TestResponse, connect, request};
use crate::router::{Router, TIMEOUT};

const JSON: (&str, &str) = ("content-type", "application/json");

fn post(router: &Router, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> TestResponse {
    request(router.address, "POST", "/graphql", &[&[JSON], headers].concat(), body)
}

/// Returns the value of a metric.
fn metric(router: &Router, name: &str) -> u64 {
    let text = request(router.admin, "GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_body_that_expands_far_more_than_json_does_is_refused_and_its_connection_closed() {
    let router = Router::start("");
    let numbers = "1,".repeat(500_000);
    let body = format!(r#"{{"query":"{{ __typename }}","variables":{{"x":[{numbers}1]}}}}"#);
    let bomb = compress(Coding::Gzip, body.as_bytes()).unwrap();
    assert!(bomb.len() < 8 << 10, "{}", bomb.len());
    let response = post(&router, &[("content-encoding", "gzip")], &bomb);
    assert_eq!((response.status, &*response.header("connection")), (413, "close"));
    assert!(response.body.contains("`limits.body_expansion_ratio`"), "{}", response.body);
    // The same body is accepted uncompressed, or if the configuration allows this ratio.
    let plain = post(&router, &[], &body);
    assert_eq!((plain.status, &*plain.body), (200, r#"{"data":{"__typename":"Query"}}"#));
    let generous = Router::start("limits: {body_expansion_ratio: 10000}");
    let response = post(&generous, &[("content-encoding", "gzip")], &bomb);
    assert_eq!((response.status, &*response.body), (200, r#"{"data":{"__typename":"Query"}}"#));
}

#[test]
fn a_refusal_because_of_overload_is_503_with_retry_after_for_every_media_type() {
    // One operation may be prepared and one may wait; others are refused meanwhile.
    let router = Router::start("limits: {preparing: 1, preparing_waiting: 1}");
    let accepts =
        ["application/json", "application/graphql-response+json", "text/event-stream", "*/*"];
    let mut number = 0;
    let mut refused = |accept: &str| {
        // Sends several at the same time, until one of them finds no room.
        let sockets: Vec<_> = (0..8)
            .map(|_| {
                number += 1;
                let fields: String =
                    (0..1500).map(|it| format!("a{number}_{it}:__typename ")).collect();
                let body = format!(r#"{{"query":"{{ {fields} }}"}}"#);
                let mut socket = connect(router.address);
                let head = format!(
                    "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                     accept: {accept}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                socket.write_all((head + &body).as_bytes()).unwrap();
                socket
            })
            .collect();
        let responses =
            sockets.into_iter().map(|mut socket| crate::http::read_response(&mut socket));
        let responses: Vec<_> = responses.collect();
        responses.into_iter().find(|it| it.body.contains("OVERLOADED"))
    };
    for accept in accepts {
        let mut response = None;
        wait_until("a refusal", || {
            response = refused(accept);
            response.is_some()
        });
        let response = response.unwrap();
        let seconds: u64 = response.header("retry-after").parse().unwrap();
        assert!(response.status == 503 && (1..=5).contains(&seconds), "{accept}: {seconds}");
    }
}

#[test]
fn the_response_to_a_hash_in_place_of_an_operation_makes_clients_send_the_text() {
    let router = Router::start("apq: {enabled: false}");
    let extensions = r#""extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}"#;
    let expected = r#"{"errors":[{"message":"PersistedQueryNotSupported","extensions":{"code":"PERSISTED_QUERY_NOT_SUPPORTED"}}]}"#;
    for accept in ["application/json", "application/graphql-response+json"] {
        let response = post(&router, &[("accept", accept)], format!("{{{extensions}}}"));
        assert_eq!((response.status, &*response.body), (200, expected), "{accept}");
    }
    let target = "/graphql?extensions=%7B%22persistedQuery%22%3A%7B%22version%22%3A1%2C%22sha256Hash%22%3A%22ab%22%7D%7D";
    let response = request(router.address, "GET", target, &[], "");
    assert_eq!((response.status, &*response.body), (200, expected));
    let with_text = post(&router, &[], format!(r#"{{"query":"{{ __typename }}",{extensions}}}"#));
    assert_eq!(with_text.body, r#"{"data":{"__typename":"Query"}}"#);
}

#[test]
fn a_client_waits_for_the_first_event_no_longer_than_it_says() {
    let router = Router::start(
        "limits: {time: 1h, deadline_headers: [{name: x-timeout-ms}, {name: x-timeout, format: seconds}]}",
    );
    let target = "/graphql?once&query=subscription%7Btick%7Bid%7D%7D";
    for headers in [("x-timeout-ms", "100"), ("x-timeout", "0.1")] {
        let response = request(router.address, "GET", target, &[headers], "");
        assert_eq!(response.status, 504, "{}", response.body);
        let expected = r#"{"errors":[{"message":"no event came within the time that the request names","extensions":{"code":"TIMEOUT"}}]}"#;
        assert_eq!(response.body, expected);
    }
    router.wait_for("starling_hub_subscribers", 0);
}

#[test]
fn an_operation_ends_when_envoy_stops_waiting_without_configuration() {
    let router = Router::start("limits: {time: 1h}");
    let target = "/graphql?once&query=subscription%7Btick%7Bid%7D%7D";
    let header = ("x-envoy-expected-rq-timeout-ms", "100");
    let response = request(router.address, "GET", target, &[header], "");
    assert_eq!(response.status, 504, "{}", response.body);
}

/// A query with a response of about 100 kB that needs no subgraph.
fn large_query() -> String {
    let schema = "__schema{types{name kind description fields{name description type{name kind ofType{name kind}}}}}";
    let again: String = (0..12).map(|it| format!("a{it}:{schema} ")).collect();
    format!(r#"{{"query":"{{ {again} }}"}}"#)
}

fn unread(router: &Router, body: &str) -> std::net::TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Small buffers in the system, so that most data waits in the router.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&router.address.into()).unwrap();
    let mut socket = std::net::TcpStream::from(socket);
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).repeat(40).as_bytes()).unwrap();
    socket
}

#[test]
fn unread_responses_are_counted_and_their_connections_are_closed_at_the_bound() {
    let router = Router::start("http: {response_queue_bytes_total: 64KiB}");
    let body = large_query();
    let size = post(&router, &[], &body).bytes.len();
    assert!(size > 64 << 10, "{size}");
    let held = "starling_http_response_queue_bytes";
    router.wait_for(held, 0);
    let first = unread(&router, &body);
    wait_until("unread bytes", || metric(&router, held) > 0);
    let mut sockets = vec![first];
    wait_until("an eviction", || {
        if sockets.len() < 50 {
            sockets.push(unread(&router, &body));
        } else {
            // The bound is checked when more is charged.
            assert_eq!(post(&router, &[], &body).status, 200);
        }
        metric(&router, "starling_http_response_queue_evictions_total") > 0
    });
    // Another client gets its response meanwhile, and the held bytes are freed.
    assert_eq!(post(&router, &[], r#"{"query":"{ __typename }"}"#).status, 200);
    drop(sockets);
    router.wait_for(held, 0);
}

#[test]
fn pipelined_requests_get_their_responses_in_order() {
    let router = Router::start("");
    let mut socket = connect(router.address);
    let mut text = String::new();
    for number in 0..20 {
        let body = format!(r#"{{"query":"{{ a{number}: __typename }}"}}"#);
        let close = if number == 19 { "connection: close\r\n" } else { "" };
        text.push_str(&format!(
            "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{close}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    socket.write_all(text.as_bytes()).unwrap();
    let mut responses = String::new();
    socket.read_to_string(&mut responses).unwrap();
    let places: Vec<_> =
        (0..20).map(|it| responses.find(&format!(r#"{{"data":{{"a{it}":"Query"}}}}"#))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{responses}");
}

#[test]
fn undeclared_variables_are_not_parsed() {
    let router = Router::start("");
    // Undeclared variables may be any JSON.
    let body = r#"{"query":"query($a: Boolean = true) { __typename @include(if: $a) }","variables":{"x":{"y":[1,2]},"a":true,"a":false}}"#;
    assert_eq!(post(&router, &[], body).body, r#"{"data":{}}"#, "of two values the last counts");
    let broken = r#"{"query":"{ __typename }","variables":{"x":[1,}}"#;
    assert_eq!(post(&router, &[], broken).status, 400);
}

#[test]
fn a_long_list_of_connection_options_takes_linear_time() {
    let router = Router::start(
        "http: {max_header_size: 64KiB, max_headers: 128}\nheaders: {all: {request: [{propagate: {matching: \".*\"}}]}}",
    );
    let options: String = (0..7_900).map(|it| format!("a{it},")).collect();
    let body = r#"{"query":"{ __typename }"}"#;
    let time = |options: &str| {
        let headers: Vec<_> = (0..100).map(|it| (format!("x-{it}"), "1")).collect();
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, *value)).collect();
        headers.push(("connection", options));
        headers.push(JSON);
        let started = Instant::now();
        let response = request(router.address, "POST", "/graphql", &headers, body);
        assert_eq!(response.status, 200, "{}", response.body);
        started.elapsed()
    };
    time("x-0");
    let best = |options: &str| (0..5).map(|_| time(options)).min().unwrap();
    let (short, long) = (best("x-0"), best(&options));
    // A hundred headers times 7,900 options took more than a second without optimisation.
    assert!(long < short + Duration::from_millis(300), "{short:?} {long:?}");
}
