//! `doubling`: traffic grows from 70 % of the capacity to twice as much and stays there, and clients repeat what is
//! refused.

use super::bounds::{Bound, Bounds};
use super::stage::{
    OverloadStage, RISE_THIRDS, SurgeLoad, class, print_head, print_row, surge_arguments,
};
use crate::reports::number;
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use test_kit::commands::Failure;

/// The load in the beginning, as a part of the capacity.
const BEGIN_SHARE: f64 = 0.7;

/// The classes of requests and their weights. Only a small part may be critical.
const CRITICAL: (&str, u32) = ("critical", 1);
const NORMAL: (&str, u32) = ("normal", 9);

/// The maximum p50 of admitted requests once the load is at its highest.
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
    let (capacity, closed) = stage.measure_capacity(bench)?;
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
    let served = number(&critical["counts"]["good"]);
    bounds.check("critical requests that were served", served, Bound::AtLeast(1.0), "");
    let p50 = plateau_p50_ms(&run);
    bounds.check(
        "p50 at the highest load, in the median second",
        p50,
        Bound::AtMost(P50_MS_MAX),
        " ms",
    );
    Ok(vec![closed, run])
}

/// Returns the p50 of normal requests in the median second of those in which the load no longer rises, in milliseconds;
/// not a number if nothing was served.
fn plateau_p50_ms(run: &Value) -> f64 {
    let intervals = run["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rising = intervals.len() * RISE_THIRDS as usize / 3;
    let p50s = intervals.iter().skip(rising).map(|it| {
        let classes = it["latency"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Critical requests, then normal ones. A second in which nothing is served is one with an endless latency.
        classes.get(1).and_then(|it| it["p50_us"].as_f64()).unwrap_or(f64::INFINITY) / 1e3
    });
    let mut p50s: Vec<f64> = p50s.collect();
    p50s.sort_by(f64::total_cmp);
    p50s.get(p50s.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_seconds_count_in_which_the_load_no_longer_rises() {
        let second = |p50_us: Value| json!({"latency": [{"p50_us": 1.0}, {"p50_us": p50_us}]});
        let run = |seconds: &[Value]| json!({"intervals": seconds.to_vec()});
        let rising = [1e3, 1e3, 1e3, 1e3, 1e3, 1e3].map(|it| second(json!(it)));
        let highest = [json!(180e3), json!(150e3), Value::Null].map(second);
        assert_eq!(plateau_p50_ms(&run(&[&rising[..], &highest].concat())), 180.0);
        assert!(plateau_p50_ms(&run(&[])).is_nan());
    }
}
