//! A loaded supergraph with its store: executes operations in both ways and compares the responses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apollo_compiler::ast::Document;
use bytes::Bytes;
use cache::{
    IgnoredHeaders, InvalidationTable, KeyHeaders, KeySecret, Store, StoreSettings, TagHasher,
    Timestamp, TtlRules, TtlSettings,
};
use cost::CostSettings;
use execute::{
    Executable, ForwardedHeaders, Generation, Payload, RequestCaching, RequestContext,
    ResponseMemory, Seed, SubgraphCache, SubgraphCaches,
};
use graph::{
    Costs, FieldId, OverrideLabels, RequirementSet, SubgraphId, SubgraphKind, Supergraph, TypeId,
};
use plan::{FetchKind, OperationKind, SubscriptionRoot, Variables as Coerced};
use prepare::{Limits, PrepareError, PrepareSettings, Preparer};
use serde_json::{Map, Value, json};

use crate::{
    ObjectStore,
    broker::InMemoryBroker,
    denials::Denials,
    executor::Impaired,
    reference_server::{self, Expected},
    request_log::RequestLog,
    subgraph::InMemorySubgraph,
};

/// The deadline of requests: longer than any case takes.
const DEADLINE: Duration = Duration::from_secs(600);

/// A loaded case without an operation.
pub struct LoadedCase {
    /// The supergraph.
    pub graph: Arc<Supergraph>,
    data: Arc<ObjectStore>,
    preparer: Preparer,
    labels: OverrideLabels,
    /// The requirements that the client does not meet, for the router and for the reference server.
    pub(crate) unmet: RequirementSet,
    pub(crate) denials: Denials,
    checker: soundness::Checker,
    generation: Arc<Generation>,
    subgraphs: Vec<Arc<InMemorySubgraph>>,
    broker: Arc<InMemoryBroker>,
    log: Arc<Mutex<RequestLog>>,
    runtime: tokio::runtime::Runtime,
}

/// The outcome of an operation that is not a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The response is correct.
    Correct {
        /// The whole response, as the router printed it.
        response: String,
        /// The subgraph, and the operation with its variables, of each request in the order sent.
        requests: Vec<(String, String)>,
    },
    /// The planner refused the operation.
    Refused(String),
    /// The operation is not valid for the schema.
    Invalid(String),
}

/// A wrong response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The details, with all information needed to find the reason.
    pub message: String,
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The router panics.
    Panic,
    /// The plan is not sound.
    Unsound,
    /// A subgraph receives a request that it cannot resolve.
    Violation,
    /// The `data` find_difference.
    Data,
    /// Errors are missing, or are reported where there are none.
    Errors,
    /// The events of event subgraphs, or their arguments, differ.
    Events,
    /// A variation of the operation has another response.
    Variation,
    /// Composition accepts the federation, and the planner refuses an operation.
    Composition,
    /// A subgraph is asked again for what is stored.
    Caching,
    /// Any other failure.
    Other,
}

impl Failure {
    fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// True if both failures are the same, apart from names and numbers.
    pub fn is_like(&self, other: &Self) -> bool {
        let is_specific =
            matches!(self.kind, FailureKind::Panic | FailureKind::Unsound | FailureKind::Violation);
        self.kind == other.kind && (!is_specific || self.gist() == other.gist())
    }

    /// Returns the first line of the message without names (in backticks, quotes, brackets or braces) and numbers.
    fn gist(&self) -> String {
        let mut gist = String::new();
        let mut closing = None;
        for character in self.message.lines().next().unwrap_or_default().chars() {
            match closing {
                Some(end) if character == end => closing = None,
                Some(_) => {}
                None => {
                    let opening = "`\"[{".find(character);
                    closing = opening.and_then(|at| "`\"]}".chars().nth(at));
                    if closing.is_none() && !character.is_ascii_digit() {
                        gist.push(character);
                    }
                }
            }
        }
        gist
    }
}

