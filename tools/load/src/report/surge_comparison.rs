//! A picture of several servers under the same loads: goodput and latency by load.

use super::picture::picture;
use super::plot::{Axes, COLOURS, Line};
use super::surge_run::SurgeRun;

/// The runs of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct SurgeSeries {
    /// The name of the server in the picture.
    pub name: String,
    /// The runs, one for each load. Runs of different servers with the same name are compared.
    pub runs: Vec<SurgeRun>,
}

/// Draws the goodput of each server as a rate and as a part of what it could have served, its p99, and the refused
/// part. That is what was offered, up to the capacity of the server, or up to its highest goodput if the capacity is
/// not known. The loads are in the order of the first server; those that only others have are left out.
pub fn svg(title: &str, servers: &[SurgeSeries]) -> String {
    let loads: Vec<&str> =
        servers.first().iter().flat_map(|it| &it.runs).map(|run| run.name.as_str()).collect();
    let ticks: Vec<(f64, &str)> =
        loads.iter().enumerate().map(|(index, name)| (index as f64, *name)).collect();
    let lines = |value: fn(&SurgeRun, f64) -> Option<f64>| -> Vec<Line> {
        let lines = servers.iter().enumerate().map(|(index, server)| {
            let peak = server.runs.iter().map(goodput).fold(0.0, f64::max);
            let points = ticks.iter().filter_map(|(x, name)| {
                let run = server.runs.iter().find(|run| run.name == *name)?;
                Some((*x, value(run, peak)?))
            });
            Line {
                name: server.name.clone(),
                colour: index % COLOURS,
                dashed: false,
                points: points.collect(),
            }
        });
        lines.collect()
    };
    let axes = |title: &'static str, y: &'static str, y_logarithmic: bool| Axes {
        title,
        x: "load",
        y,
        x_ticks: &ticks,
        y_logarithmic,
        is_sparse: true,
    };
    picture(
        title,
        &[
            (
                axes("Goodput: correct responses in time, in a second", "1/s", true),
                lines(|run, _| Some(goodput(run))),
            ),
            (
                axes("Goodput, percent of what was offered, up to the capacity", "%", false),
                lines(|run, peak| {
                    let attainable = attainable(run, run.capacity.unwrap_or(peak));
                    (attainable > 0.0).then(|| 100.0 * run.totals.good as f64 / attainable)
                }),
            ),
            (
                axes("Latency of correct responses, p99", "ms", true),
                lines(|run, _| {
                    (run.totals.good + run.totals.late > 0).then_some(run.latency.p99_us / 1e3)
                }),
            ),
            (
                axes("Refused at once, percent of what was sent", "%", false),
                lines(|run, _| {
                    let sent = run.totals.sent as f64;
                    (sent > 0.0).then(|| 100.0 * run.totals.refused as f64 / sent)
                }),
            ),
        ],
    )
}

fn goodput(run: &SurgeRun) -> f64 {
    run.totals.good as f64 / run.duration_seconds.max(1e-9)
}

/// Returns the number of requests that a server with this capacity could have served: those that were offered, as far
/// as they were no more than that at any time.
fn attainable(run: &SurgeRun, capacity: f64) -> f64 {
    let of = |offered: u64, seconds: f64| (offered as f64).min(capacity * seconds);
    if run.intervals.is_empty() {
        return of(run.totals.offered, run.duration_seconds);
    }
    run.intervals.iter().map(|interval| of(interval.counts.offered, interval.seconds)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{LatencySummary, SurgeCounts, SurgeInterval};

    fn run(name: &str, good: u64, p99_ms: f64) -> SurgeRun {
        let totals = SurgeCounts {
            offered: 1_000,
            sent: 1_000,
            good,
            refused: 1_000 - good,
            ..Default::default()
        };
        SurgeRun {
            name: name.to_owned(),
            duration_seconds: 2.0,
            totals,
            latency: LatencySummary { p99_us: p99_ms * 1e3, ..LatencySummary::default() },
            ..SurgeRun::default()
        }
    }

    fn interval(offered: u64) -> SurgeInterval {
        let counts = SurgeCounts { offered, ..Default::default() };
        SurgeInterval { seconds: 1.0, counts, ..Default::default() }
    }

    /// The values that the marks of a line name, in the order of the plots.
    fn marks(svg: &str, name: &str) -> Vec<String> {
        let marks = svg.split("<circle").skip(1).filter_map(|mark| {
            let title = mark.split_once("<title>")?.1.split_once("</title>")?.0;
            title.strip_prefix(&format!("{name}: "))
        });
        marks.map(str::to_owned).collect()
    }

    #[test]
    fn servers_are_compared_by_the_names_of_their_loads() {
        let fast = vec![run("1x", 800, 120.0), run("10x", 720, 250.0)];
        let slow = vec![run("10x", 0, 0.0), run("1x", 40, 900.0), run("only here", 50, 1.0)];
        let series = [("fast", fast), ("slow", slow)]
            .map(|(name, runs)| SurgeSeries { name: name.to_owned(), runs });
        let svg = svg("Two servers", &series);
        for text in ["Two servers", ">1x</text>", ">10x</text>", ">fast</text>", ">slow</text>"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("only here"), "{svg}");
        let found = marks(&svg, "fast");
        assert_eq!(found.len(), 8, "two loads in four plots: {found:?}");
        assert!(
            found.contains(&"400".to_owned()) && found.contains(&"90.0".to_owned()),
            "{found:?}"
        );
        // A rising load: what is above the capacity (400 in a second) was not attainable.
        let rising =
            SurgeRun { intervals: [100, 900].map(interval).to_vec(), ..run("x", 450, 9.0) };
        assert_eq!(attainable(&rising, 400.0), 500.0);
        assert_eq!(attainable(&run("x", 450, 9.0), 400.0), 800.0);
        // Without goodput there is neither a rate on the logarithmic axis nor a latency.
        assert_eq!(marks(&svg, "slow").len(), 1 + 2 + 1 + 2);
    }
}
