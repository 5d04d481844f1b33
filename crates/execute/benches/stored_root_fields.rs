//! Measures executions with root fields in the cache: `cargo bench -p execute --bench stored_root_fields`. Counts
//! of instructions are steadier than seconds; `benches/join.rs` says how to get those of one execution.
#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]

#[path = "../tests/kit/mod.rs"]
mod kit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{
    IgnoredHeaders, KeyHeaders, KeySecret, Store, StoreSettings, TagHasher, Timestamp, TtlRules,
    TtlSettings,
};
use divan::Bencher;
use execute::{RequestCaching, ResponseMemory, Seed, SubgraphCache, SubgraphCaches};
use graph::{OverrideLabels, Supergraph};
use kit::subgraphs::{Rule, World};
use prepare::{PrepareSettings, Preparer};

const GRAPH: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) { query: Query }
enum join__Graph { A @join__graph(name: "a", url: "http://a") }
type Query @join__type(graph: A) { product(id: ID!): Product }
type Product @join__type(graph: A) { id: ID! name: String price: Int }
"#;

const TTL: Duration = Duration::from_secs(3600);

fn main() {
    divan::main();
}

/// Executes an operation with `count` root fields, all of which the first execution stores.
fn bench(bencher: Bencher<'_, '_>, count: usize) {
    let graph = Arc::new(Supergraph::from_sdl(GRAPH, "bench.graphql").unwrap());
    let rules = Arc::new(TtlRules { default: Some(TTL), ..TtlRules::default() });
    let settings = PrepareSettings { caching: Some(rules), ..PrepareSettings::default() };
    let preparer = Preparer::new(graph, 1, settings);
    let argument = |id: usize| if id == 0 { "$id".to_owned() } else { id.to_string() };
    let field = |id| format!("f{id}: product(id: {}) {{ id name price }}", argument(id));
    let fields: Vec<String> = (0..count).map(field).collect();
    let text = format!("query Products($id: ID!) {{ {} }}", fields.join(" "));
    let prepared = preparer.prepare_now_with(text.as_bytes(), None, OverrideLabels::NONE).unwrap();
    let variables = prepared.coerce(&Bytes::from(r#"{"id":"17"}"#)).unwrap();

    let value = r#"{"id":"17","name":"A product with a name","price":12}"#;
    let values: Vec<String> = (0..count).map(|id| format!(r#""f{id}":{value}"#)).collect();
    let rule = Rule {
        subgraph: "a".into(),
        contains: String::new(),
        reaction: format!(r#"{{"data":{{{}}}}}"#, values.join(",")),
    };
    let mut world = World::new(&["a".into()], vec![rule]);
    let secret = KeySecret::from_bytes([1; 16]);
    let cache = SubgraphCache {
        name: "a".into(),
        graph: None,
        settings: TtlSettings::default(),
        ttl_header: None,
        key_headers: KeyHeaders::new(IgnoredHeaders::All),
        type_tags: Default::default(),
        stats: Arc::default(),
    };
    Arc::get_mut(&mut world.generation).unwrap().caches = Some(Arc::new(SubgraphCaches {
        store: Arc::new(Store::new(&StoreSettings::default(), Arc::default())),
        tags: TagHasher::new(&secret),
        secret,
        shared: None,
        memory: Arc::new(ResponseMemory::new(1 << 20)),
        in_flight: Arc::default(),
        invalidate_header: None,
        invalidation_stats: Arc::default(),
        subgraphs: vec![Some(cache)],
        clock: || Timestamp(1_000),
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let execute = || {
        let mut context = world.context(Instant::now() + Duration::from_secs(60));
        context.caching = Some(RequestCaching::default());
        let executable = &prepared.executable;
        let run = execute::execute(executable, &variables, None, Seed::Nothing, &context);
        runtime.block_on(run)
    };
    assert_eq!(execute().errors, 0);
    bencher.bench_local(execute);
    assert_eq!(world.log.lock().unwrap().len(), 1, "all but the first are answered from memory");
}

#[divan::bench]
fn one_stored_field(bencher: Bencher<'_, '_>) {
    bench(bencher, 1);
}

#[divan::bench]
fn ten_stored_fields(bencher: Bencher<'_, '_>) {
    bench(bencher, 10);
}