impl LoadedCase {
    /// Loads a supergraph and its store, while exactly these labels of progressive overrides are on.
    ///
    /// # Errors
    /// The supergraph or the store is invalid.
    pub fn load(sdl: &str, data: ObjectStore, labels: &[String]) -> Result<Self, String> {
        let graph = Supergraph::from_sdl(sdl, "supergraph.graphql");
        Self::load_graph(graph.map_err(|errors| errors.to_string())?, data, labels, None)
    }

    /// Like [`LoadedCase::load`], with other weights and list sizes than the supergraph has, for
    /// [`LoadedCase::measure`].
    ///
    /// # Errors
    /// As [`LoadedCase::load`].
    pub fn load_with_costs(
        sdl: &str,
        data: ObjectStore,
        labels: &[String],
        costs: Costs,
        settings: CostSettings,
    ) -> Result<Self, String> {
        let graph = Supergraph::from_sdl(sdl, "supergraph.graphql");
        let mut graph = graph.map_err(|errors| errors.to_string())?;
        graph.costs = Some(Arc::new(costs));
        Self::load_graph(graph, data, labels, Some(settings))
    }

    fn load_graph(
        graph: Supergraph,
        data: ObjectStore,
        labels: &[String],
        cost: Option<CostSettings>,
    ) -> Result<Self, String> {
        let as_read = Arc::new(graph);
        let labels = labels_of(&as_read, labels)?;
        let graph = Arc::new(as_read.with_override_labels(labels));
        check_coherence(&graph)?;
        data.check(&graph)?;
        let data = Arc::new(data);
        let log = Arc::new(Mutex::new(RequestLog::default()));
        let subgraph = |index: usize| {
            Arc::new(InMemorySubgraph {
                graph: Arc::clone(&graph),
                data: Arc::clone(&data),
                id: SubgraphId(index as u16),
                log: Arc::clone(&log),
            })
        };
        let subgraphs: Vec<_> = (0..graph.subgraphs.len()).map(subgraph).collect();
        let as_dyn = |it: &Arc<InMemorySubgraph>| -> Arc<dyn execute::Subgraph> { it.clone() };
        let broker = Arc::new(InMemoryBroker {
            graph: Arc::clone(&graph),
            data: Arc::clone(&data),
            log: Arc::clone(&log),
        });
        let generation = Arc::new(Generation {
            number: 1,
            graph_id: 1,
            graph: Arc::clone(&graph),
            subgraphs: subgraphs.iter().map(as_dyn).collect(),
            publisher: broker.clone(),
            disclosure: Default::default(),
            caches: Some(Arc::new(caches_of(&graph))),
            memory: admission::memory::MemoryAccount::unlimited(),
        });
        // Tests of the planner have operations that the default limits would refuse.
        let limits = Limits { aliases: 10_000, tokens: 100_000, ..Limits::default() };
        let rules = TtlRules { default: Some(DEADLINE), ..TtlRules::default() };
        let caching = Some(Arc::new(rules));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Ok(Self {
            preparer: Preparer::new(
                as_read,
                1,
                PrepareSettings { limits, cost, caching, ..PrepareSettings::default() },
            ),
            labels,
            unmet: RequirementSet::default(),
            denials: Denials::default(),
            checker: soundness::Checker::new(Arc::clone(&graph)),
            graph,
            data,
            generation,
            subgraphs,
            broker,
            log,
            runtime: runtime.map_err(|error| error.to_string())?,
        })
    }

    /// Executes operations of a client that does not meet these requirements of the supergraph with the text `sdl`.
    ///
    /// # Errors
    /// The supergraph has no such requirement.
    pub fn without(mut self, sdl: &str, unmet: &[String]) -> Result<Self, String> {
        let known: Vec<String> =
            self.graph.access.requirements.iter().map(ToString::to_string).collect();
        for wanted in unmet {
            let index = known.iter().position(|it| it == wanted);
            let index = index.ok_or_else(|| format!("{wanted} is none of {known:?}"))?;
            self.unmet.insert(u16::try_from(index).map_err(|error| error.to_string())?);
        }
        self.denials = Denials::read(sdl, unmet);
        Ok(self)
    }

