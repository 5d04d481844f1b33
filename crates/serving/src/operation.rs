//! The execution of one operation from any transport: prepare, coerce variables, execute. The way in which bytes reach
//! the client is up to the transport.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clients::authentication::Identity;
use clients::error_mapping;
use clients::offload::INLINE_BYTES_MAX;
use clients::request_extensions::{NotAString, string_member};
use clients::request_source::RequestSource;
use execute::{ClientKey, ErrorCode, GraphqlError, Payload, RequestContext, Seed};
use plan::{OperationKind, Variables};
use prepare::{OperationRequest, PrepareError, PrepareSteps, Prepared};
use single_flight::WorkFailed;

use crate::admission::AdmissionRequest;
use crate::caching::{CachedQuery, ResponseLookup, ResponseRefresh, ResponseSlot};
use crate::cost_control;
use crate::field_access::{AccessDecision, AccessRequest};
use crate::forwarding::{ClientHeaders, ForwardingFacts};
use crate::known_operations;
use crate::operation_spans::OperationSpans;
use crate::overload::ArrivingRequest;
use crate::overload::work_ticket::{WorkResult, WorkTicket};
use crate::prepared_request::PreparedRequest;
use crate::request_facts::KnownOperation;
use crate::serving::Serving;
use crate::sharing::OperationKey;
use crate::trace::{RequestTrace, ResponseSource};

/// Admits the operation of `request` ([`admit`]), and prepares it as [`prepare_admitted`] does.
///
/// # Errors
/// Request errors: the operation does not run and the response has no `data`.
pub async fn prepare_for(
    serving: &Serving,
    request: &OperationRequest,
    client_headers: ClientHeaders<'_>,
    identity: Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let operations = std::slice::from_ref(request);
    let admitted = admit(serving, operations, client_headers.map(), &identity, address, source);
    let ticket = admitted.await?;
    let prepare = prepare_admitted(serving, request, client_headers, identity, address, source);
    let Some(ticket) = ticket else { return prepare.await };
    let mut ready = ticket.measure(prepare).await?;
    ready.ticket = Some(Arc::new(ticket));
    Ok(ready)
}

