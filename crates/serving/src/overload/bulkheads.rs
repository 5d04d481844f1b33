//! The share of each subgraph in the work in flight ([`admission::Bulkhead`]), joined with the subgraphs of a graph:
//! the requests to them are measured, and operations that need a slow one take a place in its share, or do without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::{Bulkhead, BulkheadPlace, Class, RouterWork, UNITS};
use config::Traffic;
use execute::{
    FetchError, HiddenErrors, LocalFuture, Subgraph, SubgraphEndpoint, SubgraphRequest,
    SubgraphResponse,
};
use graph::{SubgraphId, Supergraph};
use plan::Plan;
use telemetry::{Metric, read};

/// The time after which a subgraph is slow that is fast and has no requests in flight.
const NEVER: u64 = u64::MAX;

/// The usual latency of a subgraph without responses.
const UNKNOWN: u64 = 0;

/// The work of the process, for all graphs. In units of work.
#[derive(Debug, Default)]
pub(crate) struct WorkCounts {
    /// The work that has arrived.
    arrived: AtomicU64,
    /// The work in flight that waits for subgraphs that hang.
    waiting_in_vain: AtomicU64,
}

impl WorkCounts {
    /// Returns the work in flight that does not count in the limit.
    pub(super) fn waiting_in_vain(&self) -> u64 {
        self.waiting_in_vain.load(Ordering::Relaxed)
    }
}

/// The share of one subgraph. It survives reloads.
#[derive(Debug)]
pub struct SubgraphBulkhead {
    name: Box<str>,
    state: Mutex<Bulkhead>,
    /// The time after which the subgraph is slow, in nanoseconds since `started`, or [`NEVER`]. Each change of the
    /// requests in flight writes it under the lock, so that reading it takes none.
    slow_after: AtomicU64,
    /// The usual latency in microseconds, or [`UNKNOWN`]. Other subgraphs are compared with it until they respond.
    usual: AtomicU64,
    work: Arc<WorkCounts>,
    /// The part of [`WorkCounts::waiting_in_vain`] that waits for this subgraph. Written under the lock.
    waiting_in_vain: AtomicU64,
    started: Instant,
    /// The number of operations that did without the subgraph.
    left_out: AtomicU64,
}

/// The shares of the subgraphs of one graph.
#[derive(Debug)]
pub struct GraphBulkheads {
    /// By [`SubgraphId`]; `None` for those that may hold any part of the work in flight, and for event subgraphs.
    subgraphs: Box<[Option<BoundedSubgraph>]>,
    /// The same without those that have none.
    all: Arc<[Arc<SubgraphBulkhead>]>,
    work: Arc<WorkCounts>,
}

#[derive(Debug)]
struct BoundedSubgraph {
    bulkhead: Arc<SubgraphBulkhead>,
    /// The part of the limit that it may hold while it is slow.
    share: f64,
}

impl GraphBulkheads {
    /// Creates the shares of a graph. Subgraphs that the `previous` one had keep what is known of them, if `is_known`
    /// says that they are the same.
    pub(crate) fn new(
        traffic: &Traffic,
        graph: &Supergraph,
        work: &Arc<WorkCounts>,
        previous: Option<&Self>,
        is_known: impl Fn(SubgraphId) -> bool,
    ) -> Self {
        let bounded = |(id, name): (SubgraphId, &str)| {
            let percent = traffic.of(name).max_in_flight_share;
            if percent >= 100 {
                return None;
            }
            let known = previous.filter(|_| is_known(id));
            let mut known = known.into_iter().flat_map(Self::bulkheads);
            let known = known.find(|it| *it.name == *name);
            let bulkhead =
                known.cloned().unwrap_or_else(|| Arc::new(SubgraphBulkhead::new(name, work)));
            Some(BoundedSubgraph { bulkhead, share: f64::from(percent) / 100.0 })
        };
        let subgraphs = graph.subgraphs.iter().enumerate();
        let subgraphs = subgraphs.map(|(id, it)| (SubgraphId(id as u16), &*it.name));
        let subgraphs: Box<[_]> = subgraphs.map(bounded).collect();
        let all = subgraphs.iter().flatten().map(|it| Arc::clone(&it.bulkhead)).collect();
        Self { subgraphs, all, work: Arc::clone(work) }
    }

