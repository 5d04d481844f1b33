//! The table of all live queries of the process, and the task that executes those that are due.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{Dependencies, InvalidationTable, Sequence, WatcherId};
use events::{Event, EventStream, SourceMessage};
use execute::{GraphqlError, Payload, Revision, Sharing, SubgraphFlights};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hub::Workers;
use telemetry::spans::Tracer;
use tokio::sync::{Notify, mpsc, watch};

use super::execution::LiveExecution;
use super::execution_spans::ExecutionSpans;
use super::patches::{LargePatches, QueryPatches};
use super::result::LiveResult;
use super::schedule::{Finished, Schedule, StaleOutcome};
use super::stats::LiveQueryStats;

/// The maximum number of executions at a time: a part of the hub's resolutions, so that an invalidation of everything
/// leaves the workers to requests.
const EXECUTIONS_MAX: usize = 256;

/// The settings of live queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LiveQuerySettings {
    /// The minimum time between the starts of two executions of one query.
    pub(crate) throttle_min: Duration,
    /// The maximum number of different queries.
    pub(crate) queries_max: usize,
    /// The maximum number of tags that all queries watch.
    pub(crate) tags_max: usize,
    /// True if equal requests of several queries to a subgraph are sent once.
    pub(crate) shares_requests: bool,
}

/// All live queries of the process.
pub struct LiveQueries {
    settings: LiveQuerySettings,
    table: Arc<InvalidationTable>,
    state: Mutex<LiveState>,
    /// Wakes the task: watchers were marked, an execution has ended, or a query has begun.
    changed: Arc<Notify>,
    workers: OnceLock<Arc<dyn Workers>>,
    /// The rules for the traces of executions; empty without traces.
    tracer: OnceLock<Arc<Tracer>>,
    /// The number of the next result.
    results: AtomicU64,
    large_patches: LargePatches,
    /// The counters.
    pub stats: LiveQueryStats,
}

struct LiveState {
    schedule: Schedule,
    queries: HashMap<WatcherId, Arc<ActiveQuery>>,
    by_identity: HashMap<Box<[u8]>, WatcherId>,
    /// The ends of the streams that the task does not wait for yet.
    new_streams: Vec<BoxFuture<'static, WatcherId>>,
}

/// A query that the hub has opened.
struct ActiveQuery {
    execution: Arc<LiveExecution>,
    /// Tells the hub that there is another result. It has room for one message: a second one would say nothing new.
    signal: mpsc::Sender<SourceMessage>,
    /// The latest result; `None` before the first one.
    result: watch::Sender<Option<LiveResult>>,
    /// Set if clients ask for patches.
    patches: Option<Arc<QueryPatches>>,
    /// True if the latest execution had errors.
    has_failed: std::sync::atomic::AtomicBool,
}

type ResultReceiver = watch::Receiver<Option<LiveResult>>;

impl LiveQueries {
    /// Creates the table. Nothing is executed before [`LiveQueries::run`].
    pub(crate) fn new(settings: LiveQuerySettings, table: Arc<InvalidationTable>) -> Self {
        let changed = Arc::<Notify>::default();
        let wake = Arc::clone(&changed);
        table.on_marked(move || wake.notify_one());
        table.limit_watched_tags(settings.tags_max);
        let state = LiveState {
            schedule: Schedule::new(EXECUTIONS_MAX),
            queries: HashMap::new(),
            by_identity: HashMap::new(),
            new_streams: Vec::new(),
        };
        Self {
            settings,
            table,
            state: Mutex::new(state),
            changed,
            workers: OnceLock::new(),
            tracer: OnceLock::new(),
            // No result has the number 0, see `execute::Revision`.
            results: AtomicU64::new(1),
            large_patches: LargePatches::default(),
            stats: LiveQueryStats::default(),
        }
    }

    /// Executes queries on `workers` when they are due, each with a trace if there is a tracer. Never returns; only the
    /// first call has an effect.
    pub async fn run(self: Arc<Self>, workers: Arc<dyn Workers>, tracer: Option<Arc<Tracer>>) {
        if self.workers.set(workers).is_err() {
            return;
        }
        if let Some(tracer) = tracer {
            // Only the call that has set the workers comes here.
            let _ = self.tracer.set(tracer);
        }
        let mut streams = FuturesUnordered::new();
        loop {
            streams.extend(std::mem::take(&mut self.lock().new_streams));
            let next = self.start_due(Instant::now());
            tokio::select! {
                () = self.changed.notified() => {}
                Some(ended) = streams.next() => self.end(ended),
                () = sleep_until(next) => {}
            }
        }
    }

