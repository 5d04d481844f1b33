//! The figures of the console: which of the router's metrics have a history, and where they are read.
//!
//! A series without a label is that of the process. With several graphs, each of them has six series under its name
//! besides, which take 11 kB for the last hour (see [`telemetry::history::SERIES_MAX`]).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use clients::operation_metrics::{OperationMetrics, OperationTotals};
use hub::HubStats;
use live::metrics::SUBSCRIPTION_METRICS;
use serde_json::{Value, json};
use serving::admission::Admission;
use serving::generation::ServingGraph;
use serving::overload::metrics::ADMISSION_CLASS_METRICS;
use serving::rate_limits::RATE_LIMIT_METRICS;
use telemetry::history::{HistorySample, SeriesKey};
use telemetry::metric_samples::MetricSamples;
use telemetry::{MetricsExporter, MetricsWriter, read};
use upstream::FailureKind;

use super::subgraphs::{ShownSubgraph, SubgraphNames};
use crate::metrics_export::MetricsSources;

/// The names of the series.
pub(super) mod series {
    /// Operations that ran or were refused.
    pub(crate) const REQUESTS: &str = "requests";
    /// Operations that were refused, or have errors in their response.
    pub(crate) const ERRORS: &str = "errors";
    /// Durations of queries and mutations.
    pub(crate) const LATENCY: &str = "latency";
    /// CPU time in seconds.
    pub(crate) const CPU: &str = "cpu";
    /// Resident memory in bytes.
    pub(crate) const MEMORY: &str = "memory";
    /// Open connections of clients.
    pub(crate) const CONNECTIONS: &str = "connections";
    /// Subscribers.
    pub(crate) const SUBSCRIBERS: &str = "subscribers";
    /// Events that reached triggers.
    pub(crate) const EVENTS: &str = "events";
    /// Payloads for subscribers.
    pub(crate) const DELIVERIES: &str = "deliveries";
    /// Work that was refused or dropped, by reason.
    pub(crate) const REFUSED: &str = "refused";
    /// Requests to a subgraph.
    pub(crate) const SUBGRAPH_REQUESTS: &str = "subgraphRequests";
    /// Failed requests to a subgraph.
    pub(crate) const SUBGRAPH_ERRORS: &str = "subgraphErrors";
    /// Durations of requests to a subgraph.
    pub(crate) const SUBGRAPH_LATENCY: &str = "subgraphLatency";
    /// Events of a broker.
    pub(crate) const PROVIDER_RECEIVED: &str = "providerReceived";
    /// Events that a broker accepted.
    pub(crate) const PROVIDER_PUBLISHED: &str = "providerPublished";
}

/// Reads the figures.
#[derive(Debug)]
pub(crate) struct FigureReader {
    sources: Arc<MetricsSources>,
    /// The tables that are read from their text, because their handles have no other way: some hundred lines.
    tables: MetricsExporter,
    subgraph_names: Mutex<SubgraphNames>,
}

impl FigureReader {
    pub(crate) fn new(sources: &Arc<MetricsSources>) -> Self {
        let of_tables = Arc::clone(sources);
        let tables = MetricsExporter::new(move |out| write_tables(out, &of_tables));
        Self { sources: Arc::clone(sources), tables, subgraph_names: Mutex::default() }
    }

    /// Reads all figures.
    pub(super) fn read(&self) -> HistorySample {
        let mut sample = HistorySample::default();
        self.read_graphs(&mut sample);
        self.read_refusals(&mut sample);
        self.read_process(&mut sample);
        self.read_subgraphs(&mut sample);
        self.read_providers(&mut sample);
        sample
    }

