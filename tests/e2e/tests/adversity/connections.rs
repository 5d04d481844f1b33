//! Wasteful connections: too many, too slow, ended too early.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use e2e::exchange;
use expect_test::expect;
use serde_json::json;

use crate::responses::format_response;
use crate::shop::Shop;
use crate::socket::Socket;

const BODY: &str = r#"{"query":"{ product(id: 1) { name } }"}"#;

fn head(length: usize) -> String {
    format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    )
}

#[test]
fn a_connection_over_the_limit_is_refused_until_one_ends() {
    // The bystander's connection, and one more.
    let shop = Shop::with("http: {max_connections: 2}");
    shop.wait_for_metric("starling_http_connections", 1);
    let socket = Socket::ready(shop.address());
    let request = [head(BODY.len()), BODY.to_owned()].concat();
    let responses = exchange(shop.address(), request.as_bytes()).unwrap();
    let seconds = responses[0].header("retry-after").unwrap().to_owned();
    assert!(["1", "2", "3", "4", "5"].contains(&&*seconds), "{seconds}");
    let text: String = responses.iter().map(format_response).collect();
    expect![[r#"
        503 application/json; charset=utf-8
        retry-after: N
        {"errors":[{"message":"the router has as many connections as it may have (`http.max_connections`); try again later","extensions":{"code":"OVERLOADED","retryAfter":N}}]}
    "#]]
    .assert_eq(
        &text
            .replace(&format!("retry-after: {seconds}"), "retry-after: N")
            .replace(&format!("\"retryAfter\":{seconds}"), "\"retryAfter\":N"),
    );
    shop.wait_for_metric("starling_http_connections_refused_total", 1);
    drop(socket);
    shop.wait_for_metric("starling_http_connections", 1);
    shop.assert_unaffected();
}

#[test]
fn slow_senders_delay_no_other_client_and_are_answered() {
    let shop = Shop::with("workers: 1");
    let request = [head(BODY.len()), BODY.to_owned()].concat();
    let mut trickles: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(shop.address()).unwrap()).collect();
    for byte in request.bytes() {
        for trickle in &mut trickles {
            trickle.write_all(&[byte]).unwrap();
        }
        if byte == b'{' {
            assert_eq!(shop.ask("{ warehouse { city } }")["data"]["warehouse"]["city"], "Bergen");
        }
    }
    for mut trickle in trickles {
        trickle.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut response = String::new();
        trickle.read_to_string(&mut response).unwrap();
        assert!(response.ends_with(r#"{"data":{"product":{"name":"Kettle"}}}"#), "{response}");
    }
    shop.assert_unaffected();
}

#[test]
fn all_resources_of_disconnecting_clients_are_released() {
    let shop = Shop::open();
    let request = [head(BODY.len()), BODY.to_owned()].concat();
    for length in [0, 1, 20, head(BODY.len()).len(), request.len() - 1, request.len()] {
        let mut socket = TcpStream::connect(shop.address()).unwrap();
        socket.write_all(&request.as_bytes()[..length]).unwrap();
        drop(socket);
    }
    // The bystander's connection remains.
    shop.wait_for_metric("starling_http_connections", 1);
    shop.assert_unaffected();
}

#[test]
fn a_client_that_declares_more_than_it_sends_gets_an_error_while_it_reads() {
    let shop = Shop::open();
    let mut socket = TcpStream::connect(shop.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all([head(1000), BODY.to_owned()].concat().as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    expect![[r#"{"errors":[{"message":"the request body broke off: end of file before message length reached","extensions":{"code":"BAD_REQUEST"}}]}"#]].assert_eq(body);
    shop.assert_unaffected();
}

#[test]
fn an_unread_large_response_does_not_affect_other_clients() {
    let shop = Shop::with("workers: 1");
    let aliases: String = (0..90).map(|n| format!("a{n}: name ")).collect();
    let query = format!("{{ products {{ {aliases} }} }}");
    let body = json!({ "query": query }).to_string();
    let one = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut greedy = TcpStream::connect(shop.address()).unwrap();
    greedy.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The client sends requests and never reads, until the router stops reading from it.
    let mut asked = 0;
    while asked < 20_000 && greedy.write_all(one.as_bytes()).is_ok() {
        asked += 1;
    }
    assert!(asked < 20_000, "the router keeps reading although its responses are not read");
    shop.assert_unaffected();
}

#[test]
fn clients_that_take_all_connections_leave_descriptors_for_health_metrics_and_subgraphs() {
    const DESCRIPTORS: u32 = 256;
    // The maximum number of client connections: half of these few descriptors.
    const CONNECTIONS: usize = 128;
    let shop = Shop::with_descriptors(DESCRIPTORS, "workers: 1");
    // The router connects to subgraphs for a client connection that was opened before the others.
    let mut served = TcpStream::connect(shop.address()).unwrap();
    served.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    shop.wait_for_metric("starling_http_connections", 1);
    let greedy: Vec<TcpStream> =
        (0..2 * CONNECTIONS).map(|_| TcpStream::connect(shop.address()).unwrap()).collect();
    shop.wait_for_metric("starling_http_connections", CONNECTIONS as u64);
    shop.wait_for_metric("starling_http_connections_refused_total", CONNECTIONS as u64 + 1);
    for path in ["/health/live", "/health/ready", "/metrics"] {
        let response = e2e::request(shop.router.admin(), "GET", path, &[], b"").unwrap();
        assert_eq!(response.status, 200, "{path}");
    }
    let request = [head(BODY.len()), BODY.to_owned()].concat();
    served.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    served.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains(r#""name":"#) && !response.contains("errors"), "{response}");
    // The connection that ended has freed its slot.
    shop.wait_for_metric("starling_http_connections", CONNECTIONS as u64 - 1);
    let again = TcpStream::connect(shop.address()).unwrap();
    shop.wait_for_metric("starling_http_connections", CONNECTIONS as u64);
    let responses = exchange(shop.address(), request.as_bytes()).unwrap();
    let statuses: Vec<_> = responses.iter().map(|it| it.status).collect();
    assert_eq!(statuses, [503]);
    drop((greedy, again));
}

#[test]
fn a_client_without_a_free_descriptor_is_refused_at_once() {
    // The configuration permits more connections than there are descriptors.
    let shop = Shop::with_descriptors(96, "workers: 1\nhttp: {max_connections: 10000}");
    let greedy: Vec<TcpStream> =
        (0..128).map(|_| TcpStream::connect(shop.address()).unwrap()).collect();
    let request = [head(BODY.len()), BODY.to_owned()].concat();
    let refused = exchange(shop.address(), request.as_bytes()).unwrap();
    let [refused] = refused.as_slice() else { panic!("one response") };
    assert_eq!(refused.status, 503);
    let body = String::from_utf8_lossy(&refused.body);
    assert!(body.contains("may open no further file") && body.contains("OVERLOADED"), "{body}");
    // Once descriptors are free again, clients are served again.
    drop(greedy);
    let served = e2e::eventually("a descriptor", || {
        let responses = exchange(shop.address(), request.as_bytes()).ok()?;
        responses.into_iter().find(|it| it.status == 200)
    });
    assert!(!String::from_utf8_lossy(&served.body).contains("errors"));
}
