//! Counters of operations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use execute::ErrorCode;
use plan::OperationKind;
use telemetry::{
    Buckets, ExemplarSpan, HistogramReading, LabelledCounters, Metric, Samples, Striped,
    TracedHistogram, read,
};

/// Counters of operations: those of the process, or those of one of several graphs.
#[derive(Debug, Default)]
pub struct OperationMetrics {
    /// The operations without errors, and those with errors, by kind.
    counts: [Striped<OutcomeCounts>; KINDS.len()],
    durations: [TracedHistogram<OperationSeconds>; KINDS.len()],
    refused: LabelledCounters,
    denied: LabelledCounters,
    /// The counters of the process, if these are those of a graph. What a graph counts, the process counts, too.
    process: Option<Arc<OperationMetrics>>,
}

/// Numbers of operations since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationTotals {
    /// The operations that ran or were refused.
    pub requests: u64,
    /// The operations that were refused, or have errors in their response.
    pub errors: u64,
}

#[derive(Debug, Default)]
struct OutcomeCounts {
    ok: AtomicU64,
    errors: AtomicU64,
}

/// The kinds of operations in metrics, in the order of the counters.
const KINDS: [&str; 3] = ["query", "mutation", "subscription"];

/// The metrics of operations. Those with few labels exist from the start, because an alert on a metric that does not
/// exist yet never fires.
pub const OPERATION_METRICS: &[Metric<OperationMetrics>] = &[
    Metric::counters(
        "starling_operations",
        "Operations run, by kind and by whether the response had errors",
        OperationMetrics::write_counts,
    ),
    Metric::histograms(
        "starling_operation_duration_seconds",
        "Time from the prepared operation to its printed response, or to the live subscription, by kind",
        |it, samples| {
            let mut durations = KINDS.iter().zip(&it.durations);
            durations.try_for_each(|(kind, it)| samples.add_histogram(("kind", kind), &it.read()))
        },
    ),
    Metric::counters(
        "starling_operations_refused",
        "Operations refused before they ran, by code of the first error",
        |it, samples| it.refused.write("code", samples),
    ),
    Metric::counters(
        "starling_operations_denied",
        "Operations with fields or types that the client may not use, by whether this is enforced",
        |it, samples| it.denied.write("enforced", samples),
    ),
];

/// Bounds for durations of operations: 0.5 ms to 30 s.
#[derive(Debug, Default)]
pub struct OperationSeconds;

impl Buckets for OperationSeconds {
    const BOUNDS_MICROS: &'static [u64] = &[
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ];
}

impl OperationMetrics {
    /// Creates the counters of one of several graphs.
    pub fn of_graph(process: &Arc<Self>) -> Self {
        Self { process: Some(Arc::clone(process)), ..Self::default() }
    }

    /// Returns the counters of the process; `None` if it has no others than these.
    pub fn process(&self) -> Option<&Arc<Self>> {
        self.process.as_ref()
    }

    /// Counts a finished query or mutation, or a subscription that has opened or that its source failed. `span` is that
    /// of the operation if its trace is exported.
    // hot path: three atomic operations on memory that other threads seldom write to; six with several graphs
    pub fn count(
        &self,
        kind: OperationKind,
        errors: bool,
        took: Duration,
        span: Option<ExemplarSpan>,
    ) {
        if let Some(process) = &self.process {
            process.count(kind, errors, took, span);
        }
        let kind = match kind {
            OperationKind::Query => 0,
            OperationKind::Mutation => 1,
            OperationKind::Subscription => 2,
        };
        let counts = self.counts[kind].local();
        let count = if errors { &counts.errors } else { &counts.ok };
        count.fetch_add(1, Ordering::Relaxed);
        // Only the metrics of the process have exemplars.
        let own = span.filter(|_| self.process.is_none());
        self.durations[kind].add(took, own);
    }

    /// Counts an operation with fields or types that its client may not use.
    pub fn count_denial(&self, is_dry_run: bool) {
        if let Some(process) = &self.process {
            process.count_denial(is_dry_run);
        }
        self.denied.add(if is_dry_run { "false" } else { "true" }, 1);
    }

