//! `multiples`: one, two, three and ten times the capacity, beside 80 % of it.
//!
//! The machine does not keep its speed for minutes, so the peak is measured before and after each load: the closed loop
//! with a router that refuses nothing. The goodput is compared with the mean of both. Meanwhile a load balancer asks
//! for the health of the router, which never waits.

use super::bounds::{Bound, Bounds};
use super::stage::{OverloadStage, SurgeLoad, p99_ms, print_head, print_row, share_of_peak};
use crate::broker_connections::fetch_page;
use crate::reports::number;
use crate::server_process::ServerProcess;
use crate::setup::Bench;
use serde_json::Value;
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The offered load, as multiples of the capacity.
const MULTIPLES: [u32; 4] = [1, 2, 3, 10];

/// The load of the reference, as a part of the capacity.
const REFERENCE_SHARE: f64 = 0.8;

/// The maximum seconds in which the peak is measured between two loads.
const PEAK_SECONDS: u32 = 8;

/// The minimum goodput, in percent of the peak.
const GOODPUT_PERCENT_MIN: f64 = 95.0;

/// The maximum p99 of admitted requests, as a multiple of that of the reference.
const P99_FACTOR_MAX: f64 = 3.0;

/// The time between two health checks, and the longest one may take.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
const HEALTH_SECONDS_MAX: f64 = 1.0;

/// The maximum growth of memory between the first third of a run and its last, in percent, and the growth in MiB that
/// is within the steps of an allocator, and not a number if the memory is not known.
const GROWTH_PERCENT_MAX: f64 = 5.0;
const GROWTH_MIB_SPARE: f64 = 4.0;

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let (capacity, closed) = stage.measure_capacity()?;
    let router = stage.start_router("")?;
    let load = |factor: f64| SurgeLoad::Constant(capacity * factor);
    print_head();
    let name = format!("{REFERENCE_SHARE}x");
    let reference = stage.run_surge(&router, &name, load(REFERENCE_SHARE), &[])?;
    print_row(&name, &reference, bench.seconds);
    let between = bench.within_seconds(PEAK_SECONDS);
    let mut before = stage.measure_peak(&between)?;
    let mut surges = Vec::new();
    let mut slowest_check: f64 = 0.0;
    for multiple in MULTIPLES {
        let name = format!("{multiple}x");
        let (run, health) =
            surge_with_health_checks(&stage, &router, &name, load(multiple.into()))?;
        slowest_check = slowest_check.max(health);
        print_row(&name, &run, bench.seconds);
        let after = stage.measure_peak(&between)?;
        surges.push((name, run, (before + after) / 2.0));
        before = after;
    }
    for (name, run, peak) in &surges {
        let share = share_of_peak(run, *peak, bench.seconds);
        let what = format!(
            "{name}: goodput, share of the peak around it ({peak:.0}/s) or of the offered load"
        );
        bounds.check(what, share, Bound::AtLeast(GOODPUT_PERCENT_MIN), " %");
        let factor = p99_ms(run) / p99_ms(&reference);
        let what = format!("{name}: p99 of admitted requests, as a multiple of that at 80 %");
        bounds.check(what, factor, Bound::AtMost(P99_FACTOR_MAX), "");
        let what = format!("{name}: growth of memory");
        bounds.check(what, memory_growth(run), Bound::AtMost(GROWTH_PERCENT_MAX), " %");
    }
    bounds.check("slowest health check", slowest_check, Bound::AtMost(HEALTH_SECONDS_MAX), " s");
    let surges = surges.into_iter().map(|(_, run, _)| run);
    Ok([closed, reference].into_iter().chain(surges).collect())
}

/// Runs a surge. Returns the run, and the seconds of the slowest health check meanwhile.
fn surge_with_health_checks(
    stage: &OverloadStage<'_>,
    router: &ServerProcess,
    name: &str,
    load: SurgeLoad,
) -> Result<(Value, f64), Failure> {
    let admin = router.admin.ok_or("the router has no admin listener")?;
    let mut running = stage.start_surge(router, name, load, &[])?;
    let mut slowest: f64 = 0.0;
    while running.is_running() {
        let began = Instant::now();
        fetch_page(admin, "/health/ready")?;
        slowest = slowest.max(began.elapsed().as_secs_f64());
        std::thread::sleep(HEALTH_INTERVAL);
    }
    Ok((running.finish()?, slowest))
}

/// Returns the growth of resident memory between the first third of a run and its last, in percent; zero if it is
/// within the steps of an allocator.
fn memory_growth(run: &Value) -> f64 {
    let intervals = run["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let memory: Vec<f64> =
        intervals.iter().map(|interval| number(&interval["server_resident_mib"])).collect();
    let third = (memory.len() / 3).max(1).min(memory.len());
    let most = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let (first, last) = (most(&memory[..third]), most(&memory[memory.len() - third..]));
    if first <= 0.0 {
        return f64::NAN;
    }
    match last - first {
        grown if grown <= GROWTH_MIB_SPARE => 0.0,
        grown => 100.0 * grown / first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn memory_grows_if_its_last_third_is_above_its_first() {
        let run = |memory: &[f64]| {
            let intervals: Vec<Value> =
                memory.iter().map(|mib| json!({"server_resident_mib": mib})).collect();
            json!({ "intervals": intervals })
        };
        for (memory, expected) in [
            (&[50.0][..], 0.0),
            (&[50.0, 53.0, 54.0], 0.0),
            (&[50.0, 90.0, 50.0], 0.0),
            (&[40.0, 50.0, 70.0, 80.0, 60.0, 60.0], 20.0),
        ] {
            assert_eq!(memory_growth(&run(memory)), expected, "{memory:?}");
        }
        assert!(memory_growth(&run(&[])).is_nan() && memory_growth(&run(&[0.0])).is_nan());
    }
}
