//! Clients that want too much: refused in a way that clients and proxies understand, and without harm to others.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use coding::{Coding, compress};
use socket2::{Domain, Socket, Type};

use crate::http::{Answer, connect, request};
use crate::router::{PATIENCE, Router};

const JSON: (&str, &str) = ("content-type", "application/json");

fn post(router: &Router, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    request(router.address, "POST", "/graphql", &[&[JSON], headers].concat(), body)
}

/// The value of a metric.
fn metric(router: &Router, name: &str) -> u64 {
    let text = request(router.admin, "GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
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
    let answer = post(&router, &[("content-encoding", "gzip")], &bomb);
    assert_eq!((answer.status, &*answer.header("connection")), (413, "close"));
    assert!(answer.body.contains("`limits.body_expansion_ratio`"), "{}", answer.body);
    // As it is, or where the configuration allows it, the same body is fine.
    let plain = post(&router, &[], &body);
    assert_eq!((plain.status, &*plain.body), (200, r#"{"data":{"__typename":"Query"}}"#));
    let generous = Router::start("limits: {body_expansion_ratio: 10000}");
    let answer = post(&generous, &[("content-encoding", "gzip")], &bomb);
    assert_eq!((answer.status, &*answer.body), (200, r#"{"data":{"__typename":"Query"}}"#));
}

#[test]
fn a_refusal_for_want_of_room_is_503_with_retry_after_whatever_the_media_type() {
    // One operation may be prepared and one may wait: others are refused meanwhile.
    let router = Router::start("limits: {preparing: 1, preparing_waiting: 1}");
    let accepts =
        ["application/json", "application/graphql-response+json", "text/event-stream", "*/*"];
    let mut number = 0;
    let mut refused = |accept: &str| {
        // Several at the same time, until one of them finds no room.
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
        let answers = sockets.into_iter().map(|mut socket| crate::http::answer(&mut socket));
        let answers: Vec<_> = answers.collect();
        answers.into_iter().find(|it| it.body.contains("OVERLOADED"))
    };
    for accept in accepts {
        let mut answer = None;
        eventually("a refusal", || {
            answer = refused(accept);
            answer.is_some()
        });
        let answer = answer.unwrap();
        assert_eq!((answer.status, &*answer.header("retry-after")), (503, "1"), "{accept}");
    }
}

#[test]
fn a_hash_in_place_of_an_operation_is_answered_so_that_clients_send_the_text() {
    let router = Router::start("");
    let extensions = r#""extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}"#;
    let expected = r#"{"errors":[{"message":"PersistedQueryNotSupported","extensions":{"code":"PERSISTED_QUERY_NOT_SUPPORTED"}}]}"#;
    for accept in ["application/json", "application/graphql-response+json"] {
        let answer = post(&router, &[("accept", accept)], format!("{{{extensions}}}"));
        assert_eq!((answer.status, &*answer.body), (200, expected), "{accept}");
    }
    let target = "/graphql?extensions=%7B%22persistedQuery%22%3A%7B%22version%22%3A1%7D%7D";
    let answer = request(router.address, "GET", target, &[], "");
    assert_eq!((answer.status, &*answer.body), (200, expected));
    let with_text = post(&router, &[], format!(r#"{{"query":"{{ __typename }}",{extensions}}}"#));
    assert_eq!(with_text.body, r#"{"data":{"__typename":"Query"}}"#);
}

/// A query with a response of some 100 kB that needs no subgraph.
fn large_query() -> String {
    let schema = "__schema{types{name kind description fields{name description type{name kind ofType{name kind}}}}}";
    let again: String = (0..12).map(|it| format!("a{it}:{schema} ")).collect();
    format!(r#"{{"query":"{{ {again} }}"}}"#)
}

fn unread(router: &Router, body: &str) -> std::net::TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Little room in the system, so that most waits in the router.
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
fn responses_that_nobody_reads_count_and_their_connections_are_closed_before_they_are_too_many() {
    let router = Router::start("http: {response_queue_bytes_total: 64KiB}");
    let body = large_query();
    let size = post(&router, &[], &body).bytes.len();
    assert!(size > 64 << 10, "{size}");
    let held = "starling_http_response_queue_bytes";
    router.wait_for(held, 0);
    let first = unread(&router, &body);
    eventually("unread bytes", || metric(&router, held) > 0);
    let mut sockets = vec![first];
    eventually("an eviction", || {
        if sockets.len() < 50 {
            sockets.push(unread(&router, &body));
        } else {
            // Whether there is too much is looked at when there is more.
            assert_eq!(post(&router, &[], &body).status, 200);
        }
        metric(&router, "starling_http_response_queue_evictions_total") > 0
    });
    // Another client is answered meanwhile, and what was held is given back.
    assert_eq!(post(&router, &[], r#"{"query":"{ __typename }"}"#).status, 200);
    drop(sockets);
    router.wait_for(held, 0);
}

#[test]
fn pipelined_requests_are_all_answered_in_their_order() {
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
    let mut answers = String::new();
    socket.read_to_string(&mut answers).unwrap();
    let places: Vec<_> =
        (0..20).map(|it| answers.find(&format!(r#"{{"data":{{"a{it}":"Query"}}}}"#))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{answers}");
}

#[test]
fn what_an_operation_does_not_declare_is_not_read() {
    let router = Router::start("");
    // Within JSON, anything.
    let body = r#"{"query":"query($a: Boolean = true) { __typename @include(if: $a) }","variables":{"x":{"y":[1,2]},"a":true,"a":false}}"#;
    assert_eq!(post(&router, &[], body).body, r#"{"data":{}}"#, "of two values the last counts");
    let broken = r#"{"query":"{ __typename }","variables":{"x":[1,}}"#;
    assert_eq!(post(&router, &[], broken).status, 400);
}

#[test]
fn a_long_list_of_connection_options_costs_no_more_than_its_length() {
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
        let answer = request(router.address, "POST", "/graphql", &headers, body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        started.elapsed()
    };
    time("x-0");
    let best = |options: &str| (0..5).map(|_| time(options)).min().unwrap();
    let (short, long) = (best("x-0"), best(&options));
    // A hundred headers times 7,900 options took more than a second without optimisation.
    assert!(long < short + Duration::from_millis(300), "{short:?} {long:?}");
}
