//! The cost of planning without any cache: a long operation over a wide graph, and the loading of a large supergraph.
//! Run with `cargo bench -p plan`; "max alloc" is the peak of memory above the level at the start. Limits: the
//! operation of 1,500 lines under 50 ms and 100 MiB, the supergraph under 500 ms.
#![allow(clippy::expect_used, reason = "a bench that cannot be set up must fail")]

#[path = "../tests/adversaries/mod.rs"]
mod adversaries;
#[path = "../tests/generated_federations/mod.rs"]
mod generated_federations;

use std::sync::Arc;

use divan::{AllocProfiler, Bencher};
use graph::Supergraph;
use prepare::{PrepareSettings, Preparer};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn load(sdl: &str) -> Arc<Supergraph> {
    Arc::new(Supergraph::from_sdl(sdl, "supergraph.graphql").expect("a supergraph"))
}

fn settings() -> PrepareSettings {
    let limits = prepare::Limits { aliases: 10_000, ..prepare::Limits::default() };
    PrepareSettings { limits, ..PrepareSettings::default() }
}

/// Measures planning alone: from the normalised operation to the plan.
#[divan::bench(args = [500, 1500, 3000], sample_count = 20)]
fn plan_lines(bencher: Bencher<'_, '_>, lines: usize) {
    let wide = generated_federations::wide(1, lines);
    let graph = load(&wide.sdl);
    let prepared = Preparer::new(graph.clone(), 1, settings())
        .prepare_now(wide.operation.as_bytes(), None)
        .expect("a valid operation");
    bencher.bench_local(|| {
        plan::plan(&graph, &prepared.operation, &plan::Limits::default()).expect("a plan")
    });
}

/// Measures the whole cost of a miss of the plan cache: parse, validate, normalise, plan.
#[divan::bench(args = [1500], sample_count = 20)]
fn prepare_lines(bencher: Bencher<'_, '_>, lines: usize) {
    let wide = generated_federations::wide(1, lines);
    let preparer = Preparer::new(load(&wide.sdl), 1, settings());
    bencher.bench_local(|| {
        preparer.prepare_now(wide.operation.as_bytes(), None).expect("a valid operation")
    });
}

/// Measures the same for one self-referential type over eight overlapping subgraphs. Limit: 50 ms.
#[divan::bench(args = [1700], sample_count = 20)]
fn prepare_overlapping_lines(bencher: Bencher<'_, '_>, lines: usize) {
    let wide = generated_federations::overlapping(1, lines);
    let preparer = Preparer::new(load(&wide.sdl), 1, settings());
    bencher.bench_local(|| {
        preparer.prepare_now(wide.operation.as_bytes(), None).expect("a valid operation")
    });
}

/// Measures the benchmark operation of the federation with four subgraphs.
#[divan::bench(sample_count = 100)]
fn plan_federation_benchmark(bencher: Bencher<'_, '_>) {
    let graph = load(include_str!("../../../fixtures/federation-benchmark/supergraph.graphql"));
    let operation = include_str!("../../../fixtures/federation-benchmark/operation.graphql");
    let prepared = Preparer::new(graph.clone(), 1, settings())
        .prepare_now(operation.as_bytes(), None)
        .expect("a valid operation");
    bencher.bench_local(|| {
        plan::plan(&graph, &prepared.operation, &plan::Limits::default()).expect("a plan")
    });
}

/// Measures all of preparing for the worst operations within the default limits, including those that are refused
/// because of their cost.
#[divan::bench(args = adversaries::all().into_iter().map(|it| it.name).collect::<Vec<_>>(), sample_count = 3)]
fn worst_documents(bencher: Bencher<'_, '_>, name: &str) {
    let worst = adversaries::all().into_iter().find(|it| it.name == name).expect("one of them");
    let preparer = Preparer::new(load(&worst.sdl), 1, PrepareSettings::default());
    bencher.bench_local(|| preparer.prepare_now(worst.operation.as_bytes(), None).is_ok());
}

/// Measures the loading of a supergraph with 200 subgraphs and 2,000 types.
#[divan::bench(sample_count = 5)]
fn load_large_supergraph(bencher: Bencher<'_, '_>) {
    let sdl = generated_federations::large();
    bencher.bench_local(|| load(&sdl));
}