/// Admits the operations of one request before anything is done for them, if there is overload protection. While the
/// limit is reached, it waits. The work on them has ended when the ticket is dropped.
///
/// # Errors
/// `OVERLOADED`: none of the operations runs.
pub async fn admit(
    serving: &Serving,
    operations: &[OperationRequest],
    headers: &http::HeaderMap,
    identity: &Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<Option<WorkTicket>, Vec<GraphqlError>> {
    let Some(overload) = &serving.overload else { return Ok(None) };
    let request = ArrivingRequest { identity, headers, address, source };
    let deadline = Instant::now() + serving.time_max;
    match overload.admit(operations, request, deadline).await {
        Ok(ticket) => Ok(Some(ticket)),
        Err(error) => {
            serving.metrics.count_refusal(error.code);
            Err(vec![error])
        }
    }
}

/// Looks up the operation of `request` if it has an id or a hash, checks that unknown operations may run, and prepares
/// it for the current graph. The work waits in the queue of its client: of `identity`, or of `address` if the client is
/// anonymous.
///
/// # Errors
/// Request errors: the operation does not run and the response has no `data`.
pub async fn prepare_admitted(
    serving: &Serving,
    request: &OperationRequest,
    client_headers: ClientHeaders<'_>,
    identity: Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    // Steps that most requests do not take are boxed, here and below: the state of all steps is moved several times for
    // each request.
    let resolved = if serving.known_operations.is_concerned(request) {
        let headers = client_headers.map();
        let resolve =
            known_operations::resolve(serving, request, headers, &identity, address, source);
        Box::pin(resolve).await?
    } else {
        None
    };
    let request = resolved.as_ref().map_or(request, |it| &it.request);
    let ready = prepare_text(serving, request, client_headers, identity, address, source).await?;
    if let Some(resolved) = &resolved {
        resolved.store(&serving.known_operations);
    }
    Ok(ready)
}

/// Prepares the text of `request` as [`prepare_admitted`] does, without looking it up: a client that was allowed to
/// subscribe keeps its subscription.
///
/// # Errors
/// The same as for [`prepare_admitted`].
pub async fn prepare_text(
    serving: &Serving,
    request: &OperationRequest,
    client_headers: ClientHeaders<'_>,
    identity: Identity,
    address: ClientKey,
    source: RequestSource<'_>,
) -> Result<PreparedRequest, Vec<GraphqlError>> {
    let loaded = serving.current();
    if identity.claims().is_some_and(|it| !it.has_kept(&loaded.read_claims)) {
        let message = "the graph was replaced and reads other claims of tokens: connect again";
        serving.metrics.count_refusal(ErrorCode::GraphReloaded);
        return Err(vec![GraphqlError::new(ErrorCode::GraphReloaded, message)]);
    }
    let deadline = Instant::now() + serving.time_max;
    let client = || identity.client_key().unwrap_or(address);
    let refused = |error: &PrepareError| {
        let errors = error_mapping::errors(error);
        if let Some(first) = errors.first() {
            serving.metrics.count_refusal(first.code);
        }
        errors
    };
    let mut decision = AccessDecision::default();
    if let Some(access) = &loaded.access {
        let facts = Box::pin(loaded.preparer.access_facts(request, client, deadline)).await;
        if let Some(facts) = facts.map_err(|error| refused(&error))? {
            let (identity, headers) = (&identity, client_headers.map());
            let request = AccessRequest { operation: &facts, identity, headers, source };
            decision = Box::pin(access.decide(request, &serving.metrics)).await;
        }
    }
    let AccessDecision { unmet, decided } = decision;
    let mut steps = source.steps.map(|_| PrepareSteps::default());
    let preparing =
        loaded.preparer.prepare_recorded(request, &unmet, client, deadline, steps.as_mut());
    let prepared = preparing.await;
    if let Some((recorder, steps)) = source.steps.zip(steps) {
        recorder.set(steps);
    }
    let prepared = prepared.map_err(|error| refused(&error))?;
    let not_admitted = |error: GraphqlError| {
        serving.metrics.count_refusal(error.code);
        vec![error]
    };
    let mut admitted = AdmissionRequest {
        operation: KnownOperation { prepared: &prepared, cost: None },
        source,
        headers: client_headers.map(),
        claims: identity.claims(),
    };
    if let Some(admission) = &loaded.admission {
        let pending = admission.check(admitted, &loaded.expressions).map_err(not_admitted)?;
        if let Some(pending) = pending {
            Box::pin(pending.decide()).await.map_err(not_admitted)?;
        }
    }
    let values = UnparsedValues::of(prepared.kind, request, client_headers.map());
    let read = if values.bytes() <= INLINE_BYTES_MAX {
        values.read(&prepared)
    } else {
        let (prepared, size) = (Arc::clone(&prepared), values.bytes());
        let read = move || values.read(&prepared);
        let read = Box::pin(serving.limits.offload.run(client(), size, deadline, read)).await;
        read.map_err(|not_done| {
            let error = not_done.error();
            serving.metrics.count_refusal(error.code);
            vec![error]
        })?
    };
    let ParsedValues { variables, variables_text, resume } =
        read.map_err(|error| refused(&error))?;
    if let Some(access) = &loaded.access
        && let Err(errors) = access.check_prepared(&prepared, &variables)
    {
        serving.metrics.count_refusal(ErrorCode::UnauthorizedFieldOrType);
        return Err(errors);
    }
    let (cost, shows_cost) = match (&loaded.cost, &prepared.cost) {
        (Some(control), Some(cost)) => {
            let checked = control.check(cost, &variables, &loaded.generation.graph);
            let estimated = checked.map_err(not_admitted)?;
            (Some(estimated), control.is_requested(client_headers.map()))
        }
        _ => (None, false),
    };
    admitted.operation.cost = cost;
    if let Some(admission) = &loaded.admission {
        let pending = admission.check_cost(admitted, &loaded.expressions).map_err(not_admitted)?;
        if let Some(pending) = pending {
            Box::pin(pending.decide()).await.map_err(not_admitted)?;
        }
    }
    let facts =
        ForwardingFacts { claims: identity.claims(), source, operation: Some(admitted.operation) };
    let headers = loaded.forwarding.apply(client_headers, facts, &loaded.expressions);
    let resume = resume.map_err(|NotAString| {
        let message = "`extensions.cursor` must be a text from `extensions.cursor` of a payload";
        vec![GraphqlError::new(ErrorCode::CursorInvalid, message)]
    })?;
    // A mutation stores what it returns at most, and an event is newer than what is stored.
    let stores = prepared.kind != OperationKind::Subscription;
    let caching = loaded.caching.as_ref().filter(|_| stores);
    let caching = caching.map(|it| {
        it.request_caching(identity.claims(), client_headers.map(), prepared.live.is_some())
    });
    let extensions = match prepared.kind {
        OperationKind::Subscription => request.extensions.clone(),
        OperationKind::Query | OperationKind::Mutation => Bytes::new(),
    };
    Ok(PreparedRequest {
        loaded,
        prepared,
        variables,
        variables_text,
        extensions,
        headers,
        identity,
        decided,
        resume,
        cost,
        shows_cost,
        uploads: None,
        caching,
        ticket: None,
        spans: None,
    })
}

/// The texts of a request that are parsed once its operation is known.
struct UnparsedValues {
    variables: Bytes,
    /// The extensions of a subscription, if they may contain the cursor; otherwise empty.
    extensions: Bytes,
    /// The cursor of a subscription, from a header.
    cursor: Option<Box<str>>,
}

/// The values that were parsed from [`UnparsedValues`].
struct ParsedValues {
    variables: Variables,
    /// The text of the declared variables, of subscriptions and live queries only.
    variables_text: Bytes,
    resume: Result<Option<Box<str>>, NotAString>,
}

/// The header in which browsers send the id of the last event of an interrupted stream.
const LAST_EVENT_ID: &str = "last-event-id";

impl UnparsedValues {
    /// Takes the texts of a request. Prefers the cursor in the header: a browser that reconnects repeats the extensions
    /// of its first request, and sends the last cursor that it received in the header.
    fn of(kind: OperationKind, request: &OperationRequest, headers: &http::HeaderMap) -> Self {
        let variables = request.variables.clone();
        let mut values = Self { variables, extensions: Bytes::new(), cursor: None };
        if kind == OperationKind::Subscription {
            let id = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
            values.cursor = id.map(|id| String::from_utf8_lossy(id.as_bytes()).into());
            if values.cursor.is_none() {
                values.extensions = request.extensions.clone();
            }
        }
        values
    }

    /// The number of bytes to parse.
    fn bytes(&self) -> usize {
        self.variables.len() + self.extensions.len()
    }

    /// Parses the values of the variables, the declared variables of a subscription as text, and the cursor.
    fn read(self, prepared: &Prepared) -> Result<ParsedValues, PrepareError> {
        let variables = prepared.coerce(&self.variables)?;
        let variables_text = match prepared.has_stream() {
            true => prepared.declared_variables(&self.variables),
            false => Bytes::new(),
        };
        let resume = match self.cursor {
            Some(cursor) => Ok(Some(cursor)),
            None => string_member(&self.extensions, "cursor").map(|it| it.map(Into::into)),
        };
        Ok(ParsedValues { variables, variables_text, resume })
    }
}

/// Returns the error for a client that requests a subscription or a live query over a transport without a stream.
pub fn needs_a_stream(prepared: &Prepared) -> GraphqlError {
    let (what, first) = match prepared.live {
        Some(_) => ("live query", "result"),
        None => ("subscription", "event"),
    };
    let message = format!(
        "a {what} needs a stream: send it with `Accept: text/event-stream` or `multipart/mixed`, over a WebSocket with \
         the subprotocol graphql-transport-ws, or with the URL parameter `once` for the first {first} only"
    );
    GraphqlError::new(ErrorCode::BadRequest, message)
}

/// Runs a query or mutation to its end, or joins an equal query that is in flight. The payload of a traced operation
/// contains its cost.
///
/// # Errors
/// The operation is a subscription or a live query: its response is a stream, which `hub` creates.
pub async fn run(
    serving: &Serving,
    mut ready: PreparedRequest,
    trace: Option<RequestTrace>,
) -> Result<Payload, Vec<GraphqlError>> {
    // Taken out of the request, which may be kept as the key of shared work. An operation with files proceeds as fast
    // as its client sends them, and holds no work of others meanwhile.
    let ticket = ready.ticket.take().filter(|_| ready.uploads.is_none());
    // The record ends with the operation of this client, and not with the work that it shares with others.
    let spans = ready.spans.take();
    let Some(ticket) = ticket else {
        let result = run_admitted(serving, ready, (trace, spans.as_deref()), None).await;
        return note_result(spans.as_deref(), result);
    };
    let running = run_admitted(serving, ready, (trace, spans.as_deref()), Some(&*ticket));
    let result = note_result(spans.as_deref(), ticket.measure(running).await);
    if result.as_ref().is_ok_and(|payload| payload.errors > 0) {
        ticket.set_result(WorkResult::Unmeasured);
    }
    result
}

/// Notes the result of an operation in its record.
fn note_result(
    spans: Option<&OperationSpans>,
    result: Result<Payload, Vec<GraphqlError>>,
) -> Result<Payload, Vec<GraphqlError>> {
    if let Some(spans) = spans {
        match &result {
            Ok(payload) => spans.note_payload(payload),
            Err(errors) => spans.note_refusal(errors),
        }
    }
    result
}

/// Runs a query or mutation with the right to work on it.
async fn run_admitted(
    serving: &Serving,
    ready: PreparedRequest,
    (mut trace, spans): (Option<RequestTrace>, Option<&OperationSpans>),
    ticket: Option<&WorkTicket>,
) -> Result<Payload, Vec<GraphqlError>> {
    let set_result = |result| {
        if let Some(ticket) = ticket {
            ticket.set_result(result);
        }
    };
    let kind = ready.prepared.kind;
    if ready.prepared.has_stream() {
        return Err(vec![needs_a_stream(&ready.prepared)]);
    }
    let bindings = &ready.loaded.bindings;
    let claims = ready.identity.claims();
    // If the only root field is forbidden, fails the whole request so that HTTP can respond with 403.
    if let Err(error) =
        bindings.authorize_single_root(&ready.prepared.plan, &ready.variables, claims)
    {
        serving.metrics.count_refusal(error.code);
        return Err(vec![error]);
    }
    if let Some(uploads) = &ready.uploads {
        let checked = uploads.check_plan(&ready.prepared.plan, &ready.variables);
        checked.map_err(|error| vec![error])?;
    }
    let started = Instant::now();
    // Files take the time of the client's network, which is not that of the operation.
    let upload_time = ready.uploads.as_ref().map_or(Duration::ZERO, |it| it.time_max());
    let deadline = started + serving.time_max + upload_time;
    let subgraphs = Arc::clone(&serving.sharing.subgraphs);
    let generation = Arc::clone(&ready.loaded.generation);
    let fetches = match (&mut trace, spans) {
        (trace, Some(spans)) => {
            let fetches = spans.begin_execution();
            if let Some(trace) = trace {
                trace.fetches = Arc::clone(&fetches);
            }
            Some(fetches)
        }
        (Some(trace), None) => Some(Arc::clone(&trace.fetches)),
        (None, None) => None,
    };
    let shown_cost = ready.cost.filter(|_| ready.shows_cost);
    let plan = trace.as_ref().map(|_| Arc::clone(&ready.prepared.plan));
    let with_trace = |payload: Payload, role, source| {
        if let Some(spans) = spans {
            spans.note_sharing(role, source);
        }
        match (&trace, &plan) {
            (Some(trace), Some(plan)) => trace.put(&payload, role, source, plan, &generation.graph),
            _ => payload,
        }
    };
    let is_query = kind == OperationKind::Query;
    let mut source = ready.caching.filter(|_| is_query).map(|_| ResponseSource::NotLookedUp);
    let must_execute = trace.as_ref().is_some_and(|it| it.must_execute);
    let slot = match stored_response(&ready, must_execute) {
        Some(ResponseLookup::Hit(stored)) => {
            set_result(WorkResult::Unmeasured);
            serving.metrics.count(kind, false, started.elapsed());
            let source = Some(stored.source());
            return Ok(with_trace(with_cost(stored.payload, shown_cost), None, source));
        }
        Some(ResponseLookup::Refresh(stored, slot, rights)) => {
            set_result(WorkResult::Unmeasured);
            refresh(ready, slot, rights, subgraphs, deadline);
            serving.metrics.count(kind, false, started.elapsed());
            let source = Some(stored.source());
            return Ok(with_trace(with_cost(stored.payload, shown_cost), None, source));
        }
        Some(ResponseLookup::Miss(slot)) => {
            source = Some(ResponseSource::Executed);
            Some(slot)
        }
        None => None,
    };
    let (payload, role) = match &serving.sharing.operations {
        // An operation without fetches ends before another one could join it.
        Some(flights)
            if kind == OperationKind::Query
                && !ready.prepared.plan.fetches.is_empty()
                && may_share(&ready) =>
        {
            let ready = Arc::new(ready);
            // Both numbers only grow, so their sum is the same only if both are.
            let epoch = subgraphs.epoch.now() + generation.invalidations();
            let key = OperationKey { epoch, ready: Arc::clone(&ready) };
            let start = || async move {
                execute_and_store(&ready, slot, subgraphs, fetches, deadline).await
            };
            match Box::pin(flights.join(key, deadline, start)).await {
                Ok((payload, role)) => (payload?, Some(role)),
                Err(WorkFailed) => return Err(vec![broken()]),
            }
        }
        _ => {
            let work = execute_and_store(&ready, slot, subgraphs, fetches, deadline);
            (Box::pin(work).await?, None)
        }
    };
    serving.metrics.count(kind, payload.errors > 0, started.elapsed());
    set_result(WorkResult::Executed);
    Ok(with_trace(with_cost(payload, shown_cost), role, source))
}

/// Adds the cost of a response, if the client sees it.
fn with_cost(payload: Payload, shown_cost: Option<u64>) -> Payload {
    match shown_cost {
        None => payload,
        Some(estimated) => cost_control::show(&payload, estimated),
    }
}

/// Looks up the whole response to a query. `None` if its response is not stored, or if it must be executed.
fn stored_response(ready: &PreparedRequest, must_execute: bool) -> Option<ResponseLookup> {
    let caches = ready.loaded.caching.as_ref()?;
    let query = cached_query(ready)?;
    let is_query = ready.prepared.kind == OperationKind::Query;
    if !is_query || must_execute || ready.prepared.plan.fetches.is_empty() || !may_share(ready) {
        return None;
    }
    Some(caches.look_up(&query))
}

/// The query as the store of whole responses knows it. `None` if nothing is stored for the operation.
fn cached_query(ready: &PreparedRequest) -> Option<CachedQuery<'_>> {
    Some(CachedQuery {
        name: ready.prepared.name.as_deref(),
        operation_id: ready.prepared.operation_id,
        variables: &ready.variables,
        headers: &ready.headers,
        caching: ready.caching?,
    })
}