    /// Executes an operation in both ways and compares the responses.
    ///
    /// # Errors
    /// The router's response is wrong.
    pub fn compare(&self, text: &str, variables: &Map<String, Value>) -> Result<Outcome, Failure> {
        let asked = catch_unwind(AssertUnwindSafe(|| self.compare_unguarded(text, variables)));
        asked.unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).into()));
            Err(Failure::new(FailureKind::Panic, message.unwrap_or_default()))
        })
    }

    /// Executes an operation and returns its estimated cost and the cost of its response. `None` if it is not valid,
    /// has no plan, or was loaded without costs.
    pub fn measure(&self, text: &str, variables: &Map<String, Value>) -> Option<(u64, u64)> {
        let prepared = self.preparer.prepare_now_with(text.as_bytes(), None, self.labels).ok()?;
        let given = Value::Object(variables.clone()).to_string();
        let coerced = prepared.coerce(&Bytes::from(given)).ok()?;
        let seed = self.seed(&prepared.plan, &coerced).ok()?;
        let executable = &prepared.executable;
        let payload = self.execute(executable, &coerced, seed, None);
        Some((prepared.cost.as_ref()?.estimate(&coerced).total, payload.cost?))
    }

    fn execute(
        &self,
        executable: &Executable,
        variables: &Coerced,
        seed: Seed,
        caching: Option<RequestCaching>,
    ) -> Payload {
        let context = RequestContext {
            claims: None,
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders::default()),
            deadline: Instant::now() + DEADLINE,
            sharing: None,
            trace: None,
            uploads: None,
            closed_subgraphs: None,
            caching,
        };
        self.runtime.block_on(execute::execute(executable, variables, None, seed, &context))
    }

    /// Returns the response of the reference server: `data` and the paths of errors. `None` if the document has no
    /// executable operation.
    pub fn expected(&self, text: &str, variables: &Map<String, Value>) -> Option<Value> {
        Some(self.execute_reference(text, variables)?.response.to_json())
    }

    fn execute_reference(&self, text: &str, variables: &Map<String, Value>) -> Option<Expected> {
        let document = Document::parse(text.to_owned(), "operation.graphql").ok()?;
        let root = self.root(&document)?;
        Some(reference_server::execute_operation(
            &self.graph,
            &self.data,
            &document,
            variables,
            root,
            &self.denials,
        ))
    }

    fn root(&self, document: &Document) -> Option<TypeId> {
        use apollo_compiler::ast::OperationType;
        let operation = document.definitions.iter().find_map(|it| it.as_operation_definition());
        match operation?.operation_type {
            OperationType::Query => Some(self.graph.query),
            OperationType::Mutation => self.graph.mutation,
            OperationType::Subscription => self.graph.subscription,
        }
    }

    fn compare_unguarded(
        &self,
        text: &str,
        variables: &Map<String, Value>,
    ) -> Result<Outcome, Failure> {
        let other = |message: String| Failure::new(FailureKind::Other, message);
        let prepared =
            match self.preparer.prepare_now_for(text.as_bytes(), None, self.labels, &self.unmet) {
                Ok(prepared) => prepared,
                Err(PrepareError::Plan(plan::PlanError::TooComplex(message))) => {
                    return Err(other(message));
                }
                Err(PrepareError::Plan(error)) => return Ok(Outcome::Refused(error.to_string())),
                Err(PrepareError::Internal(message)) => {
                    return Err(Failure::new(FailureKind::Unsound, message));
                }
                Err(error) => return Ok(Outcome::Invalid(error.to_string())),
            };
        self.checker
            .check(&prepared.operation, &prepared.plan)
            .map_err(|unsound| Failure::new(FailureKind::Unsound, unsound.to_string()))?;
        let given = Value::Object(variables.clone()).to_string();
        let coerced = match prepared.coerce(&Bytes::from(given)) {
            Ok(coerced) => coerced,
            Err(error) => return Ok(Outcome::Invalid(error.to_string())),
        };
        let Some(reference) = self.execute_reference(text, variables) else {
            return Ok(Outcome::Invalid("no operation".to_owned()));
        };
        self.take_log();
        let seed = self.seed(&prepared.plan, &coerced).map_err(other)?;
        let payload = self.execute(&prepared.executable, &coerced, seed, None);
        let log = self.take_log();
        let response = String::from_utf8_lossy(&payload.bytes).into_owned();
        self.check_response(&prepared.plan, &response, &log, &reference)?;
        if prepared.kind == OperationKind::Query {
            // The first one finds what other operations have stored, and the second one what the first one has. The
            // third one keeps the nodes of stored responses, and the last one takes them over.
            for which in ["partly from memory", "from memory", "parsed to keep", "taken over"] {
                let caching = Some(RequestCaching::default());
                let payload = self.execute(&prepared.executable, &coerced, Seed::Nothing, caching);
                let response = String::from_utf8_lossy(&payload.bytes);
                let log = self.take_log();
                let checked = self.check_response(&prepared.plan, &response, &log, &reference);
                checked.map_err(|failure| {
                    Failure::new(failure.kind, format!("{which}: {}", failure.message))
                })?;
                // Root fields for objects below others are not stored, nor is what errors are about.
                let is_below =
                    |fetch: &plan::Fetch| matches!(fetch.kind, FetchKind::RootBelow { .. });
                let is_stored = log.errors == 0 && !prepared.plan.fetches.iter().any(is_below);
                if which != "partly from memory" && is_stored && !log.requests.is_empty() {
                    let message = format!("{:?} was sent again", log.requests);
                    return Err(Failure::new(FailureKind::Caching, message));
                }
            }
        }
        let name = |id| self.graph.subgraph(id).name.to_string();
        let requests = log.requests.into_iter().map(|(id, text)| (name(id), text)).collect();
        Ok(Outcome::Correct { response, requests })
    }

    /// Compares a response with that of the reference server.
    fn check_response(
        &self,
        plan: &plan::Plan,
        response: &str,
        log: &RequestLog,
        reference: &Expected,
    ) -> Result<(), Failure> {
        let expected = reference.response.to_json();
        let plan = || plan.to_text(&self.graph);
        if let Some(violation) = log.violations.first() {
            let message = format!("{violation}\n{}", plan());
            return Err(Failure::new(FailureKind::Violation, message));
        }
        if !has_data(response, &expected["data"].to_string()) {
            let message = format!("the response is {response}\nexpected {expected}\n{}", plan());
            return Err(Failure::new(FailureKind::Data, message));
        }
        if let Some(difference) =
            find_error_difference(response, &expected, &reference.response.impaired)
        {
            let message = format!(
                "{difference}\nthe response is {response}\nexpected {expected}\n{}",
                plan()
            );
            return Err(Failure::new(FailureKind::Errors, message));
        }
        if let Some(difference) = find_event_difference(&self.graph, &log.events, &reference.events)
        {
            let message = format!("{difference}\n{}", plan());
            return Err(Failure::new(FailureKind::Events, message));
        }
        Ok(())
    }

    /// Returns the event of a subscription, with which its execution starts.
    fn seed(&self, plan: &plan::Plan, variables: &plan::Variables) -> Result<Seed, String> {
        match &plan.subscription {
            None => Ok(Seed::Nothing),
            Some(SubscriptionRoot::Event(event)) => {
                Ok(Seed::Event(self.broker.event(event, variables)))
            }
            Some(SubscriptionRoot::Upstream { subgraph, operation }) => {
                let value = |id| variables.get(id).and_then(|it| serde_json::from_str(it).ok());
                let given = operation.variables.iter();
                let given: Map<String, Value> =
                    given.filter_map(|(name, id)| Some((name.to_string(), value(*id)?))).collect();
                let body = json!({ "query": *operation.text, "variables": given }).to_string();
                let response = self.subgraphs[usize::from(subgraph.0)].respond(body.as_bytes())?;
                Ok(Seed::Event(response))
            }
        }
    }

    fn take_log(&self) -> RequestLog {
        self.log.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default()
    }
}

