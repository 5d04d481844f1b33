//! Compares the subgraphs with the benchmark's expected response: each value in it comes from the subgraph that owns
//! it.

#![allow(clippy::unwrap_used)] // a missing response fails the test

use std::sync::LazyLock;

use load::subgraph::Subgraph;
use serde_json::{Map, Value, json};

const EXPECTED: &str =
    include_str!("../../../fixtures/federation-benchmark/expected_response.json");

static ACCOUNTS: LazyLock<Subgraph> = LazyLock::new(bench_subgraphs::accounts);
static INVENTORY: LazyLock<Subgraph> = LazyLock::new(bench_subgraphs::inventory);
static PRODUCTS: LazyLock<Subgraph> = LazyLock::new(bench_subgraphs::products);
static REVIEWS: LazyLock<Subgraph> = LazyLock::new(bench_subgraphs::reviews);

#[track_caller]
fn query_subgraph(subgraph: &Subgraph, query: &str, variables: Value) -> Value {
    let body = json!({"query": query, "variables": variables}).to_string();
    let response = subgraph.respond(body.as_bytes());
    let response: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(response.get("errors"), None);
    response["data"].clone()
}

fn entity(subgraph: &Subgraph, representation: Value, selection: &str) -> Value {
    let name = representation["__typename"].as_str().unwrap();
    let query = format!(
        "query($r: [_Any!]!) {{ _entities(representations: $r) {{ ... on {name} {selection} }} }}"
    );
    query_subgraph(subgraph, &query, json!({"r": [representation]}))["_entities"][0].clone()
}

/// Walks the expected response and compares each object in it with the data of the subgraphs.
fn compare(value: &Value, compared: &mut usize) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| compare(item, compared)),
        Value::Object(object) => {
            if let Some(upc) = object.get("upc") {
                compare_product(upc, object);
            } else if object.contains_key("body") {
                compare_review(object);
            } else if object.contains_key("username") {
                compare_user(object);
            }
            *compared += 1;
            object.values().for_each(|member| compare(member, compared));
        }
        _ => {}
    }
}

fn compare_product(upc: &Value, object: &Map<String, Value>) {
    let key = json!({"__typename": "Product", "upc": upc});
    let actual = entity(&PRODUCTS, key, "{ name price weight }");
    let with_required = json!({"__typename": "Product", "upc": upc, "price": actual["price"], "weight": actual["weight"]});
    let stocked = entity(&INVENTORY, with_required, "{ inStock shippingEstimate }");
    for (name, from) in [
        ("name", &actual),
        ("price", &actual),
        ("weight", &actual),
        ("inStock", &stocked),
        ("shippingEstimate", &stocked),
    ] {
        assert_eq!(object[name], from[name], "{name} of product {upc}");
    }
    if let Some(expected) = object.get("reviews") {
        let key = json!({"__typename": "Product", "upc": upc});
        let actual = entity(&REVIEWS, key, "{ reviews { id } }");
        assert_eq!(ids(expected), ids(&actual["reviews"]), "reviews of product {upc}");
    }
}

fn compare_review(object: &Map<String, Value>) {
    let key = json!({"__typename": "Review", "id": object["id"]});
    let actual = entity(&REVIEWS, key, "{ body product { upc } author { id username } }");
    assert_eq!(object["body"], actual["body"]);
    if let Some(product) = object.get("product") {
        assert_eq!(product["upc"], actual["product"]["upc"]);
    }
    if let Some(author) = object.get("author") {
        assert_eq!(
            [&author["id"], &author["username"]],
            [&actual["author"]["id"], &actual["author"]["username"]]
        );
    }
}

fn compare_user(object: &Map<String, Value>) {
    let key = json!({"__typename": "User", "id": object["id"]});
    let actual = entity(&ACCOUNTS, key.clone(), "{ username name }");
    assert_eq!([&object["username"], &object["name"]], [&actual["username"], &actual["name"]]);
    if let Some(expected) = object.get("reviews") {
        let actual = entity(&REVIEWS, key, "{ reviews { id } }");
        assert_eq!(ids(expected), ids(&actual["reviews"]));
    }
}

fn ids(reviews: &Value) -> Vec<&Value> {
    reviews.as_array().unwrap().iter().map(|review| &review["id"]).collect()
}

#[test]
fn every_object_of_the_expected_response_equals_the_subgraphs_data() {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let mut compared = 0;
    compare(&expected["data"], &mut compared);
    // 6 users and 5 products at the root, and all objects below them.
    assert!(compared > 300, "{compared}");
    let users = query_subgraph(&ACCOUNTS, "{ users { id username name } }", json!({}));
    let root_users: Vec<Value> = expected["data"]["users"]
        .as_array()
        .unwrap()
        .iter()
        .map(|u| json!({"id": u["id"], "username": u["username"], "name": u["name"]}))
        .collect();
    assert_eq!(users["users"], Value::Array(root_users));
}

#[test]
fn top_products_come_in_the_expected_order_up_to_the_requested_number() {
    let actual = query_subgraph(
        &PRODUCTS,
        "{ topProducts { upc } two: topProducts(first: 2) { upc name } all: topProducts(first: null) { upc } }",
        json!({}),
    );
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let upcs = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|product| product["upc"].clone()).collect()
    };
    assert_eq!(upcs(&actual["topProducts"]), upcs(&expected["data"]["topProducts"]));
    assert_eq!(
        actual["two"],
        json!([{"upc": "1", "name": "Table"}, {"upc": "2", "name": "Couch"}])
    );
    assert_eq!(actual["all"].as_array().unwrap().len(), 5);
}

#[test]
fn a_user_is_found_by_id_and_an_unknown_one_is_null() {
    let actual = query_subgraph(
        &ACCOUNTS,
        "{ me { username } user(id: 3) { name } nobody: user(id: \"x\") { name } }",
        json!({}),
    );
    assert_eq!(
        actual,
        json!({"me": {"username": "urigo"}, "user": {"name": "Kamil Kisiela"}, "nobody": null})
    );
}

#[test]
fn shipping_is_computed_from_the_representation_and_unknown_without_it() {
    let estimate = |price: Value, weight: Value| {
        let representation =
            json!({"__typename": "Product", "upc": "1", "price": price, "weight": weight});
        entity(&INVENTORY, representation, "{ shippingEstimate }")["shippingEstimate"].clone()
    };
    assert_eq!(estimate(json!(1000), json!(7)), json!(3));
    assert_eq!(estimate(json!(1001), json!(7)), json!(0));
    assert_eq!(estimate(json!(null), json!(7)), json!(null));
}

#[test]
fn reviews_resolve_usernames_only_below_authors() {
    let actual = entity(&REVIEWS, json!({"__typename": "User", "id": "1"}), "{ id username }");
    assert_eq!(actual, json!({"id": "1", "username": null}));
    let actual = entity(
        &REVIEWS,
        json!({"__typename": "Review", "id": "3"}),
        "{ author { username reviews { id } } }",
    );
    assert_eq!(
        actual,
        json!({"author": {"username": "urigo", "reviews": [{"id": "1"}, {"id": "2"}]}})
    );
}

#[tokio::test]
async fn all_four_are_served_at_their_paths() {
    let server = bench_subgraphs::start(([127, 0, 0, 1], 0).into(), std::time::Duration::ZERO)
        .await
        .unwrap();
    for name in bench_subgraphs::NAMES {
        assert!(server.controls_at(&format!("/{name}")).is_some());
    }
}
