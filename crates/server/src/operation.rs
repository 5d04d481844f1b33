//! One operation from any transport: prepared, coerced, executed. What transports share lives here;
//! how bytes reach the client does not.

use std::sync::Arc;
use std::time::Instant;

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
use crate::request_extensions::{
    NotAString, PERSISTED_QUERY_NOT_SUPPORTED, has_persisted_query, string_member,
};
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
    if request.query.is_empty() && has_persisted_query(&request.extensions) {
        // From a WebSocket; over HTTP it is refused when the request is read.
        let code = ErrorCode::PersistedQueryNotSupported;
        router.metrics.refused(code);
        return Err(vec![GraphqlError::new(code, PERSISTED_QUERY_NOT_SUPPORTED)]);
    }
    let prepared = loaded.preparer.prepare_for(request, client, deadline).await;
    let prepared = prepared.map_err(|error| refused(&error))?;
    let values = Values::of(prepared.kind, request, client_headers.map());
    let read = if values.bytes() <= INLINE_BYTES_MAX {
        values.read(&prepared)
    } else {
        let prepared = Arc::clone(&prepared);
        let read = router.offload.run(client(), deadline, move || values.read(&prepared)).await;
        read.map_err(|not_done| {
            let error = not_done.error();
            router.metrics.refused(error.code);
            vec![error]
        })?
    };
    let ReadValues { variables, variables_text, resume } = read.map_err(|error| refused(&error))?;
    let headers = loaded.forwarding.apply(client_headers, identity.claims());
    let resume = resume.map_err(|NotAString| {
        let message = "`extensions.cursor` must be the text that a payload had there";
        vec![GraphqlError::new(ErrorCode::CursorInvalid, message)]
    })?;
    Ok(Ready { loaded, prepared, variables, variables_text, headers, identity, resume })
}

/// The texts of a request that are read once its operation is known.
struct Values {
    variables: Bytes,
    /// Of subscriptions only, and only where the cursor must be looked for.
    extensions: Bytes,
    /// The cursor of a subscription, from a header.
    cursor: Option<Box<str>>,
}

/// What was read of [`Values`].
struct ReadValues {
    variables: Variables,
    /// The text of the declared variables, of subscriptions only.
    variables_text: Bytes,
    resume: Result<Option<Box<str>>, NotAString>,
}

/// The header by which browsers say where an event stream broke off.
const LAST_EVENT_ID: &str = "last-event-id";

impl Values {
    /// The cursor in the header comes first: a browser that connects again repeats the extensions of its first request, and
    /// sends in the header what it got last.
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

    /// How much there is to read.
    fn bytes(&self) -> usize {
        self.variables.len() + self.extensions.len()
    }

    /// Reads the values of the variables, and of subscriptions their text, as far as they are declared, and the cursor.
    fn read(self, prepared: &Prepared) -> Result<ReadValues, PrepareError> {
        let variables = prepared.coerce(&self.variables)?;
        let variables_text = match prepared.kind {
            OperationKind::Subscription => prepared.declared_variables(&self.variables),
            OperationKind::Query | OperationKind::Mutation => Bytes::new(),
        };
        let resume = match self.cursor {
            Some(cursor) => Ok(Some(cursor)),
            None => string_member(&self.extensions, "cursor").map(|it| it.map(Into::into)),
        };
        Ok(ReadValues { variables, variables_text, resume })
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

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn request(extensions: String) -> OperationRequest {
        OperationRequest { extensions: extensions.into(), ..OperationRequest::default() }
    }

    #[test]
    fn extensions_of_subscriptions_count_as_something_to_read_and_those_of_queries_do_not() {
        let large = request(format!(r#"{{"x":[{}0]}}"#, "1,".repeat(INLINE_BYTES_MAX)));
        let bytes = |kind, headers: &HeaderMap| Values::of(kind, &large, headers).bytes();
        assert!(bytes(OperationKind::Subscription, &HeaderMap::new()) > INLINE_BYTES_MAX);
        assert_eq!(bytes(OperationKind::Query, &HeaderMap::new()), 0);
        let value = http::HeaderValue::from_static("cursor");
        let with_header = HeaderMap::from_iter([(LAST_EVENT_ID.parse().expect("a name"), value)]);
        assert_eq!(bytes(OperationKind::Subscription, &with_header), 0);
    }
}
