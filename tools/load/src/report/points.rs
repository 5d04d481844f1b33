//! Runs that are points of plots: the rate of events through one trigger, by provider, by event size and by selection.
//! The table has one row for each point, unlike the other reports with one column, since there are a hundred points.

use std::fmt::Write as _;

use super::page::head;
use super::plot::{Axes, Line, escape, svg};
use super::subscription_remarks::list_remarks;
use super::subscriptions::{PlotAxis, SubscriptionRun, ThroughputReport};
use crate::units::{format_count, format_duration, format_number};

/// The runs of one point. Figures are the median of repeated runs.
struct PointRuns<'a> {
    provider: &'a str,
    by: PlotAxis,
    at: u64,
    clients: u64,
    runs: Vec<(&'a SubscriptionRun, &'a ThroughputReport)>,
}

/// All points of a report.
pub(super) struct PointReport<'a> {
    points_runs: Vec<PointRuns<'a>>,
    runs: &'a [SubscriptionRun],
}

/// The value of a run that a plot or a column shows.
type RunValue = fn(&SubscriptionRun, &ThroughputReport) -> Option<f64>;

/// The names of the columns.
const COLUMNS: [&str; 10] = [
    "provider",
    "selected",
    "event, bytes",
    "subscribers",
    "events/s",
    "CPU per event",
    "server cores",
    "generator cores",
    "latency p50",
    "lost",
];

/// The note above the figures about how to read them.
const READING_NOTE: &str = "A closed loop: a few events at a time are in flight, and an event is complete when every subscriber has \
    it. Nothing is dropped. If the server keeps less than its core busy, the broker or the load generator on the \
    other core was the limit; CPU per event shows the limit of the server alone.";

/// The labelled sizes of the axis.
const SIZES: [(u64, &str); 5] =
    [(100, "100 B"), (1_000, "1 kB"), (4_000, "4 kB"), (16_000, "16 kB"), (64_000, "64 kB")];

/// The labelled numbers of fields of the axis.
const FIELDS: [u64; 4] = [0, 1, 10, 50];

/// Groups the runs by points; `None` if a run is not a point.
pub(super) fn group_points(runs: &[SubscriptionRun]) -> Option<PointReport<'_>> {
    let mut points_runs: Vec<PointRuns<'_>> = Vec::new();
    for run in runs {
        let (point, throughput) = run.point.as_ref().zip(run.throughput.as_ref())?;
        let same = |it: &&mut PointRuns<'_>| {
            it.provider == point.provider
                && (it.by, it.at, it.clients) == (point.by, point.at, run.clients)
        };
        match points_runs.iter_mut().find(same) {
            Some(place) => place.runs.push((run, throughput)),
            None => points_runs.push(PointRuns {
                provider: &point.provider,
                by: point.by,
                at: point.at,
                clients: run.clients,
                runs: vec![(run, throughput)],
            }),
        }
    }
    (!points_runs.is_empty()).then_some(PointReport { points_runs, runs })
}

