//! GraphQL requests whose operation cannot run.

use expect_test::expect;
use serde_json::{Value, json};

use crate::answers::{case, shown};
use crate::shop::Shop;

/// The outcome with `application/graphql-response+json`, where the status speaks. With `application/json`
/// it is the same but for the status, 200.
fn outcome(shop: &Shop, body: &Value) -> String {
    let answer = shop.router.post(&body.to_string()).unwrap();
    let headers = [("content-type", "application/json")];
    let plain =
        e2e::request(shop.address(), "POST", "/graphql", &headers, body.to_string().as_bytes());
    let plain = plain.unwrap();
    assert_eq!((plain.status, plain.text()), (200, answer.text()));
    shown(&answer)
}

#[test]
fn a_document_that_does_not_parse_is_refused_with_its_place() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for query in [
        "",
        "{",
        "{ warehouse { city }",
        "{ warehouse { city } } }",
        "{ warehouse { } }",
        "query ($a) { warehouse { city } }",
        "{ product(id: \"1) { name } }",
        "{ warehouse { city } } §",
        "\u{0}",
        "type Query { a: Int }",
    ] {
        outcomes += &case(query, &outcome(&shop, &json!({ "query": query })));
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn an_operation_that_does_not_fit_the_schema_is_refused_with_its_place() {
    let shop = Shop::open();
    let mut outcomes = String::new();
    for query in [
        "{ warehous { city } }",
        "{ warehouse }",
        "{ warehouse { city { name } } }",
        "{ product { name } }",
        "{ product(id: 1, colour: RED) { name } }",
        "{ product(id: {}) { name } }",
        "{ products(filter: { maxPrice: \"7\" }) { name } }",
        "{ products(filter: { name: \"x\", colours: [GREEN] }) { name } }",
        "query ($id: ID) { product(id: $id) { name } }",
        "query ($id: Nothing!) { product(id: $id) { name } }",
        "{ product(id: $id) { name } }",
        "query ($id: ID!) { warehouse { city } }",
        "{ ...F }",
        "{ ...F } fragment F on Query { ...F }",
        "{ warehouse { city } ... on Product { name } }",
        "{ a: product(id: 1) { name } a: product(id: 2) { name } }",
        "{ warehouse @unknown { city } }",
        "{ warehouse @skip { city } }",
        "subscription { productChanged { id } productChangedAt(place: \"x\") { id } }",
        "query A { warehouse { city } } query A { warehouse { city } }",
        "{ __type { name } }",
        "{ _entities(representations: []) { __typename } }",
    ] {
        outcomes += &case(query, &outcome(&shop, &json!({ "query": query })));
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn an_operation_name_that_names_nothing_is_refused_with_the_names_there_are() {
    let shop = Shop::open();
    let two = "query First { warehouse { city } } query Second { warehouse { city } }";
    let mut outcomes = String::new();
    for (name, body) in [
        ("unknown", json!({ "query": two, "operationName": "Third" })),
        ("none of two", json!({ "query": two })),
        ("empty", json!({ "query": two, "operationName": "" })),
        (
            "for an operation without a name",
            json!({ "query": "{ warehouse { city } }", "operationName": "A" }),
        ),
        ("no operation", json!({ "query": "fragment F on Query { warehouse { city } }" })),
    ] {
        outcomes += &case(name, &outcome(&shop, &body));
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn a_variable_that_does_not_fit_its_type_is_refused_with_the_place_in_the_value() {
    let shop = Shop::open();
    let query = "query ($id: ID!, $first: Int, $filter: ProductFilter) {
        product(id: $id) { name } products(first: $first, filter: $filter) { name } }";
    let mut outcomes = String::new();
    for variables in [
        json!({}),
        json!({ "id": null }),
        json!({ "id": true }),
        json!({ "id": { "a": 1 } }),
        json!({ "id": "1", "first": "7" }),
        json!({ "id": "1", "first": 7.5 }),
        json!({ "id": "1", "first": 3_000_000_000_u32 }),
        json!({ "id": "1", "filter": 7 }),
        json!({ "id": "1", "filter": {} }),
        json!({ "id": "1", "filter": { "name": "x", "maxPrise": 7 } }),
        json!({ "id": "1", "filter": { "name": "x", "colours": ["RED", "GREEN"] } }),
        json!({ "id": "1", "filter": { "name": "x", "colours": [null, 7] } }),
    ] {
        let body = json!({ "query": query, "variables": variables });
        outcomes += &case(&variables.to_string(), &outcome(&shop, &body));
    }
    expect![[""]].assert_eq(&outcomes);
    assert_eq!(shop.subgraph("products").request_count(), 0);
    shop.assert_unharmed();
}

#[test]
fn an_operation_over_a_limit_is_refused_with_the_limit_and_its_key() {
    let limits = "limits: {depth: 5, aliases: 3, root_fields: 4, tokens: 200, selections: 30}";
    let shop = Shop::with(limits);
    // Twice as many selections with each fragment: 2^20 in the end.
    let doubling: String = (0..12)
        .map(|n| format!("fragment F{n} on Product {{ ...F{} ...F{} }} ", n + 1, n + 1))
        .collect();
    let mut outcomes = String::new();
    for (name, query) in [
        ("depth", "{ latestReview { product { reviews { product { reviews { id } } } } } }".to_owned()),
        ("aliases", "{ warehouse { a: city b: city c: city d: city } }".to_owned()),
        ("root_fields", "{ a: __typename warehouse { city } latestReview { id } products { id } product(id: 1) { id } }".to_owned()),
        ("tokens", format!("{{ warehouse {{ {} }} }}", "city ".repeat(200))),
        ("selections", format!("{{ products {{ {} }} }}", "id price ".repeat(20))),
        ("fragments that multiply", format!("{{ products {{ ...F0 }} }} {doubling} fragment F12 on Product {{ id }}")),
        ("nesting without end", "{ a".repeat(90)),
    ] {
        outcomes += &case(name, &outcome(&shop, &json!({ "query": query })));
    }
    expect![[""]].assert_eq(&outcomes);
    shop.assert_unharmed();
}

#[test]
fn a_document_that_nests_beyond_every_stack_is_refused() {
    let shop = Shop::with("limits: {body: 64MiB, tokens: 10000000, depth: 500}");
    for (open, close) in [("{a", "}"), ("{a(b:[", "]){c}}"), ("{a(b:{c:", "}){c}}")] {
        for levels in [1_000, 200_000] {
            let query = format!("{}{}", open.repeat(levels), close.repeat(levels));
            let answer = shop.query(&query);
            assert_eq!(answer.status, 400, "{open}: {}", answer.text());
        }
    }
    let list = format!("query($a:{}Int{}){{a}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(shop.query(&list).status, 400);
    let literal =
        format!("{{ product(id: {}1{}) {{ id }} }}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(shop.query(&literal).status, 400);
    shop.assert_unharmed();
}
