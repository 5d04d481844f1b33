//! The counters of one operation, and their metrics.

use std::fmt;

use telemetry::name_table::{NameKey, NamedCounters};
use telemetry::{DurationHistogram, Exemplars, HistogramReading, Metric, Samples};

use super::client_uses::ClientUses;
use super::error_counts::ErrorCounts;
use super::names::anonymous_name;
use super::response_origins::{HitCounts, OriginCounts, ResponseOrigin};
use super::work_counters::{EndedRequest, RequestBuckets, WorkCounters, WorkReading};

/// The labels of an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OperationLabel {
    /// The name.
    pub name: Box<str>,
    /// The kind.
    pub kind: &'static str,
}

impl OperationLabel {
    pub(super) fn named(name: &str, kind: &'static str) -> Self {
        Self { name: name.into(), kind }
    }

    pub(super) fn anonymous(id: u128, kind: &'static str) -> Self {
        Self { name: anonymous_name(id), kind }
    }
}

/// The counters of an operation.
#[derive(Debug, Default)]
pub struct OperationFigures {
    work: WorkCounters<OperationCounters>,
    exemplars: Exemplars,
    errors: ErrorCounts,
}

/// The counters that only operations have.
#[derive(Debug, Default)]
struct OperationCounters {
    clients: ClientUses,
    origins: OriginCounts,
}

impl OperationFigures {
    /// Counts a request for the operation, the client that sent it, and the origin of its response with whether the
    /// operation was prepared before.
    // hot path: nine atomic operations on memory that other threads seldom write to
    pub(super) fn count(
        &self,
        ended: &EndedRequest<'_>,
        client: NameKey,
        origin: Option<(ResponseOrigin, bool)>,
    ) {
        self.work.count(ended, |counters| {
            counters.clients.count(client);
            if let Some((origin, was_prepared)) = origin {
                counters.origins.count(origin, was_prepared);
            }
        });
        let EndedRequest { took, span, error, .. } = *ended;
        if let Some(span) = span {
            self.exemplars.record(DurationHistogram::<RequestBuckets>::bucket(took), took, span);
        }
        if let Some(code) = error {
            self.errors.count(code);
        }
    }

    /// Returns the clients with a counter of their own, and the number of requests of all others.
    pub(super) fn client_uses(&self) -> (Vec<(NameKey, u64)>, u64) {
        let sum = ClientUses::default();
        self.work.more().for_each(|it| sum.add_all(&it.clients));
        (sum.iter().collect(), sum.others())
    }

    pub(super) fn errors(&self) -> Vec<(&'static str, u64)> {
        self.errors.read()
    }

    pub(super) fn work(&self) -> WorkReading {
        WorkReading { durations: self.durations(), ..self.work.read() }
    }

    /// Returns the hits and misses of the plan and of the response.
    pub(super) fn hits(&self) -> HitCounts {
        let sum = OriginCounts::default();
        self.work.more().for_each(|it| sum.add_all(&it.origins));
        sum.read()
    }

    fn durations(&self) -> HistogramReading {
        HistogramReading { exemplars: self.exemplars.read(), ..self.work.durations() }
    }
}

impl NamedCounters for OperationFigures {
    fn uses(&self) -> u64 {
        self.work.requests()
    }

    fn add_all(&self, other: &Self) {
        self.work.add_all(&other.work, |own, counters| {
            own.clients.add_all(&counters.clients);
            own.origins.add_all(&counters.origins);
        });
        self.errors.add_all(&other.errors);
        self.exemplars.add_all(&other.exemplars);
    }
}

/// The metrics of one operation. The labels that name it are added by the caller.
pub const OPERATION_FIGURE_METRICS: &[Metric<OperationFigures>] = &[
    Metric::counter(
        "starling_named_operation_requests",
        "Requests for an operation that ended: executed, from memory, refused, or a subscription that was opened",
        NamedCounters::uses,
    ),
    Metric::counters(
        "starling_named_operation_errors",
        "Requests that failed or have errors in their response, by operation and code of the first error; up to 10 codes of each operation",
        |it, samples| it.errors.write(samples),
    ),
    Metric::histogram(
        "starling_named_operation_duration_seconds",
        "Time from the arrival of an operation to its printed response, or to the open subscription, by operation",
        OperationFigures::durations,
    ),
    Metric::counters(
        "starling_named_operation_cpu_seconds",
        "Time that workers spent on preparing and executing, by operation",
        |it, samples| samples.add(it.work.busy()),
    ),
    Metric::counter(
        "starling_named_operation_subgraph_requests",
        "Requests to subgraphs, by operation; a request that several operations share counts for each of them",
        |it| it.work.subgraph_requests(),
    ),
    Metric::counters(
        "starling_named_operation_cost",
        "The sum of the costs of responses, by operation (cost.mode)",
        |it, samples| it.work.cost().map_or(Ok(()), |(_, sum)| samples.add(sum)),
    ),
    Metric::counter(
        "starling_named_operation_response_bytes",
        "Bytes of responses before compression, by operation",
        |it| it.work.response_bytes(),
    ),
    Metric::counters(
        "starling_named_operation_plan_lookups",
        "Requests that ran, by operation and whether the operation was prepared before: `hit` or `miss`",
        |it, samples| {
            let HitCounts { plan_hits, plan_misses, .. } = it.hits();
            add_results(samples, &[("hit", plan_hits), ("miss", plan_misses)])
        },
    ),
    Metric::counters(
        "starling_named_operation_response_lookups",
        "Lookups of whole responses in memory, by operation and result: `hit`, `stale` or `miss`",
        |it, samples| {
            let HitCounts { response_hits, response_stale_hits, response_misses, .. } = it.hits();
            let results = [("hit", response_hits), ("stale", response_stale_hits)];
            add_results(samples, &results)?;
            add_results(samples, &[("miss", response_misses)])
        },
    ),
    Metric::counters(
        "starling_named_operation_shared",
        "Requests that got the response to an equal operation in flight, by operation",
        |it, samples| match it.hits().shared {
            0 => Ok(()),
            shared => samples.add(shared),
        },
    ),
];

/// Adds the results of lookups. Operations without a result have no sample for it, to keep the text small.
fn add_results(samples: &mut Samples<'_, '_>, results: &[(&str, u64)]) -> fmt::Result {
    let mut counted = results.iter().filter(|(_, count)| *count > 0);
    counted.try_for_each(|(result, count)| samples.add_labelled(("result", result), *count))
}
