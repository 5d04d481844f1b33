//! `cargo xtask bench router`: the cost of a response of the federation benchmark above the floor.

use crate::load_generator::LoadRun;
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use crate::statistics::Samples;
use serde_json::Value;
use test_kit::commands::Failure;

/// The behaviour of the clients.
struct Scenario {
    name: &'static str,
    connections: u32,
    /// True if every request has a unique `authorization` header, which is forwarded to the subgraphs.
    unique: bool,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "1 connection", connections: 1, unique: false },
    Scenario { name: "50 that ask the same", connections: 50, unique: false },
    Scenario { name: "50 that share nothing", connections: 50, unique: true },
];

/// The measurements of one server in one scenario.
#[derive(Default)]
struct ScenarioSamples {
    cpu_us: Samples,
    per_second: Samples,
    p50_ms: Samples,
    p99_ms: Samples,
    resident_mib: Samples,
}

/// Measures floor and router in turn, in every scenario with `filter` in its name.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let fixture = bench.file("fixtures/federation-benchmark");
    let operation = fixture.join("operation.graphql");
    let floor = bench.start_floor(&fixture.join("expected_response.json"))?;
    let subgraphs = bench.start_subgraphs(0)?;
    let mut runs = Vec::new();
    let mut rows = Vec::new();
    for scenario in &SCENARIOS {
        if filter.is_some_and(|filter| !scenario.name.contains(filter)) {
            continue;
        }
        // A fresh router for each scenario, so that its memory is that of the scenario alone.
        let router = bench.start_benchmark_router(&subgraphs)?;
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
                    operation: &operation,
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
    if rows.is_empty() {
        return Err(format!("no scenario has `{}` in its name", filter.unwrap_or_default()));
    }
    print_table(bench, &rows);
    bench.write_report(&format!("router-{}", bench.router), &runs)
}

impl ScenarioSamples {
    /// Adds a run and returns the CPU time of one response, in microseconds.
    fn add(&mut self, run: &Value) -> Result<f64, Failure> {
        let failed = run["failed"].as_u64().unwrap_or(u64::MAX);
        if failed > 0 {
            return Err(format!("{}: {failed} requests failed: {}", run["name"], run["example"]));
        }
        let number = |value: &Value| value.as_f64().ok_or("the report lacks a number".to_owned());
        let cpu_us = number(&run["server"]["cpu_us_per_request"])?;
        self.cpu_us.push(cpu_us);
        self.per_second.push(number(&run["answers_per_second"])?);
        self.p50_ms.push(number(&run["latency"]["p50_us"])? / 1e3);
        self.p99_ms.push(number(&run["latency"]["p99_us"])? / 1e3);
        self.resident_mib.push(number(&run["server"]["resident_max_mib"])?);
        Ok(cpu_us)
    }
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
