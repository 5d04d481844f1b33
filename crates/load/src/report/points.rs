//! Runs that are points of plots: events a second through one trigger, by provider, by the size of the event and by what
//! is selected. One row for each point in place of one column, since there are a hundred of them.

use std::fmt::Write as _;

use super::page::head;
use super::plot::{Axes, Line, escape, svg};
use super::subscription_remarks::remarks_of;
use super::subscriptions::{By, SubscriptionRun, Throughput};
use crate::units::{show_count, show_duration, show_number};

/// Runs of the same point: repeated, a figure is their median.
struct Place<'a> {
    provider: &'a str,
    by: By,
    at: u64,
    clients: u64,
    runs: Vec<(&'a SubscriptionRun, &'a Throughput)>,
}

/// All points of a report.
pub(super) struct Points<'a> {
    places: Vec<Place<'a>>,
    runs: &'a [SubscriptionRun],
}

/// What a plot or a column shows of a run.
type Value = fn(&SubscriptionRun, &Throughput) -> Option<f64>;

/// Names of columns, and what is in them.
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

/// What a reader should know before believing the figures.
const NOTE: &str = "A closed loop: a few events at a time are on their way, and one is through when every subscriber has \
    it. Nothing is dropped. Where the server keeps less than its core busy, the broker or the load generator on the \
    other core was the limit; CPU per event says what the server alone could do.";

/// Sizes that an axis names.
const SIZES: [(u64, &str); 5] =
    [(100, "100 B"), (1_000, "1 kB"), (4_000, "4 kB"), (16_000, "16 kB"), (64_000, "64 kB")];

/// Numbers of fields that an axis names.
const FIELDS: [u64; 4] = [0, 1, 10, 50];

/// The points, if that is what the runs are.
pub(super) fn of(runs: &[SubscriptionRun]) -> Option<Points<'_>> {
    let mut places: Vec<Place<'_>> = Vec::new();
    for run in runs {
        let (point, throughput) = run.point.as_ref().zip(run.throughput.as_ref())?;
        let same = |it: &&mut Place<'_>| {
            it.provider == point.provider
                && (it.by, it.at, it.clients) == (point.by, point.at, run.clients)
        };
        match places.iter_mut().find(same) {
            Some(place) => place.runs.push((run, throughput)),
            None => places.push(Place {
                provider: &point.provider,
                by: point.by,
                at: point.at,
                clients: run.clients,
                runs: vec![(run, throughput)],
            }),
        }
    }
    (!places.is_empty()).then_some(Points { places, runs })
}

