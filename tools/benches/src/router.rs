//! `cargo xtask bench router`: the cost of a response of the federation benchmark above the floor, of the rules for its
//! request, of the id of a persisted document in place of its text, and of traces and logs; the cost beside that of
//! another build; and the metrics after a hundred thousand names.

use crate::baseline;
use crate::document_ids;
use crate::load_generator::LoadRun;
use crate::request_rules;
use crate::scenario::{Scenario, ScenarioSamples};
use crate::scrape;
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use crate::signals;
use serde_json::Value;
use std::path::Path;
use test_kit::commands::Failure;

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "1 connection", connections: 1, unique: false },
    Scenario { name: "50 that ask the same", connections: 50, unique: false },
    Scenario { name: "50 that share nothing", connections: 50, unique: true },
];

/// A comparison of Starling with itself.
type Comparison = fn(&Bench, &Scenario, &ServerProcess, &Path) -> Result<Vec<Value>, Failure>;

/// The comparisons that only Starling supports, by the first word of their names.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("rules", request_rules::compare),
    ("documents", document_ids::compare),
    ("signals", signals::compare),
    (BASELINE, baseline::compare),
];

/// The comparison with another build, which needs one.
const BASELINE: &str = "baseline";

/// The router that the comparisons measure.
const STARLING: &str = "starling";

/// The name of the measurement of metrics, which has clients of its own.
const SCRAPE: &str = "scrape";

/// Runs every measurement with `filter` in its name: the scenarios beside the floor, then the comparisons in each
/// scenario, then the metrics.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let is_chosen = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    let mut compared: Vec<(&str, Comparison, &Scenario)> = COMPARISONS
        .iter()
        .filter(|_| bench.router == STARLING)
        .flat_map(|&(name, compare)| SCENARIOS.iter().map(move |it| (name, compare, it)))
        .filter(|(name, _, scenario)| is_chosen(&format!("{name}, {}", scenario.name)))
        .collect();
    let measured: Vec<&Scenario> = SCENARIOS.iter().filter(|it| is_chosen(it.name)).collect();
    let is_scraped = bench.router == STARLING && is_chosen(SCRAPE);
    if measured.is_empty() && compared.is_empty() && !is_scraped {
        return Err(format!("no scenario has `{}` in its name", filter.unwrap_or_default()));
    }
    if bench.baseline.is_none() && compared.iter().any(|(name, ..)| *name == BASELINE) {
        println!("{}", baseline::advice());
        compared.retain(|(name, ..)| *name != BASELINE);
    }
    if !measured.is_empty() || !compared.is_empty() {
        measure_responses(bench, &measured, &compared)?;
    }
    if is_scraped {
        scrape::measure(bench)?;
    }
    Ok(())
}

/// Measures responses of the federation benchmark: the given scenarios beside the floor, then the comparisons.
fn measure_responses(
    bench: &Bench,
    measured: &[&Scenario],
    compared: &[(&str, Comparison, &Scenario)],
) -> Result<(), Failure> {
    let operation = bench.file("fixtures/federation-benchmark/operation.graphql");
    let subgraphs = bench.start_subgraphs(0)?;
    if !measured.is_empty() {
        compare_with_floor(bench, measured, &subgraphs, &operation)?;
    }
    for &(name, compare, scenario) in compared {
        println!("\n## {name}, {}\n", scenario.name);
        let runs = compare(bench, scenario, &subgraphs, &operation)?;
        let report = format!("router-{name}-{}", scenario.name.replace(' ', "-"));
        bench.write_report(&report, &runs)?;
    }
    Ok(())
}

/// Measures floor and router in turn, in every given scenario.
fn compare_with_floor(
    bench: &Bench,
    scenarios: &[&Scenario],
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<(), Failure> {
    let floor =
        bench.start_floor(&bench.file("fixtures/federation-benchmark/expected_response.json"))?;
    let mut runs = Vec::new();
    let mut rows = Vec::new();
    for scenario in scenarios {
        // A fresh router for each scenario, so that its memory is that of the scenario alone.
        let router = bench.start_benchmark_router(subgraphs)?;
        let extra: Vec<String> = match scenario.unique {
            true => ["--unique-header", "authorization"].map(str::to_owned).into(),
            false => Vec::new(),
        };
        let mut measure = |server: &ServerProcess, side: &str, samples: &mut ScenarioSamples| {
            let name = format!("{side}, {}", scenario.name);
            let run = bench.run_query_load(
                server,
                &LoadRun {
                    name: &name,
                    operation: Some(operation),
                    connections: scenario.connections,
                    extra: extra.clone(),
                },
            )?;
            println!("{name}: {:.1} µs", samples.add(&run)?);
            runs.push(run);
            Ok::<(), Failure>(())
        };
        let (mut floor_samples, mut router_samples) =
            (ScenarioSamples::default(), ScenarioSamples::default());
        for _ in 0..bench.pairs {
            measure(&floor, "floor", &mut floor_samples)?;
            measure(&router, &bench.router, &mut router_samples)?;
        }
        rows.push((scenario.name, floor_samples, router_samples));
    }
    print_table(bench, &rows);
    bench.write_report(&format!("router-{}", bench.router), &runs)
}

fn print_table(bench: &Bench, rows: &[(&str, ScenarioSamples, ScenarioSamples)]) {
    println!(
        "\nMedian (smallest–largest) of {} pairs, {} s each; CPU of the server per response.\n",
        bench.pairs, bench.seconds
    );
    println!(
        "| clients | floor, µs | {}, µs | above the floor | responses/s | p50, ms | p99, ms | memory, MiB |",
        bench.router
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, floor, router) in rows {
        println!(
            "| {name} | {} | {} | floor + {:.0} µs | {:.0} | {:.2} | {:.2} | {:.1} |",
            floor.cpu_us.format_with_range(1),
            router.cpu_us.format_with_range(1),
            router.cpu_us.median() - floor.cpu_us.median(),
            router.per_second.median(),
            router.p50_ms.median(),
            router.p99_ms.median(),
            router.resident_mib.max(),
        );
    }
}
