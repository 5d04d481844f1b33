//! `peer`: Starling and another federation router under the same multiples of what each of them can do, in one picture.

use super::bounds::{Bound, Bounds};
use super::stage::{
    ADMITTING, OverloadStage, SurgeLoad, p99_ms, peak_goodput, print_head, print_row,
    share_of_peak, surge_arguments,
};
use crate::load_generator::LoadRun;
use crate::reports::number;
use crate::server_process::ServerProcess;
use crate::servers::ITEMS_SUBGRAPHS;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use std::path::PathBuf;
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

/// The minimum goodput of Starling, in percent of its highest one.
const GOODPUT_PERCENT_MIN: f64 = 95.0;

/// A router, and the ways to start it.
struct Contender<'a> {
    name: &'a str,
    start: &'a dyn Fn() -> Result<ServerProcess, Failure>,
    /// The router with which the capacity is measured: it refuses nothing.
    start_admitting: &'a dyn Fn() -> Result<ServerProcess, Failure>,
}

/// The runs of one router.
struct Measured {
    name: String,
    capacity: f64,
    runs: Vec<Value>,
}

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let peer = if bench.router == OWN { PEER_DEFAULT } else { &bench.router };
    let peer_bench = bench.with_router(peer);
    let own = Contender {
        name: OWN,
        start: &|| stage.start_router(""),
        start_admitting: &|| stage.start_router(ADMITTING),
    };
    let start_peer = || {
        let graph = bench.file("benches/items/supergraph.graphql");
        peer_bench.start_router(&graph, &ITEMS_SUBGRAPHS, stage.mock.address, &stage.operation)
    };
    let other = Contender { name: peer, start: &start_peer, start_admitting: &start_peer };
    let (own, other) = (measure_router(&stage, &own)?, measure_router(&stage, &other)?);
    let seconds = bench.seconds;
    let [own_peak, other_peak] =
        [&own, &other].map(|router| peak_goodput(router.capacity, &router.runs, seconds));
    for ((run, others), multiple) in own.runs.iter().zip(&other.runs).zip(MULTIPLES) {
        let share = share_of_peak(run, own_peak, seconds);
        let what = format!(
            "{multiple}x: goodput of {OWN}, share of its peak ({}: {:.1} %)",
            other.name,
            share_of_peak(others, other_peak, seconds)
        );
        bounds.check(what, share, Bound::AtLeast(GOODPUT_PERCENT_MIN), " %");
    }
    draw(bench, [&own, &other])?;
    let runs = [own, other].into_iter().flat_map(|Measured { name, runs, .. }| {
        runs.into_iter().map(move |mut run| {
            run["name"] = format!("{name} {}", run["name"].as_str().unwrap_or("?")).into();
            run
        })
    });
    Ok(runs.collect())
}

/// Measures the capacity of a router, and sends it multiples of that. Each load meets a router that has just started,
/// so that none has to work off what an earlier one has left.
fn measure_router(
    stage: &OverloadStage<'_>,
    contender: &Contender<'_>,
) -> Result<Measured, Failure> {
    let bench = stage.bench;
    let name = contender.name;
    let capacity = closed_loop_capacity(stage, &(contender.start_admitting)()?)?;
    println!("capacity of {name} in the closed loop: {capacity:.0} responses/s\n");
    print_head();
    let mut runs = Vec::new();
    for multiple in MULTIPLES {
        let router = (contender.start)()?;
        run_closed_loop(stage, &router, WARM_UP_CONNECTIONS)?;
        let operation = stage.operation.display().to_string();
        let load = SurgeLoad::Constant(capacity * f64::from(multiple));
        let arguments = surge_arguments(bench, load, &["--operation", &operation])?;
        let run = bench.run_surge(&router, &format!("{multiple}x"), &arguments)?;
        print_row(&format!("{name} {multiple}x"), &run, bench.seconds);
        runs.push(run);
    }
    println!();
    Ok(Measured { name: name.to_owned(), capacity, runs })
}

/// Returns the highest number of responses in a second in the closed loop.
fn closed_loop_capacity(stage: &OverloadStage<'_>, router: &ServerProcess) -> Result<f64, Failure> {
    run_closed_loop(stage, router, WARM_UP_CONNECTIONS)?;
    let mut highest: f64 = 0.0;
    for connections in CLOSED_CONNECTIONS {
        let run = run_closed_loop(stage, router, connections)?;
        if run["failed"] == 0 {
            highest = highest.max(number(&run["answers_per_second"]));
        }
    }
    match highest < 1.0 {
        true => Err("the capacity cannot be measured: no correct responses".to_owned()),
        false => Ok(highest),
    }
}

fn run_closed_loop(
    stage: &OverloadStage<'_>,
    router: &ServerProcess,
    connections: u32,
) -> Result<Value, Failure> {
    let load = LoadRun {
        name: "capacity",
        operation: Some(&stage.operation),
        connections,
        extra: Vec::new(),
    };
    stage.bench.run_query_load(router, &load)
}

/// Draws the runs of both routers.
fn draw(bench: &Bench, measured: [&Measured; 2]) -> Result<(), Failure> {
    let folder = bench.scratch_folder("overload")?;
    let svg = bench.reports.join("overload-peer.svg");
    let mut files: Vec<PathBuf> = Vec::new();
    for Measured { name, runs, capacity } in measured {
        let p99: Vec<f64> = runs.iter().map(p99_ms).collect();
        println!("{name}: {capacity:.0}/s, p99 {p99:.1?} ms");
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
