//! Live operations: created from prepared requests, and prepared again for a new graph.
//!
//! A reload prepares each live operation again while the old graph serves, and replaces the old one between two events
//! (`hub::Hub::advance`; see `reload`). Subscribers notice nothing, unless their operation is not valid any more.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bindings::{Source, StateSource};
use bytes::Bytes;
use cache::Partition;
use clients::authentication::Identity;
use clients::error_mapping;
use execute::{
    ClaimValues, Claims, ClientKey, ErrorCode, ForwardedHeaders, GraphqlError, RequestCaching,
};
use graph::{RequirementSet, SubgraphId};
use hub::{EventResolver, GroupKey, LiveOperation};
use plan::{EventField, SubscriptionRoot, Variables};
use prepare::{DecidedRequirements, OperationRequest, PrepareError};

use crate::forwarding;
use crate::generation::ServingGraph;
use crate::live_queries::{LiveExecution, LiveResolver, LiveSource};
use crate::prepared_request::PreparedRequest;
use crate::stream_cause::StreamCause;
use crate::subgraph_streams::{SentFacts, SubgraphSource, SubgraphStreams};

/// The time for which the requirements of one operation are waited for before it is tried again.
const WAITING_TIME_MAX: Duration = Duration::from_secs(60);

/// The pause when requests of clients keep the preparer busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the claims of a client that a subscription depends on, on this graph.
pub fn claims_of(ready: &PreparedRequest) -> ClaimValues {
    let (loaded, claims) = (&ready.loaded, ready.identity.claims());
    match &ready.prepared.plan.subscription {
        Some(SubscriptionRoot::Event(field)) => {
            let read = loaded.bindings.claims(field.field);
            Claims::select(claims, read.iter().chain(&loaded.cursor_claims))
        }
        // There are no cursors.
        Some(SubscriptionRoot::Upstream { subgraph, .. }) => {
            Claims::select(claims, streams_of(loaded, *subgraph).map_or(&[][..], |it| it.claims()))
        }
        None => ClaimValues::default(),
    }
}

fn streams_of(loaded: &ServingGraph, subgraph: SubgraphId) -> Option<&SubgraphStreams> {
    loaded.streams.get(usize::from(subgraph.0)).and_then(Option::as_ref)
}

/// Creates the live operation of a prepared subscription or live query: its source, its group, and the resolver of its
/// events with `timeout` for each, for clients with these claims.
///
/// # Errors
/// `FORBIDDEN`, or the operation's root field has no source here.
pub fn live_operation(
    ready: PreparedRequest,
    claims: ClaimValues,
    timeout: Duration,
) -> Result<LiveOperation, GraphqlError> {
    let plan = Arc::clone(&ready.prepared.plan);
    match &plan.subscription {
        Some(SubscriptionRoot::Event(field)) => event_operation(ready, field, claims, timeout),
        Some(SubscriptionRoot::Upstream { subgraph, .. }) => {
            subgraph_operation(ready, *subgraph, claims, timeout)
        }
        None if ready.prepared.live.is_some() => live_query(ready, timeout),
        None => {
            let message = "The operation is not a subscription.";
            Err(GraphqlError::new(ErrorCode::BadRequest, message))
        }
    }
}

