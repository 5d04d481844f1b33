//! `cargo xtask bench router --filter documents`: a request with the id of a persisted document beside the same
//! operation as a text, in turn at one router.

use crate::comparison::{Side, measure_in_turn};
use crate::instructions;
use crate::reports::verdict;
use crate::scenario::Scenario;
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

/// The maximum number of instructions for an id, as a multiple of those for the text.
const INSTRUCTIONS_RATIO_MAX: f64 = 1.001;

/// How often the instructions are counted. The least count is compared: timers of the router, and requests that arrive
/// in several reads, only add to it, by up to 3 % on a busy machine.
const COUNTS: u32 = 3;

/// Measures both kinds of requests in one scenario, prints their table and returns the runs.
pub(crate) fn compare(
    bench: &Bench,
    scenario: &Scenario,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let DocumentFiles { config, counted, supergraph } = write_files(bench, subgraphs, operation)?;
    let router = bench.start_starling(&config, &supergraph)?;
    let side = |name, operation, arguments| Side {
        name,
        router: &router,
        operation,
        arguments,
        unique_header: "authorization",
    };
    let id = ["--document-id", DOCUMENT_ID].map(str::to_owned).to_vec();
    let sides = [side("text", Some(operation), Vec::new()), side("id", None, id)];
    let measured = measure_in_turn(bench, scenario, &sides)?;
    let mut ratios = Samples::default();
    for round in &measured.rounds {
        ratios.push(round[1] / round[0]);
    }
    println!("| text, µs | id, µs | id / text | at most | met |\n|---|---|---|---|---|");
    println!(
        "| {} | {} | {} | {RATIO_MAX} | {} |\n",
        measured.samples[0].cpu_us.format_with_range(1),
        measured.samples[1].cpu_us.format_with_range(1),
        ratios.format_with_range(3),
        verdict(ratios.median() <= RATIO_MAX)
    );
    drop(router);
    if scenario.connections == 1 {
        compare_instructions(bench, &counted, &supergraph, operation)?;
    }
    Ok(measured.runs)
}

/// Compares the instructions of both kinds of requests, which do not depend on the machine's other work. The responses
/// are in memory, so that nothing but the way to the operation is left in the difference.
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
    let mut counts: [Samples; 2] = Default::default();
    for _ in 0..COUNTS {
        for (counts, body) in counts.iter_mut().zip(&bodies) {
            let count = instructions::count_for_each(bench, config, supergraph, &body.to_string())?;
            counts.push(count);
        }
    }
    let [text, id] = counts.map(|it| it.min());
    println!("The least of {COUNTS} counts:\n");
    println!("| instructions, text | id | id / text | at most | met |\n|---|---|---|---|---|");
    let ratio = id / text;
    println!(
        "| {text:.0} | {id:.0} | {ratio:.4} | {INSTRUCTIONS_RATIO_MAX} | {} |\n",
        verdict(ratio <= INSTRUCTIONS_RATIO_MAX)
    );
    Ok(())
}

/// The files of a router that has the operation as a persisted document and also runs texts.
struct DocumentFiles {
    config: PathBuf,
    /// The configuration for counting instructions, with responses in memory: the number of reads in which the response
    /// of a subgraph comes differs from request to request, and so do the instructions for it.
    counted: PathBuf,
    supergraph: PathBuf,
}

fn write_files(
    bench: &Bench,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<DocumentFiles, Failure> {
    let folder = bench.scratch_folder("documents")?;
    let [config, counted, manifest, supergraph] =
        ["starling.yaml", "counted.yaml", "manifest.json", "supergraph.graphql"]
            .map(|name| folder.join(name));
    write_file(&manifest, &json!({ DOCUMENT_ID: read_file(operation)? }).to_string())?;
    let text = format!(
        "headers: {{all: {{request: [{{propagate: {{named: authorization}}}}]}}}}\n\
         persisted_documents: {{manifests: [{{file: {:?}}}]}}\n",
        manifest.display().to_string()
    );
    write_file(&config, &text)?;
    write_file(
        &counted,
        &format!("{text}cache: {{enabled: true, subgraphs: {{all: {{ttl: 1h}}}}}}\n"),
    )?;
    let text = read_file(&bench.file("fixtures/federation-benchmark/supergraph.graphql"))?;
    write_file(
        &supergraph,
        &replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address),
    )?;
    Ok(DocumentFiles { config, counted, supergraph })
}
