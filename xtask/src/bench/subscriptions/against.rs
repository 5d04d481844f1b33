//! Two of a kind in turn: the floor and the router; the router with and without clients that never read.

use super::{CLIENTS, Clients, Stage, check, number, verdict};
use crate::Failure;
use crate::bench::statistics::Sample;
use serde_json::Value;

/// The most CPU time of the router for a result, in that of the floor.
const CPU_MAX: f64 = 1.25;

/// The same of the 99th percentile of the latency.
const P99_MAX: f64 = 2.0;

/// How much the 99th percentile of the others may change because some never read.
const P99_CHANGE_MAX: f64 = 0.2;

/// One of so many clients never reads: 1,000 of 10,000.
const NEVER_READERS_SHARE: u32 = 10;

/// What one side showed.
#[derive(Default)]
struct Side {
    cpu_us: Sample,
    p50_ms: Sample,
    p99_ms: Sample,
    peak_mib: Sample,
    generator_us: Sample,
}

impl Side {
    fn add(&mut self, run: &Value) {
        self.cpu_us.push(number(&run["server"]["cpu_us_per_delivery"]));
        self.p50_ms.push(number(&run["latency"]["p50_us"]) / 1e3);
        self.p99_ms.push(number(&run["latency"]["p99_us"]) / 1e3);
        self.peak_mib.push(number(&run["server"]["resident_peak_mib"]));
        self.generator_us.push(number(&run["generator"]["cpu_us_per_delivery"]));
    }

    fn print(&self, name: &str) {
        println!(
            "| {name} | {} | {} | {} | {:.1} | {:.1} |",
            self.cpu_us.show(2),
            self.p50_ms.show(1),
            self.p99_ms.show(1),
            self.peak_mib.max(),
            self.generator_us.median(),
        );
    }
}

const HEAD: &str = "| | CPU per result, µs | p50, ms | p99, ms | most memory, MiB | generator, µs |\n\
                    |---|---|---|---|---|---|";

/// Floor and router send the same messages to the same clients.
pub(super) fn floor(stage: &Stage<'_>, query: &str) -> Result<Vec<Value>, Failure> {
    let (seconds, count) = (stage.seconds(), stage.bench.clients.unwrap_or(CLIENTS));
    let extra = ["--events", &seconds, "--rate", "1"];
    let clients = |name| Clients { name, count, query, extra: &extra };
    let mock = stage.mock(0)?;
    // What the floor is to say is learned from the router.
    let first = Clients { count: 10, ..clients("first") };
    let router = stage.router(Some(&mock), "")?;
    let message = stage.clients(&router, &first)?;
    check(&message)?;
    let message = message["message"].as_str().unwrap_or_default().to_owned();
    drop(router);
    let (mut runs, mut of_floor, mut of_router) = (Vec::new(), Side::default(), Side::default());
    for _ in 0..stage.bench.pairs {
        for (name, side) in [("floor", &mut of_floor), ("router", &mut of_router)] {
            // A process of its own each time: what one run leaves behind is not the next one's.
            let server = match name {
                "floor" => {
                    stage.bench.start_broadcast_floor(&message, stage.nats.address, "tick")?
                }
                _ => stage.router(Some(&mock), "")?,
            };
            let run = stage.clients(&server, &clients(name))?;
            check(&run)?;
            println!(
                "{name}: {:.2} µs, p99 {:.1} ms",
                number(&run["server"]["cpu_us_per_delivery"]),
                number(&run["latency"]["p99_us"]) / 1e3
            );
            side.add(&run);
            runs.push(run);
        }
    }
    println!(
        "\n{count} clients, {seconds} events, one a second; median (smallest–largest) of {} pairs.\n\n{HEAD}",
        stage.bench.pairs
    );
    of_floor.print("floor");
    of_router.print("router");
    let cpu = of_router.cpu_us.median() / of_floor.cpu_us.median();
    let p99 = of_router.p99_ms.median() / of_floor.p99_ms.median();
    println!("\n| times the floor | | at most | met |\n|---|---|---|---|");
    println!("| CPU per result | {cpu:.2} | {CPU_MAX} | {} |", verdict(cpu <= CPU_MAX));
    println!("| p99 | {p99:.2} | {P99_MAX} | {} |", verdict(p99 <= P99_MAX));
    Ok(runs)
}

/// Clients that never read, among others whose latency must not change.
pub(super) fn never_readers(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let query = "subscription { tick { id note } }";
    let event = r#"{"__typename":"Tick","id":"$T","note":"$P"}"#;
    // So slow that a slower machine has half a core left, too: what 1,000 clients who go at once take from an event would
    // otherwise be added to the ones behind it. So many that nobody's queue holds them.
    let common = ["--event", event, "--padding", "4096", "--events", "300", "--rate", "5"];
    let all = stage.bench.clients.unwrap_or(CLIENTS);
    let never = all / NEVER_READERS_SHARE;
    let share = format!("{:.6}", f64::from(never) / f64::from(all));
    let slow_words = [&common[..], &["--scenario", "slow-consumers", "--slow", &share]].concat();
    let without = Clients { name: "all read", count: all - never, query, extra: &common };
    let with = Clients { name: "some never read", count: all, query, extra: &slow_words };
    let (mut runs, mut of_without, mut of_with) = (Vec::new(), Side::default(), Side::default());
    let mut met = Sample::default();
    for _ in 0..stage.bench.pairs {
        for (clients, side) in [(&without, &mut of_without), (&with, &mut of_with)] {
            let router = stage.router(None, "")?;
            let run = stage.clients(&router, clients)?;
            check(&run)?;
            side.add(&run);
            if let Some(slow) = run["slow"].as_object() {
                met.push(number(&slow["met_policy"]));
                println!("{} of those that never read met their policy", slow["met_policy"]);
            }
            runs.push(run);
        }
    }
    println!("\nMedian (smallest–largest) of {} pairs.\n\n{HEAD}", stage.bench.pairs);
    of_without.print(without.name);
    of_with.print(with.name);
    let change = of_with.p99_ms.median() / of_without.p99_ms.median() - 1.0;
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
