//! The stage of the measurements of overload: the graph, the router, and the runs of the load generator.

use crate::load_generator::{LoadRun, RunningLoad};
use crate::reports::number;
use crate::server_process::ServerProcess;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use std::path::PathBuf;
use test_kit::commands::Failure;

/// The latency of each subgraph request.
pub(super) const LATENCY: &str = "50ms";

/// The settings that every router of these measurements has: each request does its own work.
pub(super) const UNSHARED: &str = "sharing: {operations: false, subgraph_queries: false}\n";

/// The setting that turns overload protection off, to measure a capacity: the closed loop has more requests in flight
/// than the limit admits in the beginning.
pub(super) const UNPROTECTED: &str = "admission: {enabled: false}\n";

/// The settings with which overload protection does its work for each request and admits all of them, to measure the
/// peak of the goodput: what protection costs is no loss of an overload.
pub(super) const ADMITTING: &str = "admission: {limit: {initial: 20000, min: 20000, max: 20000}}\n";

/// The connections of the load generator in the closed loop: more than requests are in flight at the capacity.
const CAPACITY_CONNECTIONS: u32 = 2000;

/// The maximum number of connections of a surge, and of requests that wait for one. Further ones are never sent: users
/// that find no connection are not served later in place of others. The wait counts as latency, and a router does
/// nothing about it: 100 wait for some 10 ms.
const SURGE_CONNECTIONS: &str = "6000";
const SURGE_WAITING: &str = "100";

/// The time within which a response is of use.
const IN_TIME: &str = "1s";

/// The arguments of a surge in which the first seconds count as well, because they show how soon the router notices
/// something. The router is warm by an earlier surge, unless its start is measured.
pub(super) const FROM_THE_START: [&str; 2] = ["--warmup", "0s"];

/// The warm-up of a surge: caches of plans are filled, and the limit has found its value.
const WARMUP_SECONDS: u32 = 5;

/// The thirds of its time in which a rising load rises.
pub(super) const RISE_THIRDS: u32 = 2;

/// The items of a response, and the fields of each that only the router computes. They make a request cost the router
/// more than the mocks and the load generator, which share the other core and must not be the limit. A document may
/// have a hundred aliases.
const ITEMS: u32 = 30;
const ROUTER_FIELDS: u32 = 90;

/// The graph of items, with slow mocks, and one operation.
pub(super) struct OverloadStage<'a> {
    pub(super) bench: &'a Bench,
    pub(super) mock: ServerProcess,
    pub(super) operation: PathBuf,
}

/// The load of a surge over time, in requests a second.
#[derive(Debug, Clone, Copy)]
pub(super) enum SurgeLoad {
    Constant(f64),
    /// From the first rate to the second in two thirds of the time, and then on.
    Rising(f64, f64),
}

impl<'a> OverloadStage<'a> {
    /// Starts the mocks.
    pub(super) fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let folder = bench.file("benches/items");
        let mock =
            bench.start_mock_with(&folder.join("supergraph.graphql"), &["--latency", LATENCY])?;
        let operation = bench.scratch_folder("overload")?.join("operation.graphql");
        // Both mocks, one after the other.
        write_file(&operation, &operation_text("items", "id name price"))?;
        Ok(Self { bench, mock, operation })
    }

    /// Starts a router with further settings. It has overload protection unless they turn it off.
    pub(super) fn start_router(&self, settings: &str) -> Result<ServerProcess, Failure> {
        self.bench.start_items_router("overload", &format!("{UNSHARED}{settings}"), &self.mock)
    }

    /// Measures how many responses in a second a router without overload protection sends in the closed loop, with
    /// other settings of the benchmark, and prints it.
    pub(super) fn measure_capacity(&self, bench: &Bench) -> Result<(f64, Value), Failure> {
        let router = self.start_router(UNPROTECTED)?;
        let (capacity, run) = measure_capacity(bench, &router, &self.operation)?;
        print_capacity(capacity, &run);
        Ok((capacity, run))
    }

    /// Measures the same of a router with protection that admits everything, with other settings of the benchmark.
    pub(super) fn measure_peak(&self, bench: &Bench) -> Result<f64, Failure> {
        let router = self.start_router(ADMITTING)?;
        Ok(measure_capacity(bench, &router, &self.operation)?.0)
    }

    /// Runs a surge of the operation.
    pub(super) fn run_surge(
        &self,
        router: &ServerProcess,
        name: &str,
        load: SurgeLoad,
        extra: &[&str],
    ) -> Result<Value, Failure> {
        self.start_surge(router, name, load, extra)?.finish()
    }

    /// Starts a surge of the operation without waiting for its end.
    pub(super) fn start_surge(
        &self,
        router: &ServerProcess,
        name: &str,
        load: SurgeLoad,
        extra: &[&str],
    ) -> Result<RunningLoad, Failure> {
        let operation = self.operation.display().to_string();
        let extra = [&["--operation", &operation][..], extra].concat();
        self.bench.start_surge(router, name, &surge_arguments(self.bench, load, &extra)?)
    }

    /// Starts a surge of the operation with other settings of the benchmark.
    pub(super) fn start_surge_of(
        &self,
        bench: &Bench,
        router: &ServerProcess,
        name: &str,
        load: SurgeLoad,
    ) -> Result<RunningLoad, Failure> {
        let operation = self.operation.display().to_string();
        let arguments = surge_arguments(bench, load, &["--operation", &operation])?;
        bench.start_surge(router, name, &arguments)
    }
}

