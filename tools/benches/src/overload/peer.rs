//! `peer`: Starling and another federation router under the same loads, each in proportion to what that router can do,
//! in one picture. It compares them. Whether Starling keeps its own peak, `multiples` says, with longer loads.

use super::bounds::{Bound, Bounds};
use super::doubling::rising;
use super::greedy_client::{FAIR, GREED, surge_of_clients};
use super::hanging_subgraph::{HangingStage, independent_class};
use super::stage::{
    ADMITTING, OverloadStage, SurgeLoad, goodput, p99_ms, print_head, print_row, share_of_peak,
};
use crate::load_generator::LoadRun;
use crate::reports::number;
use crate::server_process::ServerProcess;
use crate::servers::ITEMS_SUBGRAPHS;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use test_kit::commands::Failure;

/// The other router: a folder in `benches/routers`, unless `--router` names another one.
const PEER_DEFAULT: &str = "hive-gateway";

/// The router that is measured if `--router` is not given.
const OWN: &str = "starling";

/// The offered load, as multiples of the capacity of the router that gets it.
const MULTIPLES: [u32; 4] = [1, 2, 3, 10];

/// The connections of the closed loop, of which the highest rate counts: with few, the slow mocks are the limit, and
/// with many, a slow router finishes nothing within a short run.
const CLOSED_CONNECTIONS: [u32; 4] = [16, 64, 256, 1024];

/// The connections with which a router is warmed up before a surge: routers with a compiler at run time need it.
const WARM_UP_CONNECTIONS: u32 = 16;

/// The maximum seconds in which a peak is measured between two loads.
const PEAK_SECONDS: u32 = 8;

/// The minimum goodput of Starling, as a multiple of that of the other router under the same load.
const GOODPUT_FACTOR_MIN: f64 = 1.0;

/// A router, and how it is started.
#[derive(Clone, Copy)]
enum Contender<'a> {
    Own,
    /// The router of this benchmark, with its own defaults.
    Other(&'a Bench),
}

/// The highest rate in the closed loop, and the number of connections at which it was found.
#[derive(Debug, Clone, Copy)]
struct Peak {
    rate: f64,
    connections: u32,
}

/// The runs of one router.
struct Measured {
    name: String,
    /// The runs of all loads, with the names of the loads and the capacity that was measured around each.
    runs: Vec<Value>,
}

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let hanging = HangingStage::start(bench)?;
    let peer = if bench.router == OWN { PEER_DEFAULT } else { &bench.router };
    let peer_bench = bench.with_router(peer);
    let own = measure_router(&stage, &hanging, Contender::Own)?;
    let other = measure_router(&stage, &hanging, Contender::Other(&peer_bench))?;
    for (run, of_other) in own.runs.iter().zip(&other.runs) {
        let share = |run: &Value| share_of_peak(run, number(&run["capacity"]), bench.seconds);
        let what = format!(
            "{}: goodput of {OWN}, as a multiple of that of {}; shares of their peaks: {:.1} and {:.1} %",
            run["name"].as_str().unwrap_or("?"),
            other.name,
            share(run),
            share(of_other)
        );
        let [own_good, other_good] =
            [run, of_other].map(|it| goodput(&it["totals"], bench.seconds));
        bounds.check(what, own_good / other_good, Bound::AtLeast(GOODPUT_FACTOR_MIN), "");
    }
    draw(bench, [&own, &other])?;
    let runs = [own, other].into_iter().flat_map(|Measured { name, runs, .. }| {
        runs.into_iter().map(move |run| {
            let load = run["name"].as_str().unwrap_or("?").to_owned();
            named(run, &format!("{name} {load}"))
        })
    });
    Ok(runs.collect())
}

impl Contender<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Own => OWN,
            Self::Other(bench) => &bench.router,
        }
    }

    /// Starts the router with the graph of items and these settings, which only Starling has, and warms it up.
    fn start(self, stage: &OverloadStage<'_>, settings: &str) -> Result<ServerProcess, Failure> {
        let router = match self {
            Self::Own => stage.start_router(settings),
            Self::Other(bench) => {
                let graph = bench.file("benches/items/supergraph.graphql");
                bench.start_router(&graph, &ITEMS_SUBGRAPHS, stage.mock.address, &stage.operation)
            }
        }?;
        run_closed_loop(stage.bench, &router, &stage.operation, WARM_UP_CONNECTIONS)?;
        Ok(router)
    }

    /// Starts the router with the graph of which a subgraph will hang, and warms it up.
    fn start_for_hanging(
        self,
        stage: &HangingStage<'_>,
        bench: &Bench,
        settings: &str,
    ) -> Result<ServerProcess, Failure> {
        let router = match self {
            Self::Own => stage.start_router(settings),
            Self::Other(bench) => stage.start_router_of(bench),
        }?;
        run_closed_loop(bench, &router, &stage.independent(), WARM_UP_CONNECTIONS)?;
        Ok(router)
    }
}

