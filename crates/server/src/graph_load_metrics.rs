//! Counters of attempts to load a graph.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use telemetry::Metric;

/// Counters of attempts to load a graph.
#[derive(Debug)]
pub(crate) struct GraphLoadMetrics {
    loads: Family<LoadLabel, Counter>,
}

/// The metrics of attempts to load a graph.
pub(crate) const GRAPH_LOAD_METRICS: &[Metric<GraphLoadMetrics>] =
    &[Metric::handle("starling_graph_loads", "Attempts to load a graph, by result", |it| {
        &it.loads
    })];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LoadLabel {
    result: ReloadResult,
}

/// The result of loading a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "label values are lower case")]
pub(crate) enum ReloadResult {
    /// The graph serves now.
    loaded,
    /// The graph did not load; the previous one stays.
    refused,
    /// The graph is equal to the one that serves.
    unchanged,
}

impl GraphLoadMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(crate) fn new() -> Self {
        let loads = Family::<LoadLabel, Counter>::default();
        for result in [ReloadResult::loaded, ReloadResult::refused, ReloadResult::unchanged] {
            drop(loads.get_or_create(&LoadLabel { result }));
        }
        Self { loads }
    }

    /// Counts an attempt.
    pub(crate) fn count(&self, result: ReloadResult) {
        self.loads.get_or_create(&LoadLabel { result }).inc();
    }
}
