//! `cargo xtask bench router --filter documents`: a request with the id of a persisted document beside the same
//! operation as a text, in turn at one router.

use crate::instructions;
use crate::load_generator::LoadRun;
use crate::reports::verdict;
use crate::router::{Scenario, ScenarioSamples};
use crate::server_process::ServerProcess;
use crate::servers::{BENCHMARK_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{Bench, read_file, write_file};
use crate::statistics::Samples;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use test_kit::commands::Failure;

/// The id, as long as those that tools write.
const DOCUMENT_ID: &str = "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4";

/// The maximum CPU time of a request with an id, as a multiple of that with the text. Equal requests differ by this
/// much: a run's CPU time is counted in ticks of 10 ms.
const RATIO_MAX: f64 = 1.01;

/// The maximum number of instructions for an id, as a multiple of those for the text. Equal requests differ by less: only
/// the router's timers run at other moments.
const INSTRUCTIONS_RATIO_MAX: f64 = 1.001;

/// Measures both kinds of requests in one scenario, prints their table and returns the runs.
pub(crate) fn compare(
    bench: &Bench,
    scenario: &Scenario,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let [config, supergraph] = write_config(bench, subgraphs, operation)?;
    let router = bench.start_starling(&config, &supergraph)?;
    let id = ["--document-id", DOCUMENT_ID].map(str::to_owned);
    let sides = [("text", Some(operation), Vec::new()), ("id", None, id.to_vec())];
    let mut samples: [ScenarioSamples; 2] = Default::default();
    let (mut runs, mut ratios) = (Vec::new(), Samples::default());
    for round in 0..bench.pairs {
        let mut cpu = [0.0; 2];
        for step in 0..2 {
            // Every second round in the reverse order, so that a trend of the machine cancels out.
            let at = (step + round as usize) % 2;
            let (side, operation, ref arguments) = sides[at];
            let name = format!("{side}, {}", scenario.name);
            let mut extra = arguments.clone();
            if scenario.unique {
                extra.extend(["--unique-header", "authorization"].map(str::to_owned));
            }
            let connections = scenario.connections;
            let load = LoadRun { name: &name, operation, connections, extra };
            let run = bench.run_query_load(&router, &load)?;
            cpu[at] = samples[at].add(&run)?;
            println!("{name}: {:.1} µs", cpu[at]);
            runs.push(run);
        }
        ratios.push(cpu[1] / cpu[0]);
    }
    println!(
        "\n{}: median (smallest–largest) of {} rounds, {} s each; CPU of the router per response.\n",
        scenario.name, bench.pairs, bench.seconds
    );
    println!("| text, µs | id, µs | id / text | at most | met |\n|---|---|---|---|---|");
    println!(
        "| {} | {} | {} | {RATIO_MAX} | {} |\n",
        samples[0].cpu_us.format_with_range(1),
        samples[1].cpu_us.format_with_range(1),
        ratios.format_with_range(3),
        verdict(ratios.median() <= RATIO_MAX)
    );
    drop(router);
    if scenario.connections == 1 {
        compare_instructions(bench, &config, &supergraph, operation)?;
    }
    Ok(runs)
}

/// Compares the instructions of both kinds of requests, which do not depend on the machine's other work.
fn compare_instructions(
    bench: &Bench,
    config: &Path,
    supergraph: &Path,
    operation: &Path,
) -> Result<(), Failure> {
    if !instructions::can_be_counted() {
        println!("Instructions are not counted, because Valgrind is not installed.\n");
        return Ok(());
    }
    let bodies = [json!({ "query": read_file(operation)? }), json!({ "documentId": DOCUMENT_ID })];
    let mut counts = [0.0; 2];
    for (count, body) in counts.iter_mut().zip(&bodies) {
        *count = instructions::count_for_each(bench, config, supergraph, &body.to_string())?;
    }
    let [text, id] = counts;
    println!("| instructions, text | id | id / text | at most | met |\n|---|---|---|---|---|");
    let ratio = id / text;
    println!(
        "| {text:.0} | {id:.0} | {ratio:.4} | {INSTRUCTIONS_RATIO_MAX} | {} |\n",
        verdict(ratio <= INSTRUCTIONS_RATIO_MAX)
    );
    Ok(())
}

/// Writes the configuration of a router that has the operation as a persisted document and also runs texts. Returns the
/// paths of configuration and supergraph.
fn write_config(
    bench: &Bench,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<[PathBuf; 2], Failure> {
    let folder = bench.scratch_folder("documents")?;
    let [config, manifest, supergraph] =
        ["starling.yaml", "manifest.json", "supergraph.graphql"].map(|name| folder.join(name));
    write_file(&manifest, &json!({ DOCUMENT_ID: read_file(operation)? }).to_string())?;
    let text = format!(
        "headers: {{all: {{request: [{{propagate: {{named: authorization}}}}]}}}}\n\
         persisted_documents: {{manifests: [{{file: {:?}}}]}}\n",
        manifest.display().to_string()
    );
    write_file(&config, &text)?;
    let text = read_file(&bench.file("fixtures/federation-benchmark/supergraph.graphql"))?;
    write_file(
        &supergraph,
        &replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address),
    )?;
    Ok([config, supergraph])
}
