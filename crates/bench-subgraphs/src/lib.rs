//! The four subgraphs of the federation benchmark: accounts, inventory, products, reviews.
//!
//! Their schemas and data lie in `data/`; the data is what `fixtures/federation-benchmark/expected_response.json`
//! implies, so that the benchmark's operation, sent to a router before them, has exactly that answer (MIT, The Guild: see LICENSE
//! there).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use load::subgraph::{Call, FieldError, Server, ServerBuilder, Subgraph, SubgraphBuilder};
use serde_json::{Map, Value, json};

/// The subgraphs' names, which are their paths too (`/accounts`), in the order of the supergraph.
pub const NAMES: [&str; 4] = ["accounts", "inventory", "products", "reviews"];

/// Shipping is free for what costs more.
const FREE_SHIPPING_ABOVE: i64 = 1000;

/// Serves the four subgraphs at this address (port 0 for a free one), each answer delayed by `delay`.
///
/// # Errors
/// Where the address cannot be bound.
pub async fn start(listen: SocketAddr, delay: Duration) -> io::Result<Server> {
    server().listen(listen).delay(delay).start().await
}

/// The four subgraphs at their paths, to be configured further and started.
pub fn server() -> ServerBuilder {
    Server::builder()
        .subgraph("/accounts", accounts())
        .subgraph("/inventory", inventory())
        .subgraph("/products", products())
        .subgraph("/reviews", reviews())
}

/// Users by id.
pub fn accounts() -> Subgraph {
    built(
        subgraph(include_str!("../data/accounts.graphql"), include_str!("../data/accounts.json"))
            .resolver("Query", "user", |call| Ok(json!({ "id": call.argument("id") }))),
    )
}

/// Whether a product is in stock and what shipping it costs, which needs its price and weight.
pub fn inventory() -> Subgraph {
    built(
        subgraph(include_str!("../data/inventory.graphql"), include_str!("../data/inventory.json"))
            .resolver("Product", "shippingEstimate", shipping_estimate),
    )
}

/// Products with name, price and weight.
pub fn products() -> Subgraph {
    let data = include_str!("../data/products.json");
    let all: Vec<Value> = members_of(data)
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
    built(subgraph(include_str!("../data/products.graphql"), data).resolver(
        "Query",
        "topProducts",
        top_products,
    ))
}

/// Reviews of products by users.
pub fn reviews() -> Subgraph {
    built(subgraph(include_str!("../data/reviews.graphql"), include_str!("../data/reviews.json")))
}

/// Nothing for the expensive, else half the weight; null where the representation lacks what it needs.
fn shipping_estimate(call: &Call<'_>) -> Result<Value, FieldError> {
    let (Some(price), Some(weight)) =
        (call.member("price").as_i64(), call.member("weight").as_i64())
    else {
        return Ok(Value::Null);
    };
    Ok(json!(if price > FREE_SHIPPING_ABOVE { 0 } else { weight / 2 }))
}

/// A subgraph whose data is a JSON object: a list of records by type, or the record of a root type.
fn subgraph(sdl: &str, data: &str) -> SubgraphBuilder {
    members_of(data).into_iter().fold(Subgraph::builder(sdl), |builder, (type_name, records)| {
        match records {
            Value::Array(records) => builder.records(&type_name, records),
            root => builder.records(&type_name, [root]),
        }
    })
}

fn members_of(data: &str) -> Map<String, Value> {
    serde_json::from_str(data).expect("the data is part of the program and its tests read it")
}

fn built(builder: SubgraphBuilder) -> Subgraph {
    builder.build().expect("schema and data are part of the program and its tests build them")
}
