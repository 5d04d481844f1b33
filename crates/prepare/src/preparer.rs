//! From text to [`Prepared`], once per operation: a bounded cache in front, one planner for everyone
//! who waits for the same operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apollo_compiler::introspection::check_max_depth;
use apollo_compiler::parser::Parser;
use apollo_compiler::validation::{Valid, WithErrors};
use apollo_compiler::{ExecutableDocument, ast, executable};
use execute::{ClientKey, Executable, StatePlan};
use graph::{Initial, OverrideLabels, Supergraph};
use plan::{FieldTarget, OperationKind, SubscriptionRoot};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::coerce::VariableTypes;
use crate::compact_text;
use crate::concurrency_limit::{ConcurrencyBounds, ConcurrencyLimit, NoPermit, Permit};
use crate::error::{Limit, Problem, problems, shortened};
use crate::identity::{self, operation_id};
use crate::input_types::InputTypes;
use crate::introspection::{Introspection, SchemaFacts};
use crate::introspection_size;
use crate::lexical::count_tokens;
use crate::lifting;
use crate::limits::{self, Limits, NESTING_MAX};
use crate::merging;
use crate::normalise::normalise;
use crate::override_labels::{self, Decisions, Known, LabelShares};
use crate::plans::{Planned, Plans};
use crate::usages;
use crate::{Durations, OperationRequest, PrepareError, Prepared};

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

/// Ignored tokens (white space, commas, comments) that the parser may read for each that counts.
/// Documents that people and programs lay out have one or two; without a bound a document of nothing
/// but commas would cost a hundred times its size.
const IGNORED_TOKENS_MAX: usize = 4;

/// Operations that may wait for their turn at being prepared. One takes some milliseconds, so the last of
/// them waits for a few seconds at most before it is its turn.
const WAITING_MAX: usize = 512;

/// Operations of one client that may wait. As many as in all: behind a proxy all clients may have its address, and
/// where too many wait, the client with the most makes room for others.
const WAITING_PER_CLIENT_MAX: usize = WAITING_MAX;

/// A request counts as one waiting operation for each so many bytes of it: it is held while it waits. Texts of usual
/// operations are shorter.
const WAITING_REQUEST_BYTES: usize = 32 << 10;

/// How long an operation may wait for being prepared if its request says nothing else.
const WAITING_TIME_MAX: Duration = Duration::from_secs(60);

/// How a preparer behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrepareSettings {
    /// Limits on operations.
    pub limits: Limits,
    /// May clients ask for the schema?
    pub introspection: bool,
    /// Bounds on planning and on the requests of plans.
    pub planning: plan::Limits,
    /// How many operations are prepared at the same time.
    pub at_once: usize,
    /// How many may wait for that; more are refused ([`PrepareError::Overloaded`]). A request of more than 32 KiB
    /// counts as several.
    pub waiting_max: usize,
    /// How many of one client may wait for that.
    pub waiting_per_client_max: usize,
    /// How many operations are kept at most: each counts as 64 KiB at least, and heavier ones as more.
    pub operations_max: u32,
}

impl Default for PrepareSettings {
    /// Two operations for each processor at once: one may wait for memory while the other computes.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            limits: Limits::default(),
            introspection: true,
            planning: plan::Limits::default(),
            at_once: 2 * processors,
            waiting_max: WAITING_MAX,
            waiting_per_client_max: WAITING_PER_CLIENT_MAX,
            operations_max: 2_048,
        }
    }
}

