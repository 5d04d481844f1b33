//! The CPU time of an estimate, and of counting a response, for the operation of the benchmark in `benches/`.

use std::sync::Arc;

use astjson::Document;
use compose::{Composition, SubgraphInput};
use cost::CostSettings;
use divan::Bencher;
use graph::Supergraph;
use plan::Variables;
use prepare::{OperationRequest, PrepareSettings, Prepared, Preparer};

const SDL: &str = r#"
extend schema @link(url: "https://specs.apollo.dev/federation/v2.9", import: ["@cost", "@listSize"])

type Query {
  users(first: Int): [User] @listSize(slicingArguments: ["first"])
  topProducts(first: Int): [Product] @listSize(slicingArguments: ["first"])
}

type User {
  name: String
  reviews(first: Int): [Review] @listSize(slicingArguments: ["first"])
}

type Review {
  body: String
  product: Product
}

type Product {
  name: String
  inStock: Boolean @cost(weight: 2)
  reviews(first: Int): [Review] @listSize(slicingArguments: ["first"])
}
"#;

const OPERATION: &str = "query($users: Int, $reviews: Int, $more: Boolean!) {
  users(first: $users) { name reviews(first: $reviews) { body product { name inStock reviews(first: 3) { body } } } }
  topProducts(first: 5) { name inStock @include(if: $more) reviews(first: $reviews) { body } }
}";

fn prepare() -> (Arc<Prepared>, Variables) {
    let subgraph = SubgraphInput {
        name: "shop".into(),
        url: "http://shop/".into(),
        file: "shop.graphql".into(),
        sdl: SDL.into(),
        subscription: None,
    };
    let Composition::Success { supergraph_sdl, .. } = compose::compose(&[subgraph]) else {
        unreachable!("the schema above composes");
    };
    let graph = Supergraph::from_sdl(&supergraph_sdl, "s").expect("a supergraph");
    let cost =
        CostSettings { list_size: 10, subgraph_list_sizes: Vec::new(), stats: Arc::default() };
    let settings = PrepareSettings { cost: Some(cost), ..PrepareSettings::default() };
    let preparer = Preparer::new(Arc::new(graph), 1, settings);
    let request = OperationRequest { query: OPERATION.into(), ..OperationRequest::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let prepared = runtime.expect("a runtime").block_on(preparer.prepare(&request));
    let prepared = prepared.expect("a valid operation");
    let variables = r#"{"users":10,"reviews":4,"more":true}"#;
    let variables = prepared.coerce(&variables.into()).expect("values");
    (prepared, variables)
}

fn response() -> String {
    let inner = r#"{"body":"text","product":{"name":"Table","inStock":true,"reviews":[{"body":"a"},{"body":"b"},{"body":"c"}]}}"#;
    let user = format!(r#"{{"name":"Ada","reviews":[{}]}}"#, [inner; 4].join(","));
    let product = r#"{"name":"Couch","inStock":false,"reviews":[{"body":"a"},{"body":"b"},{"body":"c"},{"body":"d"}]}"#;
    format!(
        r#"{{"users":[{}],"topProducts":[{}]}}"#,
        vec![user; 10].join(","),
        [product; 5].join(",")
    )
}

#[divan::bench]
fn estimate(bencher: Bencher<'_, '_>) {
    let (prepared, variables) = prepare();
    let cost = prepared.cost.as_ref().expect("costs are estimated");
    assert_eq!(cost.estimate(&variables).total, 10 + 40 * (1 + 1 + 2 + 3) + 5 * (1 + 2 + 4));
    bencher.bench(|| cost.estimate(divan::black_box(&variables)).total);
}

#[divan::bench]
fn count_a_response_of_235_objects(bencher: Bencher<'_, '_>) {
    let (prepared, variables) = prepare();
    let cost = prepared.cost.as_ref().expect("costs are estimated");
    let mut document = Document::new();
    let root = document.parse(response()).expect("a response is JSON");
    assert_eq!(cost.count(&document, root, &variables), 325);
    bencher.bench(|| cost.count(&document, divan::black_box(root), &variables));
}

fn main() {
    divan::main();
}