    /// Returns the JSON of open connections and subscriptions by transport, and of slow readers by policy.
    pub(super) fn describe_transports(&self) -> (Value, Value) {
        let tables = MetricSamples::read(&self.tables);
        let subscriptions = |transport: &str| {
            let open = tables.named("starling_subscriptions_open");
            let of_transport = open.filter(|it| it.label("transport") == transport);
            of_transport.map(|it| it.value).sum::<f64>() as u64
        };
        let streams = tables.named("starling_streams_open");
        let mut transports: Vec<(&str, u64)> =
            streams.map(|it| (it.label("transport"), it.value as u64)).collect();
        // Such as a subscription without a stream of its own.
        for it in tables.named("starling_subscriptions_open") {
            if !transports.iter().any(|(known, _)| *known == it.label("transport")) {
                transports.push((it.label("transport"), 0));
            }
        }
        let transports = transports.into_iter().map(|(transport, streams)| {
            let subscriptions = subscriptions(transport);
            json!({"transport": transport, "streams": streams, "subscriptions": subscriptions})
        });
        let slow = tables.named("starling_subscribers_slow");
        let slow = slow.map(|it| json!({"policy": it.label("policy"), "count": it.value as u64}));
        (transports.collect(), slow.collect())
    }

    /// Returns the graphs that serve now, each with its name, that of `supergraph` first.
    pub(super) fn graphs(&self) -> Vec<(&str, Arc<ServingGraph>)> {
        self.sources.serving_graphs()
    }

    /// Returns the subgraphs of the graph with the name `wanted`; without it those of all graphs, each once. `graphs`
    /// are those of [`Self::graphs`].
    pub(super) fn subgraphs<'a>(
        &self,
        graphs: &'a [(&'a str, Arc<ServingGraph>)],
        wanted: Option<&str>,
    ) -> Vec<ShownSubgraph<'a>> {
        // At worst, a name behind a poisoned lock stays taken.
        let mut names = self.subgraph_names.lock().unwrap_or_else(PoisonError::into_inner);
        names.shown(graphs, wanted)
    }

    /// Reads what graphs have: the sums over all, which are those of the process, and the figures of each of several.
    fn read_graphs(&self, sample: &mut HistorySample) {
        add_operations(sample, "", self.sources.runner.serving.process_metrics());
        let has_several = !self.sources.further.is_empty();
        for (graph, operations, hub) in self.sources.graph_counters() {
            add_subscriptions(sample, "", hub);
            if has_several {
                add_operations(sample, graph, operations);
                add_subscriptions(sample, graph, hub);
            }
        }
    }

    fn read_refusals(&self, sample: &mut HistorySample) {
        let tables = MetricSamples::read(&self.tables);
        let mut add = |reason: &str, value| {
            sample.add_count(SeriesKey::labelled(series::REFUSED, reason), value);
        };
        for it in tables.named("starling_admission_refused") {
            add(&format!("overload: {} ({})", it.label("reason"), it.label("class")), it.value);
        }
        for it in tables.named("starling_rate_limit_refused") {
            add(&format!("rate limit: {}", it.label("limit")), it.value);
        }
        for it in tables.named("starling_subscribers_slow") {
            add(&format!("slow subscriber: {}", it.label("policy")), it.value);
        }
        let [all, of_address] = self.sources.http.limits.connections.refused();
        add("connection: http.max_connections", all as f64);
        add("connection: http.max_connections_per_ip", of_address as f64);
        add("connection: limits.memory", self.sources.http.limits.served.refused() as f64);
        let hubs = || self.sources.hub_stats();
        let refused: u64 = hubs().map(|it| it.refused_overload.load(Relaxed)).sum();
        add("subscription: too many subscribers", refused as f64);
        let dropped: u64 = hubs().map(|it| it.dropped_group_behind.load(Relaxed)).sum();
        add("event: group behind", dropped as f64);
    }

    fn read_process(&self, sample: &mut HistorySample) {
        if let Some(usage) = profile::usage() {
            sample.add_count(SeriesKey::new(series::CPU), usage.cpu_seconds);
            sample.add_level(SeriesKey::new(series::MEMORY), usage.resident_bytes as f64);
        }
        let open = self.sources.http.limits.connections.open();
        sample.add_level(SeriesKey::new(series::CONNECTIONS), open as f64);
    }

    fn read_subgraphs(&self, sample: &mut HistorySample) {
        let graphs = self.graphs();
        for ShownSubgraph { name, upstream } in self.subgraphs(&graphs, None) {
            let (stats, key) = (upstream.stats(), |series| SeriesKey::labelled(series, &name));
            let failures: u64 = FailureKind::ALL.into_iter().map(|kind| stats.failures(kind)).sum();
            sample.add_count(key(series::SUBGRAPH_REQUESTS), read(&stats.requests) as f64);
            sample.add_count(key(series::SUBGRAPH_ERRORS), failures as f64);
            sample.add_durations(key(series::SUBGRAPH_LATENCY), stats.seconds.read());
        }
    }

    fn read_providers(&self, sample: &mut HistorySample) {
        for provider in self.sources.providers.iter() {
            let (stats, key) =
                (provider.stats(), |name| SeriesKey::labelled(name, provider.name()));
            sample.add_count(key(series::PROVIDER_RECEIVED), read(&stats.received) as f64);
            sample.add_count(key(series::PROVIDER_PUBLISHED), read(&stats.published) as f64);
        }
    }
}