/// Returns an operation that asks for a list of items with these fields, which need mocks, and for much of the router's
/// own work.
pub(super) fn operation_text(list: &str, fields: &str) -> String {
    let own: String = (0..ROUTER_FIELDS).map(|number| format!("t{number}: __typename ")).collect();
    format!("{{ {list}(first: {ITEMS}) {{ {fields} {own}}} }}\n")
}

/// Measures the capacity of a router: responses in a second in the closed loop.
pub(super) fn measure_capacity(
    bench: &Bench,
    router: &ServerProcess,
    operation: &std::path::Path,
) -> Result<(f64, Value), Failure> {
    let load = LoadRun {
        name: "capacity",
        operation: Some(operation),
        connections: bench.clients.unwrap_or(CAPACITY_CONNECTIONS),
        extra: Vec::new(),
    };
    let run = bench.run_query_load(router, &load)?;
    let capacity = number(&run["answers_per_second"]);
    if capacity < 1.0 || run["failed"] != 0 {
        return Err(format!("the capacity cannot be measured: {}", run["example"]));
    }
    Ok((capacity, run))
}

/// Prints a capacity and the run that has measured it.
pub(super) fn print_capacity(capacity: f64, run: &Value) {
    println!(
        "capacity in the closed loop: {capacity:.0} responses/s, the router keeps {:.2} cores busy\n",
        number(&run["server"]["cores"])
    );
}

/// Returns the arguments of `starling bench surge` for a load: clients that neither cache nor repeat, and the usual
/// number of connections, unless `extra` says otherwise.
pub(super) fn surge_arguments(
    bench: &Bench,
    load: SurgeLoad,
    extra: &[&str],
) -> Result<Vec<String>, Failure> {
    let duration = format!("{}s", bench.seconds);
    let warmup = format!("{}s", WARMUP_SECONDS.min(bench.seconds));
    let mut words: Vec<String> =
        [["--duration", &duration], ["--in-time", IN_TIME], ["--waiting", SURGE_WAITING]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
    match load {
        SurgeLoad::Constant(rate) => {
            words.extend(
                ["--shape", "constant", "--rate", &format!("{rate:.1}")].map(str::to_owned),
            );
        }
        SurgeLoad::Rising(from, to) => {
            let point = |seconds: u32, rate: f64| json!({"seconds": seconds, "rate": rate as u64});
            let shape = json!({"points": [
                point(0, from), point(RISE_THIRDS * bench.seconds / 3, to), point(bench.seconds, to),
            ]});
            let file = bench.scratch_folder("overload")?.join("rising.json");
            write_file(&file, &shape.to_string())?;
            words.extend(["--shape".to_owned(), file.display().to_string()]);
        }
    }
    let own = |option: &str| extra.contains(&option);
    if !own("--warmup") {
        words.extend(["--warmup", &warmup].map(str::to_owned));
    }
    if !own("--connections") {
        words.extend(["--connections", SURGE_CONNECTIONS].map(str::to_owned));
    }
    if !own("--retries") {
        words.extend(["--retries", "0", "--no-client-cache"].map(str::to_owned));
    }
    words.extend(extra.iter().map(|word| (*word).to_owned()));
    Ok(words)
}

/// Returns the correct responses in time, in a second.
pub(super) fn goodput(counts: &Value, seconds: u32) -> f64 {
    number(&counts["good"]) / f64::from(seconds)
}

/// Returns the goodput of a run in percent of the peak, or of all that was offered if that is less.
pub(super) fn share_of_peak(run: &Value, peak: f64, seconds: u32) -> f64 {
    let totals = &run["totals"];
    let offered = number(&totals["offered"]) / f64::from(seconds);
    100.0 * goodput(totals, seconds) / peak.min(offered)
}

/// Returns the 99th percentile of the latency in a report, or in one of its classes, in milliseconds. A report without
/// correct responses has none.
pub(super) fn p99_ms(report: &Value) -> f64 {
    match number(&report["latency"]["p99_us"]) {
        none if none <= 0.0 => f64::NAN,
        us => us / 1e3,
    }
}

/// Returns the class with this name.
pub(super) fn class<'r>(run: &'r Value, name: &str) -> Result<&'r Value, Failure> {
    let classes = run["classes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let class = classes.iter().find(|class| class["name"] == name);
    class.ok_or_else(|| format!("the report has no class `{name}`"))
}

