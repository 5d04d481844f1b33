//! `doubling`: traffic grows from 70 % of the capacity to twice as much, and clients repeat what is refused.

use super::bounds::{Bound, Bounds};
use super::stage::{OverloadStage, SurgeLoad, class, print_head, print_row, surge_arguments};
use crate::reports::number;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use test_kit::commands::Failure;

/// The load in the beginning, as a part of the capacity.
const BEGIN_SHARE: f64 = 0.7;

/// The classes of requests and their weights. Only a small part may be critical.
const CRITICAL: (&str, u32) = ("critical", 1);
const NORMAL: (&str, u32) = ("normal", 9);

/// The maximum p50 of all admitted requests.
const P50_MS_MAX: f64 = 200.0;

/// The setting that makes requests critical.
const PRIORITY: &str = "admission:\n  \
                        priority: [{when: \"request.headers['x-class'] == 'critical'\", class: critical}]\n";

/// Returns the load, and the arguments of clients that repeat what is refused.
pub(super) fn rising(capacity: f64) -> (SurgeLoad, [&'static str; 2]) {
    (SurgeLoad::Rising(BEGIN_SHARE * capacity, 2.0 * BEGIN_SHARE * capacity), ["--retries", "3"])
}

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let (capacity, closed) = stage.measure_capacity()?;
    let router = stage.start_router(PRIORITY)?;
    let entries = [CRITICAL, NORMAL].map(|(name, weight)| {
        json!({"name": name, "weight": weight, "operation": stage.operation, "headers": {"x-class": name}})
    });
    let mix = bench.scratch_folder("overload")?.join("classes.json");
    write_file(&mix, &json!({ "operations": entries }).to_string())?;
    let (load, repeating) = rising(capacity);
    let mix = mix.display().to_string();
    let extra = [&repeating[..], &["--mix", &mix]].concat();
    let run = bench.run_surge(&router, "doubling", &surge_arguments(bench, load, &extra)?)?;
    print_head();
    print_row("all", &run, bench.seconds);
    let critical = class(&run, CRITICAL.0)?;
    print_row(CRITICAL.0, critical, bench.seconds);
    print_row(NORMAL.0, class(&run, NORMAL.0)?, bench.seconds);
    bounds.check(
        "critical requests that were refused",
        number(&critical["counts"]["refused"]),
        Bound::AtMost(0.0),
        "",
    );
    bounds.check(
        "critical requests that failed or were given up",
        number(&critical["counts"]["failed"]) + number(&critical["counts"]["given_up"]),
        Bound::AtMost(0.0),
        "",
    );
    let p50 = number(&run["latency"]["p50_us"]) / 1e3;
    bounds.check("p50 of admitted requests", p50, Bound::AtMost(P50_MS_MAX), " ms");
    Ok(vec![closed, run])
}
