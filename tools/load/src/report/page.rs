//! Formats runs as one self-contained HTML page: it includes its style and plots, and has no script.

use std::fmt::Write as _;

use super::plot::{Axes, COLOURS, Line, escape, svg};
use super::query_run::{QueryInterval, Run};
use super::table;
use crate::histogram::Buckets;

/// Colours that most people with colour blindness can distinguish (Okabe and Ito), on light and on dark ground.
pub(super) const PALETTE: [&str; COLOURS] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8f7700", "#56b4e9", "#666699", "#e69f00"];

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--muted:#8889}\
body{font:15px/1.5 system-ui,sans-serif;max-width:1360px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .8rem;border-bottom:1px solid var(--line);text-align:right}\
th:first-child{text-align:left;font-weight:normal}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:1rem}\
figure{margin:0}figcaption{font-weight:600}\
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor;opacity:.75}\
.grid{stroke:var(--line)}polyline{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:5 4}\
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}\
li{overflow-wrap:anywhere}\
.words th{text-align:right;font-weight:600}.words :is(th,td):is(:first-child,:nth-child(2)){text-align:left}\
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:12px}.legend .swatch{width:26px;height:8px;margin-right:.35em}\
.mark{stroke:none}";

/// The shares of all responses that the latency plot labels.
const SHARES: [(f64, &str); 6] = [
    (0.0, "0"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// The value of an interval that a line shows.
type QueryIntervalValue = fn(&QueryInterval) -> Option<f64>;

/// Formats the page.
pub fn html(title: &str, runs: &[Run]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let remarks: Vec<Vec<String>> = runs.iter().map(table::remarks).collect();
    let mut figures = String::new();
    plots(runs, &mut figures);
    document(title, &names, &table::rows(runs), &remarks, &figures)
}

/// Formats a page with a table, remarks on its columns, and figures.
pub(super) fn document(
    title: &str,
    names: &[&str],
    rows: &[table::Row],
    remarks: &[Vec<String>],
    figures: &str,
) -> String {
    let mut out = head(title);
    out.push_str("<table><thead><tr><th></th>");
    for (index, name) in names.iter().enumerate() {
        let colour = index % COLOURS;
        let _ = write!(out, "<th><span class=\"key c{colour}\"></span>{}</th>", escape(name));
    }
    out.push_str("</tr></thead><tbody>");
    for (label, cells) in rows {
        let _ = write!(out, "<tr><th>{}</th>", escape(label.trim_start()));
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", escape(cell.as_deref().unwrap_or("–")));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    if remarks.iter().any(|remarks| !remarks.is_empty()) {
        out.push_str("<ul>");
        for (name, remarks) in names.iter().zip(remarks) {
            for remark in remarks {
                let _ = write!(out, "<li>{}</li>", escape(&format!("{name}: {remark}")));
            }
        }
        out.push_str("</ul>");
    }
    let _ = writeln!(out, "<h2>Plots</h2><div class=\"plots\">{figures}</div></body></html>");
    out
}

/// Formats the beginning of a page, up to its heading.
pub(super) fn head(title: &str) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}",
        escape(title)
    );
    for (index, colour) in PALETTE.iter().enumerate() {
        let _ = write!(
            out,
            ".c{index}{{stroke:{colour}}}.key.c{index}{{background:{colour}}}.mark.c{index}{{fill:{colour}}}"
        );
    }
    let _ = write!(out, "</style></head><body><h1>{}</h1>", escape(title));
    out
}

/// Plots latency by the share of requests that did not exceed it, with a line for each run.
pub(super) fn percentiles(items: &str, runs: &[(&str, &Buckets)]) -> String {
    let lines: Vec<Line> = runs
        .iter()
        .enumerate()
        .map(|(colour, (name, histogram))| Line {
            name: (*name).to_owned(),
            colour,
            dashed: false,
            points: histogram
                .cumulative()
                .into_iter()
                .filter(|(share, _)| *share <= SHARES[SHARES.len() - 1].0)
                .map(|(share, upper)| (axis_position(share), upper / 1e3))
                .collect(),
        })
        .collect();
    let ticks: Vec<(f64, &str)> =
        SHARES.iter().map(|(share, name)| (axis_position(*share), *name)).collect();
    let axes = Axes {
        title: &format!("Latency by share of {items}"),
        x: &format!("share of {items}"),
        y: "ms",
        x_ticks: &ticks,
        y_logarithmic: true,
        is_sparse: false,
    };
    svg(&axes, &lines)
}

fn plots(runs: &[Run], out: &mut String) {
    let histograms: Vec<_> = runs.iter().map(|run| (run.name.as_str(), &run.histogram)).collect();
    out.push_str(&percentiles("responses", &histograms));
    let over_time = |title: &str, y: &str, values: &[(bool, QueryIntervalValue)]| {
        let mut lines = Vec::new();
        for (colour, run) in runs.iter().enumerate() {
            for (dashed, value) in values {
                let at = |i: &QueryInterval| value(i).map(|value| (i.at_seconds, value));
                let points = run.intervals.iter().filter_map(at).collect();
                lines.push(Line { name: run.name.clone(), colour, dashed: *dashed, points });
            }
        }
        svg(
            &Axes { title, x: "seconds", y, x_ticks: &[], y_logarithmic: false, is_sparse: false },
            &lines,
        )
    };
    out.push_str(&over_time(
        "Latency over time: p50, and p99 dashed",
        "ms",
        &[(false, |i| Some(i.p50_us / 1e3)), (true, |i| Some(i.p99_us / 1e3))],
    ));
    out.push_str(&over_time(
        "Correct responses a second",
        "1/s",
        &[(false, |i| Some(i.answers_per_second))],
    ));
    if runs.iter().any(|run| run.failed > 0) {
        out.push_str(&over_time(
            "Failures a second",
            "1/s",
            &[(false, |i| Some(i.failures_per_second))],
        ));
    }
    out.push_str(&over_time("Server: cores in use", "cores", &[(false, |i| i.server_cores)]));
    out.push_str(&over_time(
        "Server: resident memory",
        "MiB",
        &[(false, |i| i.server_resident_mib)],
    ));
}

/// Returns the position of a share on an axis that gives every further nine the same space.
fn axis_position(share: f64) -> f64 {
    -(1.0 - share).log10()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    #[test]
    fn a_page_is_self_contained_and_escapes_names() {
        let mut histogram = Histogram::default();
        (1..1000).for_each(|value| histogram.record(value * 10_000));
        let run = Run {
            name: "<script>alert(1)</script>".to_owned(),
            histogram: histogram.buckets(),
            failed: 1,
            example: Some("status 500: <b>".to_owned()),
            intervals: vec![QueryInterval {
                at_seconds: 1.0,
                answers_per_second: 10.0,
                failures_per_second: 1.0,
                p50_us: 1.0,
                p99_us: 2.0,
                max_us: 3.0,
                server_cores: Some(0.5),
                server_resident_mib: Some(10.0),
            }],
            ..Run::default()
        };
        let page = html("A & B", &[run.clone(), Run { name: "other".to_owned(), ..run }]);
        assert!(!page.contains("<script") && !page.contains("http") && !page.contains("src="));
        assert!(page.contains("<title>A &amp; B</title>"));
        assert_eq!(page.matches("<figure>").count(), 6);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