/// Executes an operation in the background after its stored response was served, and stores the new one. Parts of it
/// that end with the old response are fetched, also if they may still be used.
fn refresh(
    mut ready: PreparedRequest,
    slot: ResponseSlot,
    ResponseRefresh { fresh_for, claim }: ResponseRefresh,
    subgraphs: Arc<execute::Sharing>,
    deadline: Instant,
) {
    if let Some(caching) = &mut ready.caching {
        caching.renew_within = Some(fresh_for);
    }
    tokio::task::spawn_local(async move {
        // A failure leaves the old response for as long as it may be served.
        let _ = execute_and_store(&ready, Some(slot), subgraphs, None, deadline).await;
        drop(claim);
    });
}

/// True if several clients may get one response. False if the response could contain a cookie, or depends on claims
/// other than through forwarded headers. Files are sent once.
fn may_share(ready: &PreparedRequest) -> bool {
    let disclosure = &ready.loaded.generation.disclosure;
    let fetches = &ready.prepared.plan.fetches;
    if ready.uploads.is_some() || ready.loaded.bindings.depends_on_claims(&ready.prepared.plan) {
        return false;
    }
    disclosure.personal.is_empty() || fetches.iter().all(|it| disclosure.may_share(it.subgraph))
}

/// Executes an operation, and stores its whole response in `slot`.
async fn execute_and_store(
    ready: &PreparedRequest,
    slot: Option<ResponseSlot>,
    sharing: Arc<execute::Sharing>,
    trace: Option<Arc<execute::Trace>>,
    deadline: Instant,
) -> Result<Payload, Vec<GraphqlError>> {
    let payload = execute_now(ready, sharing, trace, deadline).await?;
    if let (Some(slot), Some(caches), Some(query)) =
        (slot, &ready.loaded.caching, cached_query(ready))
    {
        caches.store(&slot, &query, &payload);
    }
    Ok(payload)
}

