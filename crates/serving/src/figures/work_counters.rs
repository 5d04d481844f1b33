//! The counters of requests that operations and clients have in common: their time, and what they cost the router and
//! the subgraphs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use execute::{ErrorCode, Payload};
use telemetry::{Buckets, DurationHistogram, ExemplarSpan, HistogramReading, Striped, read};

/// Bounds for durations of requests. Few, because each of up to 500 operations and 200 clients has a line for each of
/// them: from a response out of memory to a time at which people give up.
#[derive(Debug, Default)]
pub(super) struct RequestBuckets;

impl Buckets for RequestBuckets {
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

/// The counters of requests, with further counters of the same requests. Each thread writes to a copy, see [`Striped`].
#[derive(Debug, Default)]
pub(super) struct WorkCounters<M = ()>(Striped<WorkCopy<M>>);

#[derive(Debug, Default)]
struct WorkCopy<M> {
    durations: DurationHistogram<RequestBuckets>,
    busy_nanos: AtomicU64,
    subgraph_requests: AtomicU64,
    /// The number of responses with a measured cost, and the sum of these costs.
    costed: AtomicU64,
    cost: AtomicU64,
    response_bytes: AtomicU64,
    /// The further counters, beside the others because each request counts in both.
    more: M,
}

/// The sums of the counters at one time.
#[derive(Clone, Debug)]
pub struct WorkReading {
    /// The times to the response.
    pub durations: HistogramReading,
    /// The time that workers spent on the requests.
    pub busy: Duration,
    /// The number of requests to subgraphs.
    pub subgraph_requests: u64,
    /// The number of responses with a cost, and the sum of these costs; `None` without any.
    pub cost: Option<(u64, u64)>,
    /// The bytes of responses before compression.
    pub response_bytes: u64,
}

impl<M: Default> WorkCounters<M> {
    /// Counts a request, and in the further counters by `count_more`.
    // hot path: seven atomic additions at most, on memory that other threads seldom write to
    pub(super) fn count(&self, ended: &EndedRequest<'_>, count_more: impl FnOnce(&M)) {
        let copy = self.0.local();
        count_more(&copy.more);
        copy.durations.add(ended.took);
        // 2^64 ns are 584 years.
        copy.busy_nanos.fetch_add(ended.busy.as_nanos() as u64, Ordering::Relaxed);
        let Some(payload) = ended.payload else { return };
        let requests = u64::from(payload.subgraph_requests);
        if requests > 0 {
            copy.subgraph_requests.fetch_add(requests, Ordering::Relaxed);
        }
        copy.response_bytes.fetch_add(payload.bytes.len() as u64, Ordering::Relaxed);
        if let Some(cost) = payload.cost {
            copy.costed.fetch_add(1, Ordering::Relaxed);
            copy.cost.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Adds all counts of another row; `add_more` adds those of its further counters.
    pub(super) fn add_all(&self, other: &Self, add_more: impl Fn(&M, &M)) {
        let own = self.0.local();
        for copy in other.0.iter() {
            own.durations.add_all(&copy.durations);
            for counter in WorkCopy::<M>::ALL {
                counter(own).fetch_add(read(counter(copy)), Ordering::Relaxed);
            }
            add_more(&own.more, &copy.more);
        }
    }

    /// Iterates over the copies of the further counters.
    pub(super) fn more(&self) -> impl Iterator<Item = &M> {
        self.0.iter().map(|it| &it.more)
    }

    /// Returns all sums.
    pub(super) fn read(&self) -> WorkReading {
        WorkReading {
            durations: self.durations(),
            busy: self.busy(),
            subgraph_requests: self.subgraph_requests(),
            cost: self.cost(),
            response_bytes: self.response_bytes(),
        }
    }

    /// Returns the number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.0.iter().map(|it| it.durations.count()).sum()
    }

    pub(super) fn durations(&self) -> HistogramReading {
        let sum = DurationHistogram::<RequestBuckets>::default();
        self.0.iter().for_each(|it| sum.add_all(&it.durations));
        sum.read()
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

    fn sum(&self, counter: fn(&WorkCopy<M>) -> &AtomicU64) -> u64 {
        self.0.iter().map(|it| read(counter(it))).sum()
    }
}

impl<M> WorkCopy<M> {
    /// All counters but the histogram and the further ones.
    const ALL: [fn(&Self) -> &AtomicU64; 5] = [
        |it| &it.busy_nanos,
        |it| &it.subgraph_requests,
        |it| &it.costed,
        |it| &it.cost,
        |it| &it.response_bytes,
    ];
}
