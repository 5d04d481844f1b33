//! Counters of attempts to load a graph.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use telemetry::{LabelledCounters, Metric};

/// Counters of attempts to load a graph.
#[derive(Debug)]
pub(crate) struct GraphLoadMetrics {
    loads: LabelledCounters,
    earlier: AtomicU64,
}

/// The metrics of attempts to load a graph.
pub(crate) const GRAPH_LOAD_METRICS: &[Metric<GraphLoadMetrics>] = &[
    Metric::counters(
        "starling_graph_loads",
        "Attempts to load a graph, by result",
        |it, samples| it.loads.write("result", samples),
    ),
    Metric::gauge(
        "starling_graph_rollback_graphs",
        "Earlier graphs that POST /admin/rollback can return to, up to 4",
        |it| it.earlier.load(Relaxed),
    ),
];

/// The result of loading a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ReloadResult {
    /// The graph serves now.
    Loaded,
    /// The graph did not load; the previous one stays.
    Refused,
    /// The graph is equal to the one that serves.
    Unchanged,
    /// An earlier graph serves again, because an operator has asked for it.
    RolledBack,
}

impl ReloadResult {
    const ALL: [Self; 4] = [Self::Loaded, Self::Refused, Self::Unchanged, Self::RolledBack];

    fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Refused => "refused",
            Self::Unchanged => "unchanged",
            Self::RolledBack => "rolled_back",
        }
    }
}

impl GraphLoadMetrics {
    /// Creates the counters. All labels exist from the start, because an alert on a metric that does not exist yet
    /// never fires.
    pub(crate) fn new() -> Self {
        let loads = LabelledCounters::with_values(ReloadResult::ALL.map(ReloadResult::name));
        Self { loads, earlier: AtomicU64::new(0) }
    }

    /// Counts an attempt.
    pub(crate) fn count(&self, result: ReloadResult) {
        self.loads.add(result.name(), 1);
    }

    /// Notes the number of earlier graphs that are kept.
    pub(crate) fn set_earlier(&self, count: usize) {
        self.earlier.store(count as u64, Relaxed);
    }
}