/// Measures the capacity of a router, and sends it all loads in proportion to that. Each load meets a router that has
/// just started, so that none has to work off what an earlier one has left.
fn measure_router(
    stage: &OverloadStage<'_>,
    hanging: &HangingStage<'_>,
    router: Contender<'_>,
) -> Result<Measured, Failure> {
    let bench = stage.bench;
    let name = router.name();
    let peak = find_peak(bench, &router.start(stage, ADMITTING)?, &stage.operation)?;
    let capacity = peak.rate;
    println!("capacity of {name} in the closed loop: {capacity:.0} responses/s\n");
    print_head();
    let mut runs = Vec::new();
    let between = bench.within_seconds(PEAK_SECONDS);
    let mut before = capacity;
    for multiple in MULTIPLES {
        let load = SurgeLoad::Constant(capacity * f64::from(multiple));
        let run = stage.run_surge(&router.start(stage, "")?, &format!("{multiple}x"), load, &[])?;
        print_row(&format!("{name} {multiple}x"), &run, bench.seconds);
        let admitting = router.start(stage, ADMITTING)?;
        let after = run_closed_loop(&between, &admitting, &stage.operation, peak.connections)?;
        let after = number(&after["answers_per_second"]);
        runs.push(with_capacity(run, (before + after) / 2.0));
        before = after;
    }
    let (load, repeating) = rising(capacity);
    let run = stage.run_surge(&router.start(stage, "")?, "doubling", load, &repeating)?;
    print_row(&format!("{name} doubling"), &run, bench.seconds);
    runs.push(with_capacity(run, before));
    let greedy = router.start(stage, FAIR)?;
    let greedy_name = format!("{name} greedy");
    let [others, _] = surge_of_clients(stage, bench, &greedy, capacity, &greedy_name, GREED)?;
    runs.push(with_capacity(named(others, "greedy"), before));
    drop(greedy);
    let independent = hanging.independent();
    let peak = {
        let admitting = router.start_for_hanging(hanging, bench, ADMITTING)?;
        find_peak(bench, &admitting, &independent)?
    };
    let router = router.start_for_hanging(hanging, bench, "")?;
    let run =
        hanging.surge_while_one_hangs(bench, &router, peak.rate, &format!("{name} hanging"))?;
    runs.push(with_capacity(independent_run(&run)?, peak.rate));
    println!();
    let name = name.to_owned();
    Ok(Measured { name, runs })
}

/// Returns a run as if only the operations that do not need the hanging subgraph had been sent.
fn independent_run(run: &Value) -> Result<Value, Failure> {
    let class = independent_class(run)?;
    let mut independent = named(run.clone(), "hanging");
    independent["totals"] = class["counts"].clone();
    independent["latency"] = class["latency"].clone();
    // These are of all operations.
    independent["intervals"] = json!([]);
    Ok(independent)
}

/// Returns a run with the capacity of its router.
fn with_capacity(mut run: Value, capacity: f64) -> Value {
    run["capacity"] = capacity.into();
    run
}

/// Returns a run with another name.
fn named(mut run: Value, name: &str) -> Value {
    run["name"] = name.into();
    run
}

/// Finds the highest number of responses in a second in the closed loop.
fn find_peak(bench: &Bench, router: &ServerProcess, operation: &Path) -> Result<Peak, Failure> {
    let mut highest = Peak { rate: 0.0, connections: 0 };
    for connections in CLOSED_CONNECTIONS {
        let run = run_closed_loop(bench, router, operation, connections)?;
        let rate = number(&run["answers_per_second"]);
        if run["failed"] == 0 && rate > highest.rate {
            highest = Peak { rate, connections };
        }
    }
    match highest.rate < 1.0 {
        true => Err("the capacity cannot be measured: no correct responses".to_owned()),
        false => Ok(highest),
    }
}

fn run_closed_loop(
    bench: &Bench,
    router: &ServerProcess,
    operation: &Path,
    connections: u32,
) -> Result<Value, Failure> {
    let load =
        LoadRun { name: "capacity", operation: Some(operation), connections, extra: Vec::new() };
    bench.run_query_load(router, &load)
}

/// Draws the runs of both routers.
fn draw(bench: &Bench, measured: [&Measured; 2]) -> Result<(), Failure> {
    let folder = bench.scratch_folder("overload")?;
    let svg = bench.reports.join("overload-peer.svg");
    let mut files: Vec<PathBuf> = Vec::new();
    for Measured { name, runs } in measured {
        let p99: Vec<f64> = runs.iter().map(p99_ms).collect();
        println!("{name}: p99 {p99:.1?} ms");
        let file = folder.join(format!("{name}.json"));
        write_file(&file, &json!(runs).to_string())?;
        files.push(file);
    }
    let title = format!("{} and {} above their capacity", measured[0].name, measured[1].name);
    let mut command = Command::new(&bench.tool);
    command.args(["bench", "report", "--title", &title, "--svg"]).arg(&svg).args(&files);
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {
            println!("\n{}", svg.display());
            Ok(())
        }
        _ => Err("cannot draw the picture of both routers".to_owned()),
    }
}