/// Counters since this preparer was made.
#[derive(Debug, Default)]
pub struct PrepareStats {
    /// Operations found ready.
    pub hits: AtomicU64,
    /// Operations that had to be prepared, also in vain.
    pub misses: AtomicU64,
    /// Time spent preparing, in microseconds.
    pub micros: AtomicU64,
    /// Operations refused by a limit.
    pub limited: AtomicU64,
    /// Misses whose plan was there already, because another text differs in literals or in spelling only.
    pub plans_shared: AtomicU64,
    /// Operations let go to make room.
    pub evicted: Arc<AtomicU64>,
    /// Operations that wait now for their turn at being prepared.
    pub waiting: Arc<AtomicU64>,
    /// Texts that were parsed to learn which labels of progressive overrides concern them.
    pub texts_labelled: AtomicU64,
    /// Operations refused because too many waited, or because they waited for too long.
    pub overloaded: AtomicU64,
    /// Operations that were planned greedily, because the step budget did not suffice to compare all choices.
    pub greedy: AtomicU64,
    /// How long planning took, also in vain.
    pub planning: Durations,
    /// Steps that planning took, also in vain ([`plan::Effort::steps`]).
    pub planning_steps: AtomicU64,
}

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

#[derive(Debug)]
pub(crate) struct Work {
    graph: Arc<Supergraph>,
    graph_id: u64,
    pub(crate) schema: Arc<SchemaFacts>,
    settings: PrepareSettings,
    plans: Plans,
    stats: Arc<PrepareStats>,
    /// Without labels.
    plain: Arc<Variant>,
    /// For each other set of override labels that is in use.
    variants: Cache<OverrideLabels, Arc<Variant>>,
}

/// The graph while a set of override labels is on.
#[derive(Debug)]
struct Variant {
    graph: Arc<Supergraph>,
    /// Says whether plans are right.
    #[cfg(debug_assertions)]
    soundness: soundness::Checker,
}

impl Variant {
    fn new(graph: Arc<Supergraph>) -> Self {
        Self {
            #[cfg(debug_assertions)]
            soundness: soundness::Checker::new(Arc::clone(&graph)),
            graph,
        }
    }
}

/// Sets of override labels whose graphs are kept. A graph is some megabytes; five labels that are
/// decided independently make 32 sets.
const VARIANTS_MAX: usize = 32;

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
        let permit =
            self.limit.acquire(client, bytes.div_ceil(WAITING_REQUEST_BYTES), deadline).await;
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

/// An operation before it is planned.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) operation: plan::Operation,
    pub(crate) operation_id: u128,
    pub(crate) variables: VariableTypes,
    pub(crate) introspection: Option<Introspection>,
    /// What of its identity is not in the normalised form.
    besides: String,
}

impl Work {
    pub(crate) fn new(
        graph: Arc<Supergraph>,
        graph_id: u64,
        settings: PrepareSettings,
        stats: Arc<PrepareStats>,
    ) -> Self {
        let schema = Arc::clone(&graph.api.0);
        let schema = Arc::new(SchemaFacts {
            input_types: InputTypes::of(&schema),
            implementers: schema.implementers_map(),
            introspection_values_max: introspection_size::values_max(&schema),
            introspection_kept: Arc::default(),
            schema,
        });
        let plain = Arc::new(Variant::new(Arc::clone(&graph)));
        let (plans, variants) = (Plans::default(), Cache::new(VARIANTS_MAX));
        Self { graph, graph_id, schema, settings, plans, stats, plain, variants }
    }

    /// The graph while these labels are on.
    fn variant(&self, labels: OverrideLabels) -> Arc<Variant> {
        if labels.is_empty() {
            return Arc::clone(&self.plain);
        }
        let made = self.variants.get_or_insert_with(&labels, || {
            let graph = Arc::new(self.graph.with_override_labels(labels));
            Ok::<_, std::convert::Infallible>(Arc::new(Variant::new(graph)))
        });
        match made {
            Ok(variant) => variant,
            Err(never) => match never {},
        }
    }

    /// As the text stands, and with nobody.
    pub(crate) fn prepare(
        &self,
        query: &[u8],
        name: Option<&str>,
        labels: OverrideLabels,
    ) -> Result<Prepared, PrepareError> {
        let understood = self.understand(query, name)?;
        let planned = Arc::new(self.planned(&understood.operation, labels)?);
        Ok(self.prepared(query, understood, labels, &planned, Vec::new()))
    }

