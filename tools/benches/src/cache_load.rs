//! `cargo xtask bench cache --filter stampede` and `--filter doubling`: the load on subgraphs, and the latency of
//! clients, when much that is stored ends at once, and when traffic doubles.

use crate::http_connection::HttpConnection;
use crate::load_generator::LoadRun;
use crate::reports::{number, verdict};
use crate::router_metrics::RouterMetrics;
use crate::server_process::ServerProcess;
use crate::servers::ITEMS_SUBGRAPHS;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The latency of each subgraph request.
const LATENCY: &str = "50ms";

/// The clients of a stampede, and its measured seconds by default.
const STAMPEDE_CLIENTS: u32 = 10_000;
const STAMPEDE_SECONDS: u32 = 10;

/// The maximum p99 of a stampede, as a multiple of that of a router where nothing ends.
const P99_FACTOR_MAX: f64 = 2.0;

/// The interval between two invalidations of everything.
const INVALIDATION_INTERVAL: Duration = Duration::from_secs(1);

/// The requests of users in a second before traffic doubles.
const USER_RATE: u32 = 1000;

/// The part of them that the caches of clients serve before, and no longer when their times are over.
const CLIENT_HITS: f64 = 0.5;

/// The different operations that users send: as many as lists of one to this many items.
const OPERATIONS: u32 = 100;

/// The time in which traffic doubles by default, in seconds.
const DOUBLING_SECONDS: u32 = 120;

/// The connections of the load generator: more than requests are in flight without a cache.
const DOUBLING_CONNECTIONS: u32 = 400;

/// The maximum growth of the load on subgraphs, and the maximum p50.
const GROWTH_MAX: f64 = 0.2;
const P50_MS_MAX: f64 = 200.0;

/// The graph of both measurements, with subgraphs that take [`LATENCY`].
struct SlowGraph<'a> {
    bench: &'a Bench,
    mock: ServerProcess,
    operation: PathBuf,
}

impl<'a> SlowGraph<'a> {
    fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let folder = bench.file("benches/items");
        let latency = ["--latency", LATENCY];
        let mock = bench.start_mock_with(&folder.join("supergraph.graphql"), &latency)?;
        Ok(Self { bench, mock, operation: folder.join("operation.graphql") })
    }

    fn start_router(&self, name: &str, config: &str) -> Result<ServerProcess, Failure> {
        self.bench.start_items_router(name, config, &self.mock)
    }
}

fn subgraph_requests(router: &ServerProcess) -> Result<f64, Failure> {
    let metrics = RouterMetrics::fetch(router)?;
    metrics.sum("starling_subgraph_requests_total").ok_or("no metric of requests".to_owned())
}