/// Caches that store what every subgraph says. The time stands still, so that nothing expires.
fn caches_of(graph: &Supergraph) -> SubgraphCaches {
    let secret = KeySecret::from_bytes([1; 16]);
    let settings = StoreSettings { bytes_max: 1 << 20, ..StoreSettings::default() };
    let rules = |subgraph: &graph::Subgraph| SubgraphCache {
        name: subgraph.name.clone(),
        graph: None,
        settings: TtlSettings { not_found_for: Some(DEADLINE), ..TtlSettings::default() },
        ttl_header: None,
        key_headers: KeyHeaders::new(IgnoredHeaders::All),
        type_tags: Default::default(),
        stats: Arc::default(),
    };
    SubgraphCaches {
        store: Arc::new(Store::new(&settings, Arc::new(InvalidationTable::with_buckets(64)))),
        tags: TagHasher::new(&secret),
        secret,
        memory: Arc::new(ResponseMemory::new(1 << 20)),
        in_flight: Arc::default(),
        subgraphs: graph.subgraphs.iter().map(|subgraph| Some(rules(subgraph))).collect(),
        shared: None,
        invalidate_header: None,
        invalidation_stats: Arc::default(),
        clock: || Timestamp(1),
    }
}

/// True if the response starts with exactly that `data`.
fn has_data(response: &str, data: &str) -> bool {
    let rest = response.strip_prefix("{\"data\":").and_then(|rest| rest.strip_prefix(data));
    rest.is_some_and(|rest| rest.starts_with([',', '}']))
}

