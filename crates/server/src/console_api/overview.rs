//! The JSON of the overview: the histories of the process and of its graphs, of subgraphs and brokers, and what needs
//! attention.

use std::time::Instant;

use events::Provider;
use serde_json::{Map, Value, json};
use telemetry::history::{Change, HistoryView, HistoryWindow, SeriesKey, SeriesValues, WINDOW_MAX};
use telemetry::read;
use upstream::BreakerState;

use super::figures::series;
use super::state::ConsoleState;
use super::subgraphs::ShownSubgraph;
use crate::admin::state::Admin;

/// The share of failed requests in the last minute from which a subgraph is reported, and the least number of requests
/// that say anything.
const FAILED_SHARE: f64 = 0.1;
const REQUESTS_MIN: f64 = 10.0;

/// The series that only the process has.
const PROCESS_SERIES: [&str; 3] = [series::CPU, series::MEMORY, series::CONNECTIONS];

/// The series that each graph has. Those without the name of a graph are the sums over all.
const GRAPH_SERIES: [&str; 6] = [
    series::REQUESTS,
    series::ERRORS,
    series::LATENCY,
    series::SUBSCRIBERS,
    series::EVENTS,
    series::DELIVERIES,
];

/// The series of one subgraph.
const SUBGRAPH_SERIES: [&str; 3] =
    [series::SUBGRAPH_REQUESTS, series::SUBGRAPH_ERRORS, series::SUBGRAPH_LATENCY];

/// Returns the JSON of `api/overview`: the figures of the process, and those of the graph with the name `wanted`, which
/// exists. Without the name they are sums over all graphs.
pub(super) fn describe(admin: &Admin, state: &ConsoleState, wanted: Option<&str>) -> Value {
    let (now, sample) = (Instant::now(), state.figures.read());
    let graphs = state.figures.graphs();
    // The figures of the only graph are those of the process.
    let wanted = wanted.filter(|_| graphs.len() > 1);
    let graph = wanted.unwrap_or_default();
    let history = state.history();
    let view = history.view(now, &sample, |key| is_shown(key, graph));
    let minute = history.window(now, &sample, WINDOW_MAX);
    let refused = history.view(now, &sample, |key| key.name == series::REFUSED);
    let left_out = history.left_out();
    drop(history);
    let shown = state.figures.subgraphs(&graphs, wanted);
    let subgraphs: Vec<Value> = shown.iter().map(|it| subgraph(it, &minute)).collect();
    let providers: Vec<Value> = admin.providers.iter().map(|it| provider(&**it, &minute)).collect();
    let mut problems: Vec<Value> =
        shown.iter().filter_map(|it| subgraph_problem(it, &minute)).collect();
    problems.extend(admin.providers.iter().filter_map(|it| provider_problem(&**it)));
    problems.extend(router_problems(admin));
    let shed = minute.changes.iter().filter(|(key, _)| key.name == series::REFUSED);
    let shed = shed
        .filter(|(_, change)| change.value() > 0.0)
        .map(|(key, change)| json!({"reason": &*key.label, "count": compact(change.value())}));
    let mut series = series_json(&view);
    series.insert(series::REFUSED.to_owned(), sum(&refused, view.lengths.len()));
    // Several graphs together have no generation.
    let one = graphs.iter().find(|(name, _)| graphs.len() == 1 || wanted == Some(*name));
    let generation = one.map(|(_, graph)| graph.generation.number);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": compact(now.duration_since(state.started).as_secs_f64()),
        "graph": wanted,
        "generation": generation,
        "seconds": lengths(&view),
        "series": series,
        "minute": minute_json(&minute, graph),
        "shed": shed.collect::<Vec<_>>(),
        "problems": problems,
        "subgraphs": subgraphs,
        "providers": providers,
        "seriesLeftOut": left_out,
    })
}

/// True if the overview of a graph has this series. Without a name it is that of all graphs.
fn is_shown(key: &SeriesKey, graph: &str) -> bool {
    match PROCESS_SERIES.contains(&key.name) {
        true => key.label.is_empty(),
        false => GRAPH_SERIES.contains(&key.name) && *key.label == *graph,
    }
}

/// Returns the JSON of `api/subgraph`: the histories of one subgraph, by its name on the console; `None` if there is no
/// such one.
pub(super) fn describe_subgraph(state: &ConsoleState, name: &str) -> Option<Value> {
    let graphs = state.figures.graphs();
    let all = state.figures.subgraphs(&graphs, None);
    let shown = all.iter().find(|it| *it.name == *name)?;
    let (now, sample) = (Instant::now(), state.figures.read());
    let history = state.history();
    let wanted = |key: &SeriesKey| *key.label == *name && SUBGRAPH_SERIES.contains(&key.name);
    let view = history.view(now, &sample, wanted);
    let minute = history.window(now, &sample, WINDOW_MAX);
    drop(history);
    Some(json!({
        "subgraph": subgraph(shown, &minute),
        "seconds": lengths(&view),
        "series": series_json(&view),
    }))
}

