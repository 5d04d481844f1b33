//! `cargo xtask bench rate`: latency at 70 % of the router's maximum rate, with subgraphs that take 4 ms.

use crate::load_generator::LoadRun;
use crate::setup::Bench;
use test_kit::commands::Failure;

/// The duration of each subgraph request, in milliseconds.
const SUBGRAPH_DELAY_MS: u32 = 4;

/// The number of connections, high enough that no request waits for one at 70 %.
const CONNECTIONS: u32 = 100;

/// The share of the maximum rate at which latency is measured.
const RATE_SHARE: f64 = 0.7;

/// Finds the maximum rate, then measures at a share of it, with equal gaps and with Poisson arrivals.
pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    let operation = bench.file("fixtures/federation-benchmark/operation.graphql");
    let subgraphs = bench.start_subgraphs(SUBGRAPH_DELAY_MS)?;
    let router = bench.start_benchmark_router(&subgraphs)?;
    let load = |name: &str, extra: &[&str]| {
        let unique = ["--unique-header", "authorization"];
        let extra = unique.iter().chain(extra).map(|word| (*word).to_owned()).collect();
        let connections = CONNECTIONS;
        let operation = Some(&*operation);
        bench.run_query_load(&router, &LoadRun { name, operation, connections, extra })
    };
    // Unique headers prevent sharing; otherwise the maximum would be that of one shared request.
    let maximum = load("closed loop", &[])?;
    let rate = maximum["answers_per_second"].as_f64().unwrap_or(0.0) * RATE_SHARE;
    if rate < 1.0 {
        return Err(format!("the router sent no response: {}", maximum["example"]));
    }
    let rate = format!("{rate:.1}");
    let constant = load("70 %, constant", &["--rate", &rate])?;
    let poisson = load("70 %, Poisson", &["--rate", &rate, "--arrivals", "poisson"])?;
    let runs = [maximum, constant, poisson];
    println!(
        "\n| load | responses/s | p50, ms | p99, ms | p99 / p50 | failed |\n|---|---|---|---|---|---|"
    );
    for run in &runs {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        let (p50, p99) = (number(&run["latency"]["p50_us"]), number(&run["latency"]["p99_us"]));
        println!(
            "| {} | {:.0} | {:.2} | {:.2} | {:.2} | {} |",
            run["name"].as_str().unwrap_or("?"),
            number(&run["answers_per_second"]),
            p50 / 1e3,
            p99 / 1e3,
            p99 / p50.max(1.0),
            run["failed"]
        );
    }
    bench.write_report("rate", &runs)
}
