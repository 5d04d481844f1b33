//! Reports about runs of `bench surge`: a table in plain text, a picture, and a page.

use super::page::document;
use super::picture::picture;
use super::plot::{Axes, COLOURS, Line};
use super::summary::LatencySummary;
use super::surge_run::{SurgeCounts, SurgeInterval, SurgeRun};
use super::table::{Row, drop_empty_rows, side_by_side};
use crate::units::{format_count, format_duration, format_number};

/// The maximum number of reasons with a line of their own in the picture.
const REASON_LINES_MAX: usize = 4;

/// A count that a line or a row shows.
type CountOf = fn(&SurgeCounts) -> u64;

/// One column: a run, or one class of the only run.
struct Column<'a> {
    name: String,
    counts: &'a SurgeCounts,
    latency: &'a LatencySummary,
    until_served: &'a LatencySummary,
    /// The run, if the column is not that of a class.
    run: Option<&'a SurgeRun>,
    seconds: f64,
}

/// Formats the runs side by side, with remarks below. A single run has a column for each class too, if it has several.
pub fn text(runs: &[SurgeRun]) -> String {
    let columns = columns(runs);
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let Some([run]) = runs.get(..).filter(|runs| runs.len() == 1) else {
        let remarks: Vec<Vec<String>> = runs.iter().map(remarks).collect();
        return side_by_side(&names, &rows(&columns), &remarks);
    };
    let table = side_by_side(&names, &rows(&columns), &vec![Vec::new(); columns.len()]);
    remarks(run).iter().fold(table, |text, remark| format!("{text}{remark}\n"))
}

/// Formats the runs as a page with their pictures.
pub fn html(title: &str, runs: &[SurgeRun]) -> String {
    let columns: Vec<Column<'_>> = runs.iter().map(run_column).collect();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let remarks: Vec<Vec<String>> = runs.iter().map(remarks).collect();
    let pictures = runs.iter().map(|run| format!("<figure>{}</figure>", svg(run)));
    document(title, &names, &rows(&columns), &remarks, &pictures.collect::<String>())
}

/// Draws a run: load, latency by class, and what was refused, repeated and given up.
pub fn svg(run: &SurgeRun) -> String {
    let axes = |title: &'static str, y: &'static str, y_logarithmic: bool| Axes {
        title,
        x: "seconds",
        y,
        x_ticks: &[],
        y_logarithmic,
        is_sparse: false,
    };
    let rates = |list: &[(&str, CountOf)], first: usize| -> Vec<Line> {
        let lines = list.iter().enumerate().map(|(index, (name, count))| {
            let points = run.intervals.iter().map(|interval| {
                (interval.at_seconds, interval.per_second(count(&interval.counts)))
            });
            line(name, first + index, false, points.collect())
        });
        lines.collect()
    };
    let load = rates(
        &[
            ("offered by users", |it| it.offered),
            ("sent", |it| it.sent),
            ("admitted", |it| it.admitted),
            ("goodput (in time)", |it| it.good),
        ],
        0,
    );
    let mut latency = Vec::new();
    for (index, class) in run.classes.iter().enumerate() {
        for (name, is_p99) in [("p50", false), ("p99", true)] {
            let points = run.intervals.iter().filter_map(|interval| {
                let latency = interval.latency.get(index)?;
                let us = if is_p99 { latency.p99_us } else { latency.p50_us };
                Some((interval.at_seconds, us? / 1e3))
            });
            let name = format!("{} {name}", class.name);
            latency.push(line(&name, index, is_p99, points.collect()));
        }
    }
    let shown = run.refusals.iter().take(REASON_LINES_MAX).enumerate();
    let mut refused: Vec<Line> = shown
        .map(|(index, reason)| {
            let count = |interval: &SurgeInterval| {
                let found = interval.refusals.iter().find(|it| it.what == reason.what);
                interval.per_second(found.map_or(0, |it| it.count))
            };
            let points = run.intervals.iter().map(|it| (it.at_seconds, count(it)));
            line(&format!("refused: {}", reason.what), index, false, points.collect())
        })
        .collect();
    let others: [(&str, CountOf); 4] = [
        ("repeated", |it| it.repeated),
        ("given up", |it| it.given_up),
        ("failed", |it| it.failed),
        ("never sent", |it| it.unsent),
    ];
    // A line that is zero all the time says nothing.
    let others: Vec<_> = others.into_iter().filter(|(_, count)| run.sum(count) > 0).collect();
    refused.extend(rates(&others, REASON_LINES_MAX));
    // Without a name of its own, a run is called after its URL.
    let title = match run.name == run.url {
        true => format!("{} at {}", run.shape, run.url),
        false => format!("{}: {} at {}", run.name, run.shape, run.url),
    };
    picture(
        &title,
        &[
            (axes("Requests a second", "1/s", false), load),
            (axes("Latency by class: p50, and p99 dashed", "ms", true), latency),
            (axes("Refused, repeated and given up a second", "1/s", false), refused),
        ],
    )
}

