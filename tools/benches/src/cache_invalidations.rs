//! `cargo xtask bench cache --filter invalidations`: three routers with one Redis, invalidations of entities one after
//! the other under a fixed rate of requests, and every response compared with what was acknowledged before its request.
//!
//! An item of the mock has its version in the field `note`. The program raises it, invalidates the item at one of the
//! routers, and waits for the acknowledgement. The load generators log their responses with the times of the requests,
//! so that all of them can be compared at the end.

use crate::brokers::start_redis;
use crate::http_connection::{HttpConnection, HttpResponse};
use crate::load_generator::{RateRun, RunningLoad};
use crate::reports::{number, verdict};
use crate::router_metrics::RouterMetrics;
use crate::server_process::ServerProcess;
use crate::setup::{Bench, read_file, write_file};
use crate::statistics::Samples;
use crate::version_history::{StalenessTally, VersionHistory, now_us};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The number of routers.
const ROUTERS: u32 = 3;

/// The requests in a second that all routers get together, and the maximum relative deviation of those they serve.
const RATE: u32 = 2000;
const RATE_DEVIATION_MAX: f64 = 0.02;

/// The measured seconds by default: enough for some hundred invalidations on any machine, and their p99.
const SECONDS: u32 = 20;

/// The number of connections of the load generator of each router.
const CONNECTIONS: u32 = 20;

/// The number of items that are invalidated in turn, and of operations: those for one item, two, and so on.
const ITEMS: u32 = 20;

/// The time from an acknowledgement to the next invalidation. Without it, invalidations would take all the time that
/// requests leave.
const PAUSE: Duration = Duration::from_millis(10);

/// The time that the routers have to find each other in Redis.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two checks of that.
const LOG_INTERVAL: Duration = Duration::from_millis(50);

const OPERATION: &str = "query ($first: Int) { items(first: $first) { id note } }";

/// The path at which the mock takes changes of items.
const CHANGES_PATH: &str = "/prices/_entities";

/// Measures the time until invalidations take effect, and searches stale responses.
///
/// # Errors
/// A response was stale, or the measurement could not take place.
pub(crate) fn measure(bench: &Bench) -> Result<(), Failure> {
    let bench = &bench.with_seconds(SECONDS);
    println!("\n## cache, invalidations\n");
    let redis = start_redis(bench)?;
    let mock = bench.start_mock(&bench.file("benches/items/supergraph.graphql"))?;
    let config = format!(
        "cache: {{enabled: true, store: shared, subgraphs: {{all: {{ttl: 1h}}}}}}\n\
         storage_providers: {{redis: [{{id: shared, urls: ['redis://{}']}}]}}\n",
        redis.address
    );
    let routers = (0..ROUTERS).map(|_| bench.start_items_router("invalidations", &config, &mock));
    let routers = routers.collect::<Result<Vec<_>, _>>()?;
    wait_for_log(&routers)?;
    let (mut loads, logs) = start_loads(bench, &routers)?;
    let mut invalidator = Invalidator::new(&routers, &mock)?;
    while loads.iter_mut().any(RunningLoad::is_running) {
        invalidator.invalidate_next()?;
        std::thread::sleep(PAUSE);
    }
    let runs = loads.into_iter().map(RunningLoad::finish).collect::<Result<Vec<_>, _>>()?;
    // A request for which no connection was free before the end is never sent. The rate has a target of its own.
    if let Some(run) = runs.iter().find(|run| run["failed"] != run["unsent"]) {
        return Err(format!("{} had wrong responses: {}", run["name"], run["failures"]));
    }
    let Invalidator { history, took_ms, unconfirmed, mut tally, .. } = invalidator;
    for log in &logs {
        tally.add_log(&history, &read_file(log)?)?;
        // It has some megabytes, and the result is known.
        let _ = std::fs::remove_file(log);
    }
    let outcome = Outcome { seconds: bench.seconds, runs, took_ms, unconfirmed, tally };
    outcome.print();
    bench.write_report("cache-invalidations", &outcome.report())?;
    match outcome.tally.example {
        None => Ok(()),
        Some(stale) => Err(format!("{} responses are stale: {stale}", outcome.tally.stale)),
    }
}

