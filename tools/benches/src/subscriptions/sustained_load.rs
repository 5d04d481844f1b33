//! Sustained load: more events and groups than usual, and reloads during events.

use super::stage::{CLIENTS, ClientSettings, JOINED, PLAIN, Stage};
use crate::reports::{check_run, number, verdict};
use crate::setup::write_file;
use serde_json::Value;
use std::time::Duration;
use test_kit::commands::Failure;

/// The number of clients under sustained load.
pub(crate) const SUSTAINED_CLIENTS: u32 = 5_000;

/// Events a second, and whether every client must receive all of them: 200,000 results a second exceed one core.
const SUSTAINED: [(u32, bool); 2] = [(10, true), (40, false)];

/// The maximum time in which an event reaches 10,000 groups that share only their entity.
const PARTITIONS_SECONDS_MAX: f64 = 1.0;

/// The latency of the subgraph during that measurement.
const PARTITIONS_LATENCY_MS: u32 = 5;

/// The number of reloads of the graph under load.
const RELOADS: u32 = 100;

/// The minimum time between two reloads.
const RELOAD_GAP: Duration = Duration::from_millis(400);

/// The log message of the router for each new graph that it serves.
const RELOAD_LOG_MESSAGE: &str = "a new supergraph serves now";

/// The time for which events continue after the last reload.
const EVENTS_AFTER_RELOADS: Duration = Duration::from_secs(5);

/// Sends events for the whole duration, at a rate that one core can deliver and at one that it cannot.
pub(crate) fn measure_sustained_rates(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    println!(
        "| events/s | expected | received | lost, announced | missing | p50, ms | p99, ms | max, ms | peak memory, MiB | met |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let count = stage.bench.clients.unwrap_or(SUSTAINED_CLIENTS);
    let mut runs = Vec::new();
    for (rate, gets_all) in SUSTAINED {
        let router = stage.start_router(None, "subscriptions: {policy: drop_oldest}\n")?;
        let (name, events) = (format!("{rate} events/s"), (rate * stage.bench.seconds).to_string());
        let rate = rate.to_string();
        let extra = ["--events", &events, "--rate", &rate];
        let run = stage.run_clients(
            &router,
            &ClientSettings { name: &name, count, query: PLAIN, extra: &extra },
        )?;
        let met = check_run(&run).is_ok() && (!gets_all || number(&run["lost"]) == 0.0);
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

/// Measures clients that each form a group of their own on one trigger, with one entity for all of them.
pub(crate) fn measure_partitions(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let mock = stage.start_mock(PARTITIONS_LATENCY_MS)?;
    let router = stage.start_router(Some(&mock), "")?;
    let variables = r#"{"viewer":"$I"}"#;
    let extra =
        ["--variables", variables, "--events", "10", "--rate", "0.5", "--quiet-time", "20s"];
    let query = "subscription ($viewer: ID!) { tickFor(viewer: $viewer) { id name } }";
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let run = stage.run_clients(
        &router,
        &ClientSettings { name: "partitions", count, query, extra: &extra },
    )?;
    check_run(&run)?;
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

/// Reloads the graph repeatedly while events are sent.
pub(crate) fn measure_reloads(stage: &Stage<'_>, subscribers: u32) -> Result<Vec<Value>, Failure> {
    let mock = stage.start_mock(0)?;
    let router = stage.start_router(Some(&mock), "")?;
    let gap = (Duration::from_secs(stage.bench.seconds.into()) / RELOADS).max(RELOAD_GAP);
    let events = ((gap * RELOADS + EVENTS_AFTER_RELOADS).as_secs() * 10).to_string();
    let extra = ["--events", &events, "--rate", "10"];
    let clients =
        ClientSettings { name: "reloads", count: subscribers, query: JOINED, extra: &extra };
    let load = stage.bench.start_subscription_load(&router, stage.arguments(&clients))?;
    for number in 0..RELOADS {
        std::thread::sleep(gap);
        let path = stage.write_supergraph(Some(&mock))?;
        // An additional comment changes the bytes but not the graph.
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        write_file(&path, &format!("{text}# {number}\n"))?;
    }
    let mut run = load.finish()?;
    let loaded = stage.bench.read_log("starling")?.matches(RELOAD_LOG_MESSAGE).count();
    run["reloads"] = loaded.into();
    let lasting = number(&run["subscribed"]) - count_ended(&run);
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
    if let Err(reason) = check_run(&run) {
        println!("\n{reason}");
    }
    Ok(vec![run])
}

/// True if every graph was served and no subscriber of [`measure_reloads`] was disturbed.
pub(crate) fn is_undisturbed(run: &Value) -> bool {
    let all_loaded = number(&run["reloads"]) >= f64::from(RELOADS);
    all_loaded && check_run(run).is_ok() && count_ended(run) == 0.0 && number(&run["lost"]) == 0.0
}

/// Returns the number of connections that ended.
fn count_ended(run: &Value) -> f64 {
    let ends = run["ends"].as_array().map(Vec::as_slice).unwrap_or_default();
    ends.iter().map(|end| number(&end["count"])).sum()
}