    /// With its literals lifted and the plan of whoever differs in them only. True: somebody had it.
    fn prepare_shared(
        &self,
        query: &[u8],
        name: Option<&str>,
        labels: OverrideLabels,
    ) -> Result<(Prepared, bool), PrepareError> {
        let mut understood = self.understand(query, name)?;
        let operation = &mut understood.operation;
        let lifted = lifting::lift(&self.graph, &self.schema.input_types, operation);
        if !lifted.is_empty() {
            understood.operation_id = operation_id(self.graph_id, operation, &understood.besides);
        }
        let identity = identity::with_labels(understood.operation_id, labels);
        let plan = || self.planned(&understood.operation, labels);
        let (planned, was_planned) = self.plans.get(identity, plan)?;
        Ok((self.prepared(query, understood, labels, &planned, lifted), was_planned))
    }

    fn planned(
        &self,
        operation: &plan::Operation,
        labels: OverrideLabels,
    ) -> Result<Planned, PrepareError> {
        let variant = self.variant(labels);
        let plan = self.plan(&variant.graph, operation)?;
        #[cfg(debug_assertions)]
        variant.soundness.check(operation, &plan).map_err(|unsound| {
            PrepareError::Internal(format!("{unsound}\n{}", plan.to_text(&self.graph)))
        })?;
        let state = self.state(operation, &plan, &variant)?.map(Arc::new);
        Ok(Planned { executable: Arc::new(Executable::new(Arc::new(plan))), state })
    }

    /// How the current state of a subscription is asked for. `None`: its field has none.
    fn state(
        &self,
        operation: &plan::Operation,
        plan: &plan::Plan,
        variant: &Variant,
    ) -> Result<Option<StatePlan>, PrepareError> {
        let Some(SubscriptionRoot::Event(event)) = &plan.subscription else { return Ok(None) };
        let Some(initial) = self.graph.initial_of(event.field) else { return Ok(None) };
        let (asked, graph) = match &initial {
            Initial::Field(field) => {
                (operation.as_query(&variant.graph, *field), Arc::clone(&variant.graph))
            }
            Initial::Entity { subgraph, keys, .. } => {
                // Some milliseconds for a large graph, once for each operation.
                let graph = variant.graph.with_keys_alone(event.field, *subgraph, keys);
                (operation.clone(), Arc::new(graph))
            }
        };
        let mut plan = match self.plan(&graph, &asked) {
            Ok(plan) => plan,
            // Events may bring what nobody can be asked for: the stream is as good without a state.
            Err(PrepareError::Plan(error)) => {
                return Ok(Some(StatePlan::nobody(error.to_string())));
            }
            Err(error) => return Err(error),
        };
        #[cfg(debug_assertions)]
        soundness::Checker::new(Arc::clone(&graph)).check(&asked, &plan).map_err(|unsound| {
            PrepareError::Internal(format!("{unsound}\n{}", plan.to_text(&self.graph)))
        })?;
        match initial {
            Initial::Field(_) => {
                // Payloads are of the subscription's type, which may be stricter than the query's.
                let nullable = self.graph.field(event.field).ty.nullable;
                let root = plan.shape.objects.get_mut(plan.shape.root.0 as usize);
                for variant in root.into_iter().flat_map(|root| &mut root.variants) {
                    variant.fields.iter_mut().for_each(|field| field.value.nullable = nullable);
                }
                Ok(Some(StatePlan::query(Executable::new(Arc::new(plan)))))
            }
            Initial::Entity { ty, keys, .. } => {
                let name = |id: &graph::FieldId| self.graph.field(*id).name.clone();
                let keys = keys.iter().map(name).collect();
                let executable = Executable::new(Arc::new(plan));
                Ok(Some(StatePlan::entity(executable, self.graph.ty(ty).name.clone(), keys)))
            }
        }
    }