impl Place<'_> {
    /// Of the runs of this point, sorted.
    fn values(&self, value: Value) -> Vec<f64> {
        let mut values: Vec<f64> =
            self.runs.iter().filter_map(|(run, throughput)| value(run, throughput)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, value: Value) -> Option<f64> {
        let values = self.values(value);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            length if length % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }

    fn selected(&self) -> String {
        let fields = |of: &str| match self.at {
            0 => "one field".to_owned(),
            1 => format!("+ 1 {of}"),
            count => format!("+ {count} {of}"),
        };
        match self.by {
            By::PayloadBytes => "all of the event".to_owned(),
            By::PayloadFields => fields("of the event"),
            By::JoinedFields => fields("joined"),
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let us = |value: Option<f64>| value.map(|value| show_duration(value / 1e6));
        let cores = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
        let of = |value: Value| self.median(value);
        let or_nothing = |cell: Option<String>| cell.unwrap_or_else(|| "–".to_owned());
        let rates = self.values(EVENTS_PER_SECOND);
        let mut rate = show_number(of(EVENTS_PER_SECOND).unwrap_or(0.0));
        if let [low, .., high] = rates[..] {
            let _ = write!(rate, " ({}–{})", show_number(low), show_number(high));
        }
        let lost: u64 = self.runs.iter().map(|(run, _)| run.lost + run.missing).sum();
        [
            self.provider.to_owned(),
            self.selected(),
            show_number(of(|_, it| Some(it.payload_bytes as f64)).unwrap_or(0.0)),
            show_count(self.clients),
            rate,
            or_nothing(us(of(CPU_US))),
            or_nothing(cores(of(|_, it| it.server_cores))),
            or_nothing(cores(of(|_, it| Some(it.generator_cores)))),
            or_nothing(us(of(|run, _| Some(run.latency.p50_us)))),
            show_count(lost),
        ]
    }
}

const EVENTS_PER_SECOND: Value = |_, it| Some(it.events_per_second);
const CPU_US: Value = |_, it| it.server_cpu_us_per_event;

impl Points<'_> {
    /// As a table in plain text, which is also one in Markdown.
    pub(super) fn text(&self) -> String {
        let rows: Vec<[String; COLUMNS.len()]> = self.places.iter().map(Place::cells).collect();
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
                // Words to the left, numbers to the right.
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

    /// As a page: plots first, then the table.
    pub(super) fn html(&self, title: &str) -> String {
        let mut out = head(title);
        let _ = write!(out, "<p>{}</p>", escape(NOTE));
        let _ = write!(out, "<div class=\"plots\">{}</div>", self.plots());
        out.push_str("<h2>Figures</h2><table class=\"words\"><thead><tr>");
        for name in COLUMNS {
            let _ = write!(out, "<th>{}</th>", escape(name));
        }
        out.push_str("</tr></thead><tbody>");
        for place in &self.places {
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

    /// What went wrong. That the load generator has as much to do as the server is in the columns.
    fn remarks(&self) -> Vec<String> {
        let wrong = self.runs.iter().filter(|run| !run.is_sound());
        wrong
            .flat_map(|run| remarks_of(run).into_iter().map(|it| format!("{}: {it}", run.name)))
            .collect()
    }

    fn plots(&self) -> String {
        let mut clients: Vec<u64> = self.places.iter().map(|place| place.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        const SHOWN: [(&str, &str, Value); 2] = [
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

    /// A line for each provider and number of subscribers; the second number is dashed.
    fn by_size(&self, title: &str, unit: &str, value: Value, clients: &[u64]) -> String {
        let mut lines = Vec::new();
        for (colour, provider) in self.providers().into_iter().enumerate() {
            for (place, &clients) in clients.iter().enumerate() {
                let of = |it: &&Place<'_>| it.by == By::PayloadBytes && it.clients == clients;
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

    /// Two lines for each provider: fields that the event carries, and, dashed, those of a subgraph.
    fn by_selection(&self, title: &str, unit: &str, value: Value, clients: u64) -> String {
        // Every further field counts less than the one before it, and there may be none.
        let x = |fields: u64| ((fields + 1) as f64).log10();
        let mut lines = Vec::new();
        for (colour, provider) in self.providers().into_iter().enumerate() {
            for (dashed, by, name) in [
                (false, By::PayloadFields, "fields of the event"),
                (true, By::JoinedFields, "joined fields"),
            ] {
                let of = |it: &&Place<'_>| {
                    // No field of either kind is where both begin.
                    let begins = it.by == By::PayloadFields && it.at == 0;
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
            x: "fields selected beside the event's id, log scale",
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
        of: impl Fn(&&Place<'_>) -> bool,
        value: Value,
        x: impl Fn(u64) -> f64,
    ) -> Vec<(f64, f64)> {
        let places = self.places.iter().filter(|it| it.provider == provider).filter(of);
        let mut points: Vec<(f64, f64)> =
            places.filter_map(|place| Some((x(place.at), place.median(value)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    }

    /// Providers as they come.
    fn providers(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for place in &self.places {
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
        count => format!("{} subscribers", show_count(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscription_report;
    use super::super::subscriptions::Point;
    use super::*;

    fn run(provider: &str, by: By, at: u64, clients: u64, rate: f64) -> SubscriptionRun {
        SubscriptionRun {
            name: format!("{provider} {at}"),
            clients,
            subscribed: clients,
            events: 10,
            expected: 10,
            received: 10,
            point: Some(Point { by, at, provider: provider.to_owned() }),
            throughput: Some(Throughput {
                payload_bytes: at,
                events_per_second: rate,
                server_cpu_us_per_event: Some(1e6 / rate),
                ..Throughput::default()
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
                    runs.push(run(provider, By::PayloadBytes, bytes, clients, rate));
                }
                for fields in FIELDS {
                    runs.push(run(provider, By::PayloadFields, fields, clients, 5e4));
                }
                for fields in &FIELDS[1..] {
                    runs.push(run(provider, By::JoinedFields, *fields, clients, 2e3));
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
        let of = |rate| run("NATS", By::PayloadBytes, 100, 1, rate);
        let text = subscription_report::text(&[of(2000.0), of(1000.0), of(9000.0)]);
        let row = text.lines().nth(2).unwrap();
        let row: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(row[5..7], ["2,000 (1,000–9,000)", "500 µs"], "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_loss_is_told_and_runs_without_a_point_are_columns() {
        let mut lossy = run("NATS", By::PayloadBytes, 100, 1, 1.0);
        (lossy.received, lossy.missing) = (9, 1);
        let text = subscription_report::text(&[lossy.clone()]);
        assert!(text.contains("NATS 100: 10.00 % of all results were lost"), "{text}");
        lossy.point = None;
        assert!(of(&[lossy, run("NATS", By::PayloadBytes, 100, 1, 1.0)]).is_none());
        assert!(of(&[]).is_none());
    }
}
