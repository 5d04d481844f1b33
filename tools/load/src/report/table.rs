//! Runs of `bench query` as a table in plain text, one column each.

use std::fmt::Write as _;

use super::query_run::Run;
use crate::rate::Arrivals;
use crate::units::{format_count, format_duration, format_number};

/// The share of a core above which the load generator is likely to be the limit.
const GENERATOR_CORES_WARN: f64 = 0.9;

/// A row: its name, and a value for each run; `None` if it does not apply.
pub(super) type Row = (&'static str, Vec<Option<String>>);

/// Formats the runs side by side, with remarks below.
pub fn text(runs: &[Run]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let remarks: Vec<Vec<String>> = runs.iter().map(remarks).collect();
    side_by_side(&names, &rows(runs), &remarks)
}

/// Formats named columns of rows, with the remarks on each column below.
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

/// Returns all rows that apply to at least one run.
pub(super) fn rows(runs: &[Run]) -> Vec<Row> {
    let us = |value: f64| Some(format_duration(value / 1e6));
    let mib = |value: f64| Some(format!("{value:.1} MiB"));
    let row = |value: &dyn Fn(&Run) -> Option<String>| runs.iter().map(value).collect::<Vec<_>>();
    let rows: Vec<Row> = vec![
        ("connections", row(&|run| Some(format_count(run.connections as u64)))),
        (
            "offered, 1/s",
            row(&|run| {
                let arrivals = match run.arrivals? {
                    Arrivals::Constant => "",
                    Arrivals::Poisson => " Poisson",
                };
                run.rate.map(|rate| format!("{rate}{arrivals}"))
            }),
        ),
        ("responses, 1/s", row(&|run| Some(format_number(run.answers_per_second)))),
        ("response, bytes", row(&|run| Some(format_count(run.answer_bytes as u64)))),
        ("requests", row(&|run| Some(format_count(run.requests)))),
        ("failed", row(&|run| Some(format_count(run.failed)))),
        ("latency mean", row(&|run| us(run.latency.mean_us))),
        ("  p50", row(&|run| us(run.latency.p50_us))),
        ("  p75", row(&|run| us(run.latency.p75_us))),
        ("  p90", row(&|run| us(run.latency.p90_us))),
        ("  p95", row(&|run| us(run.latency.p95_us))),
        ("  p99", row(&|run| us(run.latency.p99_us))),
        ("  p99.9", row(&|run| us(run.latency.p999_us))),
        ("  max", row(&|run| us(run.latency.max_us))),
        ("server CPU per request", row(&|run| us(run.server.as_ref()?.cpu_us_per_request?))),
        ("server cores", row(&|run| Some(format!("{:.2}", run.server.as_ref()?.cores)))),
        ("server memory, begin", row(&|run| mib(run.server.as_ref()?.resident_begin_mib))),
        ("server memory, end", row(&|run| mib(run.server.as_ref()?.resident_end_mib))),
        ("generator cores", row(&|run| Some(format!("{:.2}", run.generator.cores)))),
    ];
    drop_empty_rows(rows)
}

/// Removes rows that apply to no run.
pub(super) fn drop_empty_rows(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().filter(|(_, cells)| cells.iter().any(Option::is_some)).collect()
}

/// Returns the remarks that a reader needs to judge the figures.
pub(super) fn remarks(run: &Run) -> Vec<String> {
    let mut remarks = Vec::new();
    for failure in &run.failures {
        remarks.push(format!("{} × {}", format_count(failure.count), failure.what));
    }
    if run.unsent > 0 {
        remarks.push(format!(
            "{} requests were never sent: no connection was free. They count with the time they waited.",
            format_count(run.unsent)
        ));
    }
    if let Some(example) = &run.example {
        remarks.push(format!("the first failure: {example}"));
    }
    if run.generator.cores > GENERATOR_CORES_WARN {
        remarks.push(
            "the load generator was fully busy: the figures show its limit, not the server's"
                .to_owned(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FailureCount, LatencySummary, QueryGeneratorUsage, QueryServerUsage};

    #[test]
    fn runs_are_shown_side_by_side_and_failures_are_named() {
        let plain = Run {
            name: "a".to_owned(),
            connections: 50,
            answers_per_second: 12_345.6,
            latency: LatencySummary { p50_us: 812.0, p99_us: 4_310.0, ..LatencySummary::default() },
            ..Run::default()
        };
        let failing = Run {
            name: "b".to_owned(),
            connections: 1,
            failed: 3,
            failures: vec![FailureCount { what: "status 500".to_owned(), count: 3 }],
            example: Some("status 500: oops".to_owned()),
            server: Some(QueryServerUsage {
                pid: 1,
                cpu_us_per_request: Some(46.4),
                cores: 0.5,
                resident_begin_mib: 10.0,
                resident_end_mib: 12.0,
                resident_max_mib: 12.0,
            }),
            generator: QueryGeneratorUsage { cores: 0.95 },
            ..Run::default()
        };
        let text = text(&[plain, failing]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "connections 50 1",
            "responses, 1/s 12,346 0",
            "p50 812 µs 0 µs",
            "p99 4.31 ms 0 µs",
            "server CPU per request – 46.4 µs",
            "b: 3 × status 500",
            "b: the first failure: status 500: oops",
            "b: the load generator was fully busy: the figures show its limit, not the server's",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}\n\n{text}");
        }
        assert!(!text.contains("offered"), "{text}");
    }
}