    /// Begins a query. Its stream ends when it is dropped.
    pub(super) fn begin(&self, execution: Arc<LiveExecution>) -> EventStream {
        let (signal, messages) = mpsc::channel(1);
        let id = self.table.watch();
        let throttle = execution.throttle.max(self.settings.throttle_min);
        let (identity, closed) = (execution.identity.clone(), signal.clone());
        let result = watch::Sender::new(None);
        let has_failed = Default::default();
        let patches = execution.wants_patches.then(Arc::default);
        let query = Arc::new(ActiveQuery { execution, signal, result, patches, has_failed });
        let mut state = self.lock();
        state.queries.insert(id, query);
        // An equal query that is about to end is replaced.
        state.by_identity.insert(identity, id);
        state.schedule.add(id, throttle, Instant::now());
        state.new_streams.push(Box::pin(async move {
            closed.closed().await;
            id
        }));
        self.stats.active.store(state.queries.len() as u64, Relaxed);
        drop(state);
        self.changed.notify_one();
        EventStream { messages }
    }

    /// Ends the query of a dropped stream.
    fn end(&self, id: WatcherId) {
        let mut state = self.lock();
        if let Some(query) = state.queries.remove(&id)
            && state.by_identity.get(&query.execution.identity) == Some(&id)
        {
            state.by_identity.remove(&query.execution.identity);
        }
        state.schedule.remove(id);
        self.stats.active.store(state.queries.len() as u64, Relaxed);
        drop(state);
        self.table.unwatch(id);
    }

