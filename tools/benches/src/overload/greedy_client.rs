//! `greedy-client`: one client sends ten times its share.
//!
//! That client and the others have a process of the load generator each, so that their requests meet in the router
//! only: with shared connections, those of the others would wait for the ones that the greedy client holds. The process
//! of the greedy client has a low priority, so that the others and the mocks, which run on the same core, do not wait
//! for it.
//!
//! The greedy client comes in pieces, each between two with equal shares, with loads in proportion to the capacity at
//! that time. What a piece is compared with comes before and after it, because the speed of the machine changes within
//! a minute. A piece counts if the machine has kept its speed: with equal shares next to nothing was refused.

use super::bounds::{Bound, Bounds};
use super::pieces::{Rises, is_steady, pieces_of, refused_percent};
use super::stage::{OverloadStage, SurgeLoad, print_head, print_row, surge_arguments};
use crate::load_generator::Priority;
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use serde_json::Value;
use test_kit::commands::Failure;

/// The number of clients with equal shares, and their load together, as a part of the capacity.
const CLIENTS: u32 = 10;
const LOAD_SHARE: f64 = 0.7;

/// The load of the greedy client, as a multiple of its share.
pub(super) const GREED: u32 = 10;

/// The maximum number of connections of the greedy client, and of the others: together as many as in other surges. The
/// others have more than they need, the greedy client keeps many open on which it is refused.
const GREEDY_CONNECTIONS: &str = "4000";
const OTHER_CONNECTIONS: &str = "2000";

/// The seconds in which the capacity is measured before a piece.
const CAPACITY_SECONDS: u32 = 6;

/// The maximum rise of the p99 of the others, in percent.
const RISE_PERCENT_MAX: f64 = 20.0;

/// The maximum share of requests of the others that are refused, in percent.
const REFUSED_PERCENT_MAX: f64 = 1.0;

/// The header that tells clients apart, and the setting with it.
const CLIENT_HEADER: &str = "x-client";
pub(super) const FAIR: &str = "admission: {fair_by: \"request.headers['x-client']\"}\n";

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let router = stage.start_router(FAIR)?;
    let (mut runs, mut rises, mut beside) = (Vec::new(), Rises::default(), Vec::new());
    for (index, piece) in pieces_of(bench) {
        let (capacity, closed) = stage.measure_capacity(&bench.within_seconds(CAPACITY_SECONDS))?;
        print_head();
        let surge = |what: &str, greed: u32| {
            let name = format!("{what}, piece {index}");
            surge_of_clients(&stage, &piece, &router, capacity, &name, greed)
        };
        let [before, one_before] = surge("equal shares, before", 1)?;
        let [during, one_during] = surge("ten times its share", GREED)?;
        let [after, one_after] = surge("equal shares, after", 1)?;
        if is_steady(&[&before, &one_before, &after, &one_after]) {
            rises.add(&[&before, &after], &during);
            beside.push(during.clone());
        } else {
            println!("\nrefused below the capacity: this piece does not count");
        }
        runs.extend([closed, before, one_before, during, one_during, after, one_after]);
        println!();
    }
    if beside.is_empty() {
        return Err("the machine does not keep its speed for long enough".to_owned());
    }
    rises.check("the p99 of the others", RISE_PERCENT_MAX, bounds);
    bounds.check(
        "requests of the others that were refused",
        refused_percent(&beside.iter().collect::<Vec<_>>()),
        Bound::AtMost(REFUSED_PERCENT_MAX),
        " %",
    );
    Ok(runs)
}

/// Sends the load of all clients, and that of one of them times `greed`. Prints and returns the run of the others and
/// that of the one.
pub(super) fn surge_of_clients(
    stage: &OverloadStage<'_>,
    bench: &Bench,
    router: &ServerProcess,
    capacity: f64,
    name: &str,
    greed: u32,
) -> Result<[Value; 2], Failure> {
    let share = LOAD_SHARE * capacity / f64::from(CLIENTS);
    let operation = stage.operation.display().to_string();
    let start = |who: &str, shares: u32, extra: &[&str], priority: Priority| {
        let extra = [&["--operation", &operation][..], extra].concat();
        let load = SurgeLoad::Constant(share * f64::from(shares));
        let arguments = surge_arguments(bench, load, &extra)?;
        bench.start_surge_with_priority(router, &format!("{name}: {who}"), &arguments, priority)
    };
    let count = (CLIENTS - 1).to_string();
    let others = ["--client-header", CLIENT_HEADER, "--clients", &count];
    let others = [&others[..], &["--connections", OTHER_CONNECTIONS]].concat();
    let one = format!("{CLIENT_HEADER}: one");
    let one = ["--header", &one, "--connections", GREEDY_CONNECTIONS];
    let others = start("others", CLIENTS - 1, &others, Priority::Normal)?;
    let one = start("one client", greed, &one, Priority::Low)?;
    let runs = [others.finish()?, one.finish()?];
    for run in &runs {
        print_row(run["name"].as_str().unwrap_or(name), run, bench.seconds);
    }
    Ok(runs)
}