/// Adds the operations of a graph; those of the process without its name.
fn add_operations(sample: &mut HistorySample, graph: &str, metrics: &OperationMetrics) {
    let key = |series| SeriesKey::labelled(series, graph);
    let OperationTotals { requests, errors } = metrics.totals();
    sample.add_count(key(series::REQUESTS), requests as f64);
    sample.add_count(key(series::ERRORS), errors as f64);
    for durations in metrics.response_durations() {
        sample.add_durations(key(series::LATENCY), durations);
    }
}

/// Adds the live subscriptions of a graph; those of the process without its name.
fn add_subscriptions(sample: &mut HistorySample, graph: &str, hub: &HubStats) {
    let key = |series| SeriesKey::labelled(series, graph);
    sample.add_level(key(series::SUBSCRIBERS), read(&hub.subscribers) as f64);
    sample.add_count(key(series::EVENTS), read(&hub.events) as f64);
    sample.add_count(key(series::DELIVERIES), read(&hub.deliveries) as f64);
}

fn write_tables(out: &mut MetricsWriter<'_>, sources: &MetricsSources) -> fmt::Result {
    let serving = sources.runner.serving.current();
    out.write(SUBSCRIPTION_METRICS, &sources.runner.metrics)?;
    if let Some(overload) = &serving.overload {
        let classes = overload.reading().classes();
        let classes = classes.iter().map(|(name, it)| (vec![("class", *name)], it));
        out.write_each(ADMISSION_CLASS_METRICS, &classes.collect::<Vec<_>>())?;
    }
    let limits = serving.admission.iter().flat_map(Admission::limit_states);
    let limits = limits.map(|it| (vec![("limit", &*it.name)], &**it));
    out.write_each(RATE_LIMIT_METRICS, &limits.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plan::OperationKind;
    use telemetry::history::SampledValue;

    use super::*;

    #[test]
    fn the_figures_of_a_graph_are_apart_from_the_sums_over_all() {
        let process = Arc::new(OperationMetrics::default());
        let graphs =
            ["default", "partners"].map(|name| (name, OperationMetrics::of_graph(&process)));
        let hub = HubStats::default();
        hub.subscribers.store(3, Relaxed);
        let mut sample = HistorySample::default();
        for (index, (name, metrics)) in graphs.iter().enumerate() {
            for kind in [OperationKind::Query, OperationKind::Mutation] {
                metrics.count(kind, index == 1, Duration::from_millis(3), None);
            }
            add_operations(&mut sample, name, metrics);
            add_subscriptions(&mut sample, name, &hub);
            add_subscriptions(&mut sample, "", &hub);
        }
        add_operations(&mut sample, "", &process);
        let value = |series, graph| match sample.get(&SeriesKey::labelled(series, graph)) {
            Some(SampledValue::Count(value) | SampledValue::Level(value)) => *value,
            Some(SampledValue::Durations(reading)) => reading.count() as f64,
            None => f64::NAN,
        };
        for (graph, expected) in [
            ("default", [2.0, 0.0, 2.0, 3.0]),
            ("partners", [2.0, 2.0, 2.0, 3.0]),
            ("", [4.0, 2.0, 4.0, 6.0]),
        ] {
            let names = [series::REQUESTS, series::ERRORS, series::LATENCY, series::SUBSCRIBERS];
            assert_eq!(names.map(|it| value(it, graph)), expected, "{graph}");
        }
    }
}