    /// Counts an operation that was refused before it ran.
    pub fn count_refusal(&self, code: ErrorCode) {
        if let Some(process) = &self.process {
            process.count_refusal(code);
        }
        self.refused.add(code.as_str(), 1);
    }

    /// Returns the numbers of operations since the start.
    pub fn totals(&self) -> OperationTotals {
        let sum = |count: fn(&OutcomeCounts) -> &AtomicU64| -> u64 {
            self.counts.iter().flat_map(Striped::iter).map(|it| read(count(it))).sum()
        };
        let (ok, failed, refused) = (sum(|it| &it.ok), sum(|it| &it.errors), self.refused.sum());
        OperationTotals { requests: ok + failed + refused, errors: failed + refused }
    }

    /// Returns the durations of queries and those of mutations, without exemplars.
    pub fn response_durations(&self) -> [HistogramReading; 2] {
        let [queries, mutations, _] = &self.durations;
        [queries, mutations].map(|it| HistogramReading { exemplars: Vec::new(), ..it.read() })
    }

    fn write_counts(&self, samples: &mut Samples<'_, '_>) -> fmt::Result {
        for (kind, counts) in KINDS.iter().zip(&self.counts) {
            let sum = |count: fn(&OutcomeCounts) -> &AtomicU64| {
                counts.iter().map(|it| read(count(it))).sum::<u64>()
            };
            for (outcome, count) in [("ok", sum(|it| &it.ok)), ("errors", sum(|it| &it.errors))] {
                samples.add_with_labels(&[("kind", kind), ("outcome", outcome)], count)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{MetricsExporter, TextFormat};

    use super::*;

    #[test]
    fn operations_are_counted_by_kind_and_outcome() {
        let metrics = Arc::new(OperationMetrics::default());
        let took = Duration::from_millis(3);
        metrics.count(OperationKind::Query, false, took, None);
        metrics.count(OperationKind::Query, false, took, None);
        metrics.count(OperationKind::Mutation, true, took, None);
        metrics.count_refusal(ErrorCode::Timeout);
        metrics.count_denial(true);
        let exporter = MetricsExporter::new(move |out| out.write(OPERATION_METRICS, &*metrics));
        let text = exporter.text(TextFormat::Prometheus).expect("a text");
        for line in [
            "starling_operations_total{kind=\"query\",outcome=\"ok\"} 2",
            "starling_operations_total{kind=\"query\",outcome=\"errors\"} 0",
            "starling_operations_total{kind=\"mutation\",outcome=\"errors\"} 1",
            "starling_operation_duration_seconds_count{kind=\"query\"} 2",
            "starling_operation_duration_seconds_bucket{le=\"0.0025\",kind=\"query\"} 0",
            "starling_operation_duration_seconds_bucket{le=\"0.005\",kind=\"query\"} 2",
            "starling_operation_duration_seconds_count{kind=\"subscription\"} 0",
            "starling_operations_refused_total{code=\"TIMEOUT\"} 1",
            "starling_operations_denied_total{enforced=\"false\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_graph_counts_its_operations_and_the_process_those_of_all_graphs() {
        let process = Arc::new(OperationMetrics::default());
        let [first, other] = [(); 2].map(|()| OperationMetrics::of_graph(&process));
        let took = Duration::from_millis(3);
        first.count(OperationKind::Query, false, took, None);
        first.count(OperationKind::Subscription, false, took, None);
        other.count(OperationKind::Mutation, true, took, None);
        other.count_refusal(ErrorCode::Timeout);
        // Before it was known which graph the request is for.
        process.count_refusal(ErrorCode::Overloaded);
        let totals = |requests, errors| OperationTotals { requests, errors };
        assert_eq!(first.totals(), totals(2, 0));
        assert_eq!(other.totals(), totals(2, 2));
        assert_eq!(process.totals(), totals(5, 3));
        let durations = |it: &OperationMetrics| it.response_durations().map(|it| it.count());
        assert_eq!(durations(&first), [1, 0], "subscriptions are not among them");
        assert_eq!(durations(&other), [0, 1]);
        assert_eq!(durations(&process), [1, 1]);
        assert!(process.process().is_none());
        assert!(other.process().is_some_and(|it| Arc::ptr_eq(it, &process)));
    }
}
