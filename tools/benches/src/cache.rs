//! `cargo xtask bench cache`: the cost of a response of the federation benchmark from memory: whole, whole for clients
//! that accept gzip, and with all entities and root fields in memory, beside the floor and beside the router that stores
//! nothing.
//! [`crate::cache_load`] has the measurements of many clients, [`crate::cache_invalidations`] that of several routers.

use crate::cache_invalidations;
use crate::cache_load;
use crate::load_generator::LoadRun;
use crate::reports::verdict;
use crate::scenario::{Scenario, ScenarioSamples};
use crate::server_process::ServerProcess;
use crate::servers::{BENCHMARK_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{Bench, read_file, write_file};
use serde_json::Value;
use std::path::Path;
use test_kit::commands::Failure;

/// The maximum CPU time of a whole response from memory above the floor, in microseconds.
const WHOLE_US_MAX: f64 = 8.0;

/// The maximum CPU time of a compressed whole response from memory above an uncompressed one, in microseconds.
const COMPRESSED_US_MAX: f64 = 2.0;

/// The maximum part of the cost without a cache if all entities are in memory.
const ENTITIES_PART_MAX: f64 = 0.6;

const SCENARIOS: [Scenario; 2] = [
    Scenario { name: "1 connection", connections: 1, unique: false },
    Scenario { name: "50 connections", connections: 50, unique: false },
];

/// The settings of a router with whole responses in memory.
const WHOLE_RESPONSES: &str = "cache: {enabled: true, subgraphs: {all: {ttl: 1h}}}\n";

/// The routers of the comparison, and their settings of the cache. Work in flight is not shared, so that each request
/// without a cache does its own.
const VARIANTS: [(&str, &str); 4] = [
    ("nothing stored", ""),
    ("entities", "cache: {enabled: true, response_memory: 1KiB, subgraphs: {all: {ttl: 1h}}}\n"),
    ("whole response", WHOLE_RESPONSES),
    (WHOLE_GZIP, WHOLE_RESPONSES),
];

/// The variant with clients that accept gzip. The load generator does not expand what it gets.
const WHOLE_GZIP: &str = "whole response, gzip";

/// A measurement of many clients or routers.
type Measurement = fn(&Bench) -> Result<(), Failure>;

/// These measurements, by name.
const MEASUREMENTS: [(&str, Measurement); 3] = [
    ("stampede", cache_load::stampede),
    ("doubling", cache_load::doubling),
    ("invalidations", cache_invalidations::measure),
];

/// Measures floor and routers in turn, in each scenario with `filter` in its name, then many clients and routers.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let scenarios = SCENARIOS.iter();
    let chosen: Vec<_> =
        scenarios.filter(|it| filter.is_none_or(|filter| it.name.contains(filter))).collect();
    let measurements = MEASUREMENTS.iter();
    let measurements: Vec<_> = measurements
        .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter)))
        .collect();
    if chosen.is_empty() && measurements.is_empty() {
        return Err(format!("no scenario has `{}` in its name", filter.unwrap_or_default()));
    }
    if !chosen.is_empty() {
        compare_all(bench, chosen)?;
    }
    measurements.into_iter().try_for_each(|(_, measure)| measure(bench))
}

fn compare_all(bench: &Bench, chosen: Vec<&Scenario>) -> Result<(), Failure> {
    let operation = bench.file("fixtures/federation-benchmark/operation.graphql");
    let response = bench.file("fixtures/federation-benchmark/expected_response.json");
    let subgraphs = bench.start_subgraphs(0)?;
    for scenario in chosen {
        println!("\n## cache, {}\n", scenario.name);
        let floor = bench.start_floor(&response)?;
        let mut servers = vec![("floor", floor)];
        for (name, settings) in VARIANTS {
            servers.push((name, start_router(bench, name, settings, &subgraphs)?));
        }
        let runs = compare(bench, scenario, &servers, &operation)?;
        bench.write_report(&format!("cache-{}", scenario.name.replace(' ', "-")), &runs)?;
    }
    Ok(())
}

fn start_router(
    bench: &Bench,
    name: &str,
    settings: &str,
    subgraphs: &ServerProcess,
) -> Result<ServerProcess, Failure> {
    let folder = bench.scratch_folder(&format!("cache-{}", name.replace(' ', "-")))?;
    let (config, supergraph) = (folder.join("starling.yaml"), folder.join("supergraph.graphql"));
    write_file(
        &config,
        &format!("sharing: {{operations: false, subgraph_queries: false}}\n{settings}"),
    )?;
    let text = read_file(&bench.file("fixtures/federation-benchmark/supergraph.graphql"))?;
    write_file(
        &supergraph,
        &replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address),
    )?;
    bench.start_starling(&config, &supergraph)
}

/// Measures all servers in turn, prints their table and returns the runs.
fn compare(
    bench: &Bench,
    scenario: &Scenario,
    servers: &[(&str, ServerProcess)],
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let mut samples: Vec<ScenarioSamples> = servers.iter().map(|_| Default::default()).collect();
    let mut runs = Vec::new();
    for _ in 0..bench.pairs {
        for ((name, server), samples) in servers.iter().zip(&mut samples) {
            let extra: &[&str] = match *name {
                WHOLE_GZIP => &["--header", "accept-encoding: gzip", "--check", "status"],
                _ => &[],
            };
            let extra = extra.iter().map(|it| (*it).to_owned()).collect();
            let name = format!("{name}, {}", scenario.name);
            let connections = scenario.connections;
            let load = LoadRun { name: &name, operation: Some(operation), connections, extra };
            let run = bench.run_query_load(server, &load)?;
            println!("{name}: {:.1} µs", samples.add(&run)?);
            runs.push(run);
        }
    }
    println!(
        "\n{}: median (smallest–largest) of {} rounds, {} s each; CPU of the server per response.\n",
        scenario.name, bench.pairs, bench.seconds
    );
    println!("| server | µs |\n|---|---|");
    for ((name, _), samples) in servers.iter().zip(&samples) {
        println!("| {name} | {} |", samples.cpu_us.format_with_range(1));
    }
    let medians = [0, 1, 2, 3, 4].map(|at| samples[at].cpu_us.median());
    let [floor, nothing, entities, whole, compressed] = medians;
    let (more, part, for_gzip) = (whole - floor, entities / nothing, compressed - whole);
    println!("\n| | | at most | met |\n|---|---|---|---|");
    println!(
        "| whole response, above the floor | {more:.1} µs | {WHOLE_US_MAX} µs | {} |",
        verdict(more <= WHOLE_US_MAX)
    );
    println!(
        "| the same compressed, above it | {for_gzip:.1} µs | {COMPRESSED_US_MAX} µs | {} |",
        verdict(for_gzip <= COMPRESSED_US_MAX)
    );
    println!(
        "| entities, part of the cost without a cache | {part:.2} | {ENTITIES_PART_MAX} | {} |",
        verdict(part <= ENTITIES_PART_MAX)
    );
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_server() {
        // `compare` names the servers by their places.
        assert_eq!(
            VARIANTS.map(|(name, _)| name),
            ["nothing stored", "entities", "whole response", "whole response, gzip"]
        );
        assert!(VARIANTS[0].1.is_empty(), "the first router stores nothing");
    }
}