/// Returns the difference between the events that were delivered and the expected ones, in any order.
fn find_event_difference(
    graph: &Supergraph,
    delivered: &[(FieldId, Map<String, Value>)],
    expected: &[(FieldId, Map<String, Value>)],
) -> Option<String> {
    let texts = |events: &[(FieldId, Map<String, Value>)]| -> Vec<String> {
        let text = |(field, arguments): &(FieldId, Map<String, Value>)| {
            format!("{} {}", graph.field(*field).name, Value::Object(arguments.clone()))
        };
        let mut texts: Vec<String> = events.iter().map(text).collect();
        texts.sort();
        texts
    };
    let (delivered, expected) = (texts(delivered), texts(expected));
    (delivered != expected).then(|| format!("the events are {delivered:?}, expected {expected:?}"))
}

/// The number of errors that one response certainly contains: the router reports at most this many places of one error
/// of a subgraph.
const PLACES_SURE: usize = 16;

/// Returns the first difference in errors. Errors must belong to fields with errors, and each of these fields must have
/// one. If a null removes an object, any single error for it is sufficient: other errors in it may remain unknown
/// (GraphQL specification, section 6.4.4), and a subgraph that had to omit the object reports no others. Values from
/// which fields of `impaired` objects are computed may have failed, and these errors may be reported.
fn find_error_difference(response: &str, right: &Value, impaired: &[Impaired]) -> Option<String> {
    let reported: Value = serde_json::from_str(response).ok()?;
    let paths = |of: &Value| -> Vec<Value> {
        let errors = of["errors"].as_array();
        errors.into_iter().flatten().map(|error| error["path"].clone()).collect()
    };
    let data = &right["data"];
    let (reported, right) = (paths(&reported), paths(right));
    let is_same_null = |one: &Value, other: &Value| {
        let null = null_above(data, one);
        one == other || (null.is_some() && null_above(data, other) == null)
    };
    let is_impaired = |path: &Value| {
        let steps = path.as_array().map_or(&[][..], Vec::as_slice);
        impaired.iter().any(|object| match object.is_selected {
            true => steps.starts_with(&object.path),
            false => steps == object.path,
        })
    };
    let is_known =
        |path: &&Value| right.iter().any(|it| is_same_null(path, it)) || is_impaired(path);
    if let Some(stray) = reported.iter().find(|path| !is_known(path)) {
        return Some(format!("there is no error at {stray}"));
    }
    let is_there = |path: &&Value| reported.iter().any(|it| is_same_null(path, it));
    match right.iter().find(|path| !is_there(path)) {
        Some(missing) if reported.is_empty() || right.len() <= PLACES_SURE => {
            Some(format!("the error at {missing} is not reported"))
        }
        _ => None,
    }
}

