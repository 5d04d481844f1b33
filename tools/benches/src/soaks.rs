//! The soaks that use the load generator. They fail if the router keeps anything or disturbs a subscriber.

use crate::reports::number;
use crate::setup::Bench;
use crate::subscriptions::stage::{PLAIN, Stage};
use crate::subscriptions::sustained_load;
use test_kit::commands::Failure;

/// The number of clients that connect and disconnect in a second.
const CHURN_RATE: &str = "2000";

/// Clients connect, subscribe, unsubscribe and disconnect; fails if the router keeps memory or descriptors of them.
pub(crate) fn churn(bench: &Bench) -> Result<(), Failure> {
    let stage = Stage::start(bench)?;
    let router = stage.start_router(None, "")?;
    let duration = format!("{}s", bench.seconds);
    let arguments = [
        ["--scenario", "churn"],
        ["--churn", CHURN_RATE],
        ["--duration", &duration],
        ["--query", PLAIN],
        ["--name", "churn"],
    ];
    let run = bench.run_subscription_load(
        &router,
        arguments.concat().into_iter().map(str::to_owned).collect(),
    )?;
    let churn = &run["churn"];
    println!("| | |\n|---|---|");
    println!(
        "| connected and disconnected | {} in {:.0} s |",
        churn["cycles"],
        number(&churn["seconds"])
    );
    println!(
        "| not started or not finished | {} |",
        number(&churn["skipped"]) + number(&churn["unfinished"])
    );
    println!(
        "| memory warm / at the end | {:.1} / {:.1} MiB |",
        number(&churn["resident_warm_mib"]),
        number(&churn["resident_end_mib"])
    );
    println!(
        "| descriptors before / after | {} / {} |",
        churn["descriptors_before"], churn["descriptors_after"]
    );
    for end in run["ends"].as_array().map(Vec::as_slice).unwrap_or_default() {
        println!("| {} | {} |", end["what"].as_str().unwrap_or("?"), end["count"]);
    }
    bench.write_report("churn", std::slice::from_ref(&run))?;
    let is = |what: &str| churn[what] == true;
    match (is("is_memory_flat"), is("are_descriptors_closed")) {
        (true, true) if run["ends"] == serde_json::json!([]) => {
            println!("\nmemory is flat, and no descriptor was left open");
            Ok(())
        }
        (true, true) => Err("connections ended unexpectedly".to_owned()),
        (false, _) => Err("memory grows".to_owned()),
        (_, false) => Err("descriptors were left open".to_owned()),
    }
}

/// Reloads the graph while `subscribers` clients receive events; fails if any client is disturbed.
pub(crate) fn reloads(bench: &Bench, subscribers: u32) -> Result<(), Failure> {
    let stage = Stage::start(bench)?;
    let runs = sustained_load::measure_reloads(&stage, subscribers)?;
    bench.write_report("reloads", &runs)?;
    match runs.iter().all(sustained_load::is_undisturbed) {
        true => Ok(()),
        false => Err("reloads of the graph disturbed subscribers".to_owned()),
    }
}
