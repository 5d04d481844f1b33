//! The budget for planning: no operation within the default limits takes more steps, whether planning succeeds or
//! fails.

use std::sync::{Arc, atomic::Ordering};

use graph::Supergraph;
use plan::PlanError;
use prepare::{PrepareError, PrepareSettings, Preparer};

mod adversaries;

/// The maximum number of steps. Greedy planning ends at four times the steps of [`plan::Limits`]; a step that has begun
/// is finished, and may visit every selection of the largest operation.
fn steps_max() -> u64 {
    4 * plan::Limits::default().steps + prepare::Limits::default().selections as u64
}

#[test]
fn adversaries_stay_within_the_step_budget() {
    for adversary in adversaries::all() {
        let graph = match Supergraph::from_sdl(&adversary.sdl, "supergraph.graphql") {
            Ok(graph) => Arc::new(graph),
            Err(errors) => panic!("{}: {errors}", adversary.name),
        };
        // Planning runs on threads of the blocking pool, which have stacks of 2 MiB.
        let (result, steps) = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || {
                let preparer = Preparer::new(graph, 1, PrepareSettings::default());
                let result = preparer.prepare_now(adversary.operation.as_bytes(), None);
                let steps = preparer.stats().planning_steps.load(Ordering::Relaxed);
                (result.map(|prepared| prepared.plan.fetches.len()), steps)
            })
            .expect("a thread")
            .join()
            .expect("no overflow");
        println!("{}: {steps} steps, {result:?}", adversary.name);
        assert!(steps > 0, "{}: it was not planned: {result:?}", adversary.name);
        assert!(steps <= steps_max(), "{}: {steps} steps", adversary.name);
        match result {
            Ok(_) | Err(PrepareError::Plan(PlanError::TooComplex(_))) => {}
            Err(error) => panic!("{}: {error}", adversary.name),
        }
    }
}
