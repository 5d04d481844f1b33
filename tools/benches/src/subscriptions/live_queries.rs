//! `live-queries`: many watchers of one live query over events of NATS, beside the floor. A change must cause one
//! execution and one request to a subgraph, whatever the number of watchers.
//!
//! The load generator posts each event to the mock first (`--change`), which then has the new value, with the time of
//! the event in it. The event that it publishes next invalidates the item at the router.

use super::compare::{SideSamples, print_comparison, print_run};
use super::stage::{CLIENTS, ClientSettings, Stage, UNPACED};
use crate::broker_connections::fetch_json_page;
use crate::reports::{check_run, number, verdict};
use crate::router_metrics::RouterMetrics;
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use serde_json::Value;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The maximum CPU time of the router for a result, as a multiple of the floor's: as for subscriptions.
const CPU_MAX: f64 = 1.25;

/// The live query. `note` comes from the second subgraph, by the item's key.
const QUERY: &str = "query @live { items(first: 1) { id note } }";

/// The event, which is also the change at the mock.
const EVENT: &str = r#"{"__typename":"Item","id":"1","note":"$T"}"#;

const SUBJECT: &str = "items.changed";

/// The paths of the mocked subgraphs' changes and counts. Items change at the last one.
const COUNTS_PATHS: [&str; 2] = ["/items/_entities", "/prices/_entities"];

/// The log message of the router when it hears the topic. An event before it would be lost.
const FOLLOWING_LOG_MESSAGE: &str = "following a topic that says what is stale";

/// The time that the router has for that, and the interval between two looks into its log.
const FOLLOWING_TIMEOUT: Duration = Duration::from_secs(30);
const FOLLOWING_INTERVAL: Duration = Duration::from_millis(20);

/// The number of changes, and of what they caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LiveCounts {
    changes: u64,
    executions: u64,
    /// Requests to all subgraphs.
    requests: u64,
}

impl LiveCounts {
    /// Reads the counts of the mock; `metrics` are those of the router from a moment before.
    fn read(metrics: &RouterMetrics, mock: &ServerProcess) -> Result<Self, Failure> {
        let executions = metrics.sum("starling_live_query_executions_total");
        let executions = executions.ok_or("no metric of executions")? as u64;
        let mut counts = Self { changes: 0, executions, requests: 0 };
        for path in COUNTS_PATHS {
            let page = fetch_json_page(mock.address, path)?;
            let count = |name: &str| {
                page[name].as_u64().ok_or_else(|| format!("the mock reports no `{name}`: {page}"))
            };
            counts.requests += count("requests")?;
            counts.changes = count("changes")?;
        }
        Ok(counts)
    }

    fn since(self, before: Self) -> Self {
        Self {
            changes: self.changes - before.changes,
            executions: self.executions - before.executions,
            requests: self.requests - before.requests,
        }
    }

    /// True if each change caused one execution and one request.
    fn is_one_each(self) -> bool {
        self.changes > 0 && self.executions == self.changes && self.requests == self.changes
    }
}

/// A figure of the counts.
type Figure = fn(&LiveCounts) -> u64;

/// Prints the executions and requests for each change, each from the run in which it is furthest from one.
fn print_counts(counts: &[LiveCounts]) {
    println!("\n| for each change, in the worst run | | to be | met |\n|---|---|---|---|");
    let figures: [(&str, Figure); 2] =
        [("executions", |it| it.executions), ("requests to subgraphs", |it| it.requests)];
    for (name, figure) in figures {
        let each = counts.iter().map(|it| figure(it) as f64 / it.changes.max(1) as f64);
        let distance = |each: &f64| (each - 1.0).abs();
        let worst = each.max_by(|left, right| distance(left).total_cmp(&distance(right)));
        let is_met = counts.iter().all(|it| figure(it) == it.changes);
        println!("| {name} | {:.3} | 1 | {} |", worst.unwrap_or(0.0), verdict(is_met));
    }
}

/// Compares floor and router, which send the same messages to the same clients.
pub(super) fn compare_with_floor(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let (seconds, count) = (stage.seconds(), stage.bench.clients.unwrap_or(CLIENTS));
    // The floor's message is taken from a first run of the router.
    let (first, _) = run_router(stage, "first", count.min(10))?;
    let message = first["message"].as_str().unwrap_or_default();
    let (mut runs, mut floor_side, mut router_side) =
        (Vec::new(), SideSamples::default(), SideSamples::default());
    let mut counts = Vec::new();
    for _ in 0..stage.bench.pairs {
        // The floor needs no subgraph, but its events must take the same way.
        let mock = start_mock(stage)?;
        let floor = stage.bench.start_broadcast_floor(message, stage.nats.address, SUBJECT)?;
        let run =
            stage.bench.run_subscription_load(&floor, arguments(stage, &mock, "floor", count))?;
        check_run(&run)?;
        drop((floor, mock));
        print_run("floor", &run);
        floor_side.add(&run);
        runs.push(run);

        let (run, caused) = run_router(stage, "router", count)?;
        print_run("router", &run);
        router_side.add(&run);
        counts.push(caused);
        runs.push(run);
    }
    println!("\n{count} watchers of one live query, {seconds} changes, one a second.");
    print_comparison(stage.bench.pairs, &floor_side, &router_side, CPU_MAX);
    print_counts(&counts);
    match counts.iter().all(|it| it.is_one_each()) {
        true => Ok(runs),
        false => {
            Err(format!("changes did not cause one execution and one request each: {counts:?}"))
        }
    }
}

