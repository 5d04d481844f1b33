//! What the subgraphs cost beside a router under test: one answer each, without sockets.

#![allow(clippy::unwrap_used)] // a bench of a request that is refused would measure nothing

use divan::Bencher;
use load::subgraph::Subgraph;
use serde_json::json;

fn main() {
    divan::main();
}

fn answer(bencher: Bencher<'_, '_>, subgraph: Subgraph, request: serde_json::Value) {
    let body = request.to_string();
    let answer = subgraph.answer(body.as_bytes());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert!(!answer.body.windows(8).any(|window| window == b"\"errors\""));
    let bytes = divan::counter::BytesCount::new(answer.body.len());
    bencher.counter(bytes).bench(|| subgraph.answer(divan::black_box(body.as_bytes())));
}

/// The largest fetch of the benchmark's operation: some 60 kB.
#[divan::bench]
fn reviews_of_six_users_three_levels_deep(bencher: Bencher<'_, '_>) {
    let users: Vec<_> =
        (1..=6).map(|id| json!({ "__typename": "User", "id": id.to_string() })).collect();
    let query = "query($r: [_Any!]!) { _entities(representations: $r) { ... on User { reviews {
        id body product { upc reviews { id body author { id username reviews { id body product { upc } } } } } } } } }";
    answer(
        bencher,
        bench_subgraphs::reviews(),
        json!({ "query": query, "variables": { "r": users } }),
    );
}

/// A small entity batch with a computed field.
#[divan::bench]
fn stock_and_shipping_of_five_products(bencher: Bencher<'_, '_>) {
    let products: Vec<_> = (1..=5)
        .map(|upc| json!({ "__typename": "Product", "upc": upc.to_string(), "price": 10, "weight": 10 }))
        .collect();
    let query = "query($r: [_Any!]!) { _entities(representations: $r) { ... on Product { inStock shippingEstimate } } }";
    answer(
        bencher,
        bench_subgraphs::inventory(),
        json!({ "query": query, "variables": { "r": products } }),
    );
}

/// A root field.
#[divan::bench]
fn users(bencher: Bencher<'_, '_>) {
    let query = "{ users { id username name } }";
    answer(bencher, bench_subgraphs::accounts(), json!({ "query": query }));
}
