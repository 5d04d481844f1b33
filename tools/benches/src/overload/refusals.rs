//! `refusals`: the CPU time of a refused request, at a router with one place that is taken, beside that of the floor.
//!
//! An idle router must be woken for each request, which takes as much CPU time as the refusal itself where that is
//! slow. A router that has to refuse is busy. So there are two rates, and the bound is for the higher one.

use super::bounds::{Bound, Bounds};
use super::stage::{SurgeLoad, surge_arguments};
use crate::reports::number;
use crate::router_metrics::RouterMetrics;
use crate::server_process::ServerProcess;
use crate::servers::{ITEMS_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{Bench, read_file, write_file};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The requests in a second, all of which are refused: few, and as many as the load generator can send everywhere.
const RATES: [f64; 2] = [5000.0, 20_000.0];

/// The maximum CPU time of a refusal, in microseconds.
const REFUSAL_US_MAX: f64 = 50.0;

/// The settings of a router with one place and no queue, which holds no refusal. Its subgraphs never respond.
const ONE_PLACE: &str = "admission: {limit: {initial: 1, min: 1, max: 1}, queue: {max_waiting: 0}, \
                         refusals_per_core: 0}\n\
                         traffic: {all: {timeout: 1h}}\nlimits: {time: 1h}\n";

/// The response of the floor, as long as that of a refused request.
const REFUSAL: &str = r#"{"data":{"message":"the router is overloaded: try again in 3 s","code":"OVERLOADED","after":3}}"#;

/// The deadline until the place is taken.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    // The kernel accepts connections; nothing reads them.
    let hanging = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no port: {error}"))?;
    let address = hanging.local_addr().map_err(|error| format!("no port: {error}"))?;
    let folder = bench.scratch_folder("overload")?;
    let (config, supergraph) = (folder.join("one-place.yaml"), folder.join("hanging.graphql"));
    write_file(&config, ONE_PLACE)?;
    let text = read_file(&bench.file("benches/items/supergraph.graphql"))?;
    let text = replace_subgraph_urls(&text, &ITEMS_SUBGRAPHS, address);
    write_file(&supergraph, &text)?;
    let router = bench.start_starling(&config, &supergraph)?;
    let operation = bench.file("benches/items/operation.graphql");
    let _held = take_place(&router, &read_file(&operation)?)?;

    let runs_of = |server: &ServerProcess, what: &str| -> Result<Vec<Value>, Failure> {
        RATES.into_iter().map(|rate| run(bench, server, what, rate, &operation)).collect()
    };
    let refusals = runs_of(&router, "refusals")?;
    let admitted: f64 = refusals.iter().map(|run| count(run, "admitted")).sum();
    if admitted > 0.0 {
        return Err(format!("{admitted} requests were admitted, although the place was taken"));
    }
    drop(router);
    // The floor sends as much, so its CPU time is that of the kernel and of reading and writing.
    let response = folder.join("refusal.json");
    write_file(&response, REFUSAL)?;
    let floor = runs_of(&bench.start_floor(&response)?, "floor")?;
    println!("| | responses/s | CPU, cores | CPU per response, µs |\n|---|---|---|---|");
    for (name, run) in
        refusals.iter().map(|run| ("refusals", run)).chain(floor.iter().map(|run| ("floor", run)))
    {
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} |",
            responses(run) / f64::from(bench.seconds),
            cores(run),
            cpu_us(run, bench.seconds)
        );
    }
    let found = refusals.last().map_or(f64::NAN, |run| cpu_us(run, bench.seconds));
    bounds.check("CPU per refusal of a busy router", found, Bound::AtMost(REFUSAL_US_MAX), " µs");
    Ok([refusals, floor].concat())
}

/// Sends this many requests in a second.
fn run(
    bench: &Bench,
    server: &ServerProcess,
    what: &str,
    rate: f64,
    operation: &Path,
) -> Result<Value, Failure> {
    let extra = ["--operation", &operation.display().to_string()];
    let arguments = surge_arguments(bench, SurgeLoad::Constant(rate), &extra)?;
    bench.run_surge(server, &format!("{what}, {rate}/s"), &arguments)
}

/// Returns how many responses of the whole run were of a kind.
fn count(run: &Value, what: &str) -> f64 {
    let intervals = run["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    intervals.iter().map(|interval| number(&interval["counts"][what])).sum()
}

fn responses(run: &Value) -> f64 {
    count(run, "refused") + count(run, "admitted")
}

fn cores(run: &Value) -> f64 {
    run["server"]["cores"].as_f64().unwrap_or(f64::NAN)
}

/// Returns the CPU time of a response in microseconds.
fn cpu_us(run: &Value, seconds: u32) -> f64 {
    cores(run) * f64::from(seconds) * 1e6 / responses(run)
}

/// Sends a request that never ends, and waits until the router has admitted it.
fn take_place(router: &ServerProcess, operation: &str) -> Result<TcpStream, Failure> {
    let cannot = |error| format!("cannot take the router's place: {error}");
    let body = json!({ "query": operation }).to_string();
    let mut stream = TcpStream::connect(router.address).map_err(cannot)?;
    write!(
        stream,
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        router.path,
        router.address,
        body.len()
    )
    .map_err(cannot)?;
    let deadline = Instant::now() + TAKEN_TIMEOUT;
    while RouterMetrics::fetch(router)?.sum("starling_admission_requests") != Some(1.0) {
        if Instant::now() > deadline {
            return Err("the router did not admit the request that takes its place".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(stream)
}
