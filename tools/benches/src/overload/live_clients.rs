//! `reconnects` and `subscribers`: subscribers at a router that queries load at the same time.
//!
//! Two load generators share a core with the mock, so the latencies of one include the work of the other. Queries
//! therefore cost the router much more than the generator. In `reconnects`, the one with the clients has a low
//! priority: otherwise mock and queries would stand still while ten thousand of its sockets are closed and opened at
//! once, which says nothing about the router.

use super::bounds::{Bound, Bounds};
use super::stage::{
    LATENCY, SurgeLoad, UNPROTECTED, UNSHARED, measure_capacity, operation_text, p99_ms,
    print_capacity, print_head, print_row, surge_arguments,
};
use crate::load_generator::Priority;
use crate::reports::number;
use crate::server_process::ServerProcess;
use crate::setup::{Bench, write_file};
use crate::subscriptions::stage::{ClientSettings, JOINED, PLAIN, Stage};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use test_kit::commands::Failure;

/// The clients that reconnect, the load meanwhile as a part of the capacity, and the time in which all are back.
const RECONNECTING: u32 = 10_000;
const RECONNECT_LOAD_SHARE: f64 = 0.7;
const BACK_SECONDS_MAX: f64 = 10.0;

/// The default seconds of queries while all clients connect, vanish and return: one run has all of it, because there is
/// no load between two runs.
const RECONNECT_SECONDS: u32 = 45;

/// The subscribers, the events in a second that they get, and the load meanwhile as a multiple of the capacity.
const SUBSCRIBERS: u32 = 5_000;
const EVENTS_RATE: u32 = 10;
const SUBSCRIBERS_LOAD: f64 = 3.0;

/// Refused clients return, as real ones do: this often, and not later than this.
const RETURNS: [&str; 4] = ["--retries", "20", "--timeout", "60s"];

/// The maximum p99, of queries or of deliveries, as a multiple of that without the other load.
const P99_FACTOR_MAX: f64 = 2.0;

/// The maximum share of queries that are refused while clients reconnect, in percent.
const REFUSED_PERCENT_MAX: f64 = 1.0;

/// The interval between two looks at the two load generators.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The graph with events and a mocked subgraph, and the query that loads the router.
struct LiveStage<'a> {
    stage: Stage<'a>,
    mock: ServerProcess,
    operation: PathBuf,
    capacity: f64,
}

impl<'a> LiveStage<'a> {
    /// Starts broker and mock, and measures the capacity for the query. Returns the run as well.
    fn start(bench: &'a Bench) -> Result<(Self, Value), Failure> {
        let stage = Stage::start(bench)?;
        let mock = bench.start_mock_with(
            &bench.file("benches/subscriptions/supergraph.graphql"),
            &["--latency", LATENCY],
        )?;
        let operation = bench.scratch_folder("overload")?.join("ticks.graphql");
        // One request to a mock.
        write_file(&operation, &operation_text("ticks", "id name"))?;
        let settings = format!("{UNSHARED}{UNPROTECTED}");
        let router = stage.start_paced_router(Some(&mock), &settings)?;
        let options = bench.without_clients();
        let (capacity, closed) = measure_capacity(&options, &router, &operation)?;
        print_capacity(capacity, &closed);
        Ok((Self { stage, mock, operation, capacity }, closed))
    }

    /// Starts a router with overload protection.
    fn start_router(&self) -> Result<ServerProcess, Failure> {
        self.stage.start_paced_router(Some(&self.mock), UNSHARED)
    }

    /// Returns the arguments for queries at a multiple of the capacity.
    fn query_arguments(&self, factor: f64) -> Result<Vec<String>, Failure> {
        let operation = self.operation.display().to_string();
        let load = SurgeLoad::Constant(self.capacity * factor);
        surge_arguments(self.stage.bench, load, &["--operation", &operation])
    }

    /// Runs subscribers while queries are sent: queries of one run follow those of the one before until the
    /// subscribers are done. Returns the run of the subscribers and those of the queries.
    fn run_both(
        &self,
        router: &ServerProcess,
        name: &str,
        clients: &ClientSettings<'_>,
        factor: f64,
        priority: Priority,
    ) -> Result<(Value, Vec<Value>), Failure> {
        let bench = self.stage.bench;
        let queries = self.query_arguments(factor)?;
        let arguments = self.stage.arguments(clients);
        let mut subscribing =
            bench.start_subscription_load_with_priority(router, arguments, priority)?;
        let mut runs = Vec::new();
        while runs.is_empty() || subscribing.is_running() {
            let mut querying = bench.start_surge(router, name, &queries)?;
            while querying.is_running() {
                std::thread::sleep(POLL_INTERVAL);
            }
            runs.push(querying.finish()?);
        }
        Ok((subscribing.finish()?, runs))
    }
}