/// Creates the live operation of a subscription to topics.
fn event_operation(
    ready: PreparedRequest,
    field: &EventField,
    claims: ClaimValues,
    timeout: Duration,
) -> Result<LiveOperation, GraphqlError> {
    let loaded = Arc::clone(&ready.loaded);
    let bindings = &loaded.bindings;
    bindings.authorize(field, &ready.variables, &claims)?;
    let source = bindings.source(field, &ready.variables, &claims)?;
    let filter = bindings.filter(field, &ready.variables, &claims)?;
    let mut bound_to = Vec::new();
    claims.only(&loaded.cursor_claims).append_canonical(&mut bound_to);
    let mut partition = forwarding::partition(&ready.headers);
    claims.append_canonical(&mut partition);
    let (prepared, variables) = (Arc::clone(&ready.prepared), Arc::new(ready.variables.clone()));
    let group = GroupKey {
        operation_id: prepared.operation_id,
        variables: Arc::clone(&variables),
        partition: partition.into(),
    };
    let mut resolve = resolver(ready, variables, claims, timeout, Bytes::new());
    resolve.payload = bindings.payload_mapping(field.field);
    Ok(LiveOperation {
        generation: loaded.generation.number,
        source,
        // A field with a source has a coordinate.
        field: bindings.coordinate(field.field).unwrap_or_default(),
        bound_to: bound_to.into(),
        filter,
        group,
        resolve: Arc::new(resolve),
    })
}

/// Creates the live operation of a subscription that a subgraph serves.
fn subgraph_operation(
    ready: PreparedRequest,
    subgraph: SubgraphId,
    claims: ClaimValues,
    timeout: Duration,
) -> Result<LiveOperation, GraphqlError> {
    let loaded = Arc::clone(&ready.loaded);
    let prepared = Arc::clone(&ready.prepared);
    let Some(streams) = streams_of(&loaded, subgraph) else {
        let message = "The subgraph of this subscription has no server.";
        return Err(GraphqlError::new(ErrorCode::NotSupported, message));
    };
    let (headers, extensions) = (&ready.headers, &ready.extensions);
    let executable = &prepared.executable;
    let trace = ready.cause.as_ref().map(StreamCause::headers).unwrap_or_default();
    let sent = SentFacts { headers, extensions, trace };
    let made = streams.source(subgraph, executable, &ready.variables, &claims, sent)?;
    let SubgraphSource { source, mut partition, field, extensions } = made;
    // Without another fetch, payloads depend on nothing else.
    let ignores_headers = streams.ignores_other_headers() && prepared.plan.fetches.is_empty();
    if !ignores_headers {
        partition.extend_from_slice(&forwarding::partition(headers));
    }
    let variables = Arc::new(ready.variables.clone());
    let group = GroupKey {
        operation_id: prepared.operation_id,
        variables: Arc::clone(&variables),
        partition: partition.into(),
    };
    let mut resolve = resolver(ready, variables, claims, timeout, extensions);
    resolve.has_mixed_headers = ignores_headers;
    Ok(LiveOperation {
        generation: loaded.generation.number,
        source,
        field,
        bound_to: Box::default(),
        filter: None,
        group,
        resolve: Arc::new(resolve),
    })
}

