//! `cargo xtask bench router`: what an answer of the federation benchmark costs above the floor.

use super::Bench;
use super::machine::{LoadRun, Serving};
use super::statistics::Sample;
use crate::Failure;
use serde_json::Value;

/// How clients ask.
struct Scenario {
    name: &'static str,
    connections: u32,
    /// Every request has an `authorization` header of its own, which the subgraphs receive.
    unique: bool,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "1 connection", connections: 1, unique: false },
    Scenario { name: "50 that ask the same", connections: 50, unique: false },
    Scenario { name: "50 that share nothing", connections: 50, unique: true },
];

/// What was measured of one server in one scenario.
#[derive(Default)]
struct Measured {
    cpu_us: Sample,
    per_second: Sample,
    p50_ms: Sample,
    p99_ms: Sample,
    resident_mib: Sample,
}

/// Measures floor and router in turn, in every scenario whose name contains `filter`.
pub(super) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
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
        // A router of its own for each scenario: its memory is that of the scenario alone.
        let router = bench.start_benchmark_router(&subgraphs)?;
        let extra: Vec<String> = match scenario.unique {
            true => ["--unique-header", "authorization"].map(str::to_owned).into(),
            false => Vec::new(),
        };
        let mut measure = |server: &Serving, who: &str, measured: &mut Measured| {
            let name = format!("{who}, {}", scenario.name);
            let run = bench.load(
                server,
                &LoadRun {
                    name: &name,
                    operation: &operation,
                    connections: scenario.connections,
                    extra: extra.clone(),
                },
            )?;
            println!("{name}: {:.1} µs", measured.add(&run)?);
            runs.push(run);
            Ok::<(), Failure>(())
        };
        let (mut of_floor, mut of_router) = (Measured::default(), Measured::default());
        for _ in 0..bench.pairs {
            measure(&floor, "floor", &mut of_floor)?;
            measure(&router, &bench.router, &mut of_router)?;
        }
        rows.push((scenario.name, of_floor, of_router));
    }
    if rows.is_empty() {
        return Err(format!("no scenario has `{}` in its name", filter.unwrap_or_default()));
    }
    print(bench, &rows);
    bench.report(&format!("router-{}", bench.router), &runs)
}

impl Measured {
    /// Adds a run; answers with the CPU time of one of its answers, in microseconds.
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

fn print(bench: &Bench, rows: &[(&str, Measured, Measured)]) {
    println!(
        "\nMedian (smallest–largest) of {} pairs, {} s each; CPU of the server per answer.\n",
        bench.pairs, bench.seconds
    );
    println!(
        "| clients | floor, µs | {}, µs | above the floor | answers/s | p50, ms | p99, ms | memory, MiB |",
        bench.router
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, floor, router) in rows {
        println!(
            "| {name} | {} | {} | floor + {:.0} µs | {:.0} | {:.2} | {:.2} | {:.1} |",
            floor.cpu_us.show(1),
            router.cpu_us.show(1),
            router.cpu_us.median() - floor.cpu_us.median(),
            router.per_second.median(),
            router.p50_ms.median(),
            router.p99_ms.median(),
            router.resident_mib.max(),
        );
    }
}
