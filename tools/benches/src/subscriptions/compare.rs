//! Comparisons in turn: the floor with the router; the router with and without clients that never read.

use super::stage::{CLIENTS, ClientSettings, Stage};
use crate::reports::{check_run, number, verdict};
use crate::statistics::Samples;
use serde_json::Value;
use test_kit::commands::Failure;

/// The maximum CPU time of the router for a result, as a multiple of the floor's.
const CPU_MAX: f64 = 1.25;

/// The maximum 99th percentile of the router's latency, as a multiple of the floor's.
const P99_MAX: f64 = 2.0;

/// The maximum relative change of the 99th percentile of reading clients that clients that never read may cause.
const P99_CHANGE_MAX: f64 = 0.2;

/// The inverse share of clients that never read: 1,000 of 10,000.
const CLIENTS_PER_NEVER_READER: u32 = 10;

/// The measurements of one side of a comparison.
#[derive(Default)]
pub(super) struct SideSamples {
    cpu_us: Samples,
    p50_ms: Samples,
    p99_ms: Samples,
    peak_mib: Samples,
    generator_us: Samples,
}

impl SideSamples {
    pub(super) fn add(&mut self, run: &Value) {
        self.cpu_us.push(number(&run["server"]["cpu_us_per_delivery"]));
        self.p50_ms.push(number(&run["latency"]["p50_us"]) / 1e3);
        self.p99_ms.push(number(&run["latency"]["p99_us"]) / 1e3);
        self.peak_mib.push(number(&run["server"]["resident_peak_mib"]));
        self.generator_us.push(number(&run["generator"]["cpu_us_per_delivery"]));
    }

    fn print(&self, name: &str) {
        println!(
            "| {name} | {} | {} | {} | {:.1} | {:.1} |",
            self.cpu_us.format_with_range(2),
            self.p50_ms.format_with_range(1),
            self.p99_ms.format_with_range(1),
            self.peak_mib.max(),
            self.generator_us.median(),
        );
    }
}

const HEAD: &str = "| | CPU per result, µs | p50, ms | p99, ms | peak memory, MiB | generator, µs |\n\
                    |---|---|---|---|---|---|";

/// Compares floor and router, which send the same messages to the same clients.
pub(crate) fn compare_with_floor(stage: &Stage<'_>, query: &str) -> Result<Vec<Value>, Failure> {
    let (seconds, count) = (stage.seconds(), stage.bench.clients.unwrap_or(CLIENTS));
    let extra = ["--events", &seconds, "--rate", "1"];
    let clients = |name| ClientSettings { name, count, query, extra: &extra };
    let mock = stage.start_mock(0)?;
    // The floor's message is taken from a first run of the router.
    let first = ClientSettings { count: 10, ..clients("first") };
    let router = stage.start_router(Some(&mock), "")?;
    let message = stage.run_clients(&router, &first)?;
    check_run(&message)?;
    let message = message["message"].as_str().unwrap_or_default().to_owned();
    drop(router);
    let (mut runs, mut floor_side, mut router_side) =
        (Vec::new(), SideSamples::default(), SideSamples::default());
    for _ in 0..stage.bench.pairs {
        for (name, side) in [("floor", &mut floor_side), ("router", &mut router_side)] {
            // A fresh process for each run, so that the state left by one run does not affect the next.
            let server = match name {
                "floor" => {
                    stage.bench.start_broadcast_floor(&message, stage.nats.address, "tick")?
                }
                _ => stage.start_router(Some(&mock), "")?,
            };
            let run = stage.run_clients(&server, &clients(name))?;
            check_run(&run)?;
            print_run(name, &run);
            side.add(&run);
            runs.push(run);
        }
    }
    println!("\n{count} clients, {seconds} events, one a second.");
    print_comparison(stage.bench.pairs, &floor_side, &router_side, CPU_MAX);
    Ok(runs)
}

/// Prints the measurements of floor and router, and whether the router meets its targets. `cpu_max` is the maximum CPU
/// time of the router for a result, as a multiple of the floor's.
pub(super) fn print_comparison(
    pairs: u32,
    floor: &SideSamples,
    router: &SideSamples,
    cpu_max: f64,
) {
    println!("\nMedian (smallest–largest) of {pairs} pairs.\n\n{HEAD}");
    floor.print("floor");
    router.print("router");
    let cpu = router.cpu_us.median() / floor.cpu_us.median();
    let p99 = router.p99_ms.median() / floor.p99_ms.median();
    println!("\n| times the floor | | at most | met |\n|---|---|---|---|");
    println!("| CPU per result | {cpu:.2} | {cpu_max} | {} |", verdict(cpu <= cpu_max));
    println!("| p99 | {p99:.2} | {P99_MAX} | {} |", verdict(p99 <= P99_MAX));
}

/// Prints the main figures of a run.
pub(super) fn print_run(name: &str, run: &Value) {
    println!(
        "{name}: {:.2} µs, p99 {:.1} ms",
        number(&run["server"]["cpu_us_per_delivery"]),
        number(&run["latency"]["p99_us"]) / 1e3
    );
}

/// Measures clients that never read, and the latency of others, which must not change.
pub(crate) fn compare_with_never_readers(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let query = "subscription { tick { id note } }";
    let event = r#"{"__typename":"Tick","id":"$T","note":"$P"}"#;
    // The rate is low enough that a slower machine has half a core left: otherwise the work of closing 1,000 clients
    // at one event would delay the events behind it. The events are more than any client's queue can hold.
    let common = ["--event", event, "--padding", "4096", "--events", "300", "--rate", "5"];
    let all = stage.bench.clients.unwrap_or(CLIENTS);
    let never = all / CLIENTS_PER_NEVER_READER;
    let share = format!("{:.6}", f64::from(never) / f64::from(all));
    let slow_arguments =
        [&common[..], &["--scenario", "slow-consumers", "--slow", &share]].concat();
    let without = ClientSettings { name: "all read", count: all - never, query, extra: &common };
    let with =
        ClientSettings { name: "some never read", count: all, query, extra: &slow_arguments };
    let (mut runs, mut without_side, mut with_side) =
        (Vec::new(), SideSamples::default(), SideSamples::default());
    let mut met = Samples::default();
    for _ in 0..stage.bench.pairs {
        for (clients, side) in [(&without, &mut without_side), (&with, &mut with_side)] {
            let router = stage.start_router(None, "")?;
            let run = stage.run_clients(&router, clients)?;
            check_run(&run)?;
            side.add(&run);
            if let Some(slow) = run["slow"].as_object() {
                met.push(number(&slow["met_policy"]));
                println!("{} of those that never read met their policy", slow["met_policy"]);
            }
            runs.push(run);
        }
    }
    println!("\nMedian (smallest–largest) of {} pairs.\n\n{HEAD}", stage.bench.pairs);
    without_side.print(without.name);
    with_side.print(with.name);
    let change = with_side.p99_ms.median() / without_side.p99_ms.median() - 1.0;
    println!("\n| | | to be | met |\n|---|---|---|---|");
    println!(
        "| change of p99 of the others | {:+.0} % | less than {:.0} % | {} |",
        change * 100.0,
        P99_CHANGE_MAX * 100.0,
        verdict(change.abs() < P99_CHANGE_MAX)
    );
    let least = met.min();
    println!(
        "| met their policy, in the worst run | {least} | {never} | {} |",
        verdict(least >= f64::from(never))
    );
    Ok(runs)
}