    /// Returns a client of the subgraph that measures its requests.
    pub(crate) fn measured(&self, id: SubgraphId, inner: Arc<dyn Subgraph>) -> Arc<dyn Subgraph> {
        match &self.subgraphs[usize::from(id.0)] {
            None => inner,
            Some(bounded) => {
                let bulkhead = Arc::clone(&bounded.bulkhead);
                Arc::new(MeasuredSubgraph { inner, bulkhead, all: Arc::clone(&self.all) })
            }
        }
    }

    /// Returns the share of each subgraph that has one.
    pub fn bulkheads(&self) -> impl Iterator<Item = &Arc<SubgraphBulkhead>> {
        self.all.iter()
    }

    /// Takes places for an operation with this plan, in the shares of all subgraphs that it may send requests to.
    /// `limit` is the limit on the work in flight, in units of work.
    // hot path: one short lock for each subgraph of the plan
    pub(crate) fn enter(&self, plan: &Plan, class: Class, weight: u32, limit: u64) -> PlanPlaces {
        let before = self.work.arrived.fetch_add(weight.into(), Ordering::Relaxed);
        let arrived = before + u64::from(weight);
        let work = RouterWork { limit, arrived };
        let mut places = PlanPlaces::default();
        let mut closed = Vec::new();
        // Plans may have many fetches from one subgraph.
        let mut is_seen = vec![false; self.subgraphs.len()];
        for id in plan.fetches.iter().map(|fetch| fetch.subgraph) {
            let index = usize::from(id.0);
            let Some(Some(bounded)) = self.subgraphs.get(index) else { continue };
            if std::mem::replace(&mut is_seen[index], true) {
                continue;
            }
            match bounded.bulkhead.enter(class, weight, bounded.share, work) {
                Some(place) => places.taken.push((Arc::clone(&bounded.bulkhead), place)),
                None => closed.push(id),
            }
        }
        if !closed.is_empty() {
            places.closed = Some(closed.into());
        }
        places
    }
}

/// The places of one operation, which it gives back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct PlanPlaces {
    taken: Vec<(Arc<SubgraphBulkhead>, BulkheadPlace)>,
    /// The subgraphs that the operation must do without, if there are any.
    pub(crate) closed: Option<Arc<[SubgraphId]>>,
}

impl PlanPlaces {
    /// True if a subgraph is slow, and its share bounds the operations that need it.
    pub(crate) fn has_slow_subgraph(&self) -> bool {
        self.taken.iter().any(|(bulkhead, _)| {
            let state = bulkhead.lock();
            state.is_kept_apart(bulkhead.now())
        })
    }
}

impl Drop for PlanPlaces {
    fn drop(&mut self) {
        for (bulkhead, place) in self.taken.drain(..) {
            bulkhead.leave(place);
        }
    }
}

impl SubgraphBulkhead {
    fn new(name: &str, work: &Arc<WorkCounts>) -> Self {
        Self {
            name: name.into(),
            state: Mutex::default(),
            slow_after: AtomicU64::new(NEVER),
            usual: AtomicU64::new(UNKNOWN),
            work: Arc::clone(work),
            waiting_in_vain: AtomicU64::new(0),
            started: Instant::now(),
            left_out: AtomicU64::new(0),
        }
    }

