//! One operation from any transport: prepared, coerced, executed. What transports share lives here;
//! how bytes reach the client does not.

use std::sync::Arc;
use std::time::Instant;

use astjson::{Document, Kind};
use bytes::Bytes;
use execute::{
    ClientKey, ErrorCode, ForwardedHeaders, GraphqlError, Payload, RequestContext, Seed,
};
use flights::Broken;
use plan::{OperationKind, Variables};
use prepare::{OperationRequest, PrepareError, Prepared};

use crate::authentication::Identity;
use crate::forwarding::ClientHeaders;
use crate::loaded::Loaded;
use crate::offload::INLINE_BYTES_MAX;
use crate::refusal;
use crate::router::Router;
use crate::sharing::OperationKey;
use crate::trace::RequestTrace;

/// An operation with everything it takes to run it.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The graph that it was prepared for, and that answers it.
    pub(crate) loaded: Arc<Loaded>,
    /// The operation.
    pub(crate) prepared: Arc<Prepared>,
    /// Its values.
    pub(crate) variables: Variables,
    /// As the client wrote those that are declared, in memory of their own; empty but for subscriptions, which outlive their
    /// graph.
    pub(crate) variables_text: Bytes,
    /// What goes along to subgraphs.
    pub(crate) headers: Arc<ForwardedHeaders>,
    /// Who asks.
    pub(crate) identity: Identity,
    /// The cursor that a subscription is to go on after.
    pub(crate) resume: Option<Box<str>>,
}

/// Prepares `request` for the graph that is current now. It comes from the client with this address: work on what it sends
/// waits in its own queue, unless it has an identity.
///
/// # Errors
/// Request errors: the operation does not run and the answer has no `data`.
pub(crate) async fn prepare_for(
    router: &Router,
    request: &OperationRequest,
    client_headers: ClientHeaders<'_>,
    identity: Identity,
    address: ClientKey,
) -> Result<Ready, Vec<GraphqlError>> {
    let loaded = router.current();
    let deadline = Instant::now() + router.config.limits.time;
    let client = || identity.client_key().unwrap_or(address);
    let refused = |error: &PrepareError| {
        let errors = refusal::errors(error);
        if let Some(first) = errors.first() {
            router.metrics.refused(first.code);
        }
        errors
    };
    let prepared = loaded.preparer.prepare_for(request, client, deadline).await;
    let prepared = prepared.map_err(|error| refused(&error))?;
    let variables = if request.variables.len() <= INLINE_BYTES_MAX {
        read_variables(&prepared, &request.variables)
    } else {
        let (prepared, text) = (Arc::clone(&prepared), request.variables.clone());
        let coerced =
            router.offload.run(client(), deadline, move || read_variables(&prepared, &text)).await;
        coerced.map_err(|not_done| {
            let error = not_done.error();
            router.metrics.refused(error.code);
            vec![error]
        })?
    };
    let (variables, variables_text) = variables.map_err(|error| refused(&error))?;
    let headers = loaded.forwarding.apply(client_headers, identity.claims());
    let resume = match prepared.kind {
        OperationKind::Subscription => cursor(request, client_headers.map()).map_err(|()| {
            let message = "`extensions.cursor` must be the text that a payload had there";
            vec![GraphqlError::new(ErrorCode::CursorInvalid, message)]
        })?,
        OperationKind::Query | OperationKind::Mutation => None,
    };
    Ok(Ready { loaded, prepared, variables, variables_text, headers, identity, resume })
}

/// The values of an operation's variables, and of subscriptions their text, as far as they are declared.
fn read_variables(prepared: &Prepared, text: &Bytes) -> Result<(Variables, Bytes), PrepareError> {
    let variables = prepared.coerce(text)?;
    let text = match prepared.kind {
        OperationKind::Subscription => prepared.declared_variables(text),
        OperationKind::Query | OperationKind::Mutation => Bytes::new(),
    };
    Ok((variables, text))
}

/// The header by which browsers say where an event stream broke off.
const LAST_EVENT_ID: &str = "last-event-id";

