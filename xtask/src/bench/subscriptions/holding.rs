//! What subscriptions cost while nothing is sent, and when all come or go at once.

use super::{CLIENTS, Clients, PLAIN, Stage, check, number, verdict};
use crate::Failure;
use crate::bench::statistics::Sample;
use serde_json::Value;

/// The last one is near what 20,000 descriptors allow.
const COUNTS: [u32; 3] = [5_000, 10_000, 18_000];

/// The most process memory of an idle subscription.
const BYTES_MAX: f64 = 1024.0;

/// The same over TLS, which keeps keys and one read buffer.
const TLS_BYTES_MAX: f64 = 8192.0;

/// How far the memory of all may be from as many times what one of the most clients has: by so much it differs between two
/// runs with equal clients, too (pages, the allocator's caches, a slab that doubles), and by a fiftieth where each has kilobytes.
const SPREAD_MAX_MIB: f64 = 2.0;

const MIB: f64 = 1024.0 * 1024.0;

/// Lengths of a header of each client's own.
const HEADERS: [u32; 3] = [0, 512, 2_048];

/// CPU of a core that is none: a tick of the kernel's clock in two seconds.
const IDLE_CORES_MAX: f64 = 0.005;

/// Clients that come and go before memory is looked at: more than ever join at a time, so that what joining takes is there.
const WARM: u32 = 300;

const IDLE: [&str; 4] = ["--scenario", "idle", "--hold", "1s"];

/// Memory of one idle subscription, by how many there are.
pub(super) fn memory(stage: &Stage<'_>, is_tls: bool) -> Result<Vec<Value>, Failure> {
    let bytes_max = if is_tls { TLS_BYTES_MAX } else { BYTES_MAX };
    println!(
        "Median (smallest–largest) of {} routers each.\n\n\
         | clients | bytes a subscription | memory before, MiB | memory, MiB | threads |\n|---|---|---|---|---|",
        stage.bench.pairs
    );
    let (mut runs, mut each) = (Vec::new(), Vec::new());
    for count in stage.bench.clients.map_or(COUNTS.into(), |count| vec![count]) {
        let [mut bytes, mut before, mut after, mut threads]: [Sample; 4] = Default::default();
        for _ in 0..stage.bench.pairs {
            let run = idle_memory(stage, count, is_tls)?;
            let server = &run["server"];
            let add = |sample: &mut Sample, name: &str| sample.push(number(&server[name]));
            add(&mut bytes, "bytes_per_subscription");
            add(&mut before, "resident_before_mib");
            add(&mut after, "resident_idle_mib");
            add(&mut threads, "threads_idle");
            runs.push(run);
        }
        println!(
            "| {count} | {} | {} | {} | {} |",
            bytes.show(0),
            before.show(1),
            after.show(1),
            threads.max()
        );
        each.push((f64::from(count), bytes.median()));
    }
    let most = each.iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
    let last = each.last().map_or(0.0, |&(_, bytes)| bytes);
    let off = each.iter().map(|&(count, bytes)| (bytes - last).abs() * count);
    let off = off.fold(0.0, f64::max) / MIB;
    let all = each.last().map_or(0.0, |&(count, bytes)| count * bytes) / MIB;
    println!("\n| | | to be | met |\n|---|---|---|---|");
    println!(
        "| most, bytes a subscription | {most:.0} | less than {bytes_max} | {} |",
        verdict(most < bytes_max)
    );
    let off_max = SPREAD_MAX_MIB + all / 50.0;
    println!(
        "| off from the same at each count, MiB of all | {off:.1} | at most {off_max:.1} | {} |",
        verdict(off <= off_max)
    );
    Ok(runs)
}

/// A fresh router with so many idle clients.
fn idle_memory(stage: &Stage<'_>, count: u32, is_tls: bool) -> Result<Value, Failure> {
    let (router, words) = match is_tls {
        true => stage.tls_router().map(|(router, words)| (router, words.to_vec()))?,
        false => (stage.router(None, "")?, Vec::new()),
    };
    let extra: Vec<&str> = IDLE.iter().copied().chain(words.iter().map(String::as_str)).collect();
    let clients = |name, count| Clients { name, count, query: PLAIN, extra: &extra };
    // The program's own pages, read when somebody first needs them, are no client's memory.
    stage.clients(&router, &clients("warm", WARM))?;
    let run = stage.clients(&router, &clients(&format!("{count} clients"), count))?;
    check(&run)?;
    Ok(run)
}

/// What a header of its own adds to a subscription, where the router has to remember it.
pub(super) fn header_bytes(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let forwarding = "headers: {all: {request: [{propagate: {named: authorization}}]}}\n";
    println!("| own header, bytes | bytes a subscription | more than without |\n|---|---|---|");
    let (mut runs, mut without) = (Vec::new(), None);
    for bytes in HEADERS {
        let router = stage.router(None, forwarding)?;
        stage
            .clients(&router, &Clients { name: "warm", count: WARM, query: PLAIN, extra: &IDLE })?;
        let (name, length) = (format!("{bytes} bytes"), bytes.to_string());
        let extra = [&IDLE[..], &["--header-bytes", &length]].concat();
        let run = stage.clients(
            &router,
            &Clients {
                name: &name,
                count: stage.bench.clients.unwrap_or(CLIENTS),
                query: PLAIN,
                extra: &extra,
            },
        )?;
        check(&run)?;
        let each = number(&run["server"]["bytes_per_subscription"]);
        let without = *without.get_or_insert(each);
        println!("| {bytes} | {each:.0} | {:.0} |", each - without);
        runs.push(run);
    }
    Ok(runs)
}

/// CPU and threads while everybody is subscribed and nothing happens.
pub(super) fn idle(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    println!("| clients | cores in use | threads | cores at most | met |\n|---|---|---|---|---|");
    let (mut runs, mut threads) = (Vec::new(), Vec::new());
    for count in [100, stage.bench.clients.unwrap_or(CLIENTS)] {
        let router = stage.router(None, "")?;
        let name = format!("{count} idle");
        let extra = ["--scenario", "idle", "--hold", "20s"];
        let run =
            stage.clients(&router, &Clients { name: &name, count, query: PLAIN, extra: &extra })?;
        check(&run)?;
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

/// Everybody at once.
pub(super) fn storm(stage: &Stage<'_>, scenario: &str) -> Result<Vec<Value>, Failure> {
    let router = stage.router(None, "")?;
    let extra = ["--scenario", scenario];
    let run = stage.clients(
        &router,
        &Clients {
            name: scenario,
            count: stage.bench.clients.unwrap_or(CLIENTS),
            query: PLAIN,
            extra: &extra,
        },
    )?;
    check(&run)?;
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
        println!("| subscribed again within | {:.2} s |", number(&rejoined["seconds"]));
    }
    if let Some(vanished) = run["vanished"].as_object() {
        match vanished["seconds"].as_f64() {
            Some(seconds) => println!("| forgotten within | {seconds:.2} s |"),
            None => {
                return Err("the server had not closed all connections after a minute".to_owned());
            }
        }
        println!(
            "| CPU of the server for forgetting one | {:.1} µs |",
            number(&vanished["cpu_us_per_connection"])
        );
    }
    println!(
        "| memory: all subscribed / most / at the end | {:.1} / {:.1} / {:.1} MiB |",
        number(&server["resident_idle_mib"]),
        number(&server["resident_peak_mib"]),
        number(&server["resident_after_mib"])
    );
    Ok(vec![run])
}
