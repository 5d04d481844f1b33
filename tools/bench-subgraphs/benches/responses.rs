//! The cost of the subgraphs that run beside a router under test: one response each, without sockets.

#![allow(clippy::unwrap_used)] // a bench of a request that is refused would measure nothing

use divan::Bencher;
use load::subgraph::Subgraph;
use serde_json::json;

fn main() {
    divan::main();
}

fn measure_response(bencher: Bencher<'_, '_>, subgraph: Subgraph, request: serde_json::Value) {
    let body = request.to_string();
    let response = subgraph.respond(body.as_bytes());
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    assert!(!response.body.windows(8).any(|window| window == b"\"errors\""));
    let bytes = divan::counter::BytesCount::new(response.body.len());
    bencher.counter(bytes).bench(|| subgraph.respond(divan::black_box(body.as_bytes())));
}

/// Measures the largest fetch of the benchmark's operation, about 60 kB.
#[divan::bench]
fn reviews_of_six_users_three_levels_deep(bencher: Bencher<'_, '_>) {
    let users: Vec<_> =
        (1..=6).map(|id| json!({ "__typename": "User", "id": id.to_string() })).collect();
    let query = "query($r: [_Any!]!) { _entities(representations: $r) { ... on User { reviews {
        id body product { upc reviews { id body author { id username reviews { id body product { upc } } } } } } } } }";
    measure_response(
        bencher,
        bench_subgraphs::reviews(),
        json!({ "query": query, "variables": { "r": users } }),
    );
}

/// Measures a small entity batch with a computed field.
#[divan::bench]
fn stock_and_shipping_of_five_products(bencher: Bencher<'_, '_>) {
    let products: Vec<_> = (1..=5)
        .map(|upc| json!({ "__typename": "Product", "upc": upc.to_string(), "price": 10, "weight": 10 }))
        .collect();
    let query = "query($r: [_Any!]!) { _entities(representations: $r) { ... on Product { inStock shippingEstimate } } }";
    measure_response(
        bencher,
        bench_subgraphs::inventory(),
        json!({ "query": query, "variables": { "r": products } }),
    );
}

/// Measures a root field.
#[divan::bench]
fn users(bencher: Bencher<'_, '_>) {
    let query = "{ users { id username name } }";
    measure_response(bencher, bench_subgraphs::accounts(), json!({ "query": query }));
}
