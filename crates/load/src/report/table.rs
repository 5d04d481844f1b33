//! Runs as a table in plain text, one column each.

use std::fmt::Write as _;

use super::Run;
use crate::rate::Arrivals;
use crate::units::{show_count, show_duration, show_number};

/// Above this share of a core the load generator is likely to be what limits.
const GENERATOR_CORES_WARN: f64 = 0.9;

/// A row: its name and a value for each run; nothing where it does not apply.
pub(super) type Row = (&'static str, Vec<Option<String>>);

/// The runs side by side, and below what needs saying about them.
pub fn text(runs: &[Run]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let remarks: Vec<Vec<String>> = runs.iter().map(remarks).collect();
    side_by_side(&names, &rows(runs), &remarks)
}

/// Named columns of rows, and below the remarks on each of them.
pub(super) fn side_by_side(names: &[&str], rows: &[Row], remarks: &[Vec<String>]) -> String {
    let label_width = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let cells = rows.iter().filter_map(|(_, cells)| cells[index].as_deref());
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(name.chars().count())
        })
        .collect();
    let mut out = String::new();
    if names.len() > 1 {
        let _ = write!(out, "{:label_width$}", "");
        for (name, width) in names.iter().zip(&widths) {
            let _ = write!(out, "  {name:>width$}");
        }
        out.push('\n');
    }
    for (label, cells) in rows {
        let _ = write!(out, "{label:label_width$}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(out, "  {:>width$}", cell.as_deref().unwrap_or("–"));
        }
        out.push('\n');
    }
    for (name, remarks) in names.iter().zip(remarks) {
        for remark in remarks {
            let _ = match names.len() {
                1 => writeln!(out, "{remark}"),
                _ => writeln!(out, "{name}: {remark}"),
            };
        }
    }
    out
}

/// All rows that apply to at least one run.
pub(super) fn rows(runs: &[Run]) -> Vec<Row> {
    let us = |value: f64| Some(show_duration(value / 1e6));
    let mib = |value: f64| Some(format!("{value:.1} MiB"));
    let of = |value: &dyn Fn(&Run) -> Option<String>| runs.iter().map(value).collect::<Vec<_>>();
    let rows: Vec<Row> = vec![
        ("connections", of(&|run| Some(show_count(run.connections as u64)))),
        (
            "offered, 1/s",
            of(&|run| {
                let arrivals = match run.arrivals? {
                    Arrivals::Constant => "",
                    Arrivals::Poisson => " Poisson",
                };
                run.rate.map(|rate| format!("{rate}{arrivals}"))
            }),
        ),
        ("answers, 1/s", of(&|run| Some(show_number(run.answers_per_second)))),
        ("answer, bytes", of(&|run| Some(show_count(run.answer_bytes as u64)))),
        ("requests", of(&|run| Some(show_count(run.requests)))),
        ("failed", of(&|run| Some(show_count(run.failed)))),
        ("latency mean", of(&|run| us(run.latency.mean_us))),
        ("  p50", of(&|run| us(run.latency.p50_us))),
        ("  p75", of(&|run| us(run.latency.p75_us))),
        ("  p90", of(&|run| us(run.latency.p90_us))),
        ("  p95", of(&|run| us(run.latency.p95_us))),
        ("  p99", of(&|run| us(run.latency.p99_us))),
        ("  p99.9", of(&|run| us(run.latency.p999_us))),
        ("  max", of(&|run| us(run.latency.max_us))),
        ("server CPU per request", of(&|run| us(run.server.as_ref()?.cpu_us_per_request?))),
        ("server cores", of(&|run| Some(format!("{:.2}", run.server.as_ref()?.cores)))),
        ("server memory, begin", of(&|run| mib(run.server.as_ref()?.resident_begin_mib))),
        ("server memory, end", of(&|run| mib(run.server.as_ref()?.resident_end_mib))),
        ("generator cores", of(&|run| Some(format!("{:.2}", run.generator.cores)))),
    ];
    applying(rows)
}

/// Those that say something of at least one run.
pub(super) fn applying(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().filter(|(_, cells)| cells.iter().any(Option::is_some)).collect()
}

/// What a reader should know before believing the figures.
pub(super) fn remarks(run: &Run) -> Vec<String> {
    let mut remarks = Vec::new();
    for failure in &run.failures {
        remarks.push(format!("{} × {}", show_count(failure.count), failure.what));
    }
    if run.unsent > 0 {
        remarks.push(format!(
            "{} requests were never sent: no connection was free. They count with the time they waited.",
            show_count(run.unsent)
        ));
    }
    if let Some(example) = &run.example {
        remarks.push(format!("the first failure: {example}"));
    }
    if run.generator.cores > GENERATOR_CORES_WARN {
        remarks.push(
            "the load generator had no time to spare: the figures are its own limit, not the server's".to_owned(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Failure, Generator, Latency, Server};

    #[test]
    fn runs_stand_side_by_side_and_failures_are_named() {
        let plain = Run {
            name: "a".to_owned(),
            connections: 50,
            answers_per_second: 12_345.6,
            latency: Latency { p50_us: 812.0, p99_us: 4_310.0, ..Latency::default() },
            ..Run::default()
        };
        let failing = Run {
            name: "b".to_owned(),
            connections: 1,
            failed: 3,
            failures: vec![Failure { what: "status 500".to_owned(), count: 3 }],
            example: Some("status 500: oops".to_owned()),
            server: Some(Server {
                pid: 1,
                cpu_us_per_request: Some(46.4),
                cores: 0.5,
                resident_begin_mib: 10.0,
                resident_end_mib: 12.0,
                resident_max_mib: 12.0,
            }),
            generator: Generator { cores: 0.95 },
            ..Run::default()
        };
        let text = text(&[plain, failing]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "connections 50 1",
            "answers, 1/s 12,346 0",
            "p50 812 µs 0 µs",
            "p99 4.31 ms 0 µs",
            "server CPU per request – 46.4 µs",
            "b: 3 × status 500",
            "b: the first failure: status 500: oops",
            "b: the load generator had no time to spare: the figures are its own limit, not the server's",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}\n\n{text}");
        }
        assert!(!text.contains("offered"), "{text}");
    }
}
