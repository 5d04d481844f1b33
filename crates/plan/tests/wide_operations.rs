//! Long operations over a wide graph, whose best plan is known by construction.

use std::sync::Arc;

use graph::Supergraph;
use plan::Limits;
use prepare::{PrepareSettings, Preparer};

mod federations;

#[test]
fn wide_operations_are_planned_at_the_optimum() {
    for seed in 1..=3 {
        let wide = federations::wide(seed, 1700);
        let lines = wide.operation.lines().count();
        assert!((1500..2000).contains(&lines), "{lines} lines");
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
        let plan = plan::plan(&graph, &prepared.operation, &Limits::default()).expect("a plan");
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
            "seed {seed}: (wave, subgraph, aliases) {requests:?}"
        );
    }
}
