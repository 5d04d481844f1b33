//! Reports about runs of `bench subscriptions`, as text and as a page.

use super::page::{document, percentiles};
use super::plot::{Axes, Line, svg};
use super::points;
use super::subscription_remarks::remarks;
use super::subscriptions::{SubscriptionInterval, SubscriptionRun, SubscriptionServerUsage};
use super::summary::LatencySummary;
use super::table::{Row, drop_empty_rows, side_by_side};
use crate::units::{format_count, format_duration, format_number};

/// Formats the runs side by side, with remarks below. If the first run is a floor, the others are compared with it.
pub fn text(runs: &[SubscriptionRun]) -> String {
    if let Some(points) = points::group_points(runs) {
        return points.text();
    }
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    side_by_side(&names, &rows(runs), &remarks(runs))
}

/// Formats the same as a page with plots.
pub fn html(title: &str, runs: &[SubscriptionRun]) -> String {
    if let Some(points) = points::group_points(runs) {
        return points.html(title);
    }
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    document(title, &names, &rows(runs), &remarks(runs), &plots(runs))
}

/// The values of all runs, one row after the other.
struct Values<'a>(&'a [SubscriptionRun]);

impl Values<'_> {
    fn of_runs(&self, value: &dyn Fn(&SubscriptionRun) -> Option<String>) -> Vec<Option<String>> {
        self.0.iter().map(value).collect()
    }

    fn of_servers(
        &self,
        value: &dyn Fn(&SubscriptionServerUsage) -> Option<String>,
    ) -> Vec<Option<String>> {
        self.of_runs(&|run| value(run.server.as_ref()?))
    }

    fn of_latencies(&self, value: fn(&LatencySummary) -> f64) -> Vec<Option<String>> {
        self.of_runs(&|run| us(value((run.deliveries > 0).then_some(&run.latency)?)))
    }
}

fn us(value: f64) -> Option<String> {
    Some(format_duration(value / 1e6))
}

fn seconds(value: f64) -> Option<String> {
    Some(format_duration(value))
}

fn mib(value: f64) -> Option<String> {
    Some(format!("{value:.1} MiB"))
}

fn count(value: u64) -> Option<String> {
    Some(format_count(value))
}

fn cores(value: f64) -> Option<String> {
    Some(format!("{value:.2}"))
}

/// Formats a count that is left out if it is zero.
fn positive(value: u64) -> Option<String> {
    (value > 0).then(|| format_count(value))
}

fn rows(runs: &[SubscriptionRun]) -> Vec<Row> {
    let values = Values(runs);
    let rows = [client_rows(&values), event_rows(&values), usage_rows(&values)];
    drop_empty_rows(rows.into_iter().flatten().collect())
}

/// Returns the rows about connecting, subscribing and unsubscribing.
fn client_rows(values: &Values<'_>) -> Vec<Row> {
    vec![
        ("scenario", values.of_runs(&|run| Some(run.scenario.clone()))),
        ("clients", values.of_runs(&|run| count(run.clients))),
        (
            "subscribed",
            values.of_runs(&|run| run.churn.is_none().then(|| format_count(run.subscribed))),
        ),
        (
            "  all within",
            values.of_runs(&|run| {
                seconds((run.joining_seconds > 0.0).then_some(run.joining_seconds)?)
            }),
        ),
        ("  each within, p50", values.of_runs(&|run| us(run.joining.p50_us))),
        ("  each within, p99", values.of_runs(&|run| us(run.joining.p99_us))),
        ("keys", values.of_runs(&|run| (run.keys > 1).then(|| format_count(run.keys)))),
        ("own header, bytes", values.of_runs(&|run| positive(run.header_bytes))),
        ("connected and disconnected", values.of_runs(&|run| count(run.churn.as_ref()?.cycles))),
        (
            "  1/s",
            values.of_runs(&|run| {
                run.churn.as_ref().map(|it| format_number(it.cycles as f64 / it.seconds.max(1e-9)))
            }),
        ),
        (
            "unsubscribed and subscribed",
            values.of_runs(&|run| count(run.resubscribed.as_ref()?.cycles)),
        ),
        (
            "  1/s",
            values
                .of_runs(&|run| Some(format_number(run.resubscribed.as_ref()?.cycles_per_second))),
        ),
        (
            "  each within, p50",
            values.of_runs(&|run| us(run.resubscribed.as_ref()?.latency.p50_us)),
        ),
        (
            "  each within, p99",
            values.of_runs(&|run| us(run.resubscribed.as_ref()?.latency.p99_us)),
        ),
        (
            "  server CPU for each",
            values.of_runs(&|run| us(run.resubscribed.as_ref()?.server_cpu_us_per_cycle?)),
        ),
        ("  server cores", values.of_runs(&|run| cores(run.resubscribed.as_ref()?.server_cores?))),
    ]
}

