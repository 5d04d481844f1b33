//! `cargo xtask bench rate`: latency at 70 % of the most that the router can do, with subgraphs that take 4 ms.

use super::Bench;
use super::machine::LoadRun;
use crate::Failure;

/// What each subgraph request takes.
const SUBGRAPH_MS: u32 = 4;

/// Connections: enough that none is waited for at 70 %.
const CONNECTIONS: u32 = 100;

/// The share of the most at which latency is looked at.
const SHARE: f64 = 0.7;

/// Finds the most, then measures at a share of it, with equal gaps and with those of independent clients.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    let operation = bench.file("fixtures/federation-benchmark/operation.graphql");
    let subgraphs = bench.start_subgraphs(SUBGRAPH_MS)?;
    let router = bench.start_benchmark_router(&subgraphs)?;
    let load = |name: &str, extra: &[&str]| {
        let unique = ["--unique-header", "authorization"];
        let extra = unique.iter().chain(extra).map(|word| (*word).to_owned()).collect();
        let connections = CONNECTIONS;
        bench.load(&router, &LoadRun { name, operation: &operation, connections, extra })
    };
    // Nothing is shared, or the most would be that of one request.
    let most = load("closed loop", &[])?;
    let rate = most["answers_per_second"].as_f64().unwrap_or(0.0) * SHARE;
    if rate < 1.0 {
        return Err(format!("the router answered nothing: {}", most["example"]));
    }
    let rate = format!("{rate:.1}");
    let constant = load("70 %, constant", &["--rate", &rate])?;
    let poisson = load("70 %, Poisson", &["--rate", &rate, "--arrivals", "poisson"])?;
    let runs = [most, constant, poisson];
    println!(
        "\n| load | answers/s | p50, ms | p99, ms | p99 / p50 | failed |\n|---|---|---|---|---|---|"
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
    bench.report("rate", &runs)
}
