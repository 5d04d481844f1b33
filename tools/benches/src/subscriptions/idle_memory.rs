//! The cost of open subscriptions while no events are sent, and of connecting or disconnecting all clients at once.

use super::stage::{CLIENTS, ClientSettings, PLAIN, Stage};
use crate::reports::{check_run, number, verdict};
use crate::statistics::Samples;
use serde_json::Value;
use test_kit::commands::Failure;

/// The numbers of clients. The largest is near the limit that 20,000 descriptors set.
const CLIENT_COUNTS: [u32; 3] = [5_000, 10_000, 18_000];

/// The maximum process memory of an idle subscription.
pub(super) const BYTES_MAX: f64 = 1024.0;

/// The maximum process memory of an idle subscription over TLS, which keeps keys and one read buffer.
const TLS_BYTES_MAX: f64 = 8192.0;

/// The maximum difference between the memory of all clients and their number times the memory of one client at the
/// largest number. Two runs with equal clients differ by this much (pages, the allocator's caches, a slab that
/// doubles), and by a fiftieth where each client has kilobytes.
pub(super) const SPREAD_MAX_MIB: f64 = 2.0;

pub(super) const MIB: f64 = 1024.0 * 1024.0;

/// The CPU use that counts as none: a tick of the kernel's clock in two seconds.
const IDLE_CORES_MAX: f64 = 0.005;

/// The number of clients that connect and disconnect before memory is measured. It exceeds the number that ever joins
/// at the same time, so that the memory for joining is already allocated.
pub(super) const WARM_UP_CLIENTS: u32 = 300;

pub(super) const IDLE_ARGUMENTS: [&str; 4] = ["--scenario", "idle", "--hold", "1s"];

/// Measures the memory of one idle subscription at several numbers of clients.
pub(crate) fn measure_memory(stage: &Stage<'_>, is_tls: bool) -> Result<Vec<Value>, Failure> {
    let bytes_max = if is_tls { TLS_BYTES_MAX } else { BYTES_MAX };
    println!(
        "Median (smallest–largest) of {} routers each.\n\n\
         | clients | bytes a subscription | memory before, MiB | memory, MiB | threads |\n|---|---|---|---|---|",
        stage.bench.pairs
    );
    let (mut runs, mut each) = (Vec::new(), Vec::new());
    for count in stage.bench.clients.map_or(CLIENT_COUNTS.into(), |count| vec![count]) {
        let [mut bytes, mut before, mut after, mut threads]: [Samples; 4] = Default::default();
        for _ in 0..stage.bench.pairs {
            let run = run_idle_clients(stage, count, is_tls)?;
            let server = &run["server"];
            let add = |sample: &mut Samples, name: &str| sample.push(number(&server[name]));
            add(&mut bytes, "bytes_per_subscription");
            add(&mut before, "resident_before_mib");
            add(&mut after, "resident_idle_mib");
            add(&mut threads, "threads_idle");
            runs.push(run);
        }
        println!(
            "| {count} | {} | {} | {} | {} |",
            bytes.format_with_range(0),
            before.format_with_range(1),
            after.format_with_range(1),
            threads.max()
        );
        each.push((f64::from(count), bytes.median()));
    }
    let most = each.iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
    let last = each.last().map_or(0.0, |&(_, bytes)| bytes);
    let deviation = each.iter().map(|&(count, bytes)| (bytes - last).abs() * count);
    let deviation = deviation.fold(0.0, f64::max) / MIB;
    let all = each.last().map_or(0.0, |&(count, bytes)| count * bytes) / MIB;
    println!("\n| | | to be | met |\n|---|---|---|---|");
    println!(
        "| most, bytes a subscription | {most:.0} | less than {bytes_max} | {} |",
        verdict(most < bytes_max)
    );
    let deviation_max = SPREAD_MAX_MIB + all / 50.0;
    println!(
        "| deviation from proportional, MiB of all | {deviation:.1} | at most {deviation_max:.1} | {} |",
        verdict(deviation <= deviation_max)
    );
    Ok(runs)
}