/// Waits until each router follows the log in Redis and knows all others.
fn wait_for_log(routers: &[ServerProcess]) -> Result<(), Failure> {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let mut are_joined = true;
        for router in routers {
            let metrics = RouterMetrics::fetch(router)?;
            are_joined &= metrics.sum("starling_cache_log_current") == Some(1.0)
                && metrics.sum("starling_cache_log_routers") == Some(f64::from(ROUTERS));
        }
        match are_joined {
            true => return Ok(()),
            false if Instant::now() > deadline => {
                return Err("the routers do not find each other in Redis".to_owned());
            }
            false => std::thread::sleep(LOG_INTERVAL),
        }
    }
}

/// Starts a load generator for each router. Returns them and the files with their responses.
fn start_loads(
    bench: &Bench,
    routers: &[ServerProcess],
) -> Result<(Vec<RunningLoad>, Vec<PathBuf>), Failure> {
    let folder = bench.scratch_folder("invalidations")?;
    let [operation, variables] =
        ["operation.graphql", "variables.json"].map(|name| folder.join(name));
    write_file(&operation, OPERATION)?;
    let sets: Vec<Value> = (1..=ITEMS).map(|first| json!({ "first": first })).collect();
    write_file(&variables, &Value::from(sets).to_string())?;
    let (mut loads, mut logs) = (Vec::new(), Vec::new());
    for (index, (router, rate)) in routers.iter().zip(split_rate(RATE, ROUTERS)).enumerate() {
        let log = folder.join(format!("responses-{index}.txt"));
        let run = RateRun {
            name: &format!("router {}", index + 1),
            operation: &operation,
            rate,
            connections: CONNECTIONS,
            seconds: bench.seconds,
            report: bench.reports.join(format!("invalidations-{index}.json")),
            extra: vec![
                "--variables".to_owned(),
                variables.display().to_string(),
                "--log".to_owned(),
                log.display().to_string(),
            ],
        };
        loads.push(bench.start_query_load(router, run)?);
        logs.push(log);
    }
    Ok((loads, logs))
}

/// Divides a rate into `parts` that differ by at most one.
fn split_rate(rate: u32, parts: u32) -> impl Iterator<Item = u32> {
    (0..parts).map(move |part| rate / parts + u32::from(part < rate % parts))
}

/// The program that changes and invalidates items.
struct Invalidator {
    mock: HttpConnection,
    admins: Vec<HttpConnection>,
    /// The endpoints of the routers, which are asked after each acknowledgement.
    endpoints: Vec<HttpConnection>,
    path: String,
    /// The body of a request for all items.
    request: String,
    /// The version of the item that was changed last.
    version: u32,
    history: VersionHistory,
    /// The times from the requests to their acknowledgements.
    took_ms: Samples,
    /// The number of invalidations that not all routers confirmed in time.
    unconfirmed: u64,
    tally: StalenessTally,
}

impl Invalidator {
    fn new(routers: &[ServerProcess], mock: &ServerProcess) -> Result<Self, Failure> {
        let admins = routers.iter().map(|router| {
            let admin = router.admin.ok_or_else(|| "the router has no admin listener".to_owned());
            admin.map(HttpConnection::new)
        });
        Ok(Self {
            mock: HttpConnection::new(mock.address),
            admins: admins.collect::<Result<_, Failure>>()?,
            endpoints: routers.iter().map(|router| HttpConnection::new(router.address)).collect(),
            path: routers.first().map(|router| router.path.clone()).unwrap_or_default(),
            request: json!({ "query": OPERATION, "variables": { "first": ITEMS } }).to_string(),
            version: 0,
            history: VersionHistory::default(),
            took_ms: Samples::default(),
            unconfirmed: 0,
            tally: StalenessTally::default(),
        })
    }

    /// Changes the next item, invalidates it at the next router, and asks all routers for it.
    fn invalidate_next(&mut self) -> Result<(), Failure> {
        self.version += 1;
        let id = (1 + self.version % ITEMS).to_string();
        let note = self.version.to_string();
        let entity = json!({ "__typename": "Item", "id": id, "note": note }).to_string();
        let changed = self.mock.post(CHANGES_PATH, &entity)?;
        if changed.status != 200 {
            return Err(format!("the mock does not change: {}", changed.body));
        }
        let invalidation = json!({ "kind": "entity", "type": "Item", "key": { "id": id } });
        let admin = &mut self.admins[(self.version % ROUTERS) as usize];
        let began = Instant::now();
        let response = admin.post("/admin/invalidate", &invalidation.to_string())?;
        let took = began.elapsed();
        if !is_confirmed(&response) {
            self.unconfirmed += 1;
            return Ok(());
        }
        self.history.acknowledge(&id, self.version.into(), now_us());
        self.took_ms.push(took.as_secs_f64() * 1e3);
        for endpoint in &mut self.endpoints {
            let sent = now_us();
            let response = endpoint.post(&self.path, &self.request)?;
            self.tally.add(&self.history, sent, &response.body)?;
        }
        Ok(())
    }
}

