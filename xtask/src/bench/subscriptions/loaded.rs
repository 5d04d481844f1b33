//! More than usual: events, groups, reloads, and clients without sockets.

use super::{CLIENTS, Clients, JOINED, PLAIN, Stage, check, number, verdict};
use crate::Failure;
use serde_json::Value;
use std::time::Duration;

/// Clients of a sustained load.
pub(super) const SUSTAINED_CLIENTS: u32 = 5_000;

/// Events a second, and whether everybody is to get all of them: 200,000 results a second are more than a core sends.
const SUSTAINED: [(u32, bool); 2] = [(10, true), (40, false)];

/// Within this an event is to reach 10,000 groups that share nothing but their entity.
const PARTITIONS_SECONDS_MAX: f64 = 1.0;

/// What the subgraph takes meanwhile.
const PARTITIONS_LATENCY_MS: u32 = 5;

/// How often the graph is loaded anew under load.
const RELOADS: u32 = 100;

/// Between two of them, at least.
const RELOAD_GAP: Duration = Duration::from_millis(400);

/// What the router says whenever it serves another graph.
const RELOADED: &str = "a new supergraph serves now";

/// Events go on for so long behind the last one.
const AFTER_RELOADS: Duration = Duration::from_secs(5);

/// Events that never end, at a rate that one core can send, and at one that it cannot.
pub(super) fn sustained(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    println!(
        "| events/s | expected | received | lost, and told | missing | p50, ms | p99, ms | max, ms | most memory, MiB | met |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let count = stage.bench.clients.unwrap_or(SUSTAINED_CLIENTS);
    let mut runs = Vec::new();
    for (rate, gets_all) in SUSTAINED {
        let router = stage.router(None, "subscriptions: {policy: drop_oldest}\n")?;
        let (name, events) = (format!("{rate} events/s"), (rate * stage.bench.seconds).to_string());
        let rate = rate.to_string();
        let extra = ["--events", &events, "--rate", &rate];
        let run =
            stage.clients(&router, &Clients { name: &name, count, query: PLAIN, extra: &extra })?;
        let met = check(&run).is_ok() && (!gets_all || number(&run["lost"]) == 0.0);
        println!(
            "| {rate} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            run["expected"],
            run["received"],
            run["lost"],
            run["missing"],
            number(&run["latency"]["p50_us"]) / 1e3,
            number(&run["latency"]["p99_us"]) / 1e3,
            number(&run["latency"]["max_us"]) / 1e3,
            number(&run["server"]["resident_peak_mib"]),
            verdict(met)
        );
        runs.push(run);
    }
    Ok(runs)
}

/// Clients of which each is a group of its own, on one trigger, with one entity for all of them.
pub(super) fn partitions(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let mock = stage.mock(PARTITIONS_LATENCY_MS)?;
    let router = stage.router(Some(&mock), "")?;
    let variables = r#"{"viewer":"$I"}"#;
    let extra =
        ["--variables", variables, "--events", "10", "--rate", "0.5", "--quiet-time", "20s"];
    let query = "subscription ($viewer: ID!) { tickFor(viewer: $viewer) { id name } }";
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let run =
        stage.clients(&router, &Clients { name: "partitions", count, query, extra: &extra })?;
    check(&run)?;
    let slowest = number(&run["latency"]["max_us"]) / 1e6;
    println!(
        "| clients, each a group | p50, ms | slowest of all, s | at most, s | met |\n|---|---|---|---|---|"
    );
    println!(
        "| {count} | {:.0} | {slowest:.2} | {PARTITIONS_SECONDS_MAX} | {} |",
        number(&run["latency"]["p50_us"]) / 1e3,
        verdict(slowest <= PARTITIONS_SECONDS_MAX)
    );
    Ok(vec![run])
}

/// The graph is loaded again and again while events are sent.
pub(super) fn reloads(stage: &Stage<'_>, subscribers: u32) -> Result<Vec<Value>, Failure> {
    let mock = stage.mock(0)?;
    let router = stage.router(Some(&mock), "")?;
    let gap = (Duration::from_secs(stage.bench.seconds.into()) / RELOADS).max(RELOAD_GAP);
    let events = ((gap * RELOADS + AFTER_RELOADS).as_secs() * 10).to_string();
    let extra = ["--events", &events, "--rate", "10"];
    let clients = Clients { name: "reloads", count: subscribers, query: JOINED, extra: &extra };
    let load = stage.bench.begin_subscriptions(&router, stage.words(&clients))?;
    for number in 0..RELOADS {
        std::thread::sleep(gap);
        let path = stage.supergraph(Some(&mock))?;
        // A comment more: other bytes, the same graph.
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        super::write(&path, &format!("{text}# {number}\n"))?;
    }
    let mut run = load.finish()?;
    let loaded = stage.bench.log("starling")?.matches(RELOADED).count();
    run["reloads"] = loaded.into();
    let lasting = number(&run["subscribed"]) - ended(&run);
    println!(
        "| reloads | subscribed | still connected | expected | received | missing | met |\n|---|---|---|---|---|---|---|"
    );
    println!(
        "| {loaded} of {RELOADS} | {} | {lasting} | {} | {} | {} | {} |",
        run["subscribed"],
        run["expected"],
        run["received"],
        run["missing"],
        verdict(is_undisturbed(&run))
    );
    if let Err(reason) = check(&run) {
        println!("\n{reason}");
    }
    Ok(vec![run])
}

/// Every graph was served, and no subscriber of [`reloads`] has noticed.
pub(super) fn is_undisturbed(run: &Value) -> bool {
    let all_loaded = number(&run["reloads"]) >= f64::from(RELOADS);
    all_loaded && check(run).is_ok() && ended(run) == 0.0 && number(&run["lost"]) == 0.0
}

/// Connections that ended.
fn ended(run: &Value) -> f64 {
    let ends = run["ends"].as_array().map(Vec::as_slice).unwrap_or_default();
    ends.iter().map(|end| number(&end["count"])).sum()
}