/// Returns the rows about events and their results.
fn event_rows(values: &Values<'_>) -> Vec<Row> {
    vec![
        ("events", values.of_runs(&|run| positive(run.events))),
        ("  event, bytes", values.of_runs(&|run| count(run.throughput.as_ref()?.payload_bytes))),
        ("  in flight at most", values.of_runs(&|run| count(run.throughput.as_ref()?.window))),
        (
            "  complete, 1/s",
            values.of_runs(&|run| Some(format_number(run.throughput.as_ref()?.events_per_second))),
        ),
        (
            "  server CPU for each",
            values.of_runs(&|run| us(run.throughput.as_ref()?.server_cpu_us_per_event?)),
        ),
        (
            "  published, 1/s",
            values.of_runs(&|run| {
                let has_pace = run.events > 0 && run.throughput.is_none();
                has_pace.then(|| format_number(run.rate))
            }),
        ),
        ("results, expected", values.of_runs(&|run| positive(run.expected))),
        (
            "  received",
            values.of_runs(&|run| (run.expected > 0).then(|| format_count(run.received))),
        ),
        (
            "  lost, announced",
            values.of_runs(&|run| (run.expected > 0).then(|| format_count(run.lost))),
        ),
        ("  missing", values.of_runs(&|run| (run.expected > 0).then(|| format_count(run.missing)))),
        ("  out of order", values.of_runs(&|run| positive(run.disordered))),
        ("  with errors", values.of_runs(&|run| positive(run.errors))),
        ("  of other clients", values.of_runs(&|run| positive(run.foreign))),
        (
            "results, 1/s",
            values.of_runs(&|run| {
                (run.deliveries > 0).then(|| format_number(run.deliveries_per_second))
            }),
        ),
        (
            "message, bytes",
            values.of_runs(&|run| (run.deliveries > 0).then(|| format_number(run.message_bytes))),
        ),
        ("latency p50", values.of_latencies(|it| it.p50_us)),
        ("  p90", values.of_latencies(|it| it.p90_us)),
        ("  p99", values.of_latencies(|it| it.p99_us)),
        ("  p99.9", values.of_latencies(|it| it.p999_us)),
        ("  max", values.of_latencies(|it| it.max_us)),
        ("never read", values.of_runs(&|run| count(run.slow.as_ref()?.clients))),
        ("  met their policy", values.of_runs(&|run| count(run.slow.as_ref()?.met_policy))),
        ("all reconnected within", values.of_runs(&|run| seconds(run.rejoined.as_ref()?.seconds))),
        ("all released within", values.of_runs(&|run| seconds(run.vanished.as_ref()?.seconds?))),
        (
            "  server CPU for each",
            values.of_runs(&|run| us(run.vanished.as_ref()?.cpu_us_per_connection?)),
        ),
    ]
}