/// Measures a fresh router with `count` idle clients.
fn run_idle_clients(stage: &Stage<'_>, count: u32, is_tls: bool) -> Result<Value, Failure> {
    let (router, arguments) = match is_tls {
        true => stage.start_tls_router().map(|(router, arguments)| (router, arguments.to_vec()))?,
        false => (stage.start_router(None, "")?, Vec::new()),
    };
    let extra: Vec<&str> =
        IDLE_ARGUMENTS.iter().copied().chain(arguments.iter().map(String::as_str)).collect();
    let clients = |name, count| ClientSettings { name, count, query: PLAIN, extra: &extra };
    // The warm-up loads the program's own pages, which would otherwise count as memory of clients.
    stage.run_clients(&router, &clients("warm", WARM_UP_CLIENTS))?;
    let run = stage.run_clients(&router, &clients(&format!("{count} clients"), count))?;
    check_run(&run)?;
    Ok(run)
}

/// Measures CPU use and threads while all clients are subscribed and no events are sent.
pub(crate) fn measure_idle_cpu(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    println!("| clients | cores in use | threads | cores at most | met |\n|---|---|---|---|---|");
    let (mut runs, mut threads) = (Vec::new(), Vec::new());
    for count in [100, stage.bench.clients.unwrap_or(CLIENTS)] {
        let router = stage.start_router(None, "")?;
        let name = format!("{count} idle");
        let extra = ["--scenario", "idle", "--hold", "20s"];
        let run = stage.run_clients(
            &router,
            &ClientSettings { name: &name, count, query: PLAIN, extra: &extra },
        )?;
        check_run(&run)?;
        let cores = number(&run["server"]["idle_cores"]);
        println!(
            "| {count} | {cores:.4} | {} | {IDLE_CORES_MAX} | {} |",
            run["server"]["threads_idle"],
            verdict(cores <= IDLE_CORES_MAX)
        );
        threads.push(number(&run["server"]["threads_idle"]));
        runs.push(run);
    }
    println!("\nthreads do not depend on clients: {}", verdict(threads.first() == threads.last()));
    Ok(runs)
}

/// Connects, reconnects or disconnects all clients at once.
pub(crate) fn run_connection_storm(
    stage: &Stage<'_>,
    scenario: &str,
) -> Result<Vec<Value>, Failure> {
    let router = stage.start_router(None, "")?;
    let extra = ["--scenario", scenario];
    let run = stage.run_clients(
        &router,
        &ClientSettings {
            name: scenario,
            count: stage.bench.clients.unwrap_or(CLIENTS),
            query: PLAIN,
            extra: &extra,
        },
    )?;
    check_run(&run)?;
    let server = &run["server"];
    println!("| | |\n|---|---|");
    println!("| subscribed within | {:.2} s |", number(&run["joining_seconds"]));
    println!(
        "| each within, p50 / p99 | {:.0} / {:.0} ms |",
        number(&run["joining"]["p50_us"]) / 1e3,
        number(&run["joining"]["p99_us"]) / 1e3
    );
    println!("| CPU of the server for each | {:.0} µs |", number(&server["cpu_us_per_joining"]));
    if let Some(rejoined) = run["rejoined"].as_object() {
        println!("| resubscribed within | {:.2} s |", number(&rejoined["seconds"]));
    }
    if let Some(vanished) = run["vanished"].as_object() {
        match vanished["seconds"].as_f64() {
            Some(seconds) => println!("| released within | {seconds:.2} s |"),
            None => {
                return Err("the server had not closed all connections after a minute".to_owned());
            }
        }
        println!(
            "| CPU of the server for releasing one | {:.1} µs |",
            number(&vanished["cpu_us_per_connection"])
        );
    }
    println!(
        "| memory: all subscribed / peak / at the end | {:.1} / {:.1} / {:.1} MiB |",
        number(&server["resident_idle_mib"]),
        number(&server["resident_peak_mib"]),
        number(&server["resident_after_mib"])
    );
    Ok(vec![run])
}
