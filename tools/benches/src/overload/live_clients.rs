//! `reconnects` and `subscribers`: subscribers at a router that queries load at the same time.
//!
//! Two load generators share a core with the mock, so the latencies of one include the work of the other. Queries
//! therefore cost the router much more than the generator. In `reconnects`, the one with the clients has a low
//! priority: otherwise mock and queries would stand still while ten thousand of its sockets are closed and opened at
//! once, which says nothing about the router.
//!
//! The clients of `reconnects` vanish and return in several rounds. A round counts if the machine has kept its speed:
//! of the queries alone, before and after, next to nothing was refused.

use super::bounds::{Bound, Bounds};
use super::pieces::{PIECE_SECONDS, is_steady, median, refused_percent};
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

/// The rounds that count, and the maximum of all rounds.
const STEADY_ROUNDS: usize = 3;
const ROUNDS_MAX: usize = 6;

/// The maximum seconds in which the capacity is measured before a round.
const CAPACITY_SECONDS: u32 = 6;

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
}

impl<'a> LiveStage<'a> {
    /// Starts broker and mock.
    fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let stage = Stage::start(bench)?;
        let mock = bench.start_mock_with(
            &bench.file("benches/subscriptions/supergraph.graphql"),
            &["--latency", LATENCY],
        )?;
        let operation = bench.scratch_folder("overload")?.join("ticks.graphql");
        // One request to a mock.
        write_file(&operation, &operation_text("ticks", "id name"))?;
        Ok(Self { stage, mock, operation })
    }

    /// Measures the capacity for the query, with other settings of the benchmark, and prints it. Returns the run as
    /// well.
    fn measure_capacity(&self, bench: &Bench) -> Result<(f64, Value), Failure> {
        let settings = format!("{UNSHARED}{UNPROTECTED}");
        let router = self.stage.start_paced_router(Some(&self.mock), &settings)?;
        let (capacity, run) = measure_capacity(&bench.without_clients(), &router, &self.operation)?;
        print_capacity(capacity, &run);
        Ok((capacity, run))
    }

    /// Starts a router with overload protection.
    fn start_router(&self) -> Result<ServerProcess, Failure> {
        self.stage.start_paced_router(Some(&self.mock), UNSHARED)
    }

    /// Returns the arguments for queries at a rate, with other settings of the benchmark.
    fn query_arguments(&self, bench: &Bench, rate: f64) -> Result<Vec<String>, Failure> {
        let operation = self.operation.display().to_string();
        surge_arguments(bench, SurgeLoad::Constant(rate), &["--operation", &operation])
    }

    /// Runs subscribers while queries are sent at a rate: queries of one run follow those of the one before until the
    /// subscribers are done. Returns the run of the subscribers and those of the queries.
    fn run_both(
        &self,
        router: &ServerProcess,
        name: &str,
        clients: &ClientSettings<'_>,
        rate: f64,
        priority: Priority,
    ) -> Result<(Value, Vec<Value>), Failure> {
        let bench = self.stage.bench;
        let queries = self.query_arguments(bench, rate)?;
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

/// The figures of one return of all clients.
struct Round {
    /// True if the machine has kept its speed.
    is_steady: bool,
    /// The share of the clients that are back, in percent, and the seconds until the last one was.
    back_percent: f64,
    seconds: f64,
    /// The p99 of queries meanwhile, as a multiple of that without.
    p99_factor: f64,
    failed: f64,
    refused_percent: f64,
}

/// Measures the return of many clients at once, while queries load the router.
pub(super) fn measure_reconnects(
    bench: &Bench,
    bounds: &mut Bounds,
) -> Result<Vec<Value>, Failure> {
    let bench = &bench.with_seconds(RECONNECT_SECONDS);
    let live = LiveStage::start(bench)?;
    let (mut rounds, mut all) = (Vec::new(), Vec::new());
    while rounds.len() < STEADY_ROUNDS && all.len() < ROUNDS_MAX {
        let (round, runs) = run_round(&live)?;
        match round.is_steady {
            true => rounds.push(round),
            false => println!("refused below the capacity: this round does not count"),
        }
        println!();
        all.push(runs);
    }
    if rounds.is_empty() {
        return Err("the machine does not keep its speed for long enough".to_owned());
    }
    let figures = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let listed = |figures: &[f64]| {
        figures.iter().map(|it| format!("{it:.2}")).collect::<Vec<_>>().join(", ")
    };
    let least = figures(|it| it.back_percent).into_iter().fold(f64::INFINITY, f64::min);
    bounds.check("clients that are back", least, Bound::AtLeast(100.0), " %");
    for (what, figures, most, unit) in [
        ("until all are back", figures(|it| it.seconds), BACK_SECONDS_MAX, " s"),
        (
            "p99 of queries, as a multiple of that without",
            figures(|it| it.p99_factor),
            P99_FACTOR_MAX,
            "",
        ),
        ("refused queries", figures(|it| it.refused_percent), REFUSED_PERCENT_MAX, " %"),
    ] {
        let what = format!("{what}, median of {}", listed(&figures));
        bounds.check(what, median(&figures), Bound::AtMost(most), unit);
    }
    let failed = figures(|it| it.failed).into_iter().sum::<f64>();
    bounds.check("failed queries", failed, Bound::AtMost(0.0), "");
    Ok(all.into_iter().flatten().collect())
}

/// Lets all clients connect, vanish and return once, between queries alone.
fn run_round(live: &LiveStage<'_>) -> Result<(Round, Vec<Value>), Failure> {
    let bench = live.stage.bench;
    let (capacity, closed) = live.measure_capacity(&bench.within_seconds(CAPACITY_SECONDS))?;
    let rate = capacity * RECONNECT_LOAD_SHARE;
    let router = live.start_router()?;
    let piece = bench.within_seconds(PIECE_SECONDS);
    let queries = live.query_arguments(&piece, rate)?;
    let run_alone = |name: &str| -> Result<Value, Failure> {
        let run = bench.run_surge(&router, name, &queries)?;
        print_row(name, &run, piece.seconds);
        Ok(run)
    };
    print_head();
    let before = run_alone("queries alone, before")?;
    let count = bench.clients.unwrap_or(RECONNECTING);
    // One event shows that all are served. Each one is sent to all clients at once, which delays queries as well.
    let extra = [&["--scenario", "reconnect-storm", "--events", "1"][..], &RETURNS].concat();
    let clients = ClientSettings { name: "reconnects", count, query: PLAIN, extra: &extra };
    let (storm, runs) = live.run_both(&router, "storm", &clients, rate, Priority::Low)?;
    for run in &runs {
        print_row("queries, clients connect and reconnect", run, bench.seconds);
    }
    let after = run_alone("queries alone, after")?;
    let back = &storm["rejoined"];
    let round = Round {
        is_steady: is_steady(&[&before, &after]),
        back_percent: 100.0 * number(&back["subscribed"]) / f64::from(count),
        seconds: number(&back["seconds"]),
        p99_factor: highest_p99(&runs) / ((p99_ms(&before) + p99_ms(&after)) / 2.0),
        failed: runs.iter().map(|run| number(&run["totals"]["failed"])).sum(),
        // A client that does not repeat a refused query has failed as well.
        refused_percent: refused_percent(&runs.iter().collect::<Vec<_>>()),
    };
    println!(
        "\n{} of {count} clients were back within {:.2} s; {} refusals; p99 {:.2} times; {:.2} % of queries refused",
        back["subscribed"],
        round.seconds,
        count_returns(&storm),
        round.p99_factor,
        round.refused_percent,
    );
    Ok((round, [closed, before, after].into_iter().chain(runs).collect()))
}

/// Measures the deliveries of events while queries are far above the capacity: of events that contain all fields, and
/// of events with a field that is fetched from the mock.
pub(super) fn measure_deliveries(
    bench: &Bench,
    bounds: &mut Bounds,
) -> Result<Vec<Value>, Failure> {
    let live = LiveStage::start(bench)?;
    let (capacity, closed) = live.measure_capacity(bench)?;
    let router = live.start_router()?;
    let mut all = vec![closed];
    println!(
        "| deliveries | subscribers | all within, s | refusals | expected | received | lost, announced | missing | p50, ms | p99, ms |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for (what, query) in [("events", PLAIN), ("joined events", JOINED)] {
        let rate = capacity * SUBSCRIBERS_LOAD;
        all.extend(measure_deliveries_of(&live, &router, bounds, rate, (what, query))?);
    }
    println!();
    print_head();
    for run in &all[1..] {
        print_row("queries at 3x", run, bench.seconds);
    }
    Ok(all)
}

/// Measures the deliveries of one subscription, given as its name and text, without and with queries at a rate. Returns
/// the runs of the queries.
fn measure_deliveries_of(
    live: &LiveStage<'_>,
    router: &ServerProcess,
    bounds: &mut Bounds,
    rate: f64,
    (what, query): (&str, &str),
) -> Result<Vec<Value>, Failure> {
    let bench = live.stage.bench;
    let (count, events_rate) = (bench.clients.unwrap_or(SUBSCRIBERS), EVENTS_RATE.to_string());
    let events = (EVENTS_RATE * bench.seconds).to_string();
    let extra = [&["--events", &events, "--rate", &events_rate][..], &RETURNS].concat();
    let [alone, beside] =
        [format!("{what}, alone"), format!("{what}, with queries at {SUBSCRIBERS_LOAD}x")];
    let clients = |name| ClientSettings { name, count, query, extra: &extra };
    let calm = live.stage.run_clients(router, &clients(&alone))?;
    let (loaded, runs) =
        live.run_both(router, "queries at 3x", &clients(&beside), rate, Priority::Normal)?;
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