impl PointRuns<'_> {
    /// Returns a value of all runs of this point, sorted.
    fn values(&self, value: RunValue) -> Vec<f64> {
        let mut values: Vec<f64> =
            self.runs.iter().filter_map(|(run, throughput)| value(run, throughput)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, value: RunValue) -> Option<f64> {
        let values = self.values(value);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            length if length % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }

    fn selected(&self) -> String {
        let fields = |kind: &str| match self.at {
            0 => "one field".to_owned(),
            1 => format!("+ 1 {kind}"),
            count => format!("+ {count} {kind}"),
        };
        match self.by {
            PlotAxis::PayloadBytes => "all of the event".to_owned(),
            PlotAxis::PayloadFields => fields("of the event"),
            PlotAxis::JoinedFields => fields("joined"),
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let us = |value: Option<f64>| value.map(|value| format_duration(value / 1e6));
        let cores = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
        let of = |value: RunValue| self.median(value);
        let or_nothing = |cell: Option<String>| cell.unwrap_or_else(|| "–".to_owned());
        let rates = self.values(EVENTS_PER_SECOND);
        let mut rate = format_number(of(EVENTS_PER_SECOND).unwrap_or(0.0));
        if let [low, .., high] = rates[..] {
            let _ = write!(rate, " ({}–{})", format_number(low), format_number(high));
        }
        let lost: u64 = self.runs.iter().map(|(run, _)| run.lost + run.missing).sum();
        [
            self.provider.to_owned(),
            self.selected(),
            format_number(of(|_, it| Some(it.payload_bytes as f64)).unwrap_or(0.0)),
            format_count(self.clients),
            rate,
            or_nothing(us(of(CPU_US))),
            or_nothing(cores(of(|_, it| it.server_cores))),
            or_nothing(cores(of(|_, it| Some(it.generator_cores)))),
            or_nothing(us(of(|run, _| Some(run.latency.p50_us)))),
            format_count(lost),
        ]
    }
}

const EVENTS_PER_SECOND: RunValue = |_, it| Some(it.events_per_second);
const CPU_US: RunValue = |_, it| it.server_cpu_us_per_event;

impl PointReport<'_> {
    /// Formats a table in plain text, which is also valid Markdown.
    pub(super) fn text(&self) -> String {
        let rows: Vec<[String; COLUMNS.len()]> =
            self.points_runs.iter().map(PointRuns::cells).collect();
        let widths: Vec<usize> = (0..COLUMNS.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0).max(COLUMNS[column].chars().count())
            })
            .collect();
        let mut out = String::new();
        for (name, width) in COLUMNS.iter().zip(&widths) {
            let _ = write!(out, "| {name:width$} ");
        }
        out.push_str("|\n");
        for width in &widths {
            let _ = write!(out, "|{}", "-".repeat(width + 2));
        }
        out.push_str("|\n");
        for row in &rows {
            for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Words are aligned to the left, numbers to the right.
                let _ = match place {
                    0 | 1 => write!(out, "| {cell:width$} "),
                    _ => write!(out, "| {cell:>width$} "),
                };
            }
            out.push_str("|\n");
        }
        for remark in self.remarks() {
            let _ = writeln!(out, "{remark}");
        }
        out
    }

    /// Formats a page: plots first, then the table.
    pub(super) fn html(&self, title: &str) -> String {
        let mut out = head(title);
        let _ = write!(out, "<p>{}</p>", escape(READING_NOTE));
        let _ = write!(out, "<div class=\"plots\">{}</div>", self.plots());
        out.push_str("<h2>Figures</h2><table class=\"words\"><thead><tr>");
        for name in COLUMNS {
            let _ = write!(out, "<th>{}</th>", escape(name));
        }
        out.push_str("</tr></thead><tbody>");
        for place in &self.points_runs {
            out.push_str("<tr>");
            for cell in place.cells() {
                let _ = write!(out, "<td>{}</td>", escape(&cell));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
        let remarks = self.remarks();
        if !remarks.is_empty() {
            out.push_str("<ul>");
            for remark in remarks {
                let _ = write!(out, "<li>{}</li>", escape(&remark));
            }
            out.push_str("</ul>");
        }
        out.push_str("</body></html>\n");
        out
    }

    /// Returns the problems of the runs. The load of the generator is a column and needs no remark.
    fn remarks(&self) -> Vec<String> {
        let wrong = self.runs.iter().filter(|run| !run.is_sound());
        wrong
            .flat_map(|run| list_remarks(run).into_iter().map(|it| format!("{}: {it}", run.name)))
            .collect()
    }

    fn plots(&self) -> String {
        let mut clients: Vec<u64> = self.points_runs.iter().map(|place| place.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        const SHOWN: [(&str, &str, RunValue); 2] = [
            ("Events per second", "events/s", EVENTS_PER_SECOND),
            ("Server CPU per event", "µs per event", CPU_US),
        ];
        let mut out = String::new();
        for (what, unit, value) in SHOWN {
            let title = format!("{what} by size of the event");
            out.push_str(&self.by_size(&title, unit, value, &clients));
        }
        for clients in clients {
            for (what, unit, value) in SHOWN {
                let title = format!("{what} by selection, {}", subscribers(clients));
                out.push_str(&self.by_selection(&title, unit, value, clients));
            }
        }
        out
    }

    /// Plots a line for each provider and number of subscribers; the second number is dashed.
    fn by_size(&self, title: &str, unit: &str, value: RunValue, clients: &[u64]) -> String {
        let mut lines = Vec::new();
        for (colour, provider) in self.providers().into_iter().enumerate() {
            for (place, &clients) in clients.iter().enumerate() {
                let of =
                    |it: &&PointRuns<'_>| it.by == PlotAxis::PayloadBytes && it.clients == clients;
                let points = self.line(provider, of, value, |at| (at as f64).log10());
                let name = format!("{provider}, {}", subscribers(clients));
                lines.push(Line { name, colour, dashed: place > 0, points });
            }
        }
        let ticks: Vec<(f64, &str)> =
            SIZES.iter().map(|(bytes, name)| ((*bytes as f64).log10(), *name)).collect();
        let axes = Axes {
            title,
            x: "size of the event, all of it selected, log scale",
            y: unit,
            x_ticks: &ticks,
            y_logarithmic: true,
            is_sparse: true,
        };
        svg(&axes, &lines)
    }

    /// Plots two lines for each provider: fields that the event contains, and, dashed, those of a subgraph.
    fn by_selection(&self, title: &str, unit: &str, value: RunValue, clients: u64) -> String {
        // A logarithmic scale that includes zero: every further field costs relatively less than the one before it.
        let x = |fields: u64| ((fields + 1) as f64).log10();
        let mut lines = Vec::new();
        for (colour, provider) in self.providers().into_iter().enumerate() {
            for (dashed, by, name) in [
                (false, PlotAxis::PayloadFields, "fields of the event"),
                (true, PlotAxis::JoinedFields, "joined fields"),
            ] {
                let of = |it: &&PointRuns<'_>| {
                    // Both lines begin at the point without fields of either kind.
                    let begins = it.by == PlotAxis::PayloadFields && it.at == 0;
                    it.clients == clients && (it.by == by || begins)
                };
                let points = self.line(provider, of, value, x);
                lines.push(Line { name: format!("{provider}, {name}"), colour, dashed, points });
            }
        }
        let names = FIELDS.map(|fields| fields.to_string());
        let ticks: Vec<(f64, &str)> =
            FIELDS.iter().zip(&names).map(|(fields, name)| (x(*fields), name.as_str())).collect();
        let axes = Axes {
            title,
            x: "fields selected in addition to the event's id, log scale",
            y: unit,
            x_ticks: &ticks,
            y_logarithmic: true,
            is_sparse: true,
        };
        svg(&axes, &lines)
    }

    fn line(
        &self,
        provider: &str,
        of: impl Fn(&&PointRuns<'_>) -> bool,
        value: RunValue,
        x: impl Fn(u64) -> f64,
    ) -> Vec<(f64, f64)> {
        let points_runs = self.points_runs.iter().filter(|it| it.provider == provider).filter(of);
        let mut points: Vec<(f64, f64)> =
            points_runs.filter_map(|place| Some((x(place.at), place.median(value)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    }

    /// Returns the providers in the order of their first run.
    fn providers(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for place in &self.points_runs {
            if !names.contains(&place.provider) {
                names.push(place.provider);
            }
        }
        names
    }
}

fn subscribers(count: u64) -> String {
    match count {
        1 => "1 subscriber".to_owned(),
        count => format!("{} subscribers", format_count(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscription_report;
    use super::super::subscriptions::PlotPoint;
    use super::*;

    fn run(provider: &str, by: PlotAxis, at: u64, clients: u64, rate: f64) -> SubscriptionRun {
        SubscriptionRun {
            name: format!("{provider} {at}"),
            clients,
            subscribed: clients,
            events: 10,
            expected: 10,
            received: 10,
            point: Some(PlotPoint { by, at, provider: provider.to_owned() }),
            throughput: Some(ThroughputReport {
                payload_bytes: at,
                events_per_second: rate,
                server_cpu_us_per_event: Some(1e6 / rate),
                ..ThroughputReport::default()
            }),
            ..SubscriptionRun::default()
        }
    }

    fn runs() -> Vec<SubscriptionRun> {
        let mut runs = Vec::new();
        for provider in ["memory", "NATS"] {
            for clients in [1, 100] {
                for (bytes, _) in SIZES {
                    let rate = 1e7 / (bytes + clients) as f64;
                    runs.push(run(provider, PlotAxis::PayloadBytes, bytes, clients, rate));
                }
                for fields in FIELDS {
                    runs.push(run(provider, PlotAxis::PayloadFields, fields, clients, 5e4));
                }
                for fields in &FIELDS[1..] {
                    runs.push(run(provider, PlotAxis::JoinedFields, *fields, clients, 2e3));
                }
            }
        }
        runs
    }

    #[test]
    fn every_provider_has_its_lines_in_every_plot() {
        let page = subscription_report::html("A & B", &runs());
        assert_eq!(page.matches("<figure>").count(), 6);
        for figure in page.split("<figure>").skip(1) {
            let figure = figure.split("</figure>").next().unwrap();
            let plot = figure.rsplit("<svg").next().unwrap();
            assert_eq!(plot.matches("<polyline").count(), 4, "{figure}");
            // Five sizes, or four numbers of fields, on each of four lines.
            let marks = if figure.contains("by size") { 20 } else { 16 };
            assert_eq!(plot.matches("<circle").count(), marks, "{figure}");
            assert_eq!(figure.matches("class=\"swatch\"").count(), 4);
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("<script") && !page.contains("http") && !page.contains("src="));
        assert!(page.contains("<title>A &amp; B</title>"));
    }

    #[test]
    fn repeated_runs_are_one_row_with_their_median_and_spread() {
        let of = |rate| run("NATS", PlotAxis::PayloadBytes, 100, 1, rate);
        let text = subscription_report::text(&[of(2000.0), of(1000.0), of(9000.0)]);
        let row = text.lines().nth(2).unwrap();
        let row: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(row[5..7], ["2,000 (1,000–9,000)", "500 µs"], "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_loss_is_remarked_and_runs_without_a_point_are_columns() {
        let mut lossy = run("NATS", PlotAxis::PayloadBytes, 100, 1, 1.0);
        (lossy.received, lossy.missing) = (9, 1);
        let text = subscription_report::text(&[lossy.clone()]);
        assert!(text.contains("NATS 100: 10.00 % of all results were lost"), "{text}");
        lossy.point = None;
        assert!(group_points(&[lossy, run("NATS", PlotAxis::PayloadBytes, 100, 1, 1.0)]).is_none());
        assert!(group_points(&[]).is_none());
    }
}