/// Returns the rows about the cost of the server and of the load generator.
fn usage_rows(values: &Values<'_>) -> Vec<Row> {
    vec![
        ("server CPU per result", values.of_servers(&|it| us(it.cpu_us_per_delivery?))),
        ("server CPU per joining", values.of_servers(&|it| us(it.cpu_us_per_joining?))),
        ("server cores, busy", values.of_servers(&|it| cores(it.busy_cores?))),
        (
            "server cores, idle",
            values.of_servers(&|it| it.idle_cores.map(|cores| format!("{cores:.4}"))),
        ),
        ("server memory, before", values.of_servers(&|it| mib(it.resident_before_mib))),
        ("  all subscribed", values.of_servers(&|it| mib(it.resident_idle_mib))),
        ("  at the end", values.of_servers(&|it| mib(it.resident_after_mib))),
        ("  at most", values.of_servers(&|it| mib(it.resident_peak_mib))),
        (
            "  a subscription, bytes",
            values.of_servers(&|it| Some(format_number(it.bytes_per_subscription))),
        ),
        (
            "server threads",
            values.of_servers(&|it| {
                Some(format!("{} → {} → {}", it.threads_before, it.threads_idle, it.threads_after))
            }),
        ),
        (
            "server descriptors",
            values.of_servers(&|it| {
                let (before, idle) = (it.descriptors_before, it.descriptors_idle);
                (idle > 0).then(|| format!("{before} → {idle} → {}", it.descriptors_after))
            }),
        ),
        ("server memory, warm", values.of_runs(&|run| mib(run.churn.as_ref()?.resident_warm_mib))),
        ("server memory, end", values.of_runs(&|run| mib(run.churn.as_ref()?.resident_end_mib))),
        (
            "server memory, before",
            values.of_runs(&|run| mib(run.resubscribed.as_ref()?.resident_before_mib)),
        ),
        ("  warm", values.of_runs(&|run| mib(run.resubscribed.as_ref()?.resident_warm_mib))),
        ("  end", values.of_runs(&|run| mib(run.resubscribed.as_ref()?.resident_end_mib))),
        ("generator CPU per result", values.of_runs(&|run| us(run.generator.cpu_us_per_delivery?))),
        ("generator cores", values.of_runs(&|run| Some(format!("{:.2}", run.generator.cores)))),
    ]
}

/// The value of an interval that a line shows.
type IntervalValue = fn(&SubscriptionInterval) -> Option<f64>;

fn plots(runs: &[SubscriptionRun]) -> String {
    let histograms: Vec<_> = runs.iter().map(|run| (run.name.as_str(), &run.histogram)).collect();
    let mut out = percentiles("results", &histograms);
    let mut over_time = |title: &str, y: &str, values: &[(bool, IntervalValue)]| {
        let mut lines = Vec::new();
        for (colour, run) in runs.iter().enumerate() {
            for (dashed, value) in values {
                let at = |it: &SubscriptionInterval| value(it).map(|value| (it.at_seconds, value));
                let points = run.intervals.iter().filter_map(at).collect();
                lines.push(Line { name: run.name.clone(), colour, dashed: *dashed, points });
            }
        }
        out.push_str(&svg(
            &Axes { title, x: "seconds", y, x_ticks: &[], y_logarithmic: false, is_sparse: false },
            &lines,
        ));
    };
    over_time("Subscribed clients", "clients", &[(false, |it| Some(it.subscribed as f64))]);
    over_time("Results a second", "1/s", &[(false, |it| Some(it.deliveries_per_second))]);
    over_time(
        "Latency over time: p50, and p99 dashed",
        "ms",
        &[
            (false, |it| (it.p50_us > 0.0).then_some(it.p50_us / 1e3)),
            (true, |it| (it.p99_us > 0.0).then_some(it.p99_us / 1e3)),
        ],
    );
    over_time("Server: cores in use", "cores", &[(false, |it| it.server_cores)]);
    over_time("Server: resident memory", "MiB", &[(false, |it| it.server_resident_mib)]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, cpu: f64, p99: f64) -> SubscriptionRun {
        SubscriptionRun {
            name: name.to_owned(),
            scenario: "fan-out".to_owned(),
            clients: 10,
            subscribed: 10,
            expected: 100,
            received: 100,
            deliveries: 100,
            latency: LatencySummary { p50_us: 10.0, p99_us: p99, ..LatencySummary::default() },
            server: Some(SubscriptionServerUsage {
                cpu_us_per_delivery: Some(cpu),
                ..SubscriptionServerUsage::default()
            }),
            intervals: vec![SubscriptionInterval {
                at_seconds: 1.0,
                ..SubscriptionInterval::default()
            }],
            ..SubscriptionRun::default()
        }
    }

    #[test]
    fn a_run_is_compared_with_the_floor_before_it() {
        let text = text(&[run("floor", 8.0, 100.0), run("router", 10.0, 150.0)]);
        let expected = "router: times the floor: CPU per result 1.25, p50 1.00, p99 1.50";
        assert!(text.lines().any(|line| line == expected), "{text}");
        let alone = super::text(&[run("router", 10.0, 150.0)]);
        assert!(!alone.contains("floor"), "{alone}");
    }

    #[test]
    fn a_page_has_a_plot_for_every_quantity_that_changes() {
        let page = html("t", &[run("a <b>", 1.0, 1.0)]);
        assert!(page.contains("a &lt;b&gt;") && !page.contains("<script"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("Subscribed clients"));
    }
}
