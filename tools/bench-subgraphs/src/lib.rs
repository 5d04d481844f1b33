//! The four subgraphs of the federation benchmark: accounts, inventory, products, reviews.
//!
//! Their schemas and data are in `data/`. The data is derived from
//! `fixtures/federation-benchmark/expected_response.json`, so that a router in front of these subgraphs returns
//! exactly that response to the benchmark's operation (MIT, The Guild: see LICENSE there).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use load::subgraph::{Call, FieldError, Server, ServerBuilder, Subgraph, SubgraphBuilder};
use serde_json::{Map, Value, json};

/// The names of the subgraphs, which are also their paths (`/accounts`), in the order of the supergraph.
pub const NAMES: [&str; 4] = ["accounts", "inventory", "products", "reviews"];

/// The price above which shipping is free.
const FREE_SHIPPING_ABOVE: i64 = 1000;

/// Serves the four subgraphs at `listen` (port 0 for a free port), with each response delayed by `delay`.
///
/// # Errors
/// The address cannot be bound.
pub async fn start(listen: SocketAddr, delay: Duration) -> io::Result<Server> {
    server().listen(listen).delay(delay).start().await
}

/// Returns a builder with the four subgraphs at their paths, for further configuration.
pub fn server() -> ServerBuilder {
    Server::builder()
        .subgraph("/accounts", accounts())
        .subgraph("/inventory", inventory())
        .subgraph("/products", products())
        .subgraph("/reviews", reviews())
}

/// Builds the subgraph of users, by id.
pub fn accounts() -> Subgraph {
    build_subgraph(
        subgraph_builder(
            include_str!("../data/accounts.graphql"),
            include_str!("../data/accounts.json"),
        )
        .resolver("Query", "user", |call| Ok(json!({ "id": call.argument("id") }))),
    )
}

/// Builds the subgraph of stock and shipping costs; the latter need the price and weight of a product.
pub fn inventory() -> Subgraph {
    build_subgraph(
        subgraph_builder(
            include_str!("../data/inventory.graphql"),
            include_str!("../data/inventory.json"),
        )
        .resolver("Product", "shippingEstimate", shipping_estimate),
    )
}

/// Builds the subgraph of products with name, price and weight.
pub fn products() -> Subgraph {
    let data = include_str!("../data/products.json");
    let all: Vec<Value> = parse_object(data)
        .get("Product")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|product| json!({ "upc": product["upc"] }))
        .collect();
    let top_products = move |call: &Call<'_>| {
        let first = match call.argument("first").as_i64() {
            Some(first) => usize::try_from(first).map_err(|_| "`first` is negative")?,
            None => all.len(),
        };
        Ok(all.iter().take(first).cloned().collect())
    };
    build_subgraph(subgraph_builder(include_str!("../data/products.graphql"), data).resolver(
        "Query",
        "topProducts",
        top_products,
    ))
}

/// Builds the subgraph of reviews of products by users.
pub fn reviews() -> Subgraph {
    build_subgraph(subgraph_builder(
        include_str!("../data/reviews.graphql"),
        include_str!("../data/reviews.json"),
    ))
}

/// Computes the shipping cost: zero for expensive products, otherwise half the weight. Null if the representation
/// lacks price or weight.
fn shipping_estimate(call: &Call<'_>) -> Result<Value, FieldError> {
    let (Some(price), Some(weight)) =
        (call.member("price").as_i64(), call.member("weight").as_i64())
    else {
        return Ok(Value::Null);
    };
    Ok(json!(if price > FREE_SHIPPING_ABOVE { 0 } else { weight / 2 }))
}

/// Returns a builder for a subgraph with data from a JSON object: a list of records by type, or the record of a root
/// type.
fn subgraph_builder(sdl: &str, data: &str) -> SubgraphBuilder {
    parse_object(data).into_iter().fold(Subgraph::builder(sdl), |builder, (type_name, records)| {
        match records {
            Value::Array(records) => builder.records(&type_name, records),
            root => builder.records(&type_name, [root]),
        }
    })
}

fn parse_object(data: &str) -> Map<String, Value> {
    serde_json::from_str(data).expect("embedded data is covered by tests")
}

fn build_subgraph(builder: SubgraphBuilder) -> Subgraph {
    builder.build().expect("embedded schemas and data are covered by tests")
}