fn start_mock(stage: &Stage<'_>) -> Result<ServerProcess, Failure> {
    stage.bench.start_mock(&stage.bench.file("benches/items/supergraph.graphql"))
}

/// Returns the arguments of `starling bench subscriptions` for watchers of items that change at this mock.
fn arguments(stage: &Stage<'_>, mock: &ServerProcess, name: &str, count: u32) -> Vec<String> {
    let change = format!("http://{}{}", mock.address, COUNTS_PATHS[1]);
    let publish = format!("nats://{}/{SUBJECT}", stage.nats.address);
    let seconds = stage.seconds();
    let extra = ["--event", EVENT, "--change", &change, "--publish", &publish];
    let extra = [&extra[..], &["--events", &seconds, "--rate", "1"]].concat();
    stage.arguments(&ClientSettings { name, count, query: QUERY, extra: &extra })
}

/// Waits until the router that was started last hears the topic.
fn wait_for_topic(bench: &Bench) -> Result<(), Failure> {
    let deadline = Instant::now() + FOLLOWING_TIMEOUT;
    while !bench.read_log("starling")?.contains(FOLLOWING_LOG_MESSAGE) {
        if Instant::now() > deadline {
            return Err("the router does not follow the topic of invalidations".to_owned());
        }
        std::thread::sleep(FOLLOWING_INTERVAL);
    }
    Ok(())
}

/// Runs watchers of a fresh router, and returns the report and what their changes caused.
fn run_router(stage: &Stage<'_>, name: &str, count: u32) -> Result<(Value, LiveCounts), Failure> {
    let mock = start_mock(stage)?;
    // No pings: an idle connection must cause no work. No throttle: the first measured change comes right after that of
    // the warm-up.
    let config = format!(
        "events: {{providers: {{nats: [{{id: default, url: \"nats://{}\"}}]}}}}\n\
         cache: {{enabled: true, subgraphs: {{all: {{ttl: 1h}}}}, \
         invalidate: [{{provider: nats/default, topic: {SUBJECT}}}]}}\n\
         live_queries: {{enabled: true, throttle_min: 0s}}\n\
         websocket: {{ping_interval: 1h}}\n{UNPACED}",
        stage.nats.address
    );
    let router = stage.bench.start_items_router("live-queries", &config, &mock)?;
    wait_for_topic(stage.bench)?;
    let load =
        stage.bench.start_subscription_load(&router, arguments(stage, &mock, name, count))?;
    // The counts when all watch and nothing has changed yet. Later the metrics are left alone until the end, because
    // their export would be in the CPU time.
    let (mut before, mut has_begun) = (None, false);
    let run = load.observe_to_end(|| {
        if has_begun {
            return Ok(());
        }
        let metrics = RouterMetrics::fetch(&router)?;
        let counts = LiveCounts::read(&metrics, &mock)?;
        has_begun = counts.changes > 0;
        let is_complete = metrics.sum("starling_hub_subscribers") == Some(f64::from(count));
        if is_complete && !has_begun && counts.executions > 0 {
            before = Some(counts);
        }
        Ok(())
    })?;
    check_run(&run)?;
    let before = before.ok_or_else(|| format!("{name}: the router never had {count} watchers"))?;
    let after = LiveCounts::read(&RouterMetrics::fetch(&router)?, &mock)?;
    let lost = number(&run["lost"]);
    match lost > 0.0 {
        true => Err(format!("{name}: {lost} results were skipped")),
        false => Ok((run, after.since(before))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_must_cause_one_execution_and_one_request() {
        let counts = |changes, executions, requests| LiveCounts { changes, executions, requests };
        let before = counts(0, 1, 2);
        for (after, expected) in [
            (counts(16, 17, 18), true),
            (counts(16, 16, 18), false),
            (counts(16, 18, 18), false),
            (counts(16, 17, 34), false),
            (counts(0, 1, 2), false),
        ] {
            assert_eq!(after.since(before).is_one_each(), expected, "{after:?}");
        }
    }
}
