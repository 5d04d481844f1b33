//! `cargo xtask bench subscriptions`: the cost of open subscriptions and of sending events, compared with the targets.
//!
//! Router or floor have core 0; broker, mocked subgraph and clients share core 1. Every measurement has a name for
//! `--filter`; compared servers run in turn, pair by pair.
//!
//! - `compare`: floor and router, the router with and without clients that never read.
//! - `live_queries`: watchers of a live query, beside the floor.
//! - `idle_memory`: memory, idle CPU use, storms of connections.
//! - `own_headers`: the memory of headers and tokens that differ by client.
//! - `sustained_load`: more events than usual, more groups, reloads.
//! - `topics`: many topics at a time, and topics that are opened and closed quickly, with each provider.
//! - `upstream`: subscriptions that the subgraph serves itself, beside the floor and beside those of a broker.

mod compare;
mod idle_memory;
mod live_queries;
mod own_headers;
pub(crate) mod stage;
pub(crate) mod sustained_load;
mod topics;
mod upstream;

use crate::setup::{Bench, Defaults};
use serde_json::Value;
use stage::{JOINED, PLAIN, Stage};
use test_kit::commands::Failure;

/// The defaults of `bench subscriptions`. The seconds of events in one run are those of the published figures.
pub(crate) const DEFAULTS: Defaults = Defaults { seconds: 15, pairs: 5 };

/// The name of a measurement, and the function that runs it.
type Measurement = (&'static str, fn(&Stage<'_>) -> Result<Vec<Value>, Failure>);

const MEASUREMENTS: [Measurement; 19] = [
    ("fan-out", |stage| compare::compare_with_floor(stage, PLAIN)),
    ("entity-join", |stage| compare::compare_with_floor(stage, JOINED)),
    ("live-queries", live_queries::compare_with_floor),
    ("never-readers", compare::compare_with_never_readers),
    ("memory", |stage| idle_memory::measure_memory(stage, false)),
    ("memory-tls", |stage| idle_memory::measure_memory(stage, true)),
    ("header-bytes", own_headers::measure),
    ("idle", idle_memory::measure_idle_cpu),
    ("connect-storm", |stage| idle_memory::run_connection_storm(stage, "connect-storm")),
    ("reconnect-storm", |stage| idle_memory::run_connection_storm(stage, "reconnect-storm")),
    ("mass-disconnect", |stage| idle_memory::run_connection_storm(stage, "mass-disconnect")),
    ("sustained", sustained_load::measure_sustained_rates),
    ("partitions", sustained_load::measure_partitions),
    ("reloads", |stage| {
        let subscribers = stage.bench.clients.unwrap_or(sustained_load::SUSTAINED_CLIENTS);
        sustained_load::measure_reloads(stage, subscribers)
    }),
    ("subjects", |stage| topics::measure_own_topics(stage.bench)),
    ("resubscribe", |stage| topics::measure_resubscribing(stage.bench)),
    ("upstream-fan-out", |stage| upstream::compare_with_floor(stage, 1)),
    ("upstream-load", |stage| upstream::compare_with_floor(stage, 4)),
    ("upstream-memory", upstream::compare_memory_with_broker),
];

/// Returns the measurement named `filter`, or else every one with `filter` in its name.
fn choose_measurements(filter: Option<&str>) -> Vec<&'static Measurement> {
    let is_name = MEASUREMENTS.iter().any(|(name, _)| Some(*name) == filter);
    let is_chosen = |name: &str| match filter {
        Some(filter) if is_name => name == filter,
        Some(filter) => name.contains(filter),
        None => true,
    };
    MEASUREMENTS.iter().filter(|(name, _)| is_chosen(name)).collect()
}

/// Runs the chosen measurements, see [`choose_measurements`].
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let chosen = choose_measurements(filter);
    if chosen.is_empty() {
        let names: Vec<&str> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no measurement has `{}` in its name; the measurements are {}",
            filter.unwrap_or_default(),
            names.join(", ")
        ));
    }
    let stage = Stage::start(bench)?;
    for (name, measurement) in chosen {
        println!("\n## {name}\n");
        let runs = measurement(&stage)?;
        bench.write_report(&format!("subscriptions-{name}"), &runs)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_chooses_one_measurement_by_its_name_or_several_by_a_part() {
        for (filter, expected) in [
            ("fan-out", &["fan-out"][..]),
            ("memory", &["memory"]),
            ("upstream", &["upstream-fan-out", "upstream-load", "upstream-memory"]),
            ("upstream-memory", &["upstream-memory"]),
            ("downstream", &[]),
        ] {
            let chosen: Vec<_> =
                choose_measurements(Some(filter)).into_iter().map(|(name, _)| *name).collect();
            assert_eq!(chosen, expected, "{filter}");
        }
        assert_eq!(choose_measurements(None).len(), MEASUREMENTS.len());
    }
}
