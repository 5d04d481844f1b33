//! `hanging-subgraph`: one subgraph of four stops responding while operations with and without it are sent.
//!
//! At a router that runs, the subgraph responds and hangs in turn, in pieces of the load. Then it hangs while a router
//! starts, to which it has never responded.

use super::bounds::{Bound, Bounds};
use super::pieces::{Rises, pieces_of};
use super::stage::{
    FROM_THE_START, LATENCY, SurgeLoad, UNPROTECTED, UNSHARED, class, goodput, measure_capacity,
    print_capacity, print_head, print_row, surge_arguments,
};
use crate::http_connection::HttpConnection;
use crate::server_process::ServerProcess;
use crate::servers::replace_subgraph_urls;
use crate::setup::{Bench, read_file, write_file};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The subgraph that hangs, and the others.
const HANGING: &str = "inventory";
const OTHERS: [&str; 3] = ["accounts", "products", "reviews"];

/// The operations that do not need it, and those that do, with their weights.
const INDEPENDENT: (&str, &str, u32) =
    ("independent", "{ topProducts { upc name price reviews { id body } } }", 9);
const DEPENDENT: (&str, &str, u32) = ("dependent", "{ topProducts { upc name inStock } }", 1);

/// The load, as a part of the capacity for operations that do not need the subgraph.
const LOAD_SHARE: f64 = 0.5;

/// The seconds of the load before the first piece, in which the router plans and finds its limit.
const WARM_UP_SECONDS: u32 = 5;

/// The minimum rate of these operations, in percent of that before, and the maximum rise of their p99.
const RATE_PERCENT_MIN: f64 = 95.0;
const RISE_PERCENT_MAX: f64 = 20.0;

/// The time in which a router must use the subgraph again, and the time between two looks.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
const RECOVERY_POLL: Duration = Duration::from_millis(100);

/// A mock that can be stopped, which continues when this is dropped so that it can be ended.
struct StoppedProcess<'a>(&'a ServerProcess);

impl<'a> StoppedProcess<'a> {
    fn stop(server: &'a ServerProcess) -> Result<Self, Failure> {
        send_signal(server, "STOP")?;
        Ok(Self(server))
    }
}

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        // A stopped process can be killed as well, so nothing depends on this.
        let _ = send_signal(self.0, "CONT");
    }
}

fn send_signal(server: &ServerProcess, signal: &str) -> Result<(), Failure> {
    let status = Command::new("kill").args(["-s", signal, &server.pid().to_string()]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("cannot send the signal {signal} to a mock")),
    }
}

/// The graph of the federation benchmark, with the mocks of its subgraphs, and the mix of operations.
pub(super) struct HangingStage<'a> {
    bench: &'a Bench,
    /// The mock of the subgraphs that respond.
    mock: ServerProcess,
    hanging: ServerProcess,
    /// The graph, in which only the address of the hanging subgraph is set.
    supergraph: PathBuf,
    folder: PathBuf,
    mix: PathBuf,
}

