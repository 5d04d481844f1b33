//! `cargo xtask bench router --filter signals`: the cost of traces, of the figures of operations and of the access log.
//! Traces go to a collector in this process, which reads them and responds at once.

use crate::comparison::{Side, measure_in_turn};
use crate::reports::verdict;
use crate::scenario::Scenario;
use crate::server_process::ServerProcess;
use crate::servers::{BENCHMARK_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{Bench, read_file, write_file};
use crate::statistics::Samples;
use crate::trace_collector::TraceCollector;
use serde_json::Value;
use std::path::Path;
use test_kit::commands::Failure;

/// A router of the comparison.
struct Variant {
    name: &'static str,
    /// Its configuration. `COLLECTOR` is the address of the collector.
    settings: &'static str,
    /// The maximum CPU time of a request above that of the first router, in microseconds, if there is a bound.
    more_us_max: Option<f64>,
}

/// The first router has no signals at all.
const VARIANTS: [Variant; 5] = [
    Variant {
        name: "nothing",
        settings: "metrics: {operations: {max: 0}, clients: {max: 0}}\n",
        more_us_max: None,
    },
    Variant { name: "defaults", settings: "", more_us_max: None },
    Variant {
        name: "traces of 1 %",
        settings: "metrics: {operations: {max: 0}, clients: {max: 0}}\n\
                   tracing: {enabled: true, sample: {ratio: 1%}, otlp: {endpoint: 'http://COLLECTOR/v1/traces'}}\n",
        more_us_max: Some(5.0),
    },
    Variant {
        name: "traces of 100 %",
        settings: "metrics: {operations: {max: 0}, clients: {max: 0}}\n\
                   tracing: {enabled: true, sample: {ratio: 100%}, otlp: {endpoint: 'http://COLLECTOR/v1/traces'}}\n",
        more_us_max: Some(25.0),
    },
    Variant {
        name: "access log",
        settings: "metrics: {operations: {max: 0}, clients: {max: 0}}\n\
                   access_log: {enabled: true, file: logs/access.log, rotate_at: 100MiB, keep: 1}\n",
        more_us_max: Some(3.0),
    },
];

/// Measures all variants in one scenario, prints their table and returns the runs.
pub(crate) fn compare(
    bench: &Bench,
    scenario: &Scenario,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let collector = TraceCollector::start()?;
    let routers: Vec<ServerProcess> = VARIANTS
        .iter()
        .map(|variant| start_router(bench, variant, &collector, subgraphs))
        .collect::<Result<_, _>>()?;
    let sides: Vec<Side<'_>> = VARIANTS
        .iter()
        .zip(&routers)
        .map(|(variant, router)| Side::of_operation(variant.name, router, operation))
        .collect();
    let measured = measure_in_turn(bench, scenario, &sides)?;
    println!("| signals | µs | more, µs | at most | met |\n|---|---|---|---|---|");
    for (at, variant) in VARIANTS.iter().enumerate() {
        let mut more = Samples::default();
        for round in &measured.rounds {
            more.push(round[at] - round[0]);
        }
        let (bound, met) = match variant.more_us_max {
            Some(most) => (format!("{most} µs"), verdict(more.median() <= most)),
            None => ("–".to_owned(), "–"),
        };
        println!(
            "| {} | {} | {} | {bound} | {met} |",
            variant.name,
            measured.samples[at].cpu_us.format_with_range(1),
            more.format_with_range(1),
        );
    }
    let received = collector.received();
    println!("\nThe collector has received {received} requests.\n");
    if received == 0 {
        return Err("the collector has received no traces".to_owned());
    }
    Ok(measured.runs)
}

fn start_router(
    bench: &Bench,
    variant: &Variant,
    collector: &TraceCollector,
    subgraphs: &ServerProcess,
) -> Result<ServerProcess, Failure> {
    let name = variant.name.replace([' ', '%'], "-");
    let folder = bench.scratch_folder(&format!("signals-{name}"))?;
    let (config, supergraph) = (folder.join("starling.yaml"), folder.join("supergraph.graphql"));
    // Not beside the files that the router watches: each write would wake the watch.
    bench.scratch_folder(&format!("signals-{name}/logs"))?;
    let forwarded = "headers: {all: {request: [{propagate: {named: authorization}}]}}\n";
    let settings = variant.settings.replace("COLLECTOR", &collector.address().to_string());
    write_file(&config, &format!("{forwarded}{settings}"))?;
    let text = read_file(&bench.file("fixtures/federation-benchmark/supergraph.graphql"))?;
    let placed = replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address);
    write_file(&supergraph, &placed)?;
    bench.start_starling(&config, &supergraph)
}
