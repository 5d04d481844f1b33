//! The prepared operations of one supergraph: a bounded cache, and one preparation for all requests
//! that wait for the same operation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use execute::ClientKey;
use graph::{OverrideLabels, RequirementSet, Supergraph};
use plan::OperationKind;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::access::AccessFacts;
use crate::concurrency_limit::{ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit, WhenFull};
use crate::error::PrepareError;
use crate::identity;
use crate::operation_variant::OperationVariant;
use crate::override_labels::{LabelDecisions, LabelShares};
use crate::pipeline::{Pipeline, TextFacts};
use crate::prepared::{OperationRequest, Prepared};
use crate::settings::PrepareSettings;
use crate::stats::PrepareStats;
use crate::steps::PrepareSteps;
use crate::text_key::{TextKey, TextRef, TextWeight};

/// Memory planned for each operation of the cache, by estimate ([`Prepared::weight`]): a client
/// application has some hundreds of operations of 10 to 100 kB. The cache holds
/// [`PrepareSettings::operations_max`] times this, divided into [`CACHE_PARTS`]; an operation
/// heavier than a part is prepared again each time.
const OPERATION_BYTES: u64 = 64 << 10;

/// Minimum planning time of operations that are evicted last.
const SLOW: Duration = Duration::from_millis(100);

/// The part of the cache for slow operations that are evicted last: one in this many.
const SLOW_PART: u64 = 4;

/// Number of parts of the cache with a lock each.
const CACHE_PARTS: usize = 8;

/// Bytes of a request that count as one waiting operation: a request is held in memory while it
/// waits. Texts of usual operations are shorter.
const WAITING_REQUEST_BYTES: usize = 32 << 10;

/// Time that an operation may wait to be prepared if its request has no deadline.
const WAITING_TIME_MAX: Duration = Duration::from_secs(60);

/// Prepares operations for one supergraph.
#[derive(Debug)]
pub struct Preparer {
    pipeline: Arc<Pipeline>,
    cache: Cache<CacheKey, Arc<Prepared>, EstimatedWeight, DefaultHashBuilder, EvictionPolicy>,
    /// Weight of the operations that are evicted last, and its maximum.
    slow_bytes: AtomicU64,
    slow_bytes_max: u64,
    decisions: LabelDecisions,
    /// The facts about texts that are known before planning; `None` if the text is not a valid operation.
    facts: Cache<TextKey, Option<TextFacts>, TextWeight>,
    limit: Arc<ConcurrencyLimit>,
    stats: Arc<PrepareStats>,
}

/// The cache key. The whole text is compared, so two operations never share an entry by accident.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct CacheKey {
    query: bytes::Bytes,
    operation_name: Option<Box<str>>,
    /// The variant of the graph for which the operation is planned.
    variant: OperationVariant,
}

/// A text with the name of the selected operation.
type UsedText = (bytes::Bytes, Option<Box<str>>);

/// An operation that is in use.
#[derive(Clone, Debug)]
pub struct UsedOperation {
    /// The request, without variables.
    pub request: OperationRequest,
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The number of times that it was found in the cache, with those that are credited.
    pub uses: u64,
}

/// The maximum memory of the texts with remembered facts: some thousand operations of one or two kilobytes.
const TEXT_FACTS_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug)]
struct EstimatedWeight;

impl Weighter<CacheKey, Arc<Prepared>> for EstimatedWeight {
    fn weight(&self, _: &CacheKey, prepared: &Arc<Prepared>) -> u64 {
        prepared.weight.max(OPERATION_BYTES)
    }
}

/// Counts evictions, and keeps operations that took long to plan.
#[derive(Clone, Debug)]
struct EvictionPolicy {
    evicted: Arc<AtomicU64>,
}

impl Lifecycle<CacheKey, Arc<Prepared>> for EvictionPolicy {
    type RequestState = ();

    fn is_pinned(&self, _: &CacheKey, prepared: &Arc<Prepared>) -> bool {
        prepared.is_slow
    }

    fn on_evict(&self, (): &mut (), _: CacheKey, _: Arc<Prepared>) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }
}

