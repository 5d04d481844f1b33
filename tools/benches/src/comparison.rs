//! Variants of one router that are measured in turn, round by round, so that a changing speed of the machine affects
//! all of them.

use crate::load_generator::LoadRun;
use crate::scenario::{Scenario, ScenarioSamples};
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use serde_json::Value;
use std::path::Path;
use test_kit::commands::Failure;

/// The usual header with a unique value.
const UNIQUE_HEADER: &str = "authorization";

/// One variant: a router, and the requests that it gets.
pub(crate) struct Side<'a> {
    pub(crate) name: &'a str,
    pub(crate) router: &'a ServerProcess,
    /// The file of the operation; `None` if `arguments` name one.
    pub(crate) operation: Option<&'a Path>,
    /// Further arguments of the load generator.
    pub(crate) arguments: Vec<String>,
    /// The header that has a unique value in each request of a scenario that shares nothing.
    pub(crate) unique_header: &'a str,
}

impl<'a> Side<'a> {
    /// Returns a variant that gets an operation, and the usual header in a scenario that shares nothing.
    pub(crate) fn of_operation(
        name: &'a str,
        router: &'a ServerProcess,
        operation: &'a Path,
    ) -> Self {
        let (operation, arguments) = (Some(operation), Vec::new());
        Self { name, router, operation, arguments, unique_header: UNIQUE_HEADER }
    }
}

/// The result of a measurement.
#[derive(Default)]
pub(crate) struct TurnMeasurements {
    /// The samples of each side.
    pub(crate) samples: Vec<ScenarioSamples>,
    /// The CPU time of a response of each side in each round, in microseconds.
    pub(crate) rounds: Vec<Vec<f64>>,
    /// The reports of the load generator.
    pub(crate) runs: Vec<Value>,
}

/// Measures all sides in one scenario, and prints each figure.
pub(crate) fn measure_in_turn(
    bench: &Bench,
    scenario: &Scenario,
    sides: &[Side<'_>],
) -> Result<TurnMeasurements, Failure> {
    let mut measured = TurnMeasurements::default();
    measured.samples.resize_with(sides.len(), ScenarioSamples::default);
    for round in 0..bench.pairs {
        let mut cpu = vec![0.0; sides.len()];
        // Every second round in the reverse order, so that a trend of the machine cancels out.
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let side = &sides[at];
            let name = format!("{}, {}", side.name, scenario.name);
            let mut extra = side.arguments.clone();
            if scenario.unique {
                extra.extend(["--unique-header", side.unique_header].map(str::to_owned));
            }
            let (operation, connections) = (side.operation, scenario.connections);
            let load = LoadRun { name: &name, operation, connections, extra };
            let run = bench.run_query_load(side.router, &load)?;
            cpu[at] = measured.samples[at].add(&run)?;
            println!("{name}: {:.1} µs", cpu[at]);
            measured.runs.push(run);
        }
        measured.rounds.push(cpu);
    }
    println!(
        "\n{}: median (smallest–largest) of {} rounds, {} s each; CPU of the router per response.\n",
        scenario.name, bench.pairs, bench.seconds
    );
    Ok(measured)
}