/// Returns the part of a path up to the null that removed the rest.
fn null_above<'p>(data: &Value, path: &'p Value) -> Option<&'p [Value]> {
    let path = path.as_array()?;
    let mut here = data;
    for (at, step) in path.iter().enumerate() {
        if here.is_null() {
            return Some(&path[..at]);
        }
        here = match step {
            Value::String(key) => &here[key.as_str()],
            step => &here[usize::try_from(step.as_u64()?).ok()?],
        };
    }
    None
}

/// Checks that all mentioned types and fields exist, as composition ensures.
fn check_coherence(graph: &Supergraph) -> Result<(), String> {
    for (index, subgraph) in graph.subgraphs.iter().enumerate() {
        // Every subgraph has `Query._entities`.
        let is_server = subgraph.kind == SubgraphKind::Server;
        if is_server && graph.type_in(graph.query, SubgraphId(index as u16)).is_none() {
            return Err(format!("{} has no query root", subgraph.name));
        }
    }
    for field in &graph.fields {
        let at = format!("{}.{}", graph.ty(field.parent).name, field.name);
        for subgraph in field.resolved_by.iter() {
            let name = &graph.subgraph(subgraph).name;
            let parent = graph.local_type(field.parent, subgraph);
            if graph.type_in(parent, subgraph).is_none() {
                return Err(format!("{at} is in {name}, but its parent type is not"));
            }
            let there = graph.field_in(field_id(graph, field), subgraph);
            let named = there.and_then(|there| there.ty.as_ref()).unwrap_or(&field.ty).named();
            if !graph.ty(named).kind.is_composite() {
                continue;
            }
            let target = graph.type_in(named, subgraph);
            let Some(target) = target else {
                return Err(format!("the type of {at} is not in {name}"));
            };
            if !target.interface_object && graph.possible_in(named, subgraph).is_empty() {
                return Err(format!("{at} has no possible type in {name}"));
            }
        }
    }
    for ty in graph.types.iter().filter(|ty| ty.kind.is_abstract()) {
        for there in &ty.subgraphs {
            let knows = |&&member: &&TypeId| graph.type_in(member, there.subgraph).is_some();
            if there.interface_object && ty.possible.iter().any(|it| knows(&it)) {
                return Err(format!(
                    "{} is an interface object in a subgraph that knows its members",
                    ty.name
                ));
            }
            let has_key = |&member: &TypeId| {
                let own = graph.type_in(member, there.subgraph);
                own.is_some_and(|own| own.keys.len() >= there.keys.len())
            };
            if !there.keys.is_empty()
                && !there.interface_object
                && (there.possible != ty.possible || !there.possible.iter().all(has_key))
            {
                return Err(format!("{} has keys that some of its members lack", ty.name));
            }
        }
        for there in ty.subgraphs.iter().filter(|there| !there.interface_object) {
            for &member in &there.possible {
                if graph.type_in(member, there.subgraph).is_none() {
                    return Err(format!(
                        "a subgraph of {} does not define one of its members",
                        ty.name
                    ));
                }
            }
        }
    }
    Ok(())
}

fn field_id(graph: &Supergraph, field: &graph::Field) -> FieldId {
    let fields = graph.ty(field.parent).fields.iter().copied();
    let mut same = fields.filter(|&id| graph.field(id).name == field.name);
    same.next().unwrap_or(FieldId(0))
}

fn labels_of(graph: &Supergraph, names: &[String]) -> Result<OverrideLabels, String> {
    let mut labels = OverrideLabels::NONE;
    for name in names {
        let label = graph.override_labels.iter().position(|known| **known == *name);
        labels.insert(label.ok_or_else(|| format!("there is no label {name}"))?);
    }
    Ok(labels)
}
