//! `cargo xtask bench shared-limits`: three routers with one rate limit in one Redis, and the latency of one of them
//! while Redis serves, hangs, and is killed.
//!
//! The load is three times what the limit admits, so that the rate of admitted operations is that of the limit. It is
//! read from the metrics of the routers.

use crate::brokers::start_redis;
use crate::load_generator::{LoadRun, RateRun};
use crate::server_process::ServerProcess;
use crate::setup::{Bench, Defaults, write_file};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The defaults of this measurement.
pub(crate) const DEFAULTS: Defaults = Defaults { seconds: 10, pairs: 1 };

/// The number of routers.
const ROUTERS: usize = 3;

/// The operations that the limit admits in a second.
const LIMIT_RATE: u32 = 1000;

/// The operations that each router gets in a second while the rate is measured.
const OFFERED_RATE: u32 = 1000;

/// The operations that one router gets in a second while latency is measured: below the limit.
const CALM_RATE: u32 = 300;

/// The number of connections of each load generator.
const CONNECTIONS: u32 = 20;

/// The seconds before and after the measured ones, in which the load generator warms up and ends.
const MARGIN_SECONDS: u32 = 3;

/// Measures the rate of admitted operations, and latency without Redis.
pub(crate) fn run(bench: &Bench, filter: Option<&str>) -> Result<(), Failure> {
    let is_wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    let operation = bench.scratch_folder("shared-limits")?.join("operation.graphql");
    write_file(&operation, "{ __typename }\n")?;
    let mut reports = Vec::new();
    if is_wanted("rate") {
        let redis = start_redis(bench)?;
        measure_rate(bench, &redis, &operation)?;
    }
    if is_wanted("latency") {
        println!(
            "\n| Redis | p50, ms | p99, ms | rise of p99, ms | failed |\n|---|---|---|---|---|"
        );
        let mut serving = None;
        for (name, change) in
            [("serves", None), ("hangs", Some("STOP")), ("is killed", Some("KILL"))]
        {
            let redis = start_redis(bench)?;
            let report = measure_latency(bench, &redis, &operation, name, change)?;
            let number = |value: &Value| value.as_f64().unwrap_or(0.0) / 1e3;
            let p99 = number(&report["latency"]["p99_us"]);
            let rise = p99 - *serving.get_or_insert(p99);
            let p50 = number(&report["latency"]["p50_us"]);
            println!("| {name} | {p50:.2} | {p99:.2} | {rise:.2} | {} |", report["failed"]);
            reports.push(report);
        }
        bench.write_report("shared-limits", &reports)?;
    }
    Ok(())
}

/// Starts a router with a limit of all operations in this Redis.
fn start_router(bench: &Bench, redis: &ServerProcess) -> Result<ServerProcess, Failure> {
    let file = bench.scratch_folder("shared-limits")?.join("starling.yaml");
    let configuration = format!(
        "storage_providers: {{redis: [{{id: shared, urls: ['redis://{}']}}]}}\n\
         rate_limits: [{{name: all, rate: {LIMIT_RATE}, burst: 20, store: shared, on_failure: local}}]\n",
        redis.address
    );
    write_file(&file, &configuration)?;
    let supergraph = bench.file("fixtures/federation-benchmark/supergraph.graphql");
    bench.start_starling(&file, &supergraph)
}

/// Measures the rate at which all routers together admit operations.
fn measure_rate(bench: &Bench, redis: &ServerProcess, operation: &Path) -> Result<(), Failure> {
    let routers = (0..ROUTERS).map(|_| start_router(bench, redis));
    let routers = routers.collect::<Result<Vec<_>, _>>()?;
    let seconds = bench.seconds + 2 * MARGIN_SECONDS;
    let loads = routers.iter().enumerate().map(|(index, router)| {
        let run = RateRun {
            name: &format!("router {}", index + 1),
            operation,
            rate: OFFERED_RATE,
            connections: CONNECTIONS,
            seconds,
            report: bench.reports.join(format!("shared-limits-{index}.json")),
            extra: Vec::new(),
        };
        bench.start_query_load(router, run)
    });
    let loads = loads.collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(Duration::from_secs(MARGIN_SECONDS.into()));
    let (began, before) = (Instant::now(), admitted(&routers)?);
    std::thread::sleep(Duration::from_secs(bench.seconds.into()));
    let (elapsed, after) = (began.elapsed(), admitted(&routers)?);
    for load in loads {
        // Its report counts refused operations, and is missing if the first ones were refused. The figures are those of
        // the routers.
        let _ = load.finish();
    }
    let admitted = (after.0 - before.0) as f64;
    let refused = (after.1 - before.1) as f64;
    let undecided = after.2 - before.2;
    let allowed = f64::from(LIMIT_RATE) * elapsed.as_secs_f64();
    println!(
        "\n| routers | seconds | allowed | offered | admitted | share of allowed | without Redis |\n|---|---|---|---|---|---|---|\n\
         | {ROUTERS} | {:.2} | {allowed:.0} | {:.0} | {admitted:.0} | {:.2} % | {undecided} |",
        elapsed.as_secs_f64(),
        admitted + refused,
        100.0 * admitted / allowed,
    );
    Ok(())
}

/// Measures the latency of one router. After a third of the time Redis gets a signal.
fn measure_latency(
    bench: &Bench,
    redis: &ServerProcess,
    operation: &Path,
    name: &str,
    signal: Option<&str>,
) -> Result<Value, Failure> {
    let router = start_router(bench, redis)?;
    let pid = redis.pid().to_string();
    let delay = Duration::from_secs(1) + Duration::from_secs(bench.seconds.into()) / 3;
    std::thread::scope(|scope| {
        if let Some(signal) = signal {
            scope.spawn(move || {
                std::thread::sleep(delay);
                // If the signal fails, the table shows the figures of a Redis that serves.
                let _ = Command::new("kill").args(["-s", signal, &pid]).status();
            });
        }
        let rate = CALM_RATE.to_string();
        let extra = ["--rate", &rate].map(str::to_owned).to_vec();
        let run = LoadRun { name, operation: Some(operation), connections: CONNECTIONS, extra };
        bench.run_query_load(&router, &run)
    })
}

/// Returns the operations that all routers have admitted, refused, and decided without Redis.
fn admitted(routers: &[ServerProcess]) -> Result<(u64, u64, u64), Failure> {
    let mut sums = (0, 0, 0);
    for router in routers {
        let admin = router.admin.ok_or("the router has no admin listener")?;
        let text = metrics(admin).map_err(|error| format!("no metrics: {error}"))?;
        let read = |name: &str| {
            let prefix = format!("starling_rate_limit_{name}_total{{limit=\"all\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
            line.and_then(|value| value.parse::<u64>().ok())
                .ok_or_else(|| format!("no metric {prefix}"))
        };
        sums.0 += read("admitted")?;
        sums.1 += read("refused")?;
        sums.2 += read("store_failures")?;
    }
    Ok(sums)
}

fn metrics(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