/// The cursor that a request carries. The header comes first: a browser that connects again repeats the extensions of
/// its first request, and sends in the header what it got last.
fn cursor(request: &OperationRequest, headers: &http::HeaderMap) -> Result<Option<Box<str>>, ()> {
    if let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        return Ok(Some(String::from_utf8_lossy(id.as_bytes()).into()));
    }
    if request.extensions.is_empty() {
        return Ok(None);
    }
    let mut document = Document::new();
    let root = document.parse(request.extensions.clone()).map_err(drop)?;
    match document.get(root, "cursor").map(|id| (id, document.kind(id))) {
        None | Some((_, Kind::Null)) => Ok(None),
        Some((id, Kind::String)) => document.as_str(id).map(|it| Some(it.into())).ok_or(()),
        Some(_) => Err(()),
    }
}

/// What a client is told whose subscription cannot be answered in the way it asked.
pub(crate) const NEEDS_A_STREAM: &str = "a subscription is answered by a stream: ask with `Accept: text/event-stream` or `multipart/mixed`, over a \
     WebSocket with the subprotocol graphql-transport-ws, or for the first event alone by the URL parameter `once`";

/// Runs a query or mutation to its end, or joins an equal query that is in flight. A traced one is told what it
/// cost.
///
/// # Errors
/// A subscription: its answer is a stream, which `hub` makes.
pub(crate) async fn run(
    router: &Router,
    ready: Ready,
    trace: Option<RequestTrace>,
) -> Result<Payload, Vec<GraphqlError>> {
    let kind = ready.prepared.kind;
    if kind == OperationKind::Subscription {
        return Err(vec![GraphqlError::new(ErrorCode::BadRequest, NEEDS_A_STREAM)]);
    }
    let bindings = &ready.loaded.bindings;
    let claims = ready.identity.claims();
    // What is all that is asked for is told as what it is: by HTTP with a status of its own.
    if let Err(error) = bindings.authorize_alone(&ready.prepared.plan, &ready.variables, claims) {
        router.metrics.refused(error.code);
        return Err(vec![error]);
    }
    let started = Instant::now();
    let deadline = started + router.config.limits.time;
    let subgraphs = Arc::clone(&router.sharing.subgraphs);
    let generation = Arc::clone(&ready.loaded.generation);
    let fetches = trace.as_ref().map(|trace| Arc::clone(&trace.fetches));
    let (payload, role) = match &router.sharing.operations {
        // An operation that asks no subgraph is over before anybody could join.
        Some(flights)
            if kind == OperationKind::Query
                && !ready.prepared.plan.fetches.is_empty()
                && may_share(&ready) =>
        {
            let ready = Arc::new(ready);
            let key = OperationKey { epoch: subgraphs.epoch.now(), ready: Arc::clone(&ready) };
            let start = || async move { execute_now(&ready, subgraphs, fetches, deadline).await };
            match flights.join(key, deadline, start).await {
                Ok((payload, role)) => (payload?, Some(role)),
                Err(Broken) => return Err(vec![broken()]),
            }
        }
        _ => (execute_now(&ready, subgraphs, fetches, deadline).await?, None),
    };
    router.metrics.operation(kind, payload.errors > 0, started.elapsed());
    Ok(match trace {
        None => payload,
        Some(trace) => trace.put(&payload, role, &generation.graph),
    })
}

/// May several clients get one answer? Not if it could bring a cookie along, or depends on claims in another way than
/// by the headers that are made of them.
fn may_share(ready: &Ready) -> bool {
    let disclosure = &ready.loaded.generation.disclosure;
    let fetches = &ready.prepared.plan.fetches;
    if ready.loaded.bindings.is_personal(&ready.prepared.plan) {
        return false;
    }
    disclosure.personal.is_empty() || fetches.iter().all(|it| disclosure.may_share(it.subgraph))
}

async fn execute_now(
    ready: &Ready,
    sharing: Arc<execute::Sharing>,
    trace: Option<Arc<execute::Trace>>,
    deadline: Instant,
) -> Result<Payload, Vec<GraphqlError>> {
    let introspection = ready.prepared.introspect(&ready.variables);
    let introspection = introspection.map_err(|error| refusal::errors(&error))?;
    let context = RequestContext {
        generation: Arc::clone(&ready.loaded.generation),
        headers: Arc::clone(&ready.headers),
        deadline,
        sharing: Some(sharing),
        trace,
        claims: ready.identity.claims().cloned(),
    };
    let executable = &ready.prepared.executable;
    let seed = Seed::Nothing;
    Ok(execute::execute(executable, &ready.variables, introspection, seed, &context).await)
}

fn broken() -> GraphqlError {
    let message = "the operation broke off by a defect of the router";
    GraphqlError::new(ErrorCode::InternalServerError, message)
}
