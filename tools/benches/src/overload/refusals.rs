//! `refusals`: the CPU time of a refused request, at a router with one place that is taken, beside that of the floor.

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
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The requests in a second, all of which are refused: a rate that the load generator reaches easily.
const RATE: f64 = 5000.0;

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

    let extra = ["--operation", &operation.display().to_string()];
    let arguments = surge_arguments(bench, SurgeLoad::Constant(RATE), &extra)?;
    let run = bench.run_surge(&router, "refusals", &arguments)?;
    let intervals = run["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |what: &str| -> f64 {
        intervals.iter().map(|interval| number(&interval["counts"][what])).sum()
    };
    let (refused, admitted) = (sum("refused"), sum("admitted"));
    if admitted > 0.0 {
        return Err(format!("{admitted} requests were admitted, although the place was taken"));
    }
    drop(router);
    // The floor sends as much, so its CPU time is that of the kernel and of reading and writing.
    let response = folder.join("refusal.json");
    write_file(&response, REFUSAL)?;
    let floor = bench.start_floor(&response)?;
    let floor_run = bench.run_surge(&floor, "floor", &arguments)?;
    let cores = |run: &Value| run["server"]["cores"].as_f64().unwrap_or(f64::NAN);
    let cpu_us =
        |run: &Value, responses: f64| cores(run) * f64::from(bench.seconds) * 1e6 / responses;
    let floor_responses = number(&floor_run["totals"]["admitted"]);
    println!("| | responses/s | CPU, cores | CPU per response, µs |\n|---|---|---|---|");
    for (name, run, responses) in
        [("refusals", &run, refused), ("floor", &floor_run, floor_responses)]
    {
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} |",
            responses / f64::from(bench.seconds),
            cores(run),
            cpu_us(run, responses)
        );
    }
    let found = cpu_us(&run, refused);
    bounds.check("CPU per refusal", found, Bound::AtMost(REFUSAL_US_MAX), " µs");
    Ok(vec![run, floor_run])
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
