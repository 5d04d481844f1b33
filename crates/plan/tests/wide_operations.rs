//! Long operations over a wide graph, with a best plan that is known by construction.

use std::sync::Arc;

use graph::Supergraph;
use plan::Limits;
use prepare::{PrepareSettings, Preparer};

mod generated_federations;

/// Checks the plan of `wide`. Aliases are not bounded, so that requests are counted as the planner chooses them.
fn assert_at_optimum(wide: &generated_federations::Wide, name: &str) {
    let lines = wide.operation.lines().count();
    assert!((1500..2000).contains(&lines), "{name}: {lines} lines");
    let graph = match Supergraph::from_sdl(&wide.sdl, "wide.graphql") {
        Ok(graph) => Arc::new(graph),
        Err(errors) => panic!("{errors}"),
    };
    let limits = prepare::Limits { aliases: 10_000, ..prepare::Limits::default() };
    let settings = PrepareSettings { limits, ..PrepareSettings::default() };
    let prepared = match Preparer::new(graph.clone(), 1, settings)
        .prepare_now(wide.operation.as_bytes(), None)
    {
        Ok(prepared) => prepared,
        Err(error) => panic!("{error}\n{}", wide.operation),
    };
    let (plan, effort) = plan::plan_with_effort(&graph, &prepared.operation, &Limits::default());
    let plan = plan.expect("a plan");
    let sound = soundness::Checker::new(graph.clone()).check(&prepared.operation, &plan);
    assert_eq!(sound, Ok(()));
    let waves = plan.waves().into_iter().max().unwrap_or(0);
    let requests: Vec<_> = plan
        .fetches
        .iter()
        .zip(plan.waves())
        .map(|(fetch, wave)| match &fetch.kind {
            plan::FetchKind::Entities { batches, .. } => (wave, fetch.subgraph, batches.len()),
            _ => (wave, fetch.subgraph, 0),
        })
        .collect();
    assert_eq!(
        (waves, plan.fetches.len()),
        (wide.waves, wide.requests),
        "{name}: (wave, subgraph, aliases) {requests:?}, {effort:?}"
    );
}

#[test]
fn wide_operations_are_planned_at_the_optimum() {
    for seed in 1..=3 {
        assert_at_optimum(&generated_federations::wide(seed, 1700), &format!("seed {seed}"));
    }
}

#[test]
fn overlapping_subgraphs_get_the_fewest_possible_requests() {
    for seed in 1..=8 {
        assert_at_optimum(&generated_federations::overlapping(seed, 1700), &format!("seed {seed}"));
    }
}