impl Preparer {
    /// Creates a preparer for `graph`, with an empty cache. `graph_id` is part of operation ids.
    pub fn new(graph: Arc<Supergraph>, graph_id: u64, settings: PrepareSettings) -> Self {
        let stats: Arc<PrepareStats> = Arc::default();
        let bounds = ConcurrencyBounds {
            running_max: settings.at_once,
            waiting_max: settings.waiting_max,
            waiting_per_client_max: settings.waiting_per_client_max,
        };
        let limit = ConcurrencyLimit::new(bounds, Arc::clone(&stats.waiting));
        let bytes_max = OPERATION_BYTES * u64::from(settings.operations_max);
        let eviction_policy = EvictionPolicy { evicted: Arc::clone(&stats.evicted) };
        Self {
            decisions: LabelDecisions::new(&graph, &LabelShares::new()),
            facts: Cache::with(
                32 * CACHE_PARTS,
                TEXT_FACTS_BYTES_MAX,
                TextWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            pipeline: Arc::new(Pipeline::new(graph, graph_id, settings, Arc::clone(&stats))),
            // The number of entries decides how many parts the cache makes, 32 or more in each.
            cache: Cache::with(
                32 * CACHE_PARTS,
                bytes_max,
                EstimatedWeight,
                DefaultHashBuilder::default(),
                eviction_policy,
            ),
            slow_bytes: AtomicU64::new(0),
            slow_bytes_max: bytes_max / SLOW_PART,
            limit,
            stats,
        }
    }

    /// Decides labels of progressive overrides by these shares. Labels that are not named here are
    /// off, except `percent(x)`, which contains its share.
    #[must_use]
    pub fn with_override_labels(mut self, shares: &LabelShares) -> Self {
        self.decisions = LabelDecisions::new(&self.pipeline.graph, shares);
        self
    }

    /// The counters of this preparer.
    pub fn stats(&self) -> &PrepareStats {
        &self.stats
    }

    /// The number of operations in the cache.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Returns the prepared operation for a request of no particular client. See
    /// [`Preparer::prepare_for`].
    ///
    /// # Errors
    /// As [`Preparer::prepare_for`].
    pub async fn prepare(&self, request: &OperationRequest) -> Result<Arc<Prepared>, PrepareError> {
        self.prepare_without(request, &RequirementSet::default()).await
    }

    /// Like [`Preparer::prepare`], for clients that do not meet the requirements `unmet`.
    ///
    /// # Errors
    /// As [`Preparer::prepare_for`].
    pub async fn prepare_without(
        &self,
        request: &OperationRequest,
        unmet: &RequirementSet,
    ) -> Result<Arc<Prepared>, PrepareError> {
        let deadline = Instant::now() + WAITING_TIME_MAX;
        self.prepare_for(request, unmet, || ClientKey::UNKNOWN, deadline).await
    }

    /// Returns the facts that access to the operation of a request is decided by. `None` at no cost if the supergraph
    /// has no requirements, and for a text that is not a valid operation, which [`Preparer::prepare_for`] refuses.
    ///
    /// # Errors
    /// [`PrepareError::Overloaded`].
    pub async fn access_facts(
        &self,
        request: &OperationRequest,
        client: impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<Option<Arc<AccessFacts>>, PrepareError> {
        if self.pipeline.graph.access.is_empty() {
            return Ok(None);
        }
        let facts = self.text_facts(request, &client, deadline).await?;
        Ok(facts.map(|facts| facts.access))
    }

    /// Returns the prepared operation for a request. A cache hit parses nothing. On a miss one
    /// caller prepares the operation on the blocking pool and the others wait for it; failures are
    /// not cached.
    ///
    /// On a miss the operation waits in the queue of its client, `client`, until `deadline` at
    /// most. `unmet` are the requirements of [`AccessFacts`] that the client does not meet: the fields
    /// that need them are null.
    ///
    /// # Errors
    /// All variants of [`PrepareError`] except [`PrepareError::Variables`].
    pub async fn prepare_for(
        &self,
        request: &OperationRequest,
        unmet: &RequirementSet,
        client: impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<Arc<Prepared>, PrepareError> {
        self.prepare_recorded(request, unmet, client, deadline, None).await
    }

    /// Does what [`Preparer::prepare_for`] does, and records the steps if this call prepares the operation.
    ///
    /// # Errors
    /// As [`Preparer::prepare_for`].
    pub async fn prepare_recorded(
        &self,
        request: &OperationRequest,
        unmet: &RequirementSet,
        client: impl Fn() -> ClientKey,
        deadline: Instant,
        record: Option<&mut PrepareSteps>,
    ) -> Result<Arc<Prepared>, PrepareError> {
        let mut key = CacheKey {
            query: request.query.clone(),
            operation_name: request.operation_name.clone(),
            variant: OperationVariant { labels: OverrideLabels::NONE, unmet: unmet.clone() },
        };
        if self.decisions.has_labels() {
            key.variant.labels = Box::pin(self.decide_labels(request, &client, deadline)).await?;
        }
        if let Some(prepared) = self.cache.get(&key) {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            prepared.uses.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared);
        }
        // Boxed, because its state would be moved with that of every request.
        Box::pin(self.prepare_missing(key, request, client, deadline, record)).await
    }

    /// Prepares an operation that is not in the cache, or waits for another caller that does.
    async fn prepare_missing(
        &self,
        mut key: CacheKey,
        request: &OperationRequest,
        client: impl Fn() -> ClientKey,
        deadline: Instant,
        record: Option<&mut PrepareSteps>,
    ) -> Result<Arc<Prepared>, PrepareError> {
        // The key outlives the buffer of the request, so it needs its own text and not a slice of a
        // larger read.
        key.query = bytes::Bytes::copy_from_slice(&key.query);
        let found = self.cache.get_value_or_guard_async(&key);
        let guard = match tokio::time::timeout_at(deadline.into(), found).await {
            Ok(Ok(prepared)) => {
                self.stats.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(prepared);
            }
            Ok(Err(guard)) => guard,
            // Another request for the same operation waits, or prepares it, for longer than this
            // one may.
            Err(_) => return Err(self.overloaded()),
        };
        let permit = self.acquire_permit(client(), request, deadline).await?;
        let started = Instant::now();
        let pipeline = Arc::clone(&self.pipeline);
        let result = tokio::task::spawn_blocking(move || {
            // The request may be cancelled before: the permit ends with the work.
            let _permit = permit;
            let (name, mut steps) = (key.operation_name.as_deref(), PrepareSteps::default());
            let result = pipeline.prepare_shared(&key.query, name, &key.variant, &mut steps);
            (result, steps)
        });
        let failed = |_| (Err(preparation_failed()), PrepareSteps::default());
        let (result, steps) = result.await.unwrap_or_else(failed);
        if let Some(record) = record {
            *record = steps;
        }
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
        // The insertion fails only if the entry was removed meanwhile; the operation is valid in
        // any case.
        let _ = guard.insert(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Returns the operations that were found in the cache most often, at most `count` of them, most used first. A text
    /// that was planned for several variants of the graph is one operation.
    pub fn most_used(&self, count: usize) -> Vec<UsedOperation> {
        let mut used: HashMap<UsedText, (u64, OperationKind)> = HashMap::new();
        for (key, prepared) in self.cache.iter() {
            let uses = prepared.uses.load(Ordering::Relaxed);
            if uses > 0 {
                let text = (key.query, key.operation_name);
                used.entry(text).or_insert((0, prepared.kind)).0 += uses;
            }
        }
        let operation = |((query, operation_name), (uses, kind))| {
            let request = OperationRequest { query, operation_name, ..OperationRequest::default() };
            UsedOperation { request, kind, uses }
        };
        let mut used: Vec<UsedOperation> = used.into_iter().map(operation).collect();
        // Operations that are used equally often are in the same order each time.
        used.sort_by(|one, other| {
            let by_uses = other.uses.cmp(&one.uses);
            by_uses.then_with(|| one.request.query.cmp(&other.request.query))
        });
        used.truncate(count);
        used
    }

    /// Calls `visit` with each operation in the cache.
    pub fn visit_cached(&self, mut visit: impl FnMut(&Prepared)) {
        for (_, prepared) in self.cache.iter() {
            visit(&prepared);
        }
    }

    /// Returns an operation in the cache for which `wanted` is true, with a request for it. Visits all operations until it
    /// finds one.
    pub fn find_cached(
        &self,
        wanted: impl Fn(&Prepared) -> bool,
    ) -> Option<(OperationRequest, Arc<Prepared>)> {
        let (key, prepared) = self.cache.iter().find(|(_, prepared)| wanted(prepared))?;
        let CacheKey { query, operation_name, .. } = key;
        let request = OperationRequest { query, operation_name, ..OperationRequest::default() };
        Some((request, prepared))
    }

    /// Waits until `client` may use a processor for preparing `request`.
    async fn acquire_permit(
        &self,
        client: ClientKey,
        request: &OperationRequest,
        deadline: Instant,
    ) -> Result<Permit, PrepareError> {
        let OperationRequest { query, variables, extensions, .. } = request;
        let bytes = query.len() + variables.len() + extensions.len();
        let weight = bytes.div_ceil(WAITING_REQUEST_BYTES);
        let permit = self.limit.acquire(client, weight, deadline, WhenFull::Refuse).await;
        permit.map_err(|(NoPermit::Full | NoPermit::TooLate)| self.overloaded())
    }

    /// Counts a refusal, and returns its error.
    fn overloaded(&self) -> PrepareError {
        self.stats.overloaded.fetch_add(1, Ordering::Relaxed);
        PrepareError::Overloaded
    }

    /// Returns the labels that are on for a request, among those that concern its operation.
    async fn decide_labels(
        &self,
        request: &OperationRequest,
        client: &impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<OverrideLabels, PrepareError> {
        let facts = self.text_facts(request, client, deadline).await?;
        let id = || identity::text_id(&request.query, request.operation_name.as_deref());
        // A text that is not valid is refused when it is prepared.
        let decide =
            |facts: TextFacts| self.decisions.decide_labels(facts.labels, id, &request.variables);
        Ok(facts.map_or(OverrideLabels::NONE, decide))
    }

    /// Returns the facts about the text of a request. On a miss it is parsed under the limit of preparing, once for all
    /// requests that bring it at the same time. A text that is not a valid operation is remembered, too.
    // hot path: the text is hashed without cryptography and compared
    async fn text_facts(
        &self,
        request: &OperationRequest,
        client: &impl Fn() -> ClientKey,
        deadline: Instant,
    ) -> Result<Option<TextFacts>, PrepareError> {
        let text = TextRef::of(request);
        if let Some(known) = self.facts.get(&text) {
            return Ok(known);
        }
        let key = text.to_key();
        let found = self.facts.get_value_or_guard_async(&key);
        let guard = match tokio::time::timeout_at(deadline.into(), found).await {
            Ok(Ok(known)) => return Ok(known),
            Ok(Err(guard)) => guard,
            Err(_) => return Err(self.overloaded()),
        };
        let permit = self.acquire_permit(client(), request, deadline).await?;
        self.stats.texts_labelled.fetch_add(1, Ordering::Relaxed);
        let pipeline = Arc::clone(&self.pipeline);
        let (query, name) = (request.query.clone(), request.operation_name.clone());
        let facts = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            pipeline.text_facts(&query, name.as_deref())
        });
        // A panic is not remembered: preparing reports it.
        let Ok(facts) = facts.await else { return Ok(None) };
        // The insertion fails only if the entry was removed meanwhile.
        let _ = guard.insert(facts.clone());
        Ok(facts)
    }

    /// Prepares an operation without cache and on this thread, for the command line and for tests.
    /// Literals are not extracted.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
    ) -> Result<Prepared, PrepareError> {
        self.pipeline.prepare(query, operation_name, &OperationVariant::default())
    }

    /// Like [`Preparer::prepare_now`], with exactly these labels of progressive overrides on.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now_with(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
        labels: OverrideLabels,
    ) -> Result<Prepared, PrepareError> {
        let variant = OperationVariant { labels, ..OperationVariant::default() };
        self.pipeline.prepare(query, operation_name, &variant)
    }

    /// Like [`Preparer::prepare_now_with`], for a client that does not meet the requirements `unmet`.
    ///
    /// # Errors
    /// As [`Preparer::prepare`].
    pub fn prepare_now_for(
        &self,
        query: &[u8],
        operation_name: Option<&str>,
        labels: OverrideLabels,
        unmet: &RequirementSet,
    ) -> Result<Prepared, PrepareError> {
        let variant = OperationVariant { labels, unmet: unmet.clone() };
        self.pipeline.prepare(query, operation_name, &variant)
    }
}

fn preparation_failed() -> PrepareError {
    PrepareError::Internal("preparing the operation failed; please report this".into())
}