    fn prepared(
        &self,
        query: &[u8],
        understood: Understood,
        labels: OverrideLabels,
        planned: &Arc<Planned>,
        lifted: Vec<Option<Box<str>>>,
    ) -> Prepared {
        let Understood { operation, operation_id, variables, introspection, .. } = understood;
        Prepared {
            operation_id: identity::with_labels(operation_id, labels),
            query: match operation.kind {
                OperationKind::Subscription => compact_text::compact(query),
                OperationKind::Query | OperationKind::Mutation => bytes::Bytes::new(),
            },
            name: operation.name.clone(),
            kind: operation.kind,
            // The plan of a state is another one of the same size.
            weight: weight(query, &operation, introspection.is_some())
                * (1 + u64::from(planned.state.is_some())),
            operation,
            plan: Arc::clone(planned.executable.plan()),
            executable: Arc::clone(&planned.executable),
            state: planned.state.clone(),
            is_slow: false,
            uses: AtomicU32::new(0),
            _planned: Arc::clone(planned),
            lifted,
            variables,
            introspection,
            schema: Arc::clone(&self.schema),
        }
    }

    fn plan(
        &self,
        graph: &Supergraph,
        operation: &plan::Operation,
    ) -> Result<plan::Plan, PrepareError> {
        let started = Instant::now();
        let limits = &self.settings.planning;
        let (plan, effort) = plan::plan_with_effort(graph, operation, limits);
        self.stats.planning.add(started.elapsed());
        self.stats.planning_steps.fetch_add(effort.steps, Ordering::Relaxed);
        if effort.is_greedy {
            self.stats.greedy.fetch_add(1, Ordering::Relaxed);
        }
        plan.map_err(PrepareError::Plan)
    }

    /// Everything up to the plan.
    pub(crate) fn understand(
        &self,
        query: &[u8],
        name: Option<&str>,
    ) -> Result<Understood, PrepareError> {
        let types = &self.schema.input_types;
        let document = self.validate(&self.parse(query)?)?;
        let chosen =
            document.operations.get(name).map_err(|_| unknown_operation(&document, name))?;
        let never_null = usages::check(&document, &self.schema.schema, types, Some(chosen))?;
        let variables = VariableTypes::of(chosen, types, &never_null)
            .map_err(|problem| PrepareError::Validation(vec![problem]))?;
        let mut operation = normalise(&self.graph, types, &document, chosen)?;
        for (variable, ty) in operation.variables.iter_mut().zip(variables.types()) {
            variable.ty = ty.into();
        }
        let mut besides: String = chosen
            .variables
            .iter()
            .filter_map(|it| Some(format!("{}={};", it.name, it.default_value.as_ref()?)))
            .collect();
        let introspects = introspects(&operation);
        if introspects {
            self.allow_introspection(&document, chosen)?;
            // What is asked of the schema stands in the text only.
            besides.push_str(&String::from_utf8_lossy(query));
        }
        let operation_id = operation_id(self.graph_id, &operation, &besides);
        let introspection =
            introspects.then(|| Introspection::new(&self.schema, document, name.map(Into::into)));
        Ok(Understood { operation, operation_id, variables, introspection, besides })
    }

    /// The syntax tree, within the limits.
    fn parse(&self, query: &[u8]) -> Result<ast::Document, PrepareError> {
        let limits = &self.settings.limits;
        let text = std::str::from_utf8(query).map_err(|error| {
            PrepareError::Syntax(vec![Problem::new(format!("the document is not UTF-8: {error}"))])
        })?;
        if text.trim().is_empty() {
            let problem = Problem::new("the document is empty: `query` must hold an operation");
            return Err(PrepareError::Syntax(vec![problem]));
        }
        let too_many = PrepareError::Limit { limit: Limit::Tokens, maximum: limits.tokens };
        if count_tokens(text, limits.tokens) > limits.tokens {
            return Err(too_many);
        }
        let with_ignored = limits.tokens.saturating_mul(1 + IGNORED_TOKENS_MAX);
        let mut parser = Parser::new().token_limit(with_ignored).recursion_limit(NESTING_MAX);
        let document = parser.parse_ast(text, "operation").map_err(|invalid| {
            if parser.tokens_reached() > with_ignored {
                too_many
            } else if parser.recursion_reached() > NESTING_MAX {
                let maximum = limits.depth.min(NESTING_MAX);
                PrepareError::Limit { limit: Limit::Depth, maximum }
            } else {
                // After the first the parser mostly complains about the consequences.
                let mut problems = problems(&invalid.errors);
                problems.truncate(1);
                PrepareError::Syntax(problems)
            }
        })?;
        limits::check(&document, limits)?;
        Ok(document)
    }