async fn execute_now(
    ready: &PreparedRequest,
    sharing: Arc<execute::Sharing>,
    trace: Option<Arc<execute::Trace>>,
    deadline: Instant,
) -> Result<Payload, Vec<GraphqlError>> {
    let introspection = ready.prepared.introspect(&ready.variables);
    let introspection = introspection.map_err(|error| error_mapping::errors(&error))?;
    let context = RequestContext {
        generation: Arc::clone(&ready.loaded.generation),
        headers: Arc::clone(&ready.headers),
        deadline,
        sharing: Some(sharing),
        trace,
        claims: ready.identity.claims().cloned(),
        uploads: ready.uploads.clone(),
        // The text of a request does not tell apart the files that it names.
        caching: ready.caching.filter(|_| ready.uploads.is_none()),
    };
    let executable = &ready.prepared.executable;
    let seed = Seed::Nothing;
    Ok(execute::execute(executable, &ready.variables, introspection, seed, &context).await)
}

fn broken() -> GraphqlError {
    let message = "the operation failed because of a defect of the router";
    GraphqlError::new(ErrorCode::InternalServerError, message)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn request(extensions: String) -> OperationRequest {
        OperationRequest { extensions: extensions.into(), ..OperationRequest::default() }
    }

    #[test]
    fn extensions_of_subscriptions_are_parsed_and_those_of_queries_are_not() {
        let large = request(format!(r#"{{"x":[{}0]}}"#, "1,".repeat(INLINE_BYTES_MAX)));
        let bytes = |kind, headers: &HeaderMap| UnparsedValues::of(kind, &large, headers).bytes();
        assert!(bytes(OperationKind::Subscription, &HeaderMap::new()) > INLINE_BYTES_MAX);
        assert_eq!(bytes(OperationKind::Query, &HeaderMap::new()), 0);
        let value = http::HeaderValue::from_static("cursor");
        let with_header = HeaderMap::from_iter([(LAST_EVENT_ID.parse().expect("a name"), value)]);
        assert_eq!(bytes(OperationKind::Subscription, &with_header), 0);
    }
}
