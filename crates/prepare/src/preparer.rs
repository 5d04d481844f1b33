//! The prepared operations of one supergraph: a bounded cache, and one preparation for all requests that wait for the
//! same operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use execute::ClientKey;
use graph::{OverrideLabels, Supergraph};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::concurrency_limit::{
    ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit, WithoutPlace,
};
use crate::error::PrepareError;
use crate::identity;
use crate::override_labels::{self, Decisions, Known, LabelShares};
use crate::preparation::Work;
use crate::prepared::{OperationRequest, Prepared};
use crate::settings::PrepareSettings;
use crate::stats::PrepareStats;

/// Memory that is reckoned with for each operation of the cache, by estimate ([`Prepared::weight`]): a client
/// application has some hundreds of operations of 10 to 100 kB. The cache holds [`PrepareSettings::operations_max`]
/// times this, divided into [`CACHE_PARTS`]; an operation heavier than a part is prepared anew each time.
const OPERATION_BYTES: u64 = 64 << 10;

/// Planning longer than this makes an operation one of those that are let go last.
const SLOW: Duration = Duration::from_millis(100);

/// The part of the cache that slow operations may hold on to: one in so many.
const SLOW_PART: u64 = 4;

/// Parts with a lock of their own.
const CACHE_PARTS: usize = 8;

/// A request counts as one waiting operation for each so many bytes of it: it is held while it waits. Texts of usual
/// operations are shorter.
const WAITING_REQUEST_BYTES: usize = 32 << 10;

/// How long an operation may wait for being prepared if its request says nothing else.
const WAITING_TIME_MAX: Duration = Duration::from_secs(60);

/// Prepares operations for one supergraph.
#[derive(Debug)]
pub struct Preparer {
    work: Arc<Work>,
    cache: Cache<CacheKey, Arc<Prepared>, Weight, DefaultHashBuilder, Keeper>,
    /// Weight of the operations that are let go last, and what it may be.
    slow_bytes: AtomicU64,
    slow_bytes_max: u64,
    decisions: Decisions,
    limit: Arc<ConcurrencyLimit>,
    stats: Arc<PrepareStats>,
}

/// The whole text is compared: two operations never share an entry by accident.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct CacheKey {
    query: bytes::Bytes,
    operation_name: Option<Box<str>>,
    /// The labels of progressive overrides that it is planned for.
    labels: OverrideLabels,
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<CacheKey, Arc<Prepared>> for Weight {
    fn weight(&self, _: &CacheKey, prepared: &Arc<Prepared>) -> u64 {
        prepared.weight.max(OPERATION_BYTES)
    }
}

/// Counts what goes, and keeps what took long to plan.
#[derive(Clone, Debug)]
struct Keeper {
    evicted: Arc<AtomicU64>,
}

impl Lifecycle<CacheKey, Arc<Prepared>> for Keeper {
    type RequestState = ();

    fn is_pinned(&self, _: &CacheKey, prepared: &Arc<Prepared>) -> bool {
        prepared.is_slow
    }

    fn on_evict(&self, (): &mut (), _: CacheKey, _: Arc<Prepared>) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }
}

impl Preparer {
    /// A preparer for `graph`, with an empty cache. `graph_id` goes into operation ids.
    pub fn new(graph: Arc<Supergraph>, graph_id: u64, settings: PrepareSettings) -> Self {
        let stats: Arc<PrepareStats> = Arc::default();
        let bounds = ConcurrencyBounds {
            running_max: settings.at_once,
            waiting_max: settings.waiting_max,
            waiting_per_client_max: settings.waiting_per_client_max,
        };
        let limit = ConcurrencyLimit::new(bounds, Arc::clone(&stats.waiting));
        let bytes_max = OPERATION_BYTES * u64::from(settings.operations_max);
        let keeper = Keeper { evicted: Arc::clone(&stats.evicted) };
        Self {
            decisions: Decisions::new(&graph, &LabelShares::new()),
            work: Arc::new(Work::new(graph, graph_id, settings, Arc::clone(&stats))),
            // The number of entries decides how many parts the cache makes, 32 or more in each.
            cache: Cache::with(
                32 * CACHE_PARTS,
                bytes_max,
                Weight,
                DefaultHashBuilder::default(),
                keeper,
            ),
            slow_bytes: AtomicU64::new(0),
            slow_bytes_max: bytes_max / SLOW_PART,
            limit,
            stats,
        }
    }

