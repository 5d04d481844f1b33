//! Operations that are hard to plan: deep, wide, with many possible routes. Planning ends within its budget.

use std::{fmt::Write as _, sync::Arc};

use federations::{LoadedCase, ObjectStore, Outcome, Random, Variables};
use graph::Supergraph;
use plan::{Limits, PlanError};
use prepare::{PrepareSettings, Preparer};

mod generated_federations;

const SUBGRAPHS: usize = 7;
const TYPES: usize = 12;

/// Builds a supergraph in which every type has a key in every subgraph, links lead everywhere, and each leaf is in one
/// to three subgraphs.
fn wide_sdl() -> String {
    let mut sdl = generated_federations::subgraphs_and_query(SUBGRAPHS);
    sdl.push_str(" {\n  start: T0 @join__field(graph: S0)\n}\n");
    for t in 0..TYPES {
        let _ = write!(sdl, "type T{t}");
        for s in 0..SUBGRAPHS {
            let _ = write!(sdl, " @join__type(graph: S{s}, key: \"id\")");
        }
        sdl.push_str(" {\n  id: ID!\n");
        for leaf in 0..10 {
            let _ = write!(sdl, "  leaf{leaf}: Int");
            for copy in 0..=leaf % 3 {
                let _ = write!(sdl, " @join__field(graph: S{})", (t + leaf + 2 * copy) % SUBGRAPHS);
            }
            sdl.push('\n');
        }
        for link in 0..3 {
            let _ = writeln!(sdl, "  link{link}: T{}", (t * 5 + link + 1) % TYPES);
            let _ = writeln!(
                sdl,
                "  list{link}: [T{}!] @join__field(graph: S{})",
                (t + link + 1) % TYPES,
                (t + link) % SUBGRAPHS
            );
        }
        sdl.push_str("}\n");
    }
    sdl
}

fn wide_graph() -> Arc<Supergraph> {
    match Supergraph::from_sdl(&wide_sdl(), "wide.graphql") {
        Ok(graph) => Arc::new(graph),
        Err(errors) => panic!("{errors}"),
    }
}

/// Generates selections that branch `width` times on each of `depth` levels.
fn branching(depth: usize, width: usize, seed: usize) -> String {
    let mut out = String::from("{ id");
    for leaf in 0..5 {
        let _ = write!(out, " leaf{}", (seed + leaf * 3) % 10);
    }
    for branch in 0..width {
        if depth > 0 {
            let kind = if (seed + branch).is_multiple_of(2) { "link" } else { "list" };
            let inner = branching(depth - 1, width, seed * 7 + branch);
            let _ = write!(out, " b{branch}: {kind}{} {inner}", (seed + branch) % 3);
        }
    }
    out.push_str(" }");
    out
}

fn normalised(graph: &Arc<Supergraph>, text: &str) -> plan::Operation {
    let limits = prepare::Limits { aliases: 10_000, tokens: 100_000, ..prepare::Limits::default() };
    let settings = PrepareSettings { limits, ..PrepareSettings::default() };
    let preparer = Preparer::new(graph.clone(), 1, settings);
    match preparer.prepare_now(text.as_bytes(), None) {
        Ok(prepared) => prepared.operation,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_wide_graph_with_keys_everywhere_is_planned_in_few_waves() {
    let graph = wide_graph();
    let text = format!("{{ start {} }}", branching(4, 3, 1));
    let operation = normalised(&graph, &text);
    let started = std::time::Instant::now();
    let plan = plan::plan(&graph, &operation, &Limits::default()).expect("a plan");
    println!("{} fetches, {:?}", plan.fetches.len(), started.elapsed());
    if let Err(unsound) = soundness::Checker::new(graph.clone()).check(&operation, &plan) {
        panic!("{unsound}");
    }
    let data = ObjectStore::random(&graph, &mut Random::new(1), false);
    let loaded = LoadedCase::load(&wide_sdl(), data, &[]).expect("composition could produce it");
    let response = loaded.compare(&text, &Variables::new());
    assert!(matches!(response, Ok(Outcome::Correct { .. })), "{response:?}");
    let waves = plan.waves().into_iter().max();
    assert!(waves <= Some(6), "{waves:?} waves");
}

#[test]
fn beyond_the_budget_plans_are_greedy() {
    let graph = wide_graph();
    let operation = normalised(&graph, &format!("{{ start {} }}", branching(3, 2, 1)));
    let exact = plan::plan(&graph, &operation, &Limits::default()).expect("a plan");
    let greedy = (1..20)
        .find_map(|power| {
            plan::plan(&graph, &operation, &Limits { steps: 1 << power, ..Limits::default() }).ok()
        })
        .expect("some budget suffices for a greedy plan");
    assert!(greedy.fetches.len() >= exact.fetches.len());
}

#[test]
fn an_exhausted_budget_is_an_error() {
    let graph = wide_graph();
    let operation = normalised(&graph, "{ start { leaf0 leaf1 leaf2 leaf3 } }");
    let error = plan::plan(&graph, &operation, &Limits { steps: 1, ..Limits::default() })
        .expect_err("too little");
    assert!(matches!(error, PlanError::TooComplex(_)), "{error}");
}

#[test]
fn the_deepest_allowed_operation_fits_on_a_small_stack() {
    let graph = wide_graph();
    let mut text = String::from("{ start ");
    for level in 0..97 {
        let _ = write!(text, "{{ leaf{} link{} ", level % 10, level % 3);
    }
    text.push_str("{ id }");
    text.push_str(&"}".repeat(98));
    let operation = normalised(&graph, &text);
    // Planning runs on threads of the blocking pool, which have stacks of 2 MiB.
    let planned = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || plan::plan(&graph, &operation, &Limits::default()).map(|p| p.fetches.len()))
        .expect("a thread")
        .join()
        .expect("no overflow");
    assert!(planned.is_ok(), "{planned:?}");
}