/// Creates the live operation of a live query. It has no claims: those that decide about private responses are in the
/// partition of the caches, which no graph changes.
fn live_query(ready: PreparedRequest, timeout: Duration) -> Result<LiveOperation, GraphqlError> {
    let PreparedRequest { loaded, prepared, variables, variables_text, headers, decided, .. } =
        ready;
    let queries = loaded.caching.as_ref().and_then(|it| it.process.live_queries.as_ref());
    let (Some(live), Some(queries), Some(caching)) = (prepared.live, queries, ready.caching) else {
        let message = "live queries are turned off on this router (`live_queries.enabled`)";
        return Err(GraphqlError::new(ErrorCode::NotSupported, message));
    };
    if loaded.bindings.depends_on_claims(&prepared.plan) {
        let message = "a live query cannot have fields that send claims of its client to a broker";
        return Err(GraphqlError::new(ErrorCode::NotSupported, message));
    }
    let throttle = live.throttle(&variables).map_err(|error| first_error(&error))?;
    let wants_patches = live.wants_patches(&variables);
    let is_used = |id| prepared.plan.fetches.iter().any(|fetch| fetch.subgraph == id);
    let mut partition = forwarding::partition_for(&headers, is_used);
    partition.extend_from_slice(caching.partition.as_ref().map_or(&[], Partition::as_bytes));
    let rules = headers.by_subgraph.iter().enumerate().filter(|(_, (id, _))| is_used(*id));
    let header_rules = rules.map(|(place, _)| place).collect();
    let generation = Arc::clone(&loaded.generation);
    let mut identity = generation.number.to_le_bytes().to_vec();
    identity.extend_from_slice(&prepared.operation_id.to_le_bytes());
    identity.extend_from_slice(&(partition.len() as u64).to_le_bytes());
    identity.extend_from_slice(&partition);
    identity.extend_from_slice(&distinct_text(&variables));
    let variables = Arc::new(variables);
    let root = prepared.plan.shape.objects.get(prepared.plan.shape.root.0 as usize);
    let root = root.and_then(|it| it.variants.first()?.fields.first());
    let root_type = &generation.graph.ty(generation.graph.query).name;
    let field =
        root.map_or_else(|| root_type.to_string(), |it| format!("{root_type}.{}", it.field_name));
    let group = GroupKey {
        operation_id: prepared.operation_id,
        variables: Arc::clone(&variables),
        partition: partition.into(),
    };
    let request = OperationRequest {
        query: prepared.query.clone(),
        document_id: None,
        operation_name: prepared.name.clone(),
        variables: variables_text,
        extensions: Bytes::new(),
    };
    let number = generation.number;
    let execution = Arc::new(LiveExecution {
        identity: identity.into(),
        field: field.as_str().into(),
        prepared,
        variables,
        generation,
        headers,
        header_rules,
        caching,
        timeout,
        throttle,
        wants_patches,
        cause: ready.cause.as_ref().map(StreamCause::link),
    });
    let source = Arc::new(LiveSource { queries: Arc::clone(queries), execution });
    Ok(LiveOperation {
        generation: number,
        source: Source::of_states(Arc::clone(&source) as Arc<dyn StateSource>),
        field: field.into(),
        bound_to: Box::default(),
        filter: None,
        group,
        resolve: Arc::new(LiveResolver { source, decided, request, held: None }),
    })
}

