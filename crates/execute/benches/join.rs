//! Measures an execution without the network: 1,000 reviews of 200 products, joined with the names
//! and prices of a second subgraph; and the operation of the federation benchmark, with its
//! subgraphs' responses replayed from memory. `cargo bench -p execute`.
//! Instructions are steadier than seconds. Those of one execution are the difference of two runs,
//! Counts of instructions are steadier than seconds. Those of one execution are the difference of
//! two runs, divided by the difference of their sample sizes:
//! `valgrind --tool=callgrind PROGRAM --bench benchmark --sample-count 1 --sample-size 20` (and
//! 60).
//!
//! The benchmark operation (7 requests, 87 kB), instructions, calls of `malloc` and of `realloc`:
//! generic nodes, members by key 2,891,000, 115, 61; responses in slots 2,163,000, 117, 63; slots
//! looked up once per object, scalars in one access 1,832,000, 117, 63.
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]

#[path = "../tests/kit/mod.rs"]
mod kit;
mod replay;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divan::Bencher;
use execute::{Executable, Seed};
use kit::notation;
use kit::subgraphs::{Rule, World};
use plan::{Fetch, FetchId, FetchKind, OperationKind, Plan, SubgraphOperation, Variables};

const REVIEWS: u32 = 1000;
const PRODUCTS: u32 = 200;

fn main() {
    divan::main();
}

fn operation(text: &str) -> SubgraphOperation {
    SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: vec![],
    }
}

fn executable() -> Executable {
    let root = Fetch {
        subgraph: graph::SubgraphId(0),
        kind: FetchKind::Root {
            operation: operation("{reviews{id body product{__typename upc}}}"),
            data_keys: vec!["reviews".into()],
        },
        depends_on: vec![],
        any_of: vec![],
        representations_max: 1_000_000,
    };
    let entities = Fetch {
        subgraph: graph::SubgraphId(1),
        kind: FetchKind::Entities {
            operation: operation("query($r:[_Any!]!){_entities(representations:$r){…}}"),
            batches: vec![notation::batch("_entities r at reviews.product as Product upc!")],
        },
        depends_on: vec![FetchId(0)],
        any_of: vec![],
        representations_max: 1_000_000,
    };
    Executable::new(Arc::new(Plan {
        kind: OperationKind::Query,
        fetches: vec![root, entities],
        subscription: None,
        shape: notation::shape(
            "Query { reviews: [Review!]! { id: ID! body: String
               product: Product! { upc: ID! name: String! price: Int maker: Maker { name: String } } } }",
        ),
    }))
}

fn list(count: u32, item: impl Fn(u32) -> String) -> String {
    let mut text = String::from("[");
    for index in 0..count {
        write!(text, "{}{}", if index > 0 { "," } else { "" }, item(index)).unwrap();
    }
    text + "]"
}

fn world() -> World {
    let reviews = list(REVIEWS, |index| {
        let upc = index * 7 % PRODUCTS;
        format!(
            "{{\"id\":\"{index}\",\"body\":\"Would buy again, number {index}\",\
             \"product\":{{\"__typename\":\"Product\",\"upc\":\"{upc}\"}}}}"
        )
    });
    let products = list(PRODUCTS, |index| {
        format!(
            "{{\"name\":\"Product {index}\",\"price\":{index},\"maker\":{{\"name\":\"Maker\"}}}}"
        )
    });
    let rule = |subgraph: &str, reaction| Rule {
        subgraph: subgraph.into(),
        contains: String::new(),
        reaction,
    };
    World::new(
        &["reviews".into(), "products".into()],
        vec![
            rule("reviews", format!("{{\"data\":{{\"reviews\":{reviews}}}}}")),
            rule("products", format!("{{\"data\":{{\"_entities\":{products}}}}}")),
        ],
    )
}

#[divan::bench]
fn join_a_thousand_objects(bencher: Bencher<'_, '_>) {
    let (executable, world) = (executable(), world());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let variables = Variables::default();
    bencher.bench_local(|| {
        let context = world.context(Instant::now() + Duration::from_secs(60));
        world.log.lock().unwrap().clear();
        let run = execute::execute(&executable, &variables, None, Seed::Nothing, &context);
        let payload = runtime.block_on(run);
        assert_eq!(payload.errors, 0);
        payload
    });
}

#[divan::bench]
fn execute_the_benchmark_operation(bencher: Bencher<'_, '_>) {
    let benchmark = replay::Benchmark::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // The first run records the responses.
    let payload = runtime.block_on(benchmark.execute());
    assert_eq!(&payload.bytes[..], replay::EXPECTED.trim_end().as_bytes());
    bencher.bench_local(|| runtime.block_on(benchmark.execute()));
}