    /// Decides labels of progressive overrides by these shares; labels that are not named here are off,
    /// unless they say `percent(x)` themselves.
    #[must_use]
    pub fn with_override_labels(mut self, shares: &LabelShares) -> Self {
        self.decisions = Decisions::new(&self.work.graph, shares);
        self
    }

    /// Counters.
    pub fn stats(&self) -> &PrepareStats {
        &self.stats
    }

    /// How many operations are kept now.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Is the cache empty?
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// The prepared operation for a request of no particular client. See [`Preparer::prepare_for`].
    ///
    /// # Errors
    /// As [`Preparer::prepare_for`].
    pub async fn prepare(&self, request: &OperationRequest) -> Result<Arc<Prepared>, PrepareError> {
        let deadline = Instant::now() + WAITING_TIME_MAX;
        self.prepare_for(request, || ClientKey::UNKNOWN, deadline).await
    }

    /// The prepared operation for a request. A hit parses nothing. On a miss one caller prepares on the
    /// blocking pool and the others wait for it; failures are not kept.
    ///
    /// On a miss the operation waits in the queue of its client, `client`, until `deadline` at most.
    ///
    /// # Errors
    /// Everything that [`PrepareError`] names but [`PrepareError::Variables`].
    pub async fn prepare_for(
        &self,
        request: &OperationRequest,
        client: impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<Arc<Prepared>, PrepareError> {
        let mut key = CacheKey {
            query: request.query.clone(),
            operation_name: request.operation_name.clone(),
            labels: OverrideLabels::NONE,
        };
        if self.decisions.are_needed() {
            key.labels = self.labels(&key, request, &client, deadline).await?;
        }
        if let Some(prepared) = self.cache.get(&key) {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            prepared.uses.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared);
        }
        // The key outlives the request's buffer: own text, not a slice of a larger read.
        key.query = bytes::Bytes::copy_from_slice(&key.query);
        let found = self.cache.get_value_or_guard_async(&key);
        let guard = match tokio::time::timeout_at(deadline.into(), found).await {
            Ok(Ok(prepared)) => {
                self.stats.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(prepared);
            }
            Ok(Err(guard)) => guard,
            // Another request for the same operation waits, or prepares it, for longer than this one may.
            Err(_) => return Err(self.overloaded()),
        };
        let permit = self.permit(client(), request, deadline).await?;
        let started = Instant::now();
        let work = Arc::clone(&self.work);
        let result = tokio::task::spawn_blocking(move || {
            // The request may be given up before: the permit ends with the work.
            let _permit = permit;
            work.prepare_shared(&key.query, key.operation_name.as_deref(), key.labels)
        });
        let result = result.await.unwrap_or_else(|_| Err(failed()));
        self.stats.misses.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.micros.fetch_add(micros, Ordering::Relaxed);
        if matches!(result, Err(PrepareError::Limit { .. })) {
            self.stats.limited.fetch_add(1, Ordering::Relaxed);
        }
        let (mut prepared, was_planned) = result?;
        if was_planned {
            self.stats.plans_shared.fetch_add(1, Ordering::Relaxed);
        } else if started.elapsed() > SLOW {
            let weight = prepared.weight;
            let held = self.slow_bytes.fetch_add(weight, Ordering::Relaxed) + weight;
            prepared.is_slow = held <= self.slow_bytes_max;
            if !prepared.is_slow {
                self.slow_bytes.fetch_sub(weight, Ordering::Relaxed);
            }
        }
        let prepared = Arc::new(prepared);
        // Refused only if the entry was removed meanwhile; the operation is fine all the same.
        let _ = guard.insert(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// The requests whose operations were found in the cache most often, at most `count` of them, most used
    /// first: what to prepare first for the next graph.
    pub fn most_used(&self, count: usize) -> Vec<OperationRequest> {
        let mut used: Vec<(u32, CacheKey)> = self
            .cache
            .iter()
            .map(|(key, prepared)| (prepared.uses.load(Ordering::Relaxed), key))
            .filter(|(uses, _)| *uses > 0)
            .collect();
        used.sort_by_key(|(uses, _)| std::cmp::Reverse(*uses));
        used.truncate(count);
        let request = |(_, key): (u32, CacheKey)| OperationRequest {
            query: key.query,
            operation_name: key.operation_name,
            ..OperationRequest::default()
        };
        used.into_iter().map(request).collect()
    }

    /// Waits until `client` may use a processor for preparing `request`.
    async fn permit(
        &self,
        client: ClientKey,
        request: &OperationRequest,
        deadline: Instant,
    ) -> Result<Permit, PrepareError> {
        let OperationRequest { query, variables, extensions, .. } = request;
        let bytes = query.len() + variables.len() + extensions.len();
        let weight = bytes.div_ceil(WAITING_REQUEST_BYTES);
        let permit = self.limit.acquire(client, weight, deadline, WithoutPlace::Refuse).await;
        permit.map_err(|(NoPermit::Full | NoPermit::TooLate)| self.overloaded())
    }

    /// Counts a refusal.
    fn overloaded(&self) -> PrepareError {
        self.stats.overloaded.fetch_add(1, Ordering::Relaxed);
        PrepareError::Overloaded
    }

    /// The labels that are on for a request, as far as its operation depends on any.
    async fn labels(
        &self,
        key: &CacheKey,
        request: &OperationRequest,
        client: &impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<OverrideLabels, PrepareError> {
        let id = identity::text_id(&key.query, key.operation_name.as_deref());
        let known = match self.decisions.known.get(&id) {
            Some(known) => known,
            None => self.learn(id, key, request, client, deadline).await?,
        };
        // A text that is not valid is refused when it is prepared.
        let decide = |known| self.decisions.decide(known, id, &request.variables);
        Ok(known.map_or(OverrideLabels::NONE, decide))
    }

    /// Parses a text to learn which labels concern its operation: under the limit of preparing, once for all requests
    /// that bring it at the same time. A text that is not a valid operation is remembered, too.
    async fn learn(
        &self,
        id: u128,
        key: &CacheKey,
        request: &OperationRequest,
        client: &impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<Option<Known>, PrepareError> {
        let found = self.decisions.known.get_value_or_guard_async(&id);
        let guard = match tokio::time::timeout_at(deadline.into(), found).await {
            Ok(Ok(known)) => return Ok(known),
            Ok(Err(guard)) => guard,
            Err(_) => return Err(self.overloaded()),
        };
        let permit = self.permit(client(), request, deadline).await?;
        self.stats.texts_labelled.fetch_add(1, Ordering::Relaxed);
        let work = Arc::clone(&self.work);
        let (query, name) = (key.query.clone(), key.operation_name.clone());
        let known = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let operation = work.understand(&query, name.as_deref()).ok()?.operation;
            let relevant = override_labels::relevant(&work.graph, &operation);
            Some(Known { relevant, kind: operation.kind })
        });
        // A panic is not remembered: preparing reports it.
        let Ok(known) = known.await else { return Ok(None) };
        // Refused only if the entry was removed meanwhile.
        let _ = guard.insert(known);
        Ok(known)
    }

    /// Prepares without cache and on this thread: for the command line and for tests. Literals stay where they
    /// are.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
    ) -> Result<Prepared, PrepareError> {
        self.work.prepare(query, operation_name, OverrideLabels::NONE)
    }

    /// As [`Preparer::prepare_now`], while just these labels of progressive overrides are on.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now_with(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
        labels: OverrideLabels,
    ) -> Result<Prepared, PrepareError> {
        self.work.prepare(query, operation_name, labels)
    }
}

fn failed() -> PrepareError {
    PrepareError::Internal("preparing the operation failed; please report this".into())
}