    /// Starts the executions that are due. Returns the time of the next one.
    fn start_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let marked = self.table.take_marked();
        // Executions that are started here see everything that was invalidated before.
        let since = self.table.now();
        let mut state = self.lock();
        for id in marked {
            let counter = match state.schedule.on_invalidated(id, now) {
                StaleOutcome::Due => &self.stats.invalidated,
                StaleOutcome::Delayed => {
                    self.stats.invalidated.fetch_add(1, Relaxed);
                    &self.stats.throttled
                }
                StaleOutcome::Merged => &self.stats.merged,
            };
            counter.fetch_add(1, Relaxed);
        }
        let mut started = Vec::new();
        let LiveState { schedule, queries, .. } = &mut *state;
        let is_slow =
            |id: WatcherId| queries.get(&id).is_some_and(|it| it.execution.needs_slow_subgraph());
        while let Some(id) = schedule.start_next(now, is_slow) {
            if let Some(query) = queries.get(&id) {
                started.push((id, Arc::clone(query)));
            }
        }
        let next = state.schedule.next_due();
        drop(state);
        let Some(workers) = self.workers.get() else { return next };
        // Requests of executions that start together see the same data.
        let sharing = (self.settings.shares_requests && started.len() > 1).then(|| {
            let subgraph_queries = Some(SubgraphFlights::default());
            Arc::new(Sharing { subgraph_queries, ..Sharing::default() })
        });
        for (id, query) in started {
            let running = RunningExecution { queries: Arc::clone(self), id, is_done: false };
            let sharing = sharing.clone();
            workers.run(Box::new(move || Box::pin(running.run(query, since, sharing))));
        }
        next
    }

    /// Takes over the result of an execution that began at `since`.
    fn finish(
        &self,
        id: WatcherId,
        query: &ActiveQuery,
        since: Sequence,
        payload: Payload,
        dependencies: &Dependencies,
    ) {
        let has_failed = payload.errors > 0 || dependencies.fresh_for == Some(Duration::ZERO);
        // Entities that were missing in the first result with errors belong to the query all the same.
        let keeps_old = has_failed && !query.has_failed.swap(has_failed, Relaxed);
        // An invalidation before this line is found by the next one, if it concerns the result.
        self.lock().schedule.forget_stale(id);
        let is_valid = self.table.set_watched(id, since, &dependencies.tags, keeps_old);
        self.stats.executions.fetch_add(1, Relaxed);
        self.stats.failed.fetch_add(u64::from(has_failed), Relaxed);
        let is_new = query.result.send_if_modified(|last| {
            if last.as_ref().is_some_and(|last| last.payload.bytes == payload.bytes) {
                return false;
            }
            let number = self.results.fetch_add(1, Relaxed);
            let must_be_complete = query.patches.as_ref().is_some_and(|it| it.begin_result());
            let complete = Arc::default();
            *last = Some(LiveResult { payload, number, must_be_complete, complete });
            true
        });
        if is_new {
            // Without room the hub has yet to read the latest result. Without a receiver the query has ended.
            let _ = query.signal.try_send(SourceMessage::Event(new_result()));
        } else {
            self.stats.unchanged.fetch_add(1, Relaxed);
        }
        let fresh_for = dependencies.fresh_for;
        let finished = Finished { is_stale: !is_valid, has_failed, fresh_for };
        self.lock().schedule.on_finished(id, finished, Instant::now(), fastrand::u64(..));
        self.changed.notify_one();
    }

    /// Waits until a query has a result, or has ended.
    pub(super) async fn wait_for_result(&self, identity: &[u8]) {
        if let Some((mut results, _)) = self.find(identity) {
            let _ = results.wait_for(Option::is_some).await;
        }
    }

    /// Returns the latest result of a query, or waits for the first one. `None` if the query has ended. If clients ask
    /// for patches, it is the payload for subscribers that have `known`, and `None` if they have the latest result.
    pub(super) async fn next_payload(
        &self,
        identity: &[u8],
        known: Option<Revision>,
    ) -> Option<Payload> {
        let (mut results, patches) = self.find(identity)?;
        let result = results.wait_for(Option::is_some).await.ok()?.clone()?;
        match patches {
            Some(patches) => patches.payload(result, known, &self.large_patches, &self.stats).await,
            None => Some(result.payload),
        }
    }

    /// Returns the results of a query, and its patches if its clients ask for them.
    fn find(&self, identity: &[u8]) -> Option<(ResultReceiver, Option<Arc<QueryPatches>>)> {
        let state = self.lock();
        let id = state.by_identity.get(identity)?;
        let query = state.queries.get(id)?;
        Some((query.result.subscribe(), query.patches.clone()))
    }

    /// Checks that another query may begin, unless an equal one is there.
    ///
    /// # Errors
    /// `OVERLOADED`: there are too many.
    pub(super) fn check_room(&self, identity: &[u8]) -> Result<(), GraphqlError> {
        let state = self.lock();
        let max = self.settings.queries_max;
        if state.queries.len() < max || state.by_identity.contains_key(identity) {
            return Ok(());
        }
        let message = format!(
            "there are {max} different live queries, the maximum (`live_queries.max_queries`); try again later"
        );
        Err(GraphqlError::no_room(message))
    }

    /// The number of tags that queries watch, and of the queries that every invalidation makes stale.
    pub(super) fn watched(&self) -> (usize, usize) {
        self.table.watched()
    }

    /// Each call under this lock leaves the state consistent, so a poisoned lock is sound.
    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LiveQueries {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LiveQueries").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// An execution on a worker. If it is dropped before its end, the query is tried again.
struct RunningExecution {
    queries: Arc<LiveQueries>,
    id: WatcherId,
    is_done: bool,
}

impl RunningExecution {
    async fn run(
        mut self,
        query: Arc<ActiveQuery>,
        since: Sequence,
        sharing: Option<Arc<Sharing>>,
    ) {
        let began = Instant::now();
        let tracer = self.queries.tracer.get();
        let spans = tracer.map(|it| ExecutionSpans::begin(it, &query.execution));
        let trace = spans.as_ref().map(|it| Arc::clone(&it.trace));
        let executing = query.execution.execute(sharing, trace);
        let (payload, dependencies) = tokio::select! {
            executed = executing => executed,
            // The query has ended.
            () = query.signal.closed() => return,
        };
        self.queries.stats.durations.add(began.elapsed());
        if let Some(spans) = spans {
            spans.finish(&query.execution, payload.errors > 0);
        }
        self.queries.finish(self.id, &query, since, payload, &dependencies);
        self.is_done = true;
    }
}

impl Drop for RunningExecution {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.queries.lock();
            state.schedule.on_broken_off(self.id, Instant::now(), fastrand::u64(..));
            drop(state);
            self.queries.changed.notify_one();
        }
    }
}

/// Returns the event that says that there is another result.
fn new_result() -> Arc<Event> {
    static EVENT: OnceLock<Arc<Event>> = OnceLock::new();
    Arc::clone(EVENT.get_or_init(|| Arc::new(Event::new("", Bytes::new()))))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
