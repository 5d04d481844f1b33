//! Operations that ask for more than they may.

use serde_json::{Value, json};

use crate::shop::Shop;
use crate::socket::Socket;

/// A maximum for operations and one for a subgraph.
const ENFORCED: &str = "cost: {mode: enforce, max: 40, list_size: 5, expose: true, subgraphs: {subgraphs: {reviews: {max: 20}}}}\n";

#[test]
fn an_operation_above_a_maximum_is_refused_and_fetches_nothing() {
    let shop = Shop::with(ENFORCED);
    let aliases: String = ('a'..='i').map(|name| format!("{name}: products {{ name }} ")).collect();
    for (query, what, estimated, maximum) in [
        // 5 products, each with 5 reviews, each with its product.
        ("{ products { reviews { product { name } } } }", "the operation", 55, 40),
        // The subgraph gets 5 products, and gives 5 reviews of each.
        ("{ products { reviews { text } } }", "the operation's requests to one subgraph", 30, 20),
        (&format!("{{ {aliases}}}"), "the operation", 45, 40),
    ] {
        let response = shop.query(query);
        let message =
            format!("the estimated cost of {what} is {estimated}, and the maximum is {maximum}");
        let expected = json!({ "errors": [{
            "message": message,
            "extensions": {
                "code": "COST_ESTIMATED_TOO_EXPENSIVE",
                "estimated": estimated,
                "maximum": maximum,
            },
        }] });
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status, body), (400, expected), "{query}");
    }
    assert_eq!(shop.router.metric("starling_operation_cost_exceeded_total"), Some(3));
    let refused = "starling_operations_refused_total{code=\"COST_ESTIMATED_TOO_EXPENSIVE\"}";
    assert_eq!(shop.router.metric(refused), Some(3));
    for name in ["products", "reviews"] {
        assert_eq!(shop.subgraph(name).request_count(), 0, "requests to {name}");
    }
    shop.assert_unaffected();
}

#[test]
fn a_client_that_asks_for_the_cost_gets_the_estimate_and_the_actual_cost() {
    let shop = Shop::with(ENFORCED);
    let body = json!({ "query": "{ product(id: \"1\") { name } warehouse { city } }" }).to_string();
    let ask = |headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/json")], headers].concat();
        e2e::request(shop.address(), "POST", "/graphql", &headers, body.as_bytes()).unwrap()
    };
    let response = ask(&[("starling-cost", "1")]);
    assert_eq!(response.header("starling-cost-estimated"), Some("2"));
    assert_eq!(response.header("starling-cost-actual"), Some("2"));
    let value: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(value["extensions"], json!({ "cost": { "estimated": 2, "actual": 2 } }));
    for headers in [&[][..], &[("starling-cost", "0")]] {
        let response = ask(headers);
        assert_eq!(response.header("starling-cost-estimated"), None);
        assert!(!response.text().contains("extensions"), "{}", response.text());
    }
    // Equal requests may share an execution, so there are at least as many estimates.
    let actual = shop.router.metric("starling_operation_cost_actual_count");
    assert_eq!(shop.router.metric("starling_operation_cost_estimated_count"), Some(4));
    assert!(actual.is_some_and(|count| (1..=4).contains(&count)), "{actual:?}");
    shop.assert_unaffected();
}

#[test]
fn the_mode_measure_counts_and_refuses_nothing() {
    let shop = Shop::with("cost: {mode: measure, max: 1, list_size: 5}\n");
    let response = shop.ask("{ products { name } }");
    assert_eq!(response["errors"], Value::Null, "{response}");
    assert_eq!(shop.router.metric("starling_operation_cost_exceeded_total"), Some(1));
    assert_eq!(shop.router.metric("starling_operation_cost_actual_count"), Some(1));
    shop.assert_unaffected();
}

#[test]
fn costs_are_not_counted_by_default() {
    let shop = Shop::open();
    shop.ask("{ products { name } }");
    assert_eq!(shop.router.metric("starling_operation_cost_estimated_count"), None);
    shop.assert_unaffected();
}

#[test]
fn a_subscription_is_checked_when_it_starts_and_each_event_is_measured() {
    let shop = Shop::with(ENFORCED);
    let mut socket = Socket::ready(shop.address());
    socket.subscribe("dear", "subscription { productChanged { reviews { product { name } } a: reviews { text } b: reviews { text } c: reviews { text } } }");
    let refused = socket.message();
    assert_eq!(refused["type"], "error", "{refused}");
    let code = &refused["payload"][0]["extensions"]["code"];
    assert_eq!(code, "COST_ESTIMATED_TOO_EXPENSIVE", "{refused}");
    socket.subscribe("cheap", "subscription { productChanged { name } }");
    shop.wait_for_subscribers(1);
    shop.publish("products", r#"{"__typename":"Product","id":"1"}"#);
    assert_eq!(socket.message()["type"], "next");
    shop.wait_for_metric("starling_operation_cost_actual_count", 1);
    shop.assert_unaffected();
}

#[test]
fn hostile_list_lengths_and_nesting_are_refused_at_once() {
    let shop = Shop::with("cost: {mode: enforce, max: 1000}\n");
    let depth = 45;
    let nested = "reviews { product { ".repeat(depth) + "name" + &" } }".repeat(depth);
    let response = shop.ask(&format!("{{ products(first: 2147483647) {{ {nested} }} }}"));
    let error = &response["errors"][0];
    assert_eq!(error["extensions"]["code"], "COST_ESTIMATED_TOO_EXPENSIVE", "{response}");
    assert_eq!(error["extensions"]["estimated"], u64::MAX, "{response}");
    shop.assert_unaffected();
}
