//! `multiples`: one, two, three and ten times the capacity, beside 80 % of it.
//!
//! The machine does not keep its speed for minutes. So a load is sent in pieces to the same router, and the peak is
//! measured before and after each piece: the closed loop with a router that refuses nothing. The goodput is compared
//! with the mean of both. The load of a piece is a multiple of the peak before it, and 80 % come before each multiple.
//! Meanwhile a load balancer asks for the health of the router, which never waits.

use super::bounds::{Bound, Bounds};
use super::pieces::{PIECE_SECONDS, median, pieces_of};
use super::stage::{OverloadStage, SurgeLoad, p99_ms, print_head, print_row, share_of_peak};
use crate::broker_connections::fetch_page;
use crate::load_generator::RunningLoad;
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

/// The maximum seconds in which the peak is measured between two pieces.
const PEAK_SECONDS: u32 = 6;

/// The minimum goodput, in percent of the peak.
const GOODPUT_PERCENT_MIN: f64 = 95.0;

/// The maximum p99 of admitted requests, as a multiple of that of the reference.
const P99_FACTOR_MAX: f64 = 3.0;

/// The time between two health checks, and the longest one may take.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
const HEALTH_SECONDS_MAX: f64 = 1.0;

/// The maximum growth of memory between the first third of a run and its last, in percent, and the growth in MiB that
/// is within the steps of an allocator.
const GROWTH_PERCENT_MAX: f64 = 5.0;
const GROWTH_MIB_SPARE: f64 = 4.0;

/// The part of the highest number of connections with which the memory of an interval counts. Each connection has
/// buffers, and a load at the capacity opens more of them while the machine is slow.
const CONNECTIONS_SHARE_MIN: f64 = 0.9;

/// The runs at one load.
struct LoadRuns {
    name: String,
    /// The run of the reference that came before them.
    reference: Value,
    pieces: Vec<Piece>,
}

/// The run of one piece of a load, and the peak around it.
struct Piece {
    run: Value,
    seconds: u32,
    peak: f64,
}

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let between = bench.within_seconds(PEAK_SECONDS);
    let stage = OverloadStage::start(bench)?;
    let (_, closed) = stage.measure_capacity(bench)?;
    let router = stage.start_router("")?;
    print_head();
    let mut before = stage.measure_peak(&between)?;
    let mut loads = Vec::new();
    let mut slowest_check: f64 = 0.0;
    for multiple in MULTIPLES {
        let name = format!("{multiple}x");
        let rate = |peak: f64, factor: f64| SurgeLoad::Constant(peak * factor);
        let reference = {
            let (name, piece) =
                (format!("{REFERENCE_SHARE}x"), bench.within_seconds(PIECE_SECONDS));
            let load = rate(before, REFERENCE_SHARE);
            let run = stage.start_surge_of(&piece, &router, &name, load)?.finish()?;
            print_row(&name, &run, piece.seconds);
            run
        };
        let mut pieces = Vec::new();
        for (number, piece) in pieces_of(bench) {
            let (name, seconds) = (format!("{name}, piece {number}"), piece.seconds);
            let load = rate(before, multiple.into());
            let surge = stage.start_surge_of(&piece, &router, &name, load)?;
            let (run, health) = finish_with_health_checks(surge, &router)?;
            slowest_check = slowest_check.max(health);
            print_row(&name, &run, seconds);
            let after = stage.measure_peak(&between)?;
            pieces.push(Piece { run, seconds, peak: (before + after) / 2.0 });
            before = after;
        }
        loads.push(LoadRuns { name, reference, pieces });
    }
    for load in &loads {
        load.check(bounds);
    }
    bounds.check("slowest health check", slowest_check, Bound::AtMost(HEALTH_SECONDS_MAX), " s");
    let runs = loads.into_iter().flat_map(|load| {
        [load.reference].into_iter().chain(load.pieces.into_iter().map(|piece| piece.run))
    });
    Ok([closed].into_iter().chain(runs).collect())
}

impl LoadRuns {
    /// Checks the figures of all pieces as one load.
    fn check(&self, bounds: &mut Bounds) {
        let Self { name, reference, pieces } = self;
        let peaks: Vec<String> = pieces.iter().map(|piece| format!("{:.0}", piece.peak)).collect();
        let what = format!(
            "{name}: goodput, share of the peaks around its pieces ({}/s) or of the offered load",
            peaks.join(", ")
        );
        bounds.check(what, self.share_of_peak(), Bound::AtLeast(GOODPUT_PERCENT_MIN), " %");
        // The slowest piece. One without a p99 (not a number) is the largest.
        let p99 = pieces.iter().map(|piece| p99_ms(&piece.run)).max_by(f64::total_cmp);
        let p99 = p99.unwrap_or(f64::NAN);
        let what = format!("{name}: p99 of admitted requests, as a multiple of that at 80 %");
        bounds.check(what, p99 / p99_ms(reference), Bound::AtMost(P99_FACTOR_MAX), "");
        let what = format!("{name}: growth of memory");
        let growth = memory_growth(pieces.iter().map(|piece| &piece.run));
        bounds.check(what, growth, Bound::AtMost(GROWTH_PERCENT_MAX), " %");
    }