/// Prints a row for a surge: what was offered, admitted and refused, and the latency.
pub(super) fn print_row(name: &str, report: &Value, seconds: u32) {
    let counts = if report["totals"].is_object() { &report["totals"] } else { &report["counts"] };
    let rate = |what: &str| number(&counts[what]) / f64::from(seconds);
    println!(
        "| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {:.1} | {:.1} |",
        rate("offered"),
        rate("admitted"),
        rate("good"),
        rate("refused"),
        counts["failed"],
        number(&report["latency"]["p50_us"]) / 1e3,
        p99_ms(report),
    );
}

/// Prints the head of the table of [`print_row`].
pub(super) fn print_head() {
    println!(
        "| load | offered/s | admitted/s | in time/s | refused/s | failed | p50, ms | p99, ms |\n|---|---|---|---|---|---|---|---|"
    );
}

/// Returns the runs of `bench surge` among all runs.
pub(super) fn surges(runs: &[Value]) -> Vec<Value> {
    runs.iter().filter(|run| run["shape"].is_string()).cloned().collect()
}

/// Says in which runs the load generator was a limit, so that the figures are not those of the router alone.
pub(super) fn generator_notes(runs: &[Value]) -> Vec<String> {
    let limited = runs.iter().filter(|run| run["generator"]["is_bottleneck"] == true);
    let notes = limited.map(|run| {
        let generator = &run["generator"];
        format!(
            "The load generator was a limit of `{}`: {:.2} cores, {} late sends (at most {:.0} ms late), {} never \
             sent. It shares its core with the mocks.",
            run["name"].as_str().unwrap_or("?"),
            number(&generator["cores_max"]),
            generator["late_sends"],
            number(&generator["late_max_ms"]),
            run["totals"]["unsent"],
        )
    });
    notes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_named_where_it_was_a_limit() {
        let run = |name: &str, is_bottleneck: bool| {
            json!({
                "name": name, "shape": "constant", "totals": {"unsent": 7},
                "generator": {"is_bottleneck": is_bottleneck, "cores_max": 0.98, "late_sends": 3, "late_max_ms": 12.4},
            })
        };
        let runs = [run("1x", false), run("10x", true), json!({"name": "capacity"})];
        let notes = generator_notes(&runs);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("`10x`: 0.98 cores, 3 late sends"), "{notes:?}");
        assert_eq!(surges(&runs).len(), 2);
    }

    #[test]
    fn the_share_of_the_peak_is_that_of_all_that_was_offered_if_that_is_less() {
        let run = |offered: u32, good: u32| json!({"totals": {"offered": offered, "good": good}});
        let runs = [run(1000, 900), run(3000, 1800)];
        assert_eq!(runs.each_ref().map(|run| share_of_peak(run, 200.0, 10)), [90.0, 90.0]);
    }

    #[test]
    fn a_run_without_correct_responses_has_no_percentile() {
        assert!(p99_ms(&json!({"latency": {"p99_us": 0.0}})).is_nan());
        assert_eq!(p99_ms(&json!({"latency": {"p99_us": 1500.0}})), 1.5);
    }
}
