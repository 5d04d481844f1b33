//! `cargo xtask bench sizes`: the CPU time and memory of a response by its size.

use crate::load_generator::LoadRun;
use crate::setup::{Bench, write_file};
use serde_json::json;
use test_kit::commands::Failure;

/// The numbers of items in a response. Each item has about 200 bytes, half of them from a second subgraph by its key.
/// The largest response has 8 MiB.
const ITEMS: [u32; 8] = [5, 40, 160, 640, 2_500, 10_000, 20_000, 36_000];

/// Measures one connection at each size, each with a fresh router.
pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    let folder = bench.file("benches/items");
    let (supergraph, operation) =
        (folder.join("supergraph.graphql"), folder.join("operation.graphql"));
    let variables = bench.reports.join("variables.json");
    let mock = bench.start_mock(&supergraph)?;
    let mut runs = Vec::new();
    println!(
        "\n| response | CPU per response | per kB | p50 | memory before | peak memory |\n|---|---|---|---|---|---|"
    );
    for items in ITEMS {
        let router =
            bench.start_router(&supergraph, &["items", "prices"], mock.address, &operation)?;
        let (before, _) = router.resident_mib();
        write_file(&variables, &json!({ "first": items }).to_string())?;
        let run = bench.run_query_load(
            &router,
            &LoadRun {
                name: &format!("{items} items"),
                operation: Some(&operation),
                connections: 1,
                extra: vec!["--variables".to_owned(), variables.display().to_string()],
            },
        )?;
        if run["failed"] != 0 {
            return Err(format!("{items} items: {}", run["example"]));
        }
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        let kilobytes = number(&run["answer_bytes"]) / 1e3;
        let cpu = number(&run["server"]["cpu_us_per_request"]);
        println!(
            "| {kilobytes:.1} kB | {cpu:.0} µs | {:.2} µs | {:.2} ms | {before:.1} MiB | {:.1} MiB |",
            cpu / kilobytes,
            number(&run["latency"]["p50_us"]) / 1e3,
            router.resident_mib().1,
        );
        runs.push(run);
    }
    bench.write_report("sizes", &runs)
}