/// True if the response to an invalidation says that all routers have applied it.
fn is_confirmed(response: &HttpResponse) -> bool {
    let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
    response.status == 200
        && body["routers"] == ROUTERS
        && body["unconfirmed"] == 0
        && body["pending"] == false
}

/// The result of the measurement.
struct Outcome {
    seconds: u32,
    runs: Vec<Value>,
    took_ms: Samples,
    unconfirmed: u64,
    tally: StalenessTally,
}

impl Outcome {
    /// Returns the requests in a second that all routers served.
    fn served_rate(&self) -> f64 {
        self.runs.iter().map(|run| number(&run["answers_per_second"])).sum()
    }

    fn print(&self) {
        println!(
            "{ROUTERS} routers, one Redis, {} s; {ITEMS} operations in turn, and {ITEMS} items that change in turn.\n",
            self.seconds
        );
        println!("| router | requests/s | p50, ms | p99, ms |\n|---|---|---|---|");
        for run in &self.runs {
            let (rate, latency) = (number(&run["answers_per_second"]), &run["latency"]);
            let [p50, p99] = ["p50_us", "p99_us"].map(|name| number(&latency[name]) / 1e3);
            println!(
                "| {} | {rate:.0} | {p50:.2} | {p99:.2} |",
                run["name"].as_str().unwrap_or("?")
            );
        }
        let took = &self.took_ms;
        println!(
            "\n| invalidations | effect at all routers: p50, ms | p99, ms | max, ms |\n|---|---|---|---|"
        );
        println!(
            "| {} | {:.2} | {:.2} | {:.2} |",
            took.len(),
            took.quantile(0.5),
            took.quantile(0.99),
            took.max()
        );
        let StalenessTally { checked, stale, .. } = self.tally;
        let rate = self.served_rate();
        let deviation = (rate / f64::from(RATE) - 1.0).abs();
        println!("\n| | | at most | met |\n|---|---|---|---|");
        println!(
            "| stale responses of {checked} that were checked | {stale} | 0 | {} |",
            verdict(stale == 0 && checked > 0)
        );
        println!(
            "| invalidations that not all routers confirmed | {0} | 0 | {1} |",
            self.unconfirmed,
            verdict(self.unconfirmed == 0 && took.len() > 0)
        );
        println!(
            "| deviation of {rate:.0} requests/s from {RATE} | {:.2} % | {:.0} % | {} |",
            deviation * 100.0,
            RATE_DEVIATION_MAX * 100.0,
            verdict(deviation <= RATE_DEVIATION_MAX)
        );
    }

    /// Returns the runs of the load generators; the first one has the other figures.
    fn report(&self) -> Vec<Value> {
        let mut runs = self.runs.clone();
        if let Some(run) = runs.first_mut() {
            run["invalidations"] = json!({
                "count": self.took_ms.len(),
                "unconfirmed": self.unconfirmed,
                "p50_ms": self.took_ms.quantile(0.5),
                "p99_ms": self.took_ms.quantile(0.99),
                "max_ms": self.took_ms.max(),
                "responses_checked": self.tally.checked,
                "responses_stale": self.tally.stale,
                "served_per_second": self.served_rate(),
            });
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_rate_add_up() {
        for (rate, parts, expected) in
            [(2000, 3, &[667, 667, 666][..]), (6, 3, &[2, 2, 2]), (1, 2, &[1, 0])]
        {
            assert_eq!(split_rate(rate, parts).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_invalidation_is_acknowledged_when_all_routers_have_confirmed_it() {
        for (status, body, expected) in [
            (200, r#"{"invalidations":1,"routers":3,"unconfirmed":0,"pending":false}"#, true),
            (202, r#"{"invalidations":1,"routers":3,"unconfirmed":1,"pending":false}"#, false),
            (202, r#"{"invalidations":1,"routers":3,"unconfirmed":0,"pending":true}"#, false),
            (200, r#"{"invalidations":1,"routers":2,"unconfirmed":0,"pending":false}"#, false),
            (200, r#"{"invalidations":1}"#, false),
            (400, "", false),
        ] {
            let response = HttpResponse { status, body: body.to_owned() };
            assert_eq!(is_confirmed(&response), expected, "{response:?}");
        }
    }
}
