//! Headers to and from subgraphs, and the errors that clients see.

use std::net::SocketAddr;

use bytes::Bytes;
use e2e::{HttpResponse, request};
use expect_test::expect;
use load::subgraph::Fault;
use serde_json::json;

use crate::responses::{case, format_response};
use crate::shop::Shop;

/// Fetches from `products` first, then from `reviews` and `stock`.
const JOINED: &str = "{ product(id: 1) { name inStock reviews { text } } }";

const RULES: &str = r#"
headers:
  all:
    request:
      - propagate: {named: Authorization}
      - propagate: {named: x-account, rename: x-user, default: nobody}
      - propagate: {matching: "^x-tenant-"}
      - insert: {name: x-key, value: "${HOME:-}s3cret"}
    response:
      - propagate: {named: x-cost, algorithm: append}
      - propagate: {named: x-first, algorithm: first}
      - propagate: {named: x-last}
      - propagate: {named: set-cookie}
  subgraphs:
    reviews:
      request:
        - remove: {named: authorization}
        - insert: {name: x-key, value: other}
      response:
        - remove: {matching: "^x-(first|last)$"}
        - propagate: {named: x-cost, rename: x-reviews-cost}
"#;

fn ask(shop: &Shop, headers: &[(&str, &str)]) -> HttpResponse {
    ask_at(shop.address(), headers)
}

fn ask_at(address: SocketAddr, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let body = json!({ "query": JOINED }).to_string();
    request(address, "POST", "/graphql", &headers, body.as_bytes()).unwrap()
}

/// Returns the headers of the last request to a subgraph that come from rules or could break something.
fn received(shop: &Shop, subgraph: &str) -> String {
    let request = shop.subgraph(subgraph).take_requests().pop().unwrap();
    let ours = ["host", "accept", "content-type", "content-length"];
    let headers = request.headers.iter().filter(|(name, _)| !ours.contains(&name.as_str()));
    let lines = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
    lines.collect()
}