    fn validate(
        &self,
        document: &ast::Document,
    ) -> Result<Valid<ExecutableDocument>, PrepareError> {
        let schema = &self.schema.schema;
        let maximum = self.settings.limits.selections;
        let guard = |document: &ExecutableDocument| {
            merging::check(document, schema, maximum).map_err(|stop| match stop {
                merging::Stop::Budget => PrepareError::Limit { limit: Limit::Selections, maximum },
                merging::Stop::Conflict(problem) => PrepareError::Validation(vec![problem]),
            })
        };
        let invalid = |invalid: WithErrors<ExecutableDocument>| {
            PrepareError::Validation(problems(&invalid.errors))
        };
        match document.to_executable(schema) {
            Ok(executable) => {
                guard(&executable)?;
                executable.validate(schema).map_err(invalid)
            }
            Err(partial) => {
                guard(&partial.partial)?;
                // Names the rest of what is wrong, too.
                document.to_executable_validate(schema).map_err(invalid)
            }
        }
    }

    fn allow_introspection(
        &self,
        document: &Valid<ExecutableDocument>,
        operation: &executable::Operation,
    ) -> Result<(), PrepareError> {
        let refused = |message: String| PrepareError::Validation(vec![Problem::new(message)]);
        if !self.settings.introspection {
            let message = "introspection is turned off on this router (`introspection: false`)";
            return Err(refused(message.to_owned()));
        }
        check_max_depth(document, operation)
            .map_err(|error| refused(error.message().to_string()))?;
        let max = self.schema.introspection_values_max;
        if !introspection_size::fits(&self.schema, document, &operation.selection_set, max) {
            return Err(refused(format!("introspection asks for more than {max} values")));
        }
        Ok(())
    }
}

fn introspects(operation: &plan::Operation) -> bool {
    operation.selection_set.items.iter().any(|item| {
        matches!(item, plan::Selection::Field(field) if field.target == FieldTarget::Introspection)
    })
}

/// About how many bytes a prepared operation takes.
fn weight(query: &[u8], operation: &plan::Operation, introspects: bool) -> u64 {
    /// Everything that does not grow, and the cache's own entry.
    const BASE: usize = 8_192;
    /// A selection in the normalised operation, its plan, and its shape.
    const SELECTION: usize = 512;
    /// A character in a syntax tree, which is kept for introspection.
    const CHARACTER: usize = 32;
    fn selections(set: &plan::SelectionSet) -> usize {
        let below = set.items.iter().map(|item| match item {
            plan::Selection::Field(field) => 1 + field.selection_set.as_ref().map_or(0, selections),
            plan::Selection::Fragment(fragment) => 1 + selections(&fragment.selection_set),
        });
        below.sum()
    }
    // The cache and the operation have a copy each.
    let text = query.len() * if introspects { CHARACTER } else { 2 };
    (BASE + text + SELECTION * selections(&operation.selection_set)) as u64
}

fn unknown_operation(document: &ExecutableDocument, name: Option<&str>) -> PrepareError {
    /// Names shown in the message.
    const SHOWN: usize = 10;
    /// Characters of a name.
    const NAME_MAX: usize = 100;
    let names = document.operations.named.keys().take(SHOWN);
    let names: Vec<_> = names.map(|name| shortened(name.to_string(), NAME_MAX)).collect();
    PrepareError::UnknownOperation(match name {
        Some(name) => {
            let name = shortened(name.to_owned(), NAME_MAX);
            let others = match &names[..] {
                [] => "its operation has no name".to_owned(),
                names => format!("it has: {}", names.join(", ")),
            };
            format!("the document has no operation named \"{name}\"; {others}")
        }
        None if document.operations.is_empty() => "the document has no operation".to_owned(),
        None => format!(
            "the document has several operations ({}); say which by `operationName`",
            names.join(", ")
        ),
    })
}