/// The figures of the subgraphs of one graph in the last minute.
#[derive(Debug)]
pub(super) struct SubgraphMinute {
    /// The seconds that the figures are about.
    pub(super) seconds: Value,
    /// The figures by the name of the subgraph in its graph. Subgraphs without a server have none.
    pub(super) by_name: Map<String, Value>,
}

/// Returns the figures of the subgraphs of the graph with the name `wanted`, which exists.
pub(super) fn subgraphs_in_last_minute(state: &ConsoleState, wanted: &str) -> SubgraphMinute {
    let (now, sample) = (Instant::now(), state.figures.read());
    let graphs = state.figures.graphs();
    let wanted = Some(wanted).filter(|_| graphs.len() > 1);
    let minute = state.history().window(now, &sample, WINDOW_MAX);
    let shown = state.figures.subgraphs(&graphs, wanted);
    let figures = shown.iter().map(|it| (it.upstream.name().to_owned(), subgraph(it, &minute)));
    SubgraphMinute { seconds: compact(minute.seconds), by_name: figures.collect() }
}

fn lengths(view: &HistoryView) -> Vec<Value> {
    view.lengths.iter().map(|it| compact(f64::from(*it))).collect()
}

/// The histories by name. Those of durations are objects of quantiles.
fn series_json(view: &HistoryView) -> Map<String, Value> {
    let values = |values: &[Option<f32>]| -> Value {
        values.iter().map(|it| it.map_or(Value::Null, |it| compact(f64::from(it)))).collect()
    };
    let series = view.series.iter().map(|(key, columns)| {
        let columns = match columns {
            SeriesValues::One(column) => values(column),
            SeriesValues::Quantiles([p50, p90, p99]) => {
                json!({"p50": values(p50), "p90": values(p90), "p99": values(p99)})
            }
        };
        (key.name.to_owned(), columns)
    });
    series.collect()
}

/// The sum of several series with one column each.
fn sum(view: &HistoryView, buckets: usize) -> Value {
    let columns = view.series.iter().filter_map(|(_, values)| match values {
        SeriesValues::One(column) => Some(column),
        SeriesValues::Quantiles(_) => None,
    });
    let mut sums = vec![0.0; buckets];
    for column in columns {
        sums.iter_mut().zip(column).for_each(|(sum, value)| *sum += value.unwrap_or_default());
    }
    sums.into_iter().map(|it| compact(f64::from(it))).collect()
}

fn minute_json(minute: &HistoryWindow, graph: &str) -> Value {
    let mut members = Map::new();
    members.insert("seconds".to_owned(), compact(minute.seconds));
    let of_graph = GRAPH_SERIES.map(|name| SeriesKey::labelled(name, graph));
    for key in PROCESS_SERIES.map(SeriesKey::new).into_iter().chain(of_graph) {
        let change = minute.changes.get(&key);
        members.insert(key.name.to_owned(), change.map_or(Value::Null, |it| change_json(*it)));
    }
    members.into()
}

fn change_json(change: Change) -> Value {
    match change {
        Change::Count(value) | Change::Level(value) => compact(value),
        Change::Durations(count, quantiles) => {
            let [p50, p90, p99] = quantiles.map(|it| it.map_or(Value::Null, compact));
            json!({"count": compact(count), "p50": p50, "p90": p90, "p99": p99})
        }
    }
}

fn change(minute: &HistoryWindow, name: &'static str, label: &str) -> f64 {
    let key = SeriesKey::labelled(name, label);
    minute.changes.get(&key).map_or(0.0, |it| it.value())
}

fn subgraph(shown: &ShownSubgraph<'_>, minute: &HistoryWindow) -> Value {
    let (name, upstream) = (&*shown.name, shown.upstream);
    let latency = SeriesKey::labelled(series::SUBGRAPH_LATENCY, name);
    json!({
        "name": name,
        "requests": compact(change(minute, series::SUBGRAPH_REQUESTS, name)),
        "errors": compact(change(minute, series::SUBGRAPH_ERRORS, name)),
        "latency": minute.changes.get(&latency).map_or(Value::Null, |it| change_json(*it)),
        "inFlight": read(&upstream.stats().in_flight),
        "waiting": read(&upstream.stats().waiting),
        "breaker": breaker_name(upstream.breaker()),
        "requestsSinceStart": read(&upstream.stats().requests),
    })
}

fn provider(provider: &dyn Provider, minute: &HistoryWindow) -> Value {
    let (name, stats) = (provider.name(), provider.stats());
    let lags = stats.topics().into_iter().map(|(_, topic)| topic.lag());
    let lag = lags.fold(None, |most: Option<u64>, lag| most.max(lag.events));
    json!({
        "name": name,
        "state": stats.state().as_str(),
        "received": compact(change(minute, series::PROVIDER_RECEIVED, name)),
        "published": compact(change(minute, series::PROVIDER_PUBLISHED, name)),
        "streams": read(&stats.streams),
        "lagEvents": lag,
        "gaps": read(&stats.gaps),
        "errors": stats.all_errors(),
    })
}

