//! Tests of disconnecting clients, and of the shutdown of a router.

use std::io::{Read, Write};

use wire::websocket::CloseCode;

use crate::http::{connect, read_response, request, stream};
use crate::router::Router;
use crate::socket::Socket;

const TICK: &str = "subscription { tick { id } }";

#[test]
fn a_stream_whose_client_disconnects_ends_at_once_and_not_at_the_next_heartbeat() {
    let router = Router::start("subscriptions: {heartbeat: 1h}");
    let socket = stream(router.address, TICK);
    router.wait_for("starling_hub_subscribers", 1);
    drop(socket);
    router.wait_for("starling_hub_subscribers", 0);
    router.wait_for(r#"starling_streams_open{transport="sse"}"#, 0);
    router.wait_for("starling_http_connections", 0);
}

#[test]
fn subscribers_get_the_reason_when_the_router_stops() {
    let router = Router::start("");
    let mut events = stream(router.address, TICK);
    let mut socket = Socket::open(router.address);
    socket.subscribe("1", TICK);
    router.wait_for("starling_hub_subscribers", 2);
    let stopping = router.stop();
    let (results, closed) = socket.read_to_end();
    assert_eq!((results, closed.code), (0, CloseCode::GOING_AWAY));
    drop(socket);
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(rest.contains(r#""code":"SHUTTING_DOWN""#), "{rest}");
    assert!(rest.contains("event: complete\n"), "{rest}");
    // The last chunk: the body is complete.
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    stopping.wait();
}

#[test]
fn a_request_for_one_event_gets_the_reason_when_the_router_stops() {
    let router = Router::start("");
    let mut socket = connect(router.address);
    let head = "GET /graphql?once&query=subscription%7Btick%7Bid%7D%7D HTTP/1.1\r\nhost: x\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    router.wait_for("starling_hub_subscribers", 1);
    let stopping = router.stop();
    let response = read_response(&mut socket);
    assert_eq!(response.status, 503);
    assert!(response.body.contains(r#""code":"SHUTTING_DOWN""#), "{}", response.body);
    stopping.wait();
}

const BODY: &str = r#"{"query":"{ __typename }"}"#;

/// Opens a request with an incomplete body.
fn half_a_request(router: &Router) -> std::net::TcpStream {
    let mut socket = connect(router.address);
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        BODY.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    // The router has received the request when it asks for the rest.
    socket.read_exact(&mut interim).unwrap();
    socket
}

#[test]
fn a_request_in_progress_gets_its_response_before_the_router_stops_while_readiness_fails() {
    let router = Router::start("");
    let mut socket = half_a_request(&router);
    let stopping = router.stop();
    assert_eq!(request(stopping.admin, "GET", "/health/ready", &[], "").status, 503);
    assert_eq!(request(stopping.admin, "GET", "/metrics", &[], "").status, 200);
    socket.write_all(BODY.as_bytes()).unwrap();
    let response = read_response(&mut socket);
    assert_eq!((response.status, &*response.body), (200, r#"{"data":{"__typename":"Query"}}"#));
    stopping.wait();
}

#[test]
fn dropping_the_stop_of_a_router_closes_everything() {
    let router = Router::start("subscriptions: {drain_period: 1h}");
    let mut socket = half_a_request(&router);
    let stopping = router.stop();
    stopping.give_up();
    let mut rest = Vec::new();
    let read = socket.read_to_end(&mut rest);
    assert!(read.is_err() || rest.is_empty(), "{rest:?}");
}

#[test]
fn a_router_that_announces_its_end_is_not_ready_and_serves_as_before() {
    let router = Router::start("shutdown: {delay: 1h}");
    router.announce_shutdown(|| {
        let response = request(router.admin, "GET", "/health/ready", &[], "");
        assert_eq!((response.status, &*response.body), (503, "shutting down\n"));
        let live = request(router.admin, "GET", "/health/live", &[], "");
        assert_eq!(live.status, 200);
        let json = [("content-type", "application/json")];
        let response = request(router.address, "POST", "/graphql", &json, BODY);
        assert_eq!((response.status, &*response.body), (200, r#"{"data":{"__typename":"Query"}}"#));
    });
}
