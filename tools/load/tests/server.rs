//! The behaviour of a served subgraph on the wire, including its faults.

#![allow(clippy::unwrap_used)] // a missing response fails the test

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use load::subgraph::{Fault, Invention, Server, Subgraph};
use serde_json::{Value, json};
use tokio::net::TcpStream;

const REQUEST: &str = r#"{"query":"{ flight { id gate } }"}"#;
const RESPONSE: &str = r#"{"data":{"flight":{"id":"1","gate":"A1"}}}"#;

fn subgraph() -> Subgraph {
    Subgraph::builder(
        "type Query { flight: Flight } type Flight @key(fields: \"id\") { id: ID! gate: String! }",
    )
    .records("Query", [json!({"flight": {"id": "1"}})])
    .records("Flight", [json!({"id": "1", "gate": "A1"})])
    .build()
    .unwrap()
}

struct Client(SendRequest<Full<Bytes>>);

#[derive(Debug, PartialEq)]
struct Received {
    status: StatusCode,
    content_type: String,
    body: String,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Received> {
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Received { status, content_type, body: String::from_utf8(body.to_vec()).unwrap() })
    }

    async fn post(&mut self, path: &str, body: &str) -> hyper::Result<Received> {
        let request = Request::post(path)
            .header("x-seen", "yes")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        self.send(request).await
    }
}

async fn send_query(server: &Server) -> hyper::Result<Received> {
    Client::connect(server).await.post("/graphql", REQUEST).await
}

fn ok(body: &str) -> Received {
    Received {
        status: StatusCode::OK,
        content_type: "application/json".to_owned(),
        body: body.to_owned(),
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_many_requests_which_are_counted_and_recorded() {
    let server = Server::start(subgraph()).await.unwrap();
    let mut client = Client::connect(&server).await;
    for _ in 0..3 {
        assert_eq!(client.post("/", REQUEST).await.unwrap(), ok(RESPONSE));
    }
    assert_eq!(server.connections_accepted(), 1);
    assert_eq!(server.controls().request_count(), 3);
    server.controls().requests_reached(3).await;
    let requests = server.controls().take_requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].headers["x-seen"], "yes");
    assert_eq!(requests[0].json()["query"], "{ flight { id gate } }");
    assert!(server.controls().take_requests().is_empty());
}

#[tokio::test]
async fn entities_are_changed_by_a_post_and_changes_are_counted() {
    let sdl = "type Query { flight(id: ID!): Flight } type Flight @key(fields: \"id\") { id: ID! gate: String! }";
    let flights = Subgraph::builder(sdl).invent(Invention::default()).build().unwrap();
    let server = Server::builder().subgraph("/flights", flights).start().await.unwrap();
    let mut client = Client::connect(&server).await;
    let counts =
        |changes, requests| json!({ "changes": changes, "requests": requests }).to_string();
    let change = r#"{"__typename":"Flight","id":"7","gate":"B2"}"#;
    assert_eq!(client.post("/flights/_entities", change).await.unwrap(), ok(&counts(1, 0)));
    let query = r#"{"query":"{ flight(id: 7) { id gate } }"}"#;
    let changed = r#"{"data":{"flight":{"id":"7","gate":"B2"}}}"#;
    assert_eq!(client.post("/flights", query).await.unwrap(), ok(changed));
    for wrong in ["[]", r#"{"__typename":"Flight","id":"7","gaet":"B2"}"#] {
        let refused = client.post("/flights/_entities", wrong).await.unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let request = Request::get("/flights/_entities").body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.unwrap(), ok(&counts(1, 1)));
}

