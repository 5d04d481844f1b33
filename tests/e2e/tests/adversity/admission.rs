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
        // Seconds may have passed since the burst was taken.
        let seconds: u64 = header("retry-after").unwrap().parse().unwrap();
        assert!((3570..=3600).contains(&seconds), "{seconds}");
        assert_eq!(header("ratelimit"), Some(format!("\"per-app\";r=0;t={seconds}")));
        assert_eq!(header("ratelimit-policy").as_deref(), Some("\"per-app\";q=2;w=7200"));
        let text = response.text();
        assert!(text.contains(&format!("\"retryAfter\":{seconds}")), "{text}");
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
        let seconds = message["payload"][0]["extensions"]["retryAfter"].as_u64().unwrap();
        assert!((3570..=3600).contains(&seconds), "{seconds}");
    }
    let Received::Closed(closed) = socket.receive() else { panic!("it stays open") };
    assert_eq!(closed.code.0, 4429);
    assert_eq!(&*closed.reason, "a rate limit has refused too many operations");
    shop.assert_unaffected();
}

/// Each product costs 1; the lists have five elements.
const COST_LIMIT: &str = r#"
websocket: {init_payload_headers: [graphql-client-name]}
cost: {mode: measure, list_size: 5}
rate_limits:
  - {name: cost, unit: cost, key: "client.name", when: "operation.cost > 1", rate: 10, per: 1h, close_after: 1}
headers: {all: {request: [{set: {name: x-cost, expression: "operation.name + '=' + string(operation.cost)"}}]}}
"#;

const FIVE: &str = "{ products { name } }";

#[test]
fn a_limit_of_costs_takes_the_estimate_and_refuses_before_anything_is_fetched() {
    let shop = Shop::with(COST_LIMIT);
    let products = shop.subgraph("products");
    let app = |name| [("graphql-client-name", name)];
    for _ in 0..2 {
        assert_eq!(outcome(&send(&shop, FIVE, &app("web"))), (200, None));
    }
    products.record_requests(true);
    let response = send(&shop, FIVE, &app("web"));
    assert_eq!(outcome(&response), refused(429, "RATE_LIMITED"));
    // Half of the burst.
    let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1770..=1800).contains(&seconds), "{seconds}");
    let remaining = format!("\"cost\";r=0;t={seconds}");
    assert_eq!(response.header("ratelimit"), Some(&*remaining));
    assert_eq!(response.header("ratelimit-policy"), Some("\"cost\";q=10;w=3600"));
    // More than the burst is never admitted, so that no client tries again.
    let alone = send(&shop, "{ products { reviews { text } } }", &app("other"));
    assert_eq!(outcome(&alone), refused(200, "COST_ESTIMATED_TOO_EXPENSIVE"));
    let body: Value = serde_json::from_str(&alone.text()).unwrap();
    assert_eq!(
        body["errors"][0],
        json!({
            "message": "the estimated cost of the operation is 30, and the rate limit `cost` admits at most 10 at once",
            "extensions": { "code": "COST_ESTIMATED_TOO_EXPENSIVE", "estimated": 30, "maximum": 10 },
        })
    );
    assert!(products.take_requests().is_empty());
    // It took nothing of its key, and an operation that costs too little for the condition is not limited.
    assert_eq!(outcome(&send(&shop, FIVE, &app("other"))), (200, None));
    for _ in 0..12 {
        assert_eq!(outcome(&send(&shop, CITY, &app("web"))), (200, None));
    }
    let metric = |name: &str| shop.router.metric(&format!("{name}{{limit=\"cost\"}}"));
    assert_eq!(metric("starling_rate_limit_admitted_total"), Some(3));
    assert_eq!(metric("starling_rate_limit_refused_total"), Some(2));
    let code = "starling_operations_refused_total{code=\"RATE_LIMITED\"}";
    assert_eq!(shop.router.metric(code), Some(1));
    shop.assert_unaffected();
}

#[test]
fn a_header_carries_the_cost_to_subgraphs() {
    let shop = Shop::with(COST_LIMIT);
    shop.subgraph("products").record_requests(true);
    assert_eq!(outcome(&send(&shop, "query All { products { name } }", &[])), (200, None));
    let received = shop.subgraph("products").take_requests().pop().unwrap();
    assert_eq!(received.headers.get("x-cost").map(|it| it.to_str().unwrap()), Some("All=5"));
    shop.assert_unaffected();
}

#[test]
fn a_websocket_over_a_limit_of_costs_gets_the_error_and_is_closed() {
    let shop = Shop::with(COST_LIMIT);
    let mut socket = Socket::open(shop.address());
    socket.send(r#"{"type":"connection_init","payload":{"graphql-client-name":"socket"}}"#);
    assert_eq!(socket.message(), json!({ "type": "connection_ack" }));
    for id in ["1", "2"] {
        socket.subscribe(id, FIVE);
        assert_eq!(socket.message()["type"], "next");
        assert_eq!(socket.message(), json!({ "id": id, "type": "complete" }));
    }
    socket.subscribe("3", FIVE);
    let message = socket.message();
    assert_eq!(message["payload"][0]["extensions"]["code"], "RATE_LIMITED");
    let Received::Closed(closed) = socket.receive() else { panic!("it stays open") };
    assert_eq!(closed.code.0, 4429);
    shop.assert_unaffected();
}

#[test]
fn introspection_is_refused_unless_its_condition_holds() {
    let shop = Shop::with(
        "introspection: {when: \"request.headers['x-key'] == 'studio' && operation.kind == 'query'\"}",
    );
    let query = "{ __schema { queryType { name } } }";
    let allowed = send(&shop, query, &[("x-key", "studio")]);
    assert_eq!(outcome(&allowed), (200, None));
    // False, and absent: a client must not evade the condition by leaving something out.
    for headers in [&[("x-key", "other")][..], &[]] {
        let response = send(&shop, query, headers);
        assert_eq!(outcome(&response), refused(403, "OPERATION_BLOCKED"));
        assert!(response.text().contains("introspection is refused"), "{}", response.text());
        let typed = send(&shop, "{ __type(name: \"Product\") { name } }", headers);
        assert_eq!(outcome(&typed), refused(403, "OPERATION_BLOCKED"));
        assert_eq!(outcome(&send(&shop, "{ __typename }", headers)), (200, None));
    }
    shop.assert_unaffected();
}

#[test]
fn introspection_that_is_turned_off_is_refused_in_both_forms_of_the_key() {
    for configuration in ["introspection: false", "introspection: {enabled: false}"] {
        let shop = Shop::with(configuration);
        let response = send(&shop, "{ __schema { queryType { name } } }", &[]);
        assert_eq!(
            outcome(&response),
            refused(200, "GRAPHQL_VALIDATION_FAILED"),
            "{configuration}"
        );
        assert!(response.text().contains("introspection is turned off"), "{}", response.text());
        assert_eq!(outcome(&send(&shop, "{ __typename }", &[])), (200, None));
        shop.assert_unaffected();
    }
}
