//! Expressions of the configuration: computed headers, blocked operations and rate limits, over HTTP and WebSockets.

use e2e::{HttpResponse, request};
use serde_json::{Value, json};

use crate::shop::Shop;
use crate::socket::{Received, Socket};

const CITY: &str = "{ warehouse { city } }";
const MUTATION: &str = r#"mutation { addReview(product: 1, text: "x") { id } }"#;

fn send(shop: &Shop, query: &str, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let body = json!({ "query": query }).to_string();
    request(shop.address(), "POST", "/graphql", &headers, body.as_bytes()).unwrap()
}

/// Returns the status and the code of the first error, if there is one.
fn outcome(response: &HttpResponse) -> (u16, Option<String>) {
    let body: Value = serde_json::from_str(&response.text()).unwrap();
    let code = body["errors"][0]["extensions"]["code"].as_str();
    (response.status, code.map(str::to_owned))
}

fn refused(status: u16, code: &str) -> (u16, Option<String>) {
    (status, Some(code.to_owned()))
}

#[test]
fn computed_headers_reach_subgraphs_and_clients_and_cannot_be_replaced() {
    let shop = Shop::with(
        r#"
headers:
  all:
    request:
      - set: {name: x-app, expression: "client.name + '@' + request.client_address"}
      - set: {name: x-none, expression: "request.headers['x-missing']"}
      - propagate: {matching: "^x-"}
    response:
      - set: {name: x-served-by, expression: "subgraph.name"}
"#,
    );
    shop.subgraph("stock").record_requests(true);
    let headers = [("graphql-client-name", "web"), ("x-app", "forged"), ("x-none", "forged")];
    let response = send(&shop, CITY, &headers);
    assert_eq!(outcome(&response), (200, None));
    assert_eq!(response.header("x-served-by"), Some("stock"));
    let received = shop.subgraph("stock").take_requests().pop().unwrap();
    let header = |name: &str| received.headers.get(name).map(|it| it.to_str().unwrap().to_owned());
    assert_eq!(header("x-app").as_deref(), Some("web@127.0.0.1"));
    assert_eq!(header("x-none"), None);
    assert!(shop.router.metric("starling_expression_header_failures_total") > Some(0));
    shop.assert_unaffected();
}

#[test]
fn blocked_operations_are_refused_on_every_transport_before_a_subgraph_is_asked() {
    let shop = Shop::with(
        r#"
websocket: {init_payload_headers: [graphql-client-name]}
block:
  mutations: "request.headers[?'x-internal'].orValue('') != 'yes'"
  introspection: true
  rules:
    - {when: "client.name == 'old'", message: "please update"}
    - {when: "client.name == 'web' && request.headers['x-version'] == '1'"}
"#,
    );
    shop.subgraph("reviews").record_requests(true);
    let blocked = refused(403, "OPERATION_BLOCKED");
    let response = send(&shop, MUTATION, &[]);
    assert_eq!(outcome(&response), blocked);
    assert!(response.text().contains("mutations are refused"), "{}", response.text());
    assert_eq!(outcome(&send(&shop, "{ __schema { queryType { name } } }", &[])), blocked);
    let old = send(&shop, CITY, &[("graphql-client-name", "old")]);
    assert_eq!(outcome(&old), blocked);
    assert!(old.text().contains("please update"), "{}", old.text());
    // A condition that cannot be evaluated blocks.
    assert_eq!(outcome(&send(&shop, CITY, &[("graphql-client-name", "web")])), blocked);
    assert_eq!(shop.router.metric("starling_expression_block_failures_total"), Some(1));
    assert!(shop.subgraph("reviews").take_requests().is_empty());
    let web = [("graphql-client-name", "web"), ("x-version", "2")];
    assert_eq!(outcome(&send(&shop, CITY, &web)), (200, None));
    assert_eq!(outcome(&send(&shop, MUTATION, &[("x-internal", "yes")])).0, 200);

    let mut socket = Socket::open(shop.address());
    socket.send(r#"{"type":"connection_init","payload":{"graphql-client-name":"old"}}"#);
    assert_eq!(socket.message(), json!({ "type": "connection_ack" }));
    socket.subscribe("1", CITY);
    let message = socket.message();
    assert_eq!(message["type"], "error");
    assert_eq!(message["payload"][0]["extensions"]["code"], "OPERATION_BLOCKED");
    drop(socket);
    shop.assert_unaffected();
}

const LIMIT: &str = r#"
websocket: {init_payload_headers: [graphql-client-name]}
rate_limits:
  - {name: per-app, key: "client.name == '' ? null : client.name", rate: 1, per: 1h, burst: 2, close_after: 2}
"#;

#[test]
fn operations_over_a_rate_limit_get_429_with_the_time_to_wait() {
    let shop = Shop::with(LIMIT);
    let app = |name| [("graphql-client-name", name)];
    for _ in 0..2 {
        assert_eq!(outcome(&send(&shop, CITY, &app("web"))), (200, None));
    }
    for accept in ["application/json", "application/graphql-response+json"] {
        let headers = [("graphql-client-name", "web"), ("accept", accept)];
        let response = send(&shop, CITY, &headers);
        assert_eq!(outcome(&response), refused(429, "RATE_LIMITED"), "{accept}");
        let header = |name| response.header(name).map(str::to_owned);
        assert_eq!(header("retry-after").as_deref(), Some("3600"));
        assert_eq!(header("ratelimit").as_deref(), Some("\"per-app\";r=0;t=3600"));
        assert_eq!(header("ratelimit-policy").as_deref(), Some("\"per-app\";q=2;w=7200"));
        assert!(response.text().contains(r#""retryAfter":3600"#), "{}", response.text());
    }
    // Another key, and operations without a key, are not affected.
    assert_eq!(outcome(&send(&shop, CITY, &app("other"))), (200, None));
    for _ in 0..5 {
        assert_eq!(outcome(&send(&shop, CITY, &[])), (200, None));
    }
    let metric = |name: &str| shop.router.metric(&format!("{name}{{limit=\"per-app\"}}"));
    assert_eq!(metric("starling_rate_limit_refused_total"), Some(2));
    assert_eq!(metric("starling_rate_limit_admitted_total"), Some(3));
    assert_eq!(metric("starling_rate_limit_keys"), Some(2));
    shop.assert_unaffected();
}

#[test]
fn a_websocket_that_exceeds_a_rate_limit_again_and_again_is_closed_with_4429() {
    let shop = Shop::with(LIMIT);
    let mut socket = Socket::open(shop.address());
    socket.send(r#"{"type":"connection_init","payload":{"graphql-client-name":"socket"}}"#);
    assert_eq!(socket.message(), json!({ "type": "connection_ack" }));
    for id in ["1", "2"] {
        socket.subscribe(id, CITY);
        assert_eq!(socket.message()["type"], "next");
        assert_eq!(socket.message(), json!({ "id": id, "type": "complete" }));
    }
    for id in ["3", "4"] {
        socket.subscribe(id, CITY);
        let message = socket.message();
        assert_eq!(message["type"], "error");
        assert_eq!(message["payload"][0]["extensions"]["code"], "RATE_LIMITED");
        assert_eq!(message["payload"][0]["extensions"]["retryAfter"], 3600);
    }
    let Received::Closed(closed) = socket.receive() else { panic!("it stays open") };
    assert_eq!(closed.code.0, 4429);
    assert_eq!(&*closed.reason, "a rate limit has refused too many operations");
    shop.assert_unaffected();
}