/// Writes the values of variables so that different ones are different texts.
fn distinct_text(variables: &Variables) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for value in &variables.values {
        match value {
            None => out.push(0),
            Some(text) => {
                out.push(1);
                out.extend_from_slice(&(text.len() as u64).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    out
}

/// Checks that there is room for another live query. Always so for other operations.
///
/// # Errors
/// `OVERLOADED`
pub fn check_room(operation: &LiveOperation) -> Result<(), GraphqlError> {
    live_resolver_of(operation).map_or(Ok(()), |it| it.source.check_room())
}

/// True if the operation is a live query with results that are patches of those before.
pub fn sends_patches(operation: &LiveOperation) -> bool {
    live_resolver_of(operation).is_some_and(|it| it.source.execution.wants_patches)
}

fn first_error(error: &PrepareError) -> GraphqlError {
    let first = error_mapping::errors(error).into_iter().next();
    first.unwrap_or_else(|| GraphqlError::new(ErrorCode::BadUserInput, error.to_string()))
}

/// Creates the resolver of a prepared subscription. `extensions` are those that are sent to a subgraph.
fn resolver(
    ready: PreparedRequest,
    variables: Arc<Variables>,
    claims: ClaimValues,
    timeout: Duration,
    extensions: Bytes,
) -> EventResolver {
    let PreparedRequest { loaded, prepared, variables_text, headers, decided, cause, .. } = ready;
    let cause = cause.filter(|_| prepared.state.is_some());
    EventResolver {
        executable: Arc::clone(&prepared.executable),
        state: prepared.state.clone(),
        variables,
        generation: Arc::clone(&loaded.generation),
        headers,
        has_mixed_headers: false,
        claims,
        decided,
        payload: None,
        timeout,
        request: OperationRequest {
            query: prepared.query.clone(),
            document_id: None,
            operation_name: prepared.name.clone(),
            variables: variables_text,
            extensions,
        },
        cause: cause.map(|it| Arc::new(it.decided_link())),
        held: None,
    }
}

/// Prepares the same operation on the graph of `loaded`.
///
/// # Errors
/// `GRAPH_RELOADED`, with the reason, if the operation is not valid there; `FORBIDDEN`, if its subscribers are not
/// authorized there.
pub async fn renew(
    loaded: &Arc<ServingGraph>,
    operation: &LiveOperation,
) -> Result<LiveOperation, GraphqlError> {
    let Some(kept) = KeptRequest::of(operation) else {
        return Err(invalid("it cannot be prepared again"));
    };
    let KeptRequest { request, headers, has_mixed_headers, claims, decided, .. } = kept;
    let KeptRequest { timeout, held, caching, .. } = kept;
    let unmet = unmet_on(loaded, request, decided).await?;
    let prepared = loop {
        match loaded.preparer.prepare_without(request, &unmet).await {
            Ok(prepared) => break prepared,
            Err(PrepareError::Overloaded) => tokio::time::sleep(BUSY_PAUSE).await,
            Err(error @ PrepareError::Denied(_)) => {
                return Err(not_authorized(error_mapping::errors(&error).into_iter().next()));
            }
            Err(error) => return Err(refused(&error)),
        }
    };
    let variables = prepared.coerce(&request.variables).map_err(|error| refused(&error))?;
    let ready = PreparedRequest {
        headers: loaded.forwarding.renumbered(headers),
        loaded: Arc::clone(loaded),
        prepared,
        variables,
        variables_text: request.variables.clone(),
        extensions: request.extensions.clone(),
        identity: Identity::ANONYMOUS,
        decided: decided.clone(),
        resume: None,
        // The operation was checked when it started.
        cost: None,
        shows_cost: false,
        allows_trace: false,
        uploads: None,
        caching,
        client_deadline: None,
        ticket: None,
        memory: None,
        figures: None,
        spans: None,
        // The trace has ended. What the new graph begins again belongs to none.
        cause: None,
        logged: None,
    };
    if let Some(access) = &loaded.access {
        let checked = access.check_prepared(&ready.prepared, &ready.variables);
        checked.map_err(|errors| not_authorized(errors.into_iter().next()))?;
    }
    // All members are equal in these claims; their other claims are unknown here.
    if !claims_of(&ready).paths().all(|path| claims.knows(path)) {
        return Err(invalid("it depends on other claims of the token; subscribe again"));
    }
    let renewed = live_operation(ready, claims.into_owned(), timeout);
    if let Ok(renewed) = &renewed
        && has_mixed_headers
        && !resolver_of(renewed).is_some_and(|it| it.has_mixed_headers)
    {
        return Err(invalid("it depends on other headers of the request; subscribe again"));
    }
    if let (Ok(renewed), Some(present)) = (&renewed, live_resolver_of(operation))
        && let Some(next) = live_resolver_of(renewed)
    {
        let known = &present.source.execution.header_rules;
        if !next.source.execution.header_rules.iter().all(|rule| known.contains(rule)) {
            return Err(invalid("it depends on other headers of the request; subscribe again"));
        }
    }
    let renewed = renewed.map(|renewed| holding(renewed, held.clone()));
    renewed.map_err(|error| match error.code {
        ErrorCode::Forbidden | ErrorCode::UnauthorizedFieldOrType => error,
        _ => invalid(&error.message),
    })
}

/// Returns the requirements of an operation on the graph of `loaded` that its subscribers do not meet.
///
/// # Errors
/// `GRAPH_RELOADED`: a requirement was not decided on the former graph, and the tokens of the subscribers are not known
/// here.
async fn unmet_on(
    loaded: &ServingGraph,
    request: &OperationRequest,
    decided: &DecidedRequirements,
) -> Result<RequirementSet, GraphqlError> {
    let Some(access) = &loaded.access else { return Ok(RequirementSet::default()) };
    let facts = loop {
        let deadline = Instant::now() + WAITING_TIME_MAX;
        let client = || ClientKey::UNKNOWN;
        match loaded.preparer.access_facts(request, client, deadline).await {
            Ok(facts) => break facts,
            Err(PrepareError::Overloaded) => tokio::time::sleep(BUSY_PAUSE).await,
            Err(error) => return Err(refused(&error)),
        }
    };
    // A text that is not valid is refused when it is prepared.
    let Some(facts) = facts else { return Ok(RequirementSet::default()) };
    let unmet = access.decide_again(&facts.requirements, decided);
    unmet.ok_or_else(|| invalid("its fields have other requirements now; subscribe again"))
}

/// Returns the error of a subscription with fields that are protected on the next graph.
fn not_authorized(reason: Option<GraphqlError>) -> GraphqlError {
    let message = "the graph was replaced, and this subscription may not continue on the new one";
    let error = GraphqlError::new(ErrorCode::UnauthorizedFieldOrType, message);
    error.at(reason.map(|it| it.path).unwrap_or_default())
}

/// Returns the request of a live operation, with the texts that it keeps; `None` for an operation that was not made
/// here.
pub fn request_of(operation: &LiveOperation) -> Option<&OperationRequest> {
    KeptRequest::of(operation).map(|kept| kept.request)
}

/// Returns the same operation with an object that is dropped together with its group.
pub fn holding(
    mut operation: LiveOperation,
    held: Option<Arc<dyn Any + Send + Sync>>,
) -> LiveOperation {
    if let Some(resolver) = resolver_of(&operation) {
        operation.resolve = Arc::new(EventResolver { held, ..resolver.clone() });
    } else if let Some(resolver) = live_resolver_of(&operation) {
        operation.resolve = Arc::new(LiveResolver { held, ..resolver.clone() });
    }
    operation
}

/// The parts of a live operation with which it is prepared again for another graph.
struct KeptRequest<'a> {
    request: &'a OperationRequest,
    headers: &'a Arc<ForwardedHeaders>,
    has_mixed_headers: bool,
    claims: Cow<'a, ClaimValues>,
    decided: &'a DecidedRequirements,
    timeout: Duration,
    held: &'a Option<Arc<dyn Any + Send + Sync>>,
    caching: Option<RequestCaching>,
}

impl<'a> KeptRequest<'a> {
    fn of(operation: &'a LiveOperation) -> Option<Self> {
        if let Some(resolver) = live_resolver_of(operation) {
            let LiveResolver { source, decided, request, held } = resolver;
            let execution = &source.execution;
            return Some(Self {
                request,
                headers: &execution.headers,
                has_mixed_headers: false,
                claims: Cow::Owned(ClaimValues::default()),
                decided,
                timeout: execution.timeout,
                held,
                caching: Some(execution.caching),
            });
        }
        let resolver = resolver_of(operation)?;
        let EventResolver { request, headers, has_mixed_headers, claims, decided, .. } = resolver;
        Some(Self {
            request,
            headers,
            has_mixed_headers: *has_mixed_headers,
            claims: Cow::Borrowed(claims),
            decided,
            timeout: resolver.timeout,
            held: &resolver.held,
            caching: None,
        })
    }
}

fn resolver_of(operation: &LiveOperation) -> Option<&EventResolver> {
    (&*operation.resolve as &dyn Any).downcast_ref()
}

fn live_resolver_of(operation: &LiveOperation) -> Option<&LiveResolver> {
    (&*operation.resolve as &dyn Any).downcast_ref()
}

fn refused(error: &PrepareError) -> GraphqlError {
    let errors = error_mapping::errors(error);
    invalid(errors.first().map_or("it is not valid", |first| &*first.message))
}

fn invalid(reason: &str) -> GraphqlError {
    let message = format!(
        "the graph was replaced, and this subscription cannot continue on the new one: {reason}"
    );
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}