impl<'a> HangingStage<'a> {
    /// Starts the mocks.
    pub(super) fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let graph = bench.file("fixtures/federation-benchmark/supergraph.graphql");
        let latency = ["--latency", LATENCY];
        let (mock, hanging) =
            (bench.start_mock_with(&graph, &latency)?, bench.start_mock_with(&graph, &latency)?);
        let folder = bench.scratch_folder("overload")?;
        let supergraph = folder.join("hanging-subgraph-only.graphql");
        let text = replace_subgraph_urls(&read_file(&graph)?, &[HANGING], hanging.address);
        write_file(&supergraph, &text)?;
        let mut entries = Vec::new();
        for (name, text, weight) in [INDEPENDENT, DEPENDENT] {
            let operation = format!("{name}.graphql");
            write_file(&folder.join(&operation), text)?;
            entries.push(json!({"name": name, "weight": weight, "operation": operation}));
        }
        let mix = folder.join("dependencies.json");
        write_file(&mix, &json!({ "operations": entries }).to_string())?;
        Ok(Self { bench, mock, hanging, supergraph, folder, mix })
    }

    /// The operation that does not need the hanging subgraph.
    pub(super) fn independent(&self) -> PathBuf {
        self.folder.join(format!("{}.graphql", INDEPENDENT.0))
    }

    /// Starts Starling with further settings.
    pub(super) fn start_router(&self, settings: &str) -> Result<ServerProcess, Failure> {
        let config = self.folder.join("hanging-subgraph.yaml");
        write_file(&config, &format!("{UNSHARED}{settings}"))?;
        let supergraph = self.folder.join("hanging-subgraph.graphql");
        let text = replace_subgraph_urls(&read_file(&self.supergraph)?, &OTHERS, self.mock.address);
        write_file(&supergraph, &text)?;
        self.bench.start_starling(&config, &supergraph)
    }

    /// Starts the router of a benchmark.
    pub(super) fn start_router_of(&self, bench: &Bench) -> Result<ServerProcess, Failure> {
        bench.start_router(&self.supergraph, &OTHERS, self.mock.address, &self.independent())
    }

    /// Sends half of the capacity, and prints a row for each class. The first seconds count: in them the load opens its
    /// connections, and the router notices that a subgraph hangs.
    pub(super) fn surge(
        &self,
        bench: &Bench,
        router: &ServerProcess,
        capacity: f64,
        name: &str,
    ) -> Result<Value, Failure> {
        let load = SurgeLoad::Constant(capacity * LOAD_SHARE);
        let mix = self.mix.display().to_string();
        let extra = [&["--mix", &mix][..], &FROM_THE_START].concat();
        let arguments = surge_arguments(bench, load, &extra)?;
        let run = bench.run_surge(router, name, &arguments)?;
        for (class_name, ..) in [INDEPENDENT, DEPENDENT] {
            let row = format!("{name}: {class_name}");
            print_row(&row, class(&run, class_name)?, bench.seconds);
        }
        Ok(run)
    }

    /// The same while the subgraph hangs. A router that has just started also opens its connections to subgraphs and
    /// plans its operations in the first seconds.
    pub(super) fn surge_while_one_hangs(
        &self,
        bench: &Bench,
        router: &ServerProcess,
        capacity: f64,
        name: &str,
    ) -> Result<Value, Failure> {
        let _stopped = StoppedProcess::stop(&self.hanging)?;
        self.surge(bench, router, capacity, name)
    }

    /// Waits until the router sends requests to the subgraph that has hung again, and gets responses.
    fn wait_until_all_respond(&self, router: &ServerProcess) -> Result<(), Failure> {
        let body = json!({ "query": DEPENDENT.1 }).to_string();
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        let mut connection = HttpConnection::new(router.address);
        loop {
            let response = connection.post(&router.path, &body)?;
            if response.status == 200 && !response.body.contains("\"errors\"") {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the router does not use a subgraph again: {}", response.body));
            }
            std::thread::sleep(RECOVERY_POLL);
        }
    }
}

/// Returns what a run says about the operations that do not need the subgraph.
pub(super) fn independent_class(run: &Value) -> Result<&Value, Failure> {
    class(run, INDEPENDENT.0)
}

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = HangingStage::start(bench)?;
    let unprotected = stage.start_router(UNPROTECTED)?;
    let (capacity, closed) = measure_capacity(bench, &unprotected, &stage.independent())?;
    print_capacity(capacity, &closed);
    drop(unprotected);
    let router = stage.start_router("")?;
    print_head();
    let warm_up = bench.within_seconds(WARM_UP_SECONDS);
    stage.surge(&warm_up, &router, capacity, "warm-up")?;
    let (mut runs, mut rises) = (vec![closed], Rises::default());
    let (mut rates_before, mut rates_during) = (Vec::new(), Vec::new());
    for (number, piece) in pieces_of(bench) {
        stage.wait_until_all_respond(&router)?;
        let name = format!("all respond, piece {number}");
        let before = stage.surge(&piece, &router, capacity, &name)?;
        let name = format!("one hangs, piece {number}");
        let during = stage.surge_while_one_hangs(&piece, &router, capacity, &name)?;
        rises.add(&[independent_class(&before)?], independent_class(&during)?);
        rates_before.push(independent_rate(&before, &piece)?);
        rates_during.push(independent_rate(&during, &piece)?);
        runs.extend([before, during]);
    }
    drop(router);
    let new = stage.start_router("")?;
    let name = "one hangs from the start";
    let from_the_start = stage.surge_while_one_hangs(bench, &new, capacity, name)?;
    let usual = mean(&rates_before);
    for (what, rate) in [
        ("rate of operations that do not need the subgraph, of that before", mean(&rates_during)),
        (
            "the same of a router that starts while the subgraph hangs",
            independent_rate(&from_the_start, bench)?,
        ),
    ] {
        bounds.check(what, 100.0 * rate / usual, Bound::AtLeast(RATE_PERCENT_MIN), " %");
    }
    rises.check("their p99", RISE_PERCENT_MAX, bounds);
    runs.push(from_the_start);
    Ok(runs)
}

/// Returns the rate of good responses to operations that do not need the subgraph.
fn independent_rate(run: &Value, bench: &Bench) -> Result<f64, Failure> {
    Ok(goodput(&independent_class(run)?["counts"], bench.seconds))
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}