fn line(name: &str, colour: usize, dashed: bool, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), colour: colour % COLOURS, dashed, points }
}

fn run_column(run: &SurgeRun) -> Column<'_> {
    Column {
        name: run.name.clone(),
        counts: &run.totals,
        latency: &run.latency,
        until_served: &run.until_served,
        run: Some(run),
        seconds: run.duration_seconds,
    }
}

fn columns(runs: &[SurgeRun]) -> Vec<Column<'_>> {
    let [run] = runs else { return runs.iter().map(run_column).collect() };
    let mut columns = vec![Column { name: "all".to_owned(), ..run_column(run) }];
    if run.classes.len() > 1 {
        columns.extend(run.classes.iter().map(|class| Column {
            name: class.name.clone(),
            counts: &class.counts,
            latency: &class.latency,
            until_served: &class.until_served,
            run: None,
            seconds: run.duration_seconds,
        }));
    }
    columns
}

fn rows(columns: &[Column<'_>]) -> Vec<Row> {
    let of = |value: &dyn Fn(&Column<'_>) -> Option<String>| -> Vec<Option<String>> {
        columns.iter().map(value).collect()
    };
    let count = |value: CountOf| of(&|it| Some(format_count(value(it.counts))));
    // Rows for what rarely happens are left out if it did not happen.
    let some = |value: CountOf| match columns.iter().any(|it| value(it.counts) > 0) {
        true => count(value),
        false => vec![None; columns.len()],
    };
    let us = |value: f64| Some(format_duration(value / 1e6));
    let served = |it: &Column<'_>| it.counts.good + it.counts.late;
    let latency = |value: fn(&LatencySummary) -> f64| {
        of(&|it| us(value((served(it) > 0).then_some(it.latency)?)))
    };
    let until = |value: fn(&LatencySummary) -> f64| {
        of(&|it| us(value((it.counts.repeated > 0 && served(it) > 0).then_some(it.until_served)?)))
    };
    let server = |value: &dyn Fn(&super::SurgeServerUsage) -> String| {
        of(&|it| Some(value(it.run?.server.as_ref()?)))
    };
    let rows: Vec<Row> = vec![
        ("requests of users", count(|it| it.offered)),
        ("  served by clients' caches", some(|it| it.from_cache)),
        ("sent", count(|it| it.sent)),
        ("  of these, repeated", some(|it| it.repeated)),
        ("admitted", count(|it| it.admitted)),
        ("  correct and in time", count(|it| it.good)),
        ("  correct and too late", some(|it| it.late)),
        ("refused", count(|it| it.refused)),
        ("failed", count(|it| it.failed)),
        ("given up by users", count(|it| it.given_up)),
        ("never sent", some(|it| it.unsent)),
        (
            "goodput, 1/s",
            of(&|it| Some(format_number(it.counts.good as f64 / it.seconds.max(1e-9)))),
        ),
        ("latency p50", latency(|it| it.p50_us)),
        ("  p99", latency(|it| it.p99_us)),
        ("  max", latency(|it| it.max_us)),
        ("until served, p50", until(|it| it.p50_us)),
        ("  p99", until(|it| it.p99_us)),
        (
            "subscribers, in the end",
            of(&|it| {
                let last = it.run?.intervals.last()?.subscribers?;
                Some(format_count(last.subscribed))
            }),
        ),
        ("connections, at most", of(&|it| Some(format_count(it.run?.connections_peak as u64)))),
        ("server cores", server(&|it| format!("{:.2}", it.cores))),
        ("server memory, begin", server(&|it| format!("{:.1} MiB", it.resident_begin_mib))),
        ("server memory, end", server(&|it| format!("{:.1} MiB", it.resident_end_mib))),
        ("server memory, most", server(&|it| format!("{:.1} MiB", it.resident_max_mib))),
        ("generator cores", of(&|it| Some(format!("{:.2}", it.run?.generator.cores)))),
    ];
    drop_empty_rows(rows)
}

/// Returns the remarks that a reader needs to judge the figures.
fn remarks(run: &SurgeRun) -> Vec<String> {
    let mut remarks = Vec::new();
    for refusal in &run.refusals {
        remarks.push(format!("{} × refused: {}", format_count(refusal.count), refusal.what));
    }
    for failure in &run.failures {
        remarks.push(format!("{} × failed: {}", format_count(failure.count), failure.what));
    }
    if let Some(example) = &run.example {
        remarks.push(format!("the first wrong response: {example}"));
    }
    if let Some(subscribers) = &run.subscribers {
        for end in &subscribers.ended {
            remarks.push(format!("{} subscribers lost: {}", format_count(end.count), end.what));
        }
        if let Some(example) = &subscribers.example {
            remarks.push(format!("the first problem of a subscriber: {example}"));
        }
    }
    let generator = &run.generator;
    if generator.is_bottleneck {
        remarks.push(format!(
            "the load generator was a limit: at most {:.2} cores, {} late sends (at most {} late), {} never sent. \
             The figures are not the server's alone: give it a core of its own, or more --connections",
            generator.cores_max,
            format_count(generator.late_sends),
            format_duration(generator.late_max_ms / 1e3),
            format_count(run.totals.unsent)
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FailureCount, Runs, SurgeClass, SurgeGeneratorUsage, SurgeLatency};

    fn run() -> SurgeRun {
        let counts = SurgeCounts {
            offered: 1000,
            from_cache: 100,
            sent: 950,
            repeated: 50,
            admitted: 900,
            good: 890,
            late: 10,
            refused: 50,
            given_up: 3,
            ..SurgeCounts::default()
        };
        let latency =
            LatencySummary { p50_us: 812.0, p99_us: 4_310.0, ..LatencySummary::default() };
        let class = |name: &str| SurgeClass {
            name: name.to_owned(),
            counts,
            latency: latency.clone(),
            until_served: latency.clone(),
        };
        let refusals = vec![FailureCount { what: "503 OVERLOADED".to_owned(), count: 50 }];
        let interval = |at: f64| SurgeInterval {
            at_seconds: at,
            seconds: 1.0,
            counts,
            refusals: refusals.clone(),
            latency: vec![SurgeLatency { p50_us: Some(800.0), p99_us: Some(4_000.0) }; 2],
            ..SurgeInterval::default()
        };
        SurgeRun {
            name: "match <day>".to_owned(),
            shape: "doubling".to_owned(),
            duration_seconds: 2.0,
            totals: counts,
            latency: latency.clone(),
            until_served: latency.clone(),
            classes: vec![class("scores"), class("checkout")],
            refusals: refusals.clone(),
            generator: SurgeGeneratorUsage {
                cores_max: 0.97,
                late_sends: 12,
                late_max_ms: 40.0,
                is_bottleneck: true,
                ..SurgeGeneratorUsage::default()
            },
            intervals: vec![interval(1.0), interval(2.0)],
            ..SurgeRun::default()
        }
    }

    #[test]
    fn a_run_is_a_table_with_its_classes_and_says_why_requests_were_refused() {
        let text = text(&[run()]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "all scores checkout",
            "requests of users 1,000 1,000 1,000",
            "served by clients' caches 100 100 100",
            "correct and in time 890 890 890",
            "goodput, 1/s 445 445 445",
            "latency p50 812 µs 812 µs 812 µs",
            "50 × refused: 503 OVERLOADED",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}\n\n{text}");
        }
        assert!(text.contains("the load generator was a limit: at most 0.97 cores, 12 late"));
        assert!(!text.contains("never sent  "), "{text}");
    }

    #[test]
    fn the_picture_has_a_line_for_each_kind_of_load_class_and_refusal() {
        let svg = svg(&run());
        for name in [
            "offered by users",
            "goodput (in time)",
            "scores p50",
            "checkout p99",
            "refused: 503 OVERLOADED",
            "repeated",
            "given up",
        ] {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}: {svg}");
        }
        assert!(svg.contains("match &lt;day&gt;: doubling") && !svg.contains(">never sent<"));
    }

    #[test]
    fn reports_are_read_again_and_not_mixed_with_others() {
        let json = serde_json::to_string(&[run()]).unwrap();
        let mut runs = Runs::read(&json).unwrap();
        assert_eq!(runs, Runs::Surge(vec![run()]));
        assert!(runs.append(Runs::read("[{}]").unwrap()).is_err());
        runs.append(Runs::read(&json).unwrap()).unwrap();
        let (text, page) = (runs.text(), runs.html("A & B"));
        assert!(text.contains("match <day>: 50 × refused: 503 OVERLOADED"), "{text}");
        assert!(!page.contains("<script") && page.matches("<figure>").count() == 2);
    }
}