fn breaker_name(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half-open",
        BreakerState::Open => "open",
    }
}

fn problem(severity: &str, kind: &str, name: &str, text: String) -> Value {
    json!({"severity": severity, "kind": kind, "name": name, "text": text})
}

fn subgraph_problem(shown: &ShownSubgraph<'_>, minute: &HistoryWindow) -> Option<Value> {
    let name = &*shown.name;
    let requests = change(minute, series::SUBGRAPH_REQUESTS, name);
    let errors = change(minute, series::SUBGRAPH_ERRORS, name);
    let failed = format!("{errors} of {requests} requests failed in the last minute");
    match shown.upstream.breaker() {
        BreakerState::Open => {
            let text = format!("The circuit breaker is open; {failed}.");
            Some(problem("error", "subgraph", name, text))
        }
        BreakerState::HalfOpen => {
            let text = format!("The circuit breaker tries single requests; {failed}.");
            Some(problem("warning", "subgraph", name, text))
        }
        BreakerState::Closed if is_failing(requests, errors) => {
            Some(problem("warning", "subgraph", name, format!("{failed}.")))
        }
        BreakerState::Closed => None,
    }
}

fn is_failing(requests: f64, errors: f64) -> bool {
    requests >= REQUESTS_MIN && errors >= requests * FAILED_SHARE
}

fn provider_problem(provider: &dyn Provider) -> Option<Value> {
    let state = provider.stats().state().as_str();
    (!provider.is_connected())
        .then(|| problem("error", "provider", provider.name(), format!("The broker is {state}.")))
}

fn router_problems(admin: &Admin) -> Vec<Value> {
    let mut problems = Vec::new();
    if admin.shutdown.is_leaving() {
        problems.push(problem("warning", "router", "", "The router shuts down.".to_owned()));
    }
    let overload = admin.serving.overload.as_ref();
    if let Some(reason) = overload.and_then(|it| it.unready_reason()) {
        let text = format!("The router is overloaded ({reason}); the readiness check fails.");
        problems.push(problem("error", "router", "", text));
    }
    problems
}

/// A number with six digits behind the point at most, and without a point if it is whole.
pub(super) fn compact(value: f64) -> Value {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        true => Value::from(rounded as i64),
        false => Value::from(rounded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let text = |value| compact(value).to_string();
        assert_eq!(text(3.0), "3");
        assert_eq!(text(f64::from(0.1_f32)), "0.1");
        assert_eq!(text(1.0 / 3.0), "0.333333");
        assert_eq!(text(f64::NAN), "null");
        assert_eq!(text(4e18), "4e+18");
    }

    #[test]
    fn few_failures_are_no_problem() {
        for (requests, errors, expected) in [
            (9.0, 9.0, false),
            (10.0, 1.0, true),
            (100.0, 9.0, false),
            (100.0, 10.0, true),
            (0.0, 0.0, false),
        ] {
            assert_eq!(is_failing(requests, errors), expected, "{errors} of {requests}");
        }
    }

    #[test]
    fn changes_become_numbers_or_quantiles() {
        let mut changes = std::collections::BTreeMap::new();
        changes.insert(SeriesKey::new(series::REQUESTS), Change::Count(12.0));
        let quantiles = [Some(0.25), None, Some(1.5)];
        changes.insert(SeriesKey::new(series::LATENCY), Change::Durations(4.0, quantiles));
        let minute = minute_json(&HistoryWindow { seconds: 7.5, changes }, "");
        assert_eq!(minute["requests"], 12);
        assert_eq!(minute["latency"], json!({"count": 4, "p50": 0.25, "p90": null, "p99": 1.5}));
        assert_eq!((&minute["seconds"], &minute["memory"]), (&json!(7.5), &Value::Null));
    }

    #[test]
    fn the_overview_of_a_graph_has_its_own_requests_and_the_memory_of_the_process() {
        let (all, partners) = (SeriesKey::new, |name| SeriesKey::labelled(name, "partners"));
        let changes = [
            (all(series::REQUESTS), Change::Count(12.0)),
            (partners(series::REQUESTS), Change::Count(5.0)),
            (all(series::MEMORY), Change::Level(64.0)),
        ];
        let window = HistoryWindow { seconds: 10.0, changes: changes.into() };
        for (graph, requests) in [("", json!(12)), ("partners", json!(5)), ("other", Value::Null)] {
            let minute = minute_json(&window, graph);
            assert_eq!((&minute["requests"], &minute["memory"]), (&requests, &json!(64)));
        }
        for (key, of_all, of_partners) in [
            (all(series::REQUESTS), true, false),
            (partners(series::REQUESTS), false, true),
            (all(series::CPU), true, true),
            (all(series::SUBGRAPH_REQUESTS), false, false),
            // A subgraph may have the name of a graph.
            (partners(series::SUBGRAPH_REQUESTS), false, false),
        ] {
            let shown = (is_shown(&key, ""), is_shown(&key, "partners"));
            assert_eq!(shown, (of_all, of_partners), "{key:?}");
        }
    }
}