#[test]
fn rules_decide_which_headers_of_the_client_reach_which_subgraph() {
    let shop = Shop::with(&RULES.replace("${HOME:-}", ""));
    for name in ["products", "reviews"] {
        shop.subgraph(name).record_requests(true);
    }
    ask(
        &shop,
        &[
            ("authorization", "Bearer 1"),
            ("x-tenant-b", "2"),
            ("x-tenant-a", "1"),
            ("x-tenant-hop", "3"),
            ("connection", "x-tenant-hop"),
            ("x-key", "guessed"),
            ("x-unknown", "1"),
        ],
    );
    expect![[r#"
        authorization: Bearer 1
        x-key: s3cret
        x-tenant-a: 1
        x-tenant-b: 2
        x-tenant-hop: 3
        x-user: nobody
    "#]]
    .assert_eq(&received(&shop, "products"));
    expect![[r#"
        x-key: other
        x-tenant-a: 1
        x-tenant-b: 2
        x-tenant-hop: 3
        x-user: nobody
    "#]]
    .assert_eq(&received(&shop, "reviews"));
    ask(&shop, &[("x-account", "7"), ("te", "trailers"), ("proxy-authorization", "Basic 1")]);
    expect![[r#"
        x-key: s3cret
        x-user: 7
    "#]]
    .assert_eq(&received(&shop, "products"));
    shop.assert_unaffected();
}

#[test]
fn headers_of_answers_reach_the_client_merged_in_the_order_of_the_plan() {
    let shop = Shop::with(RULES);
    shop.subgraph("products").set_fault(Fault::Headers(vec![
        ("x-cost", "1"),
        ("x-first", "products"),
        ("x-last", "products"),
        ("x-unknown", "1"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=1"),
    ]));
    shop.subgraph("reviews").set_fault(Fault::Headers(vec![
        ("x-cost", "2"),
        ("x-first", "reviews"),
        ("x-last", "reviews"),
        ("set-cookie", "a=2"),
    ]));
    shop.subgraph("stock").set_fault(Fault::Headers(vec![
        ("x-cost", "3"),
        ("x-first", "stock"),
        ("x-last", "stock"),
        ("connection", "x-cost"),
    ]));
    let response = ask(&shop, &[]);
    let mut lines = String::new();
    for (name, value) in &response.headers {
        if name.starts_with("x-") || name == "set-cookie" {
            lines += &format!("{name}: {value}\n");
        }
    }
    expect![[r#"
        x-cost: 1
        x-cost: 2
        x-first: products
        x-last: stock
        set-cookie: a=1
        set-cookie: b=1
        set-cookie: a=2
        x-reviews-cost: 2
        x-content-type-options: nosniff
    "#]]
    .assert_eq(&lines);
    shop.assert_unaffected();
}

#[test]
fn answers_that_may_bring_cookies_are_not_shared_between_clients() {
    for (rules, requests) in [(RULES, 2), ("", 1)] {
        let shop = Shop::with(rules);
        let (address, products) = (shop.address(), shop.subgraph("products"));
        products.set_fault(Fault::Hold);
        let clients = [(); 2].map(|()| std::thread::spawn(move || ask_at(address, &[])));
        let arrived = || (products.request_count() == requests).then_some(());
        e2e::eventually("a request to the subgraph", arrived);
        if requests == 1 {
            shop.wait_for_metric(r#"starling_sharing_followers_total{level="operation"}"#, 1);
        }
        products.clear_fault();
        for client in clients {
            assert_eq!(client.join().unwrap().status, 200);
        }
        assert_eq!(products.request_count(), requests);
        shop.assert_unaffected();
    }
}

#[test]
fn by_default_clients_see_the_code_of_an_error_and_a_fixed_message() {
    // The same as without the section.
    let shop = Shop::with("include_subgraph_errors: {}");
    let body = r#"{"errors":[{"message":"SELECT secret FROM users failed at 10.0.0.7","extensions":{
        "code":"OUT_OF_STOCK","exception":{"stacktrace":["at db.js:7"]},"sql":"SELECT secret"}}]}"#;
    let (content_type, body) = ("application/json".to_owned(), Bytes::from_static(body.as_bytes()));
    let mut outcomes = String::new();
    for (name, fault) in [
        (
            "reported",
            Fault::Response { status: 200, content_type: content_type.clone(), body: body.clone() },
        ),
        ("reported with a status of failure", Fault::Response { status: 500, content_type, body }),
        ("down", Fault::Down),
    ] {
        shop.subgraph("reviews").set_fault(fault);
        outcomes += &case(name, &format_response(&shop.query(JOINED)));
        shop.subgraph("reviews").clear_fault();
    }
    for hidden in ["SELECT", "10.0.0.7", "stacktrace", "reviews\\\""] {
        assert!(!outcomes.contains(hidden), "{hidden}: {outcomes}");
    }
    expect![[r#"
        --- reported
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product"],"extensions":{"code":"OUT_OF_STOCK"}}]}

        --- reported with a status of failure
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product"],"extensions":{"code":"OUT_OF_STOCK"}}]}

        --- down
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A request to a subgraph failed.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    // The log has the code. It has the message at the level `debug` only, because it may contain values of clients.
    let output = shop.router.output();
    assert!(output.contains("OUT_OF_STOCK") && !output.contains("SELECT secret"), "{output}");
    shop.assert_unaffected();
}

#[test]
fn fixed_messages_name_the_subgraph_and_extensions_pass_if_the_configuration_allows_it() {
    let shop =
        Shop::with("include_subgraph_errors: {subgraph_names: true, extensions: [retryAfter]}");
    let body = r#"{"errors":[{"message":"busy","extensions":{"code":"BUSY","retryAfter":3,"host":"db-7"}}]}"#;
    let body = Bytes::from_static(body.as_bytes());
    let content_type = "application/json".to_owned();
    shop.subgraph("reviews").set_fault(Fault::Response { status: 200, content_type, body });
    let outcome = case("named", &format_response(&shop.query(JOINED)));
    shop.subgraph("reviews").clear_fault();
    expect![[r#"
        --- named
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Subgraph \"reviews\" reported an error.","path":["product"],"extensions":{"serviceName":"reviews","code":"BUSY","retryAfter":3}}]}

    "#]].assert_eq(&outcome);
    shop.assert_unaffected();
}

#[test]
fn rules_show_hide_and_replace_messages_by_code_and_pattern() {
    let shop = Shop::with(
        "include_subgraph_errors:\n  subgraphs: {stock: true}\n  rules:\n\
         \x20   - {codes: [SOLD_OUT], show: true}\n\
         \x20   - {matching: '^duplicate key', subgraphs: [reviews], message: Taken already.}\n\
         \x20   - {codes: [POSTGRES]}\n\
         \x20   - {codes: [SUBGRAPH_REQUEST_FAILED], message: Try again in a moment.}\n",
    );
    let error = |message: &str, code: &str| Fault::GraphqlError {
        message: message.into(),
        code: Some(code.into()),
    };
    let mut outcomes = String::new();
    for (name, subgraph, fault) in [
        ("shown by code", "reviews", error("None is left.", "SOLD_OUT")),
        ("replaced by pattern", "reviews", error("duplicate key 7", "X")),
        ("of another subgraph", "stock", error("duplicate key 7", "X")),
        ("hidden by code", "stock", error("at 10.0.0.7", "POSTGRES")),
        ("without a rule", "reviews", error("at 10.0.0.7", "X")),
        ("replaced, of a connection", "stock", Fault::Down),
    ] {
        shop.subgraph(subgraph).set_fault(fault);
        outcomes += &case(name, &format_response(&shop.query(JOINED)));
        shop.subgraph(subgraph).clear_fault();
    }
    assert!(!outcomes.contains("10.0.0.7"), "{outcomes}");
    expect![[r#"
        --- shown by code
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"None is left.","path":["product"],"extensions":{"serviceName":"reviews","code":"SOLD_OUT"}}]}

        --- replaced by pattern
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Taken already.","path":["product"],"extensions":{"code":"X"}}]}

        --- of another subgraph
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"duplicate key 7","path":["product"],"extensions":{"serviceName":"stock","code":"X"}}]}

        --- hidden by code
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product"],"extensions":{"code":"POSTGRES"}}]}

        --- without a rule
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product"],"extensions":{"code":"X"}}]}

        --- replaced, of a connection
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Try again in a moment.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED"}}]}

    "#]].assert_eq(&outcomes);
    // The log has the codes of hidden errors. It has messages at the level `debug` only.
    let output = shop.router.output();
    assert!(output.contains("POSTGRES") && !output.contains("SOLD_OUT"), "{output}");
    assert!(!output.contains("duplicate key 7"), "{output}");
    shop.assert_unaffected();
}

#[test]
fn errors_of_a_subgraph_can_be_kept_from_clients() {
    let shop = Shop::with("include_subgraph_errors: {all: false, subgraphs: {stock: true}}");
    let secret = || Fault::GraphqlError {
        message: "SELECT failed at 10.0.0.7".into(),
        code: Some("POSTGRES".into()),
    };
    let mut outcomes = String::new();
    for (name, subgraph, fault) in [
        ("kept", "reviews", secret()),
        ("told", "stock", secret()),
        ("kept, of a field", "reviews", Fault::field_error("Review", "text", "at 10.0.0.7")),
        ("kept, of a connection", "reviews", Fault::Down),
        ("told, of a connection", "stock", Fault::Down),
    ] {
        shop.subgraph(subgraph).set_fault(fault);
        outcomes += &case(name, &format_response(&shop.query(JOINED)));
        shop.subgraph(subgraph).clear_fault();
    }
    expect![[r#"
        --- kept
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product"],"extensions":{"code":"POSTGRES"}}]}

        --- told
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"SELECT failed at 10.0.0.7","path":["product"],"extensions":{"serviceName":"stock","code":"POSTGRES"}}]}

        --- kept, of a field
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A subgraph reported an error.","path":["product","reviews",0,"text"],"extensions":{"code":"DOWNSTREAM_SERVICE_ERROR"}}]}

        --- kept, of a connection
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"A request to a subgraph failed.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED"}}]}

        --- told, of a connection
        200 application/graphql-response+json; charset=utf-8
        {"data":{"product":null},"errors":[{"message":"Request to subgraph \"stock\" failed: connection closed before the response was complete: unexpected end.","path":["product"],"extensions":{"code":"SUBGRAPH_REQUEST_FAILED","serviceName":"stock"}}]}

    "#]].assert_eq(&outcomes);
    shop.assert_unaffected();
}