/// Measures many clients that send the same query all the time: of a router where nothing ends, of one whose entries
/// end every second, and of one where everything is invalidated every second.
pub(crate) fn stampede(bench: &Bench) -> Result<(), Failure> {
    let bench = &bench.with_seconds(STAMPEDE_SECONDS);
    let connections = bench.clients.unwrap_or(STAMPEDE_CLIENTS);
    let graph = SlowGraph::start(bench)?;
    println!("\n## cache, stampede\n");
    println!(
        "{connections} clients, {} s each; subgraphs take {LATENCY}. `ends` is the number of times at which the entries \
         ended.\n",
        bench.seconds
    );
    println!(
        "| entries | responses/s | p50, ms | p99, ms | ends | requests to each subgraph |\n|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    let mut p99 = Vec::new();
    let mut each_end = 0.0;
    for (name, ttl, is_invalidated) in [
        ("stay", "1h", false),
        ("expire every second", "1s", false),
        ("are invalidated every second", "1h", true),
    ] {
        // Without overload protection, because all clients wait for the same response at once, which are far more
        // operations in flight than its limit admits in the beginning.
        let config = format!(
            "cache: {{enabled: true, jitter: 0, subgraphs: {{all: {{ttl: {ttl}}}}}}}\n\
             admission: {{enabled: false}}\n"
        );
        let router = graph.start_router("cache-stampede", &config)?;
        let admin = router.admin.ok_or("the router has no admin listener")?;
        let mut admin = HttpConnection::new(admin);
        let (ended, invalidations) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        let run = std::thread::scope(|scope| {
            let invalidating = scope.spawn(|| -> Result<(), Failure> {
                while is_invalidated && !ended.load(Ordering::SeqCst) {
                    std::thread::sleep(INVALIDATION_INTERVAL);
                    invalidate_all(&mut admin)?;
                    invalidations.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
            let load =
                LoadRun { name, operation: Some(&graph.operation), connections, extra: Vec::new() };
            let run = bench.run_query_load(&router, &load);
            ended.store(true, Ordering::SeqCst);
            let invalidated =
                invalidating.join().map_err(|_| "the invalidations panicked".to_owned())?;
            invalidated.and(run)
        })?;
        if run["failed"] != 0 {
            return Err(format!("{name}: {}: {}", run["failed"], run["example"]));
        }
        // Each subgraph is asked once for a response that is not stored.
        let requests = subgraph_requests(&router)? / ITEMS_SUBGRAPHS.len() as f64;
        let ends = match (is_invalidated, ttl) {
            (true, _) => invalidations.load(Ordering::SeqCst) as f64,
            (false, "1s") => began.elapsed().as_secs_f64().floor(),
            (false, _) => 0.0,
        };
        let latency = &run["latency"];
        println!(
            "| {name} | {:.0} | {:.1} | {:.1} | {ends} | {requests} |",
            number(&run["answers_per_second"]),
            number(&latency["p50_us"]) / 1e3,
            number(&latency["p99_us"]) / 1e3,
        );
        p99.push(number(&latency["p99_us"]));
        if is_invalidated {
            // The first request fills the cache, and the last invalidation may come after the last client.
            each_end = (requests - 1.0) / ends.max(1.0);
        }
        runs.push(run);
    }
    let factor = p99[1..].iter().fold(0.0_f64, |most, it| most.max(it / p99[0].max(1.0)));
    println!("\n| | | at most | met |\n|---|---|---|---|");
    println!(
        "| p99, as a multiple of that of entries that stay | {factor:.2} | {P99_FACTOR_MAX} | {} |",
        verdict(factor <= P99_FACTOR_MAX)
    );
    println!(
        "| requests to a subgraph for each invalidation | {each_end:.2} | 1 | {} |",
        verdict(each_end <= 1.0)
    );
    bench.write_report("cache-stampede", &runs)
}

/// Measures the load on subgraphs before traffic doubles and while it does, with and without caches.
///
/// The clients are modelled by the rate at the router. Before, their caches serve a part of what their users request
/// ([`CLIENT_HITS`]). When their times are over, all requests of users reach the router, while their number doubles;
/// that clients fill their caches again meanwhile would only make it easier.
pub(crate) fn doubling(bench: &Bench) -> Result<(), Failure> {
    let bench = &bench.with_seconds(DOUBLING_SECONDS);
    let graph = SlowGraph::start(bench)?;
    let variables = bench.reports.join("cache-doubling-variables.json");
    let all: Vec<Value> = (1..=OPERATIONS).map(|first| json!({ "first": first })).collect();
    write_file(&variables, &Value::from(all).to_string())?;
    let before = format!("{}", f64::from(USER_RATE) * (1.0 - CLIENT_HITS));
    let during = format!("{USER_RATE}..{}/{}s", 2 * USER_RATE, bench.seconds);
    println!("\n## cache, doubling\n");
    println!(
        "{USER_RATE} requests of users in a second, of which the caches of clients serve {:.0} % before; then all of them \
         reach the router, and their number doubles in {} s. {OPERATIONS} operations, entries that live 2 s, subgraphs \
         that take {LATENCY}.\n",
        CLIENT_HITS * 100.0,
        bench.seconds
    );
    println!(
        "| router | requests/s before → during | to subgraphs/s before → during | growth | p50, ms | p99, ms |\n|---|---|---|---|---|---|"
    );
    let mut runs = Vec::new();
    let mut met = (f64::MAX, f64::MAX);
    for (name, cache) in [
        ("without caches", ""),
        ("with caches", "cache: {enabled: true, subgraphs: {all: {ttl: 2s}}}\n"),
    ] {
        let router = graph.start_router("cache-doubling", cache)?;
        let mut rates = Vec::new();
        for (phase, rate) in [("before", &before), ("during", &during)] {
            let extra =
                ["--rate", rate, "--arrivals", "poisson", "--check", "status", "--variables"];
            let mut extra: Vec<String> = extra.map(str::to_owned).to_vec();
            extra.push(variables.display().to_string());
            let (name, connections) = (&format!("{name}, {phase}"), DOUBLING_CONNECTIONS);
            let load = LoadRun { name, operation: Some(&graph.operation), connections, extra };
            // The load generator first gets each response once, which is not part of the measured time.
            let (run, requests, seconds) = measure_window(bench, &router, &load)?;
            // The last request of an open loop may find no free connection before the end, and is not sent.
            if run["failed"] != run["unsent"] {
                return Err(format!("{name}: {}: {}", run["failed"], run["failures"]));
            }
            rates.push((requests / seconds, number(&run["answers_per_second"])));
            runs.push(run);
        }
        let [(subgraphs_before, rate_before), (subgraphs_during, rate_during)] = rates[..] else {
            return Err("two phases were measured".to_owned());
        };
        let growth = subgraphs_during / subgraphs_before - 1.0;
        let latency = &runs[runs.len() - 1]["latency"];
        let (p50, p99) = (number(&latency["p50_us"]) / 1e3, number(&latency["p99_us"]) / 1e3);
        println!(
            "| {name} | {rate_before:.0} → {rate_during:.0} | {subgraphs_before:.1} → {subgraphs_during:.1} | {:.1} % | {p50:.1} | {p99:.1} |",
            growth * 100.0
        );
        met = (growth, p50);
    }
    let (growth, p50) = met;
    println!("\n| with caches | | at most | met |\n|---|---|---|---|");
    println!(
        "| growth of the load on subgraphs | {:.1} % | {:.0} % | {} |",
        growth * 100.0,
        GROWTH_MAX * 100.0,
        verdict(growth <= GROWTH_MAX)
    );
    println!("| p50 | {p50:.1} ms | {P50_MS_MAX} ms | {} |", verdict(p50 <= P50_MS_MAX));
    bench.write_report("cache-doubling", &runs)
}

/// Runs a load, and counts the requests to subgraphs in its last seconds: returns its report, the requests, and the
/// seconds in which they were counted.
fn measure_window(
    bench: &Bench,
    router: &ServerProcess,
    load: &LoadRun<'_>,
) -> Result<(Value, f64, f64), Failure> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| -> Result<Vec<(Instant, f64)>, Failure> {
            let mut counts = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                counts.push((Instant::now(), subgraph_requests(router)?));
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(counts)
        });
        let run = bench.run_query_load(router, load);
        ended.store(true, Ordering::SeqCst);
        let counts = counting.join().map_err(|_| "counting panicked".to_owned())??;
        let (last, total) = *counts.last().ok_or("nothing was counted")?;
        let window = Duration::from_secs(bench.seconds.into());
        let first = counts.iter().find(|(at, _)| last.duration_since(*at) <= window);
        let (first, earlier) = *first.ok_or("nothing was counted")?;
        Ok((run?, total - earlier, last.duration_since(first).as_secs_f64()))
    })
}

fn invalidate_all(admin: &mut HttpConnection) -> Result<(), Failure> {
    let response = admin.post("/admin/invalidate", r#"{"kind":"all"}"#)?;
    match response.status {
        200 => Ok(()),
        status => Err(format!("an invalidation failed with status {status}: {}", response.body)),
    }
}