/// Measures the return of many clients at once, while queries load the router.
pub(super) fn measure_reconnects(
    bench: &Bench,
    bounds: &mut Bounds,
) -> Result<Vec<Value>, Failure> {
    let bench = &bench.with_seconds(RECONNECT_SECONDS);
    let (live, closed) = LiveStage::start(bench)?;
    let router = live.start_router()?;
    // The machine does not keep its speed for minutes, so queries alone come before and after.
    let queries = live.query_arguments(RECONNECT_LOAD_SHARE)?;
    let run_alone = |name: &str| -> Result<Value, Failure> {
        let run = bench.run_surge(&router, name, &queries)?;
        print_row(name, &run, bench.seconds);
        Ok(run)
    };
    print_head();
    let before = run_alone("queries alone, before")?;
    let count = bench.clients.unwrap_or(RECONNECTING);
    // One event shows that all are served. Each one is sent to all clients at once, which delays queries as well.
    let extra = [&["--scenario", "reconnect-storm", "--events", "1"][..], &RETURNS].concat();
    let clients = ClientSettings { name: "reconnects", count, query: PLAIN, extra: &extra };
    let (storm, runs) =
        live.run_both(&router, "storm", &clients, RECONNECT_LOAD_SHARE, Priority::Low)?;
    for run in &runs {
        print_row("queries, clients connect and reconnect", run, bench.seconds);
    }
    let after = run_alone("queries alone, after")?;
    let back = &storm["rejoined"];
    println!(
        "\n{} of {count} clients were back within {:.2} s; {} refusals",
        back["subscribed"],
        number(&back["seconds"]),
        count_returns(&storm),
    );
    let share = 100.0 * number(&back["subscribed"]) / f64::from(count);
    bounds.check("clients that are back", share, Bound::AtLeast(100.0), " %");
    let seconds = number(&back["seconds"]);
    bounds.check("until all are back", seconds, Bound::AtMost(BACK_SECONDS_MAX), " s");
    let factor = highest_p99(&runs) / ((p99_ms(&before) + p99_ms(&after)) / 2.0);
    bounds.check(
        "p99 of queries, as a multiple of that without",
        factor,
        Bound::AtMost(P99_FACTOR_MAX),
        "",
    );
    let sum = |what: &str| runs.iter().map(|run| number(&run["totals"][what])).sum::<f64>();
    bounds.check("failed queries", sum("failed"), Bound::AtMost(0.0), "");
    // A client that does not repeat a refused query has failed as well.
    let refused = 100.0 * sum("refused") / sum("offered").max(1.0);
    bounds.check("refused queries", refused, Bound::AtMost(REFUSED_PERCENT_MAX), " %");
    Ok([closed, before, after].into_iter().chain(runs).collect())
}

/// Measures the deliveries of events while queries are far above the capacity: of events that contain all fields, and
/// of events with a field that is fetched from the mock.
pub(super) fn measure_deliveries(
    bench: &Bench,
    bounds: &mut Bounds,
) -> Result<Vec<Value>, Failure> {
    let (live, closed) = LiveStage::start(bench)?;
    let router = live.start_router()?;
    let mut all = vec![closed];
    println!(
        "| deliveries | subscribers | all within, s | refusals | expected | received | lost, announced | missing | p50, ms | p99, ms |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for (what, query) in [("events", PLAIN), ("joined events", JOINED)] {
        all.extend(measure_deliveries_of(&live, &router, bounds, what, query)?);
    }
    println!();
    print_head();
    for run in &all[1..] {
        print_row("queries at 3x", run, bench.seconds);
    }
    Ok(all)
}

/// Measures the deliveries of one subscription without and with queries. Returns the runs of the queries.
fn measure_deliveries_of(
    live: &LiveStage<'_>,
    router: &ServerProcess,
    bounds: &mut Bounds,
    what: &str,
    query: &str,
) -> Result<Vec<Value>, Failure> {
    let bench = live.stage.bench;
    let (count, rate) = (bench.clients.unwrap_or(SUBSCRIBERS), EVENTS_RATE.to_string());
    let events = (EVENTS_RATE * bench.seconds).to_string();
    let extra = [&["--events", &events, "--rate", &rate][..], &RETURNS].concat();
    let [alone, beside] =
        [format!("{what}, alone"), format!("{what}, with queries at {SUBSCRIBERS_LOAD}x")];
    let clients = |name| ClientSettings { name, count, query, extra: &extra };
    let calm = live.stage.run_clients(router, &clients(&alone))?;
    let (loaded, runs) = live.run_both(
        router,
        "queries at 3x",
        &clients(&beside),
        SUBSCRIBERS_LOAD,
        Priority::Normal,
    )?;
    for (name, run) in [(&alone, &calm), (&beside, &loaded)] {
        println!(
            "| {name} | {} | {:.1} | {} | {} | {} | {} | {} | {:.1} | {:.1} |",
            run["subscribed"],
            number(&run["joining_seconds"]),
            count_returns(run),
            run["expected"],
            run["received"],
            run["lost"],
            run["missing"],
            number(&run["latency"]["p50_us"]) / 1e3,
            p99_ms(run),
        );
    }
    let subscribed = 100.0 * number(&loaded["subscribed"]) / f64::from(count);
    bounds.check(format!("{what}: subscribers"), subscribed, Bound::AtLeast(100.0), " %");
    let delivered = 100.0 * number(&loaded["received"]) / number(&loaded["expected"]);
    bounds.check(format!("{what}: delivered"), delivered, Bound::AtLeast(100.0), " %");
    let factor = p99_ms(&loaded) / p99_ms(&calm);
    let what = format!("{what}: p99 of deliveries, as a multiple of that without queries");
    bounds.check(what, factor, Bound::AtMost(P99_FACTOR_MAX), "");
    Ok(runs)
}

/// Returns how often clients were refused and returned.
fn count_returns(run: &Value) -> u64 {
    let reasons = run["returns"].as_array().into_iter().flatten();
    reasons.filter_map(|reason| reason["count"].as_u64()).sum()
}

/// Returns the highest p99 of some runs; not a number if one has none.
fn highest_p99(runs: &[Value]) -> f64 {
    let all = runs.iter().map(p99_ms);
    all.fold(0.0, |most, p99| if p99.is_nan() || most.is_nan() { f64::NAN } else { most.max(p99) })
}