    /// The name of the subgraph.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn enter(
        &self,
        class: Class,
        weight: u32,
        share: f64,
        work: RouterWork,
    ) -> Option<BulkheadPlace> {
        let mut state = self.lock();
        let now = self.now();
        let place = state.enter(class, weight, share, work, now);
        self.count_waiting_in_vain(state.waiting_in_vain(now));
        drop(state);
        if place.is_none() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    // hot path: the clock is read only while the subgraph hangs
    fn leave(&self, place: BulkheadPlace) {
        let mut state = self.lock();
        state.leave(place);
        if self.waiting_in_vain.load(Ordering::Relaxed) > 0 {
            self.count_waiting_in_vain(state.waiting_in_vain(self.now()));
        }
    }

    /// Sets the units of work in flight that wait for this subgraph in vain. The caller has the lock, or is the only one
    /// that knows the subgraph.
    // hot path: nothing to write unless a subgraph hangs
    fn count_waiting_in_vain(&self, units: u64) {
        let before = self.waiting_in_vain.load(Ordering::Relaxed);
        if units != before {
            self.waiting_in_vain.store(units, Ordering::Relaxed);
            let sum = &self.work.waiting_in_vain;
            sum.fetch_add(units.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// True if requests to the subgraph take several times longer than usual.
    // hot path: no lock, because it is read for each fetch of each event
    fn is_slow(&self) -> bool {
        let after = self.slow_after.load(Ordering::Relaxed);
        // The clock does not matter if there are no requests in flight.
        after != NEVER && is_later(self.now(), after)
    }

    /// Writes what is read without the lock. `state` is the locked state, which has changed.
    fn publish(&self, state: &Bulkhead, now: Duration) {
        let after = state.slow_after().map_or(NEVER, nanos);
        self.slow_after.store(after, Ordering::Relaxed);
        let usual = state.usual_latency().map_or(UNKNOWN, |it| (it * 1e6).max(1.0) as u64);
        self.usual.store(usual, Ordering::Relaxed);
        self.count_waiting_in_vain(state.waiting_in_vain(now));
    }

    /// Returns the usual latency in seconds, if there was a response.
    fn usual_latency(&self) -> Option<f64> {
        match self.usual.load(Ordering::Relaxed) {
            UNKNOWN => None,
            micros => Some(micros as f64 / 1e6),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bulkhead> {
        // The state machine makes no calls that could panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SubgraphBulkhead {
    fn drop(&mut self) {
        self.count_waiting_in_vain(0);
    }
}

/// True if a time is later than one in nanoseconds.
fn is_later(now: Duration, time: u64) -> bool {
    now.as_nanos() > u128::from(time)
}

/// Returns a time in nanoseconds. A process does not live for the 584 years that are too many.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

/// A client of a subgraph that measures its requests.
struct MeasuredSubgraph {
    inner: Arc<dyn Subgraph>,
    bulkhead: Arc<SubgraphBulkhead>,
    /// The shares of all subgraphs of the graph.
    all: Arc<[Arc<SubgraphBulkhead>]>,
}

/// A request in flight. If it is dropped before it has ended, its client has gone.
struct MeasuredRequest<'a> {
    bulkhead: &'a SubgraphBulkhead,
    began: Duration,
    has_ended: bool,
}

impl<'a> MeasuredRequest<'a> {
    /// Begins a request. Also returns whether the subgraph is slow. One of which no response is known is compared with
    /// `all` of the graph.
    fn begin(bulkhead: &'a SubgraphBulkhead, all: &[Arc<SubgraphBulkhead>]) -> (Self, bool) {
        let mut state = bulkhead.lock();
        if state.usual_latency().is_none()
            && let Some(greatest) = all.iter().filter_map(|it| it.usual_latency()).reduce(f64::max)
        {
            state.assume_usual(greatest);
        }
        // Read while the lock is held, so that the time of the state machine does not go back.
        let began = bulkhead.now();
        let is_slow = is_later(began, bulkhead.slow_after.load(Ordering::Relaxed));
        state.begin_request(began);
        bulkhead.publish(&state, began);
        drop(state);
        (Self { bulkhead, began, has_ended: false }, is_slow)
    }
}

impl Drop for MeasuredRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.bulkhead.lock();
        let now = self.bulkhead.now();
        state.end_request(self.began, self.has_ended, now);
        self.bulkhead.publish(&state, now);
    }
}

impl Subgraph for MeasuredSubgraph {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        // Files take the time of the client's network.
        if request.form.is_some() {
            return self.inner.fetch(request);
        }
        Box::pin(async move {
            let (mut measured, is_slow) = MeasuredRequest::begin(&self.bulkhead, &self.all);
            self.inner.note_slowness(is_slow);
            let result = self.inner.fetch(request).await;
            // A request that was not sent took no time of the subgraph, one that was given up says only that the
            // subgraph takes longer, and a failure is often quicker than a response.
            let is_failure = result.as_ref().is_ok_and(|it| it.status.is_server_error());
            measured.has_ended = result.is_ok() && !is_failure;
            result
        })
    }

    fn endpoint(&self) -> Option<&SubgraphEndpoint> {
        self.inner.endpoint()
    }

    fn is_slow(&self) -> bool {
        self.bulkhead.is_slow()
    }

    fn note_split(&self) {
        self.inner.note_split();
    }

    fn note_unusable_response(&self, problem: &str) {
        self.inner.note_unusable_response(problem);
    }

    fn note_errors(&self, code: Option<&str>) {
        self.inner.note_errors(code);
    }

    fn note_hidden_errors(&self, errors: &HiddenErrors<'_>) {
        self.inner.note_hidden_errors(errors);
    }
}

/// The metrics of the share of one subgraph. The label that names the subgraph is added by the caller.
pub const BULKHEAD_METRICS: &[Metric<SubgraphBulkhead>] = &[
    Metric::gauges(
        "starling_subgraph_share_held",
        "Work in flight that needs the subgraph, in average operations",
        |it, samples| samples.add(it.lock().held() as f64 / f64::from(UNITS)),
    ),
    Metric::gauge(
        "starling_subgraph_slow",
        "1 if requests to the subgraph take several times longer than usual",
        |it| u64::from(it.is_slow()),
    ),
    Metric::counter(
        "starling_subgraph_share_exceeded",
        "Operations that did without a slow subgraph because it held its share of the work in flight",
        |it| read(&it.left_out),
    ),
];

#[cfg(test)]
mod tests {
    use config::{TrafficOverride, TrafficSettings};

    use super::*;
    use crate::test_graphs::with_subgraphs;

    fn bulkheads(traffic: &Traffic, graph: &Supergraph) -> GraphBulkheads {
        GraphBulkheads::new(traffic, graph, &Arc::default(), None, |_| true)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn names(bulkheads: &GraphBulkheads) -> Vec<&str> {
        bulkheads.bulkheads().map(|it| it.name()).collect()
    }

    #[test]
    fn a_subgraph_has_a_share_unless_it_may_hold_all_of_the_work() {
        let mut traffic = Traffic::default();
        let all = TrafficOverride { max_in_flight_share: Some(100), ..Default::default() };
        traffic.subgraphs.insert("b".into(), all);
        let graph = with_subgraphs(&["a", "b", "c"]);
        assert_eq!(names(&bulkheads(&traffic, &graph)), ["a", "c"]);
        traffic.all = TrafficSettings { max_in_flight_share: 100, ..Default::default() };
        assert_eq!(names(&bulkheads(&traffic, &graph)), [""; 0]);
    }

    #[test]
    fn slowness_is_read_without_the_lock_and_is_that_of_the_state() {
        let mut bulkhead = SubgraphBulkhead::new("a", &Arc::default());
        bulkhead.started = bulkhead.started.checked_sub(MINUTE).expect("a minute ago");
        let is_slow = || {
            let is_slow = bulkhead.is_slow();
            assert_eq!(is_slow, bulkhead.lock().is_slow(bulkhead.now()));
            is_slow
        };
        assert!(!is_slow());
        let (young, was_slow) = MeasuredRequest::begin(&bulkhead, &[]);
        assert_eq!((was_slow, is_slow()), (false, false));
        // The mean age of the requests is half a minute now.
        let mut state = bulkhead.lock();
        state.begin_request(Duration::ZERO);
        bulkhead.publish(&state, bulkhead.now());
        drop(state);
        let old = MeasuredRequest { bulkhead: &bulkhead, began: Duration::ZERO, has_ended: true };
        assert!(is_slow());
        assert!(MeasuredRequest::begin(&bulkhead, &[]).1, "known to the next request");
        drop(young);
        assert!(is_slow());
        drop(old);
        assert!(is_slow(), "the latest response took a minute");
    }

    #[test]
    fn a_subgraph_without_responses_is_compared_with_the_slowest_other() {
        let all = ["new", "fast", "slower"].map(|name| {
            let mut bulkhead = SubgraphBulkhead::new(name, &Arc::default());
            bulkhead.started = bulkhead.started.checked_sub(MINUTE).expect("a minute ago");
            Arc::new(bulkhead)
        });
        let [new, fast, slower] = &all;
        let respond = |bulkhead: &SubgraphBulkhead, millis| {
            let began = bulkhead.now().saturating_sub(Duration::from_millis(millis));
            bulkhead.lock().begin_request(began);
            drop(MeasuredRequest { bulkhead, began, has_ended: true });
        };
        let slow_after = |millis| {
            let mut state = new.lock();
            let request = new.now().saturating_sub(Duration::from_millis(millis));
            state.begin_request(request);
            let is_slow = state.is_slow(new.now());
            state.end_request(request, false, request);
            is_slow
        };
        let assume = || drop(MeasuredRequest::begin(new, &all));
        assume();
        assert_eq!([2900, 3100].map(slow_after), [false, true]);
        respond(fast, 20);
        assume();
        assert_eq!([50, 150].map(slow_after), [false, true]);
        respond(slower, 200);
        assume();
        assert_eq!([500, 700].map(slow_after), [false, true]);
    }

    #[test]
    fn what_waits_for_a_hanging_subgraph_is_counted_for_the_process() {
        let work = Arc::new(WorkCounts::default());
        let mut bulkhead = SubgraphBulkhead::new("a", &work);
        bulkhead.started = bulkhead.started.checked_sub(MINUTE).expect("a minute ago");
        let bulkhead = Arc::new(bulkhead);
        let enter = |arrived| {
            let work = RouterWork { limit: 100_000, arrived };
            let place = bulkhead.enter(Class::Normal, UNITS, 0.5, work).expect("it has room");
            PlanPlaces { taken: vec![(Arc::clone(&bulkhead), place)], closed: None }
        };
        let first = enter(10_000);
        bulkhead.lock().begin_request(Duration::ZERO);
        let request =
            MeasuredRequest { bulkhead: &bulkhead, began: Duration::ZERO, has_ended: true };
        let second = enter(20_000);
        assert_eq!(work.waiting_in_vain(), 2 * u64::from(UNITS));
        drop(first);
        assert_eq!(work.waiting_in_vain(), u64::from(UNITS));
        drop(request);
        assert_eq!(work.waiting_in_vain(), 0, "it responds");
        bulkhead.lock().begin_request(Duration::ZERO);
        bulkhead.count_waiting_in_vain(UNITS.into());
        drop((second, bulkhead));
        assert_eq!(work.waiting_in_vain(), 0, "it is gone");
    }

    #[test]
    fn a_reload_keeps_what_is_known_of_a_subgraph() {
        let traffic = Traffic::default();
        let first = bulkheads(&traffic, &with_subgraphs(&["a", "b"]));
        let next = with_subgraphs(&["b", "c"]);
        let second = GraphBulkheads::new(&traffic, &next, &first.work, Some(&first), |_| true);
        assert_eq!(names(&second), ["b", "c"]);
        let of = |all: &GraphBulkheads, name| {
            Arc::clone(all.bulkheads().find(|it| it.name() == name).expect("it has a share"))
        };
        assert!(Arc::ptr_eq(&of(&first, "b"), &of(&second, "b")));
        let other = GraphBulkheads::new(&traffic, &next, &first.work, Some(&first), |_| false);
        assert!(!Arc::ptr_eq(&of(&first, "b"), &of(&other, "b")), "it has another server");
    }
}