    /// Returns the goodput of all pieces in percent of what it would have been at the peaks around them, or of all that
    /// was offered where that is less.
    fn share_of_peak(&self) -> f64 {
        let good = |piece: &Piece| number(&piece.run["totals"]["good"]);
        // The good responses that each piece would have at its peak.
        let possible = |piece: &Piece| {
            100.0 * good(piece) / share_of_peak(&piece.run, piece.peak, piece.seconds)
        };
        let pieces = self.pieces.iter();
        100.0 * pieces.clone().map(good).sum::<f64>() / pieces.map(possible).sum::<f64>()
    }
}

/// Waits for the end of a surge. Returns the run, and the seconds of the slowest health check meanwhile.
fn finish_with_health_checks(
    mut running: RunningLoad,
    router: &ServerProcess,
) -> Result<(Value, f64), Failure> {
    let admin = router.admin.ok_or("the router has no admin listener")?;
    let mut slowest: f64 = 0.0;
    while running.is_running() {
        let began = Instant::now();
        fetch_page(admin, "/health/ready")?;
        slowest = slowest.max(began.elapsed().as_secs_f64());
        std::thread::sleep(HEALTH_INTERVAL);
    }
    Ok((running.finish()?, slowest))
}

/// Returns the growth of the median of resident memory between the first third of some runs and the last, in percent;
/// zero if it is within the steps of an allocator, and not a number if the memory is not known. Only intervals with
/// about the highest number of connections count. The highest memory says nothing about growth: what a burst takes is
/// free again some seconds later.
fn memory_growth<'a>(runs: impl Iterator<Item = &'a Value>) -> f64 {
    let intervals = runs.filter_map(|run| run["intervals"].as_array()).flatten();
    let measured: Vec<(f64, f64)> = intervals
        .map(|it| (number(&it["server_resident_mib"]), number(&it["connections"])))
        .collect();
    let connections = measured.iter().map(|it| it.1).fold(0.0, f64::max) * CONNECTIONS_SHARE_MIN;
    let memory: Vec<f64> =
        measured.iter().filter(|it| it.1 >= connections).map(|it| it.0).collect();
    let third = (memory.len() / 3).max(1).min(memory.len());
    let (first, last) = (median(&memory[..third]), median(&memory[memory.len() - third..]));
    if memory.is_empty() || memory.iter().any(|&mib| mib <= 0.0) {
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

    fn interval(mib: f64, connections: u32) -> Value {
        json!({"server_resident_mib": mib, "connections": connections})
    }

    #[test]
    fn memory_that_connections_do_not_explain_has_grown() {
        let run = |measured: &[(f64, u32)]| {
            let intervals = measured.iter().map(|it| interval(it.0, it.1));
            json!({ "intervals": intervals.collect::<Vec<_>>() })
        };
        let growth = |measured: &[(f64, u32)]| memory_growth([&run(measured)].into_iter());
        assert_eq!(growth(&[(90.0, 1000), (200.0, 5500), (230.0, 6000), (200.0, 6000)]), 0.0);
        assert_eq!(growth(&[(90.0, 1000), (200.0, 5500), (230.0, 6000), (240.0, 6000)]), 20.0);
    }

    #[test]
    fn memory_grows_if_its_last_third_is_above_its_first() {
        let run = |memory: &[f64]| {
            let intervals = memory.iter().map(|&mib| interval(mib, 10));
            json!({ "intervals": intervals.collect::<Vec<_>>() })
        };
        for (memory, expected) in [
            (&[50.0][..], 0.0),
            (&[50.0, 53.0, 54.0], 0.0),
            (&[50.0, 90.0, 50.0], 0.0),
            (&[50.0, 50.0, 70.0, 80.0, 60.0, 60.0], 20.0),
            (&[50.0, 50.0, 50.0, 50.0, 90.0, 50.0, 50.0, 90.0, 50.0], 0.0),
        ] {
            assert_eq!(memory_growth([&run(memory)].into_iter()), expected, "{memory:?}");
        }
        let pieces = [run(&[40.0]), run(&[50.0]), run(&[50.0])];
        assert_eq!(memory_growth(pieces.iter()), 25.0, "the pieces are one load");
        for memory in [&[][..], &[0.0], &[50.0, 0.0]] {
            assert!(memory_growth([&run(memory)].into_iter()).is_nan());
        }
    }

    #[test]
    fn the_goodput_is_that_of_all_pieces_together() {
        let piece = |good: u32, seconds: u32, peak: f64| {
            let run = json!({"totals": {"offered": 1_000_000, "good": good}});
            Piece { run, seconds, peak }
        };
        // 1,800 of 2,000 responses while the peak was low, and all of 2,000.
        let pieces = vec![piece(1800, 20, 100.0), piece(2000, 10, 200.0)];
        let load = LoadRuns { name: "1x".to_owned(), reference: Value::Null, pieces };
        assert!((load.share_of_peak() - 95.0).abs() < 1e-9, "{}", load.share_of_peak());
    }
}
