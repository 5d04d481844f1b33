//! The cost of composition: the demo, and a graph of 190 subgraphs with 2,300 types.
//!
//! Run with `cargo bench -p compose`; "max alloc" is the peak of memory above the level at the start. Limits: the demo
//! under 10 ms, the large graph under 1 s and 500 MB. On one core of a cloud machine they take 1.4 ms, and 0.5 s with
//! 116 MB, most of it for parsing the subgraphs and the supergraph.
#![allow(clippy::expect_used, reason = "a bench that cannot be set up must fail")]
#![allow(missing_docs)]

use std::{fmt::Write as _, fs, path::Path};

use compose::{Composition, SubgraphInput};
use divan::{AllocProfiler, Bencher};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// The number of subgraphs of the large graph. Each adds twelve types, and every tenth one more.
const SUBGRAPHS: usize = 190;

/// The number of entities that each subgraph owns.
const ENTITIES: usize = 7;

/// The number of further subgraphs with fields of an entity.
const EXTENSIONS: usize = 2;

fn main() {
    divan::main();
}

fn input(name: String, sdl: String) -> SubgraphInput {
    let (url, file) = (format!("http://{name}/"), format!("{name}.graphql"));
    SubgraphInput { name, url, file, sdl, subscription: None }
}

/// Returns a graph in which each subgraph owns entities, extends those of others, and shares values with the next one.
fn large_graph() -> Vec<SubgraphInput> {
    (0..SUBGRAPHS).map(|own| input(format!("subgraph{own}"), large_subgraph(own))).collect()
}

fn large_subgraph(own: usize) -> String {
    let mut sdl = String::from(
        "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", \
         import: [\"@key\", \"@shareable\", \"@external\", \"@requires\"])\n",
    );
    let former = (own + SUBGRAPHS - 1) % SUBGRAPHS;
    let _ = writeln!(sdl, "type Query {{");
    for number in 0..ENTITIES {
        let _ = writeln!(
            sdl,
            "  entity{own}x{number}(id: ID!, filter: Filter{own}): Entity{own}x{number}\n  \
             all{own}x{number}(first: Int = 10): [Entity{own}x{number}!]!"
        );
    }
    let _ = writeln!(sdl, "}}\ninterface Node{own} {{ id: ID! name: String }}");
    for number in 0..ENTITIES {
        let other = (number + 1) % ENTITIES;
        let _ = writeln!(
            sdl,
            "\"An entity.\"\ntype Entity{own}x{number} implements Node{own} @key(fields: \"id\") @key(fields: \"code\") {{\n  \
             id: ID!\n  code: String!\n  name: String\n  weight(unit: Unit{own}): Int\n  price: Money{own}x0\n  \
             size: Money{own}x1!\n  state: Unit{own}\n  related: [Entity{own}x{other}!]!\n}}"
        );
    }
    // Entities of other subgraphs: one subgraph has further fields, some of which need the weight.
    for distance in 1..=EXTENSIONS {
        let owner = (own + SUBGRAPHS - distance * 13) % SUBGRAPHS;
        for number in 0..ENTITIES {
            let _ = writeln!(
                sdl,
                "type Entity{owner}x{number} @key(fields: \"id\") {{\n  id: ID!\n  code: String! @external\n  \
                 stock{distance}: Int\n  cost{distance}: Float @requires(fields: \"code\")\n  \
                 seen{distance}: Entity{own}x{number}\n}}"
            );
        }
    }
    for (owner, number) in [(own, 0), (own, 1), (former, 0), (former, 1)] {
        let _ = writeln!(
            sdl,
            "type Money{owner}x{number} @shareable {{ amount: Int! currency: String! digits: Int }}"
        );
    }
    let _ = writeln!(sdl, "enum Unit{own} {{ GRAM KILOGRAM TON }}");
    let _ = writeln!(sdl, "input Filter{own} {{ text: String first: Int = 10 unit: Unit{own} }}");
    if own.is_multiple_of(10) {
        let _ = writeln!(sdl, "union Found{own} = Entity{own}x0 | Entity{own}x1");
        let _ = writeln!(
            sdl,
            "extend type Query {{ found{own}: [Found{own}!] next{own}: Money{own}x0 }}"
        );
    }
    sdl
}

fn demo() -> Vec<SubgraphInput> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../starling/src/demo/data");
    let names = ["airlines", "airports", "events", "flights", "weather"];
    let read = |name: &str| {
        fs::read_to_string(folder.join(format!("{name}.graphql"))).expect("a schema of the demo")
    };
    let subgraphs = names.map(|name| input(name.to_owned(), read(name)));
    subgraphs
        .map(|it| if it.name == "events" { SubgraphInput { url: String::new(), ..it } } else { it })
        .into()
}

fn compose(subgraphs: &[SubgraphInput]) -> usize {
    match compose::compose(subgraphs) {
        Composition::Success { supergraph_sdl, .. } => supergraph_sdl.len(),
        Composition::Failure { errors, .. } => panic!("{}", errors[0]),
    }
}

#[divan::bench]
fn the_demo(bencher: Bencher<'_, '_>) {
    let subgraphs = demo();
    bencher.bench_local(|| compose(&subgraphs));
}

#[divan::bench(sample_count = 5)]
fn a_graph_of_190_subgraphs(bencher: Bencher<'_, '_>) {
    let subgraphs = large_graph();
    bencher.bench_local(|| compose(&subgraphs));
}
