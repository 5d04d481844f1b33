//! `cargo xtask bench overload`: what the router does with more than it can do. Every measurement has bounds and a name
//! for `--filter`; the command fails if a bound does not hold.
//!
//! The router has core 0; subgraphs, mocks and the load generator (`starling bench surge`) share core 1. Work in flight
//! is not shared and nothing is cached, so that each admitted request does its own work.
//!
//! - [`stage`]: the graphs, the router and the runs of the load generator. [`bounds`]: the bounds and their verdicts.
//!   [`pieces`]: loads in pieces, because the machine does not keep its speed.
//! - [`multiples`]: one, two, three and ten times the capacity. [`refusals`]: the cost of refusing.
//! - [`doubling`]: traffic that doubles. [`hanging_subgraph`]: one subgraph of four hangs.
//! - [`greedy_client`]: one client sends ten times its share.
//! - [`live_clients`]: subscribers while queries load the router.
//! - [`peer`]: another federation router under the same loads, in one picture.

mod bounds;
mod doubling;
mod greedy_client;
mod hanging_subgraph;
mod live_clients;
mod multiples;
mod peer;
mod pieces;
mod refusals;
mod stage;

use crate::setup::{Bench, Defaults};
use bounds::Bounds;
use serde_json::Value;
use test_kit::commands::Failure;

/// The defaults of `bench overload`. For a verdict on a release, `--seconds 120`.
pub(crate) const DEFAULTS: Defaults = Defaults { seconds: 20, pairs: 1 };

/// The name of a measurement, and the function that runs it: it adds to the bounds and returns the runs.
type Measurement = (&'static str, fn(&Bench, &mut Bounds) -> Result<Vec<Value>, Failure>);

const MEASUREMENTS: [Measurement; 8] = [
    ("multiples", multiples::measure),
    ("refusals", refusals::measure),
    ("doubling", doubling::measure),
    ("hanging-subgraph", hanging_subgraph::measure),
    ("greedy-client", greedy_client::measure),
    ("reconnects", live_clients::measure_reconnects),
    ("subscribers", live_clients::measure_deliveries),
    ("peer", peer::measure),
];

/// Runs the measurements with `filter` in their names, and fails if a bound does not hold.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let is_chosen = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    let chosen: Vec<_> = MEASUREMENTS.iter().filter(|(name, _)| is_chosen(name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no measurement has `{}` in its name; the measurements are {}",
            filter.unwrap_or_default(),
            names.join(", ")
        ));
    }
    let mut unmet = Vec::new();
    for (name, measure) in chosen {
        println!("\n## overload, {name}\n");
        let mut bounds = Bounds::default();
        let runs = measure(bench, &mut bounds)?;
        print!("{}", bounds.table());
        for note in stage::generator_notes(&runs) {
            println!("\n{note}");
        }
        bench.write_report(&format!("overload-{name}"), &stage::surges(&runs))?;
        unmet.extend(bounds.unmet().map(|what| format!("{name}: {what}")));
    }
    match unmet.is_empty() {
        true => Ok(()),
        false => Err(format!("these bounds do not hold:\n  {}", unmet.join("\n  "))),
    }
}
