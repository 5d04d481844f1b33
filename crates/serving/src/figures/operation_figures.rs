//! The counters of one operation, and their metrics.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use execute::{ErrorCode, Payload};
use telemetry::name_table::{NameKey, NamedCounters};
use telemetry::{
    Buckets, DurationHistogram, ExemplarSpan, Exemplars, HistogramReading, Metric, Samples, Striped, read,
};

use super::client_uses::ClientUses;
use super::error_counts::ErrorCounts;
use super::names::anonymous_name;
use super::response_origins::{HitCounts, OriginCounts, ResponseOrigin};

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

/// Bounds for durations of operations. Few, because each of up to 500 operations has a line for each of them: from a
/// response out of memory to a time at which people give up.
#[derive(Debug, Default)]
pub struct OperationBuckets;

impl Buckets for OperationBuckets {
    const BOUNDS_MICROS: &'static [u64] =
        &[5_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000];
}

/// The measurements of one request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedRequest<'a> {
    /// The time that it took.
    pub(super) took: Duration,
    /// The span of the operation, if its trace is exported.
    pub(super) span: Option<ExemplarSpan>,
    /// The time that workers spent on it.
    pub(super) busy: Duration,
    /// The response, if the operation has one.
    pub(super) payload: Option<&'a Payload>,
    /// The code of the first error.
    pub(super) error: Option<ErrorCode>,
}

/// The counters of an operation.
#[derive(Debug, Default)]
pub struct OperationFigures {
    counters: Striped<OperationCounters>,
    exemplars: Exemplars,
    errors: ErrorCounts,
}

#[derive(Debug, Default)]
struct OperationCounters {
    durations: DurationHistogram<OperationBuckets>,
    busy_nanos: AtomicU64,
    subgraph_requests: AtomicU64,
    /// The number of responses with a measured cost, and the sum of these costs.
    costed: AtomicU64,
    cost: AtomicU64,
    response_bytes: AtomicU64,
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
        let EndedRequest { took, span, busy, payload, error } = *ended;
        let counters = self.counters.local();
        counters.clients.count(client);
        if let Some((origin, was_prepared)) = origin {
            counters.origins.count(origin, was_prepared);
        }
        counters.durations.add(took);
        if let Some(span) = span {
            self.exemplars.record(DurationHistogram::<OperationBuckets>::bucket(took), took, span);
        }
        // 2^64 ns are 584 years.
        counters.busy_nanos.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        if let Some(payload) = payload {
            let requests = u64::from(payload.subgraph_requests);
            counters.subgraph_requests.fetch_add(requests, Ordering::Relaxed);
            counters.response_bytes.fetch_add(payload.bytes.len() as u64, Ordering::Relaxed);
            if let Some(cost) = payload.cost {
                counters.costed.fetch_add(1, Ordering::Relaxed);
                counters.cost.fetch_add(cost, Ordering::Relaxed);
            }
        }
        if let Some(code) = error {
            self.errors.count(code);
        }
    }

    fn sum(&self, counter: fn(&OperationCounters) -> &AtomicU64) -> u64 {
        self.counters.iter().map(|it| read(counter(it))).sum()
    }

    /// Returns the clients with a counter of their own, and the number of requests of all others.
    pub(super) fn client_uses(&self) -> (Vec<(NameKey, u64)>, u64) {
        let sum = ClientUses::default();
        self.counters.iter().for_each(|it| sum.add_all(&it.clients));
        (sum.iter().collect(), sum.others())
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        self.errors.iter()
    }

    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.sum(|it| &it.busy_nanos))
    }

    pub(super) fn subgraph_requests(&self) -> u64 {
        self.sum(|it| &it.subgraph_requests)
    }

    /// Returns the number of responses with a cost, and the sum of these costs; `None` without any.
    pub(super) fn cost(&self) -> Option<(u64, u64)> {
        let costed = self.sum(|it| &it.costed);
        (costed > 0).then(|| (costed, self.sum(|it| &it.cost)))
    }

    pub(super) fn response_bytes(&self) -> u64 {
        self.sum(|it| &it.response_bytes)
    }

    /// Returns the hits and misses of the plan and of the response.
    pub(super) fn hits(&self) -> HitCounts {
        let sum = OriginCounts::default();
        self.counters.iter().for_each(|it| sum.add_all(&it.origins));
        sum.read()
    }

    pub(super) fn durations(&self) -> HistogramReading {
        let sum = DurationHistogram::<OperationBuckets>::default();
        self.counters.iter().for_each(|it| sum.add_all(&it.durations));
        HistogramReading { exemplars: self.exemplars.read(), ..sum.read() }
    }
}

impl NamedCounters for OperationFigures {
    fn uses(&self) -> u64 {
        self.counters.iter().map(|it| it.durations.count()).sum()
    }

    fn add_all(&self, other: &Self) {
        let own = self.counters.local();
        for counters in other.counters.iter() {
            own.durations.add_all(&counters.durations);
            own.clients.add_all(&counters.clients);
            own.origins.add_all(&counters.origins);
            for counter in OperationCounters::ALL {
                counter(own).fetch_add(read(counter(counters)), Ordering::Relaxed);
            }
        }
        self.errors.add_all(&other.errors);
        self.exemplars.add_all(&other.exemplars);
    }
}

impl OperationCounters {
    /// All counters but the histogram, and those of clients and origins.
    const ALL: [fn(&Self) -> &AtomicU64; 5] = [
        |it| &it.busy_nanos,
        |it| &it.subgraph_requests,
        |it| &it.costed,
        |it| &it.cost,
        |it| &it.response_bytes,
    ];
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
        "Requests that failed or have errors in their response, by operation and code of the first error",
        |it, samples| {
            let mut errors = it.errors.iter();
            errors
                .try_for_each(|(code, count)| samples.add_labelled(("code", code.as_str()), count))
        },
    ),
    Metric::histogram(
        "starling_named_operation_duration_seconds",
        "Time from the arrival of an operation to its printed response, or to the open subscription, by operation",
        OperationFigures::durations,
    ),
    Metric::counters(
        "starling_named_operation_cpu_seconds",
        "Time that workers spent on preparing and executing, by operation",
        |it, samples| samples.add(it.busy()),
    ),
    Metric::counter(
        "starling_named_operation_subgraph_requests",
        "Requests to subgraphs, by operation; a request that several operations share counts for each of them",
        OperationFigures::subgraph_requests,
    ),
    Metric::counters(
        "starling_named_operation_cost",
        "The sum of the costs of responses, by operation (cost.mode)",
        |it, samples| it.cost().map_or(Ok(()), |(_, sum)| samples.add(sum)),
    ),
    Metric::counter(
        "starling_named_operation_response_bytes",
        "Bytes of responses before compression, by operation",
        OperationFigures::response_bytes,
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