#[tokio::test]
async fn several_subgraphs_share_a_listener_by_path() {
    let other = Subgraph::builder("type Query { a: Int }")
        .records("Query", [json!({"a": 7})])
        .build()
        .unwrap();
    let server = Server::builder()
        .subgraph("/flights", subgraph())
        .subgraph("/other", other)
        .start()
        .await
        .unwrap();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.post("/flights", REQUEST).await.unwrap(), ok(RESPONSE));
    assert_eq!(
        client.post("/other", r#"{"query":"{a}"}"#).await.unwrap().body,
        r#"{"data":{"a":7}}"#
    );
    assert_eq!(client.post("/", REQUEST).await.unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(server.controls_at("/other").unwrap().request_count(), 1);
    assert_eq!(server.url("/other"), format!("http://{}/other", server.address()));
    // Nothing is recorded unless requested.
    assert!(server.controls_at("/flights").unwrap().take_requests().is_empty());
}

#[tokio::test]
async fn the_response_has_the_media_type_and_status_of_graphql_over_http() {
    let server = Server::start(subgraph()).await.unwrap();
    let mut client = Client::connect(&server).await;
    let request = |method: Method, accept: &str, body: &str| {
        Request::builder()
            .method(method)
            .uri("/")
            .header("accept", accept)
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap()
    };
    let accept = "application/graphql-response+json, application/json;q=0.9";
    let received = client.send(request(Method::POST, accept, REQUEST)).await.unwrap();
    assert_eq!(received.content_type, "application/graphql-response+json");
    let received = client.send(request(Method::POST, "*/*", "nonsense")).await.unwrap();
    assert_eq!(received.status, StatusCode::BAD_REQUEST);
    let received = client.send(request(Method::PUT, "*/*", REQUEST)).await.unwrap();
    assert_eq!(received.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn every_fault_applies_until_it_is_cleared() {
    let server = Server::start(subgraph()).await.unwrap();
    let controls = server.controls();
    let nulled = r#"{"data":{"flight":{"id":"1","gate":null}}}"#;
    let failed =
        r#"{"data":{"flight":null},"errors":[{"message":"no gate","path":["flight","gate"]}]}"#;
    let html = Fault::Response {
        status: 503,
        content_type: "text/html".to_owned(),
        body: Bytes::from_static(b"<h1>later</h1>"),
    };
    for (fault, status, content_type, body) in [
        (Fault::InternalServerError, 500, "text/plain", "something went wrong"),
        (html, 503, "text/html", "<h1>later</h1>"),
        (Fault::TruncatedJson, 200, "application/json", &RESPONSE[..RESPONSE.len() / 2]),
        (Fault::Slow(Duration::from_millis(1)), 200, "application/json", RESPONSE),
        (Fault::null_field("Flight", "gate"), 200, "application/json", nulled),
        (Fault::field_error("Flight", "gate", "no gate"), 200, "application/json", failed),
        (
            Fault::GraphqlError { message: "no".to_owned(), code: Some("NO".to_owned()) },
            200,
            "application/json",
            r#"{"data":null,"errors":[{"message":"no","extensions":{"code":"NO"}}]}"#,
        ),
    ] {
        controls.set_fault(fault.clone());
        let received = send_query(&server).await.unwrap();
        let expected = Received {
            status: StatusCode::from_u16(status).unwrap(),
            content_type: content_type.to_owned(),
            body: body.to_owned(),
        };
        assert_eq!(received, expected, "{fault:?}");
    }
    controls.set_fault(Fault::Html);
    assert!(send_query(&server).await.unwrap().body.starts_with("<!doctype html>"));
    controls.set_fault(Fault::null_field("Flight", "gaet"));
    assert_eq!(send_query(&server).await.unwrap().status, StatusCode::BAD_REQUEST);
    controls.clear_fault();
    assert_eq!(send_query(&server).await.unwrap(), ok(RESPONSE));
}

#[tokio::test]
async fn a_subgraph_that_is_down_closes_connections_and_recovers() {
    let server = Server::start(subgraph()).await.unwrap();
    let mut kept = Client::connect(&server).await;
    kept.post("/", REQUEST).await.unwrap();
    server.controls().set_fault(Fault::Down);
    assert!(kept.post("/", REQUEST).await.is_err(), "a kept connection is closed");
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request =
        Request::post("/").body(Full::new(Bytes::from_static(REQUEST.as_bytes()))).unwrap();
    assert!(sender.send_request(request).await.is_err(), "a new connection is closed");
    server.controls().clear_fault();
    assert_eq!(send_query(&server).await.unwrap(), ok(RESPONSE));
}

#[tokio::test]
async fn a_cut_off_response_ends_before_its_announced_length() {
    let server = Server::start(subgraph()).await.unwrap();
    server.controls().set_fault(Fault::CutOff);
    assert!(send_query(&server).await.unwrap_err().is_incomplete_message());
}

#[tokio::test]
async fn a_fault_can_be_limited_to_the_next_requests() {
    let server = Server::start(subgraph()).await.unwrap();
    server.controls().fail_next(2, Fault::InternalServerError);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(send_query(&server).await.unwrap().status.as_u16());
    }
    assert_eq!(statuses, [500, 500, 200]);
}

#[tokio::test]
async fn held_requests_are_answered_when_the_hold_ends() {
    let server = Server::start(subgraph()).await.unwrap();
    server.controls().fail_next(1, Fault::Hold);
    let mut client = Client::connect(&server).await;
    let held = tokio::spawn(async move { client.post("/", REQUEST).await.unwrap() });
    server.controls().requests_reached(1).await;
    assert_eq!(send_query(&server).await.unwrap(), ok(RESPONSE), "the next one passes");
    assert!(!held.is_finished());
    server.controls().clear_fault();
    assert_eq!(held.await.unwrap(), ok(RESPONSE));
}

#[tokio::test]
async fn a_delay_applies_to_every_response() {
    let delay = Duration::from_millis(20);
    let server = Server::builder().subgraph("", subgraph()).delay(delay).start().await.unwrap();
    let before = Instant::now();
    assert_eq!(send_query(&server).await.unwrap(), ok(RESPONSE));
    assert!(before.elapsed() >= delay);
}

#[tokio::test]
async fn dropping_the_server_frees_its_port_and_closes_its_connections() {
    let server = Server::start(subgraph()).await.unwrap();
    let address = server.address();
    let mut client = Client::connect(&server).await;
    client.post("/", REQUEST).await.unwrap();
    drop(server);
    assert!(client.post("/", REQUEST).await.is_err());
    // Only the end of the listener frees the port, so binding it again proves that it ended.
    let rebound = Server::builder().listen(address).subgraph("", subgraph()).start().await.unwrap();
    let response: Value = serde_json::from_str(&send_query(&rebound).await.unwrap().body).unwrap();
    assert_eq!(response["data"]["flight"]["gate"], "A1");
}
