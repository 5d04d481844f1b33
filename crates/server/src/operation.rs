//! One operation from any transport: prepared, coerced, executed. What transports share lives here;
//! how bytes reach the client does not.

use std::sync::Arc;
use std::time::Instant;

use execute::{ErrorCode, ForwardedHeaders, GraphqlError, Payload, RequestContext, Seed};
use plan::{OperationKind, Variables};
use prepare::{OperationRequest, PrepareError, Prepared};

use crate::loaded::Loaded;
use crate::refusal;
use crate::router::Router;

/// An operation with everything it takes to run it.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The graph that it was prepared for, and that answers it.
    pub(crate) loaded: Arc<Loaded>,
    /// The operation.
    pub(crate) prepared: Arc<Prepared>,
    /// Its values.
    pub(crate) variables: Variables,
    /// What goes along to subgraphs.
    pub(crate) headers: Arc<ForwardedHeaders>,
}

/// Prepares `request` for the graph that is current now.
///
/// # Errors
/// Request errors: the operation does not run and the answer has no `data`.
pub(crate) async fn prepare(
    router: &Router,
    request: &OperationRequest,
    client_headers: &http::HeaderMap,
) -> Result<Ready, Vec<GraphqlError>> {
    let loaded = router.current();
    let refused = |error: &PrepareError| {
        let errors = refusal::errors(error);
        if let Some(first) = errors.first() {
            router.metrics.refused(first.code);
        }
        errors
    };
    let prepared = loaded.preparer.prepare(request).await.map_err(|error| refused(&error))?;
    let variables = prepared.coerce(&request.variables).map_err(|error| refused(&error))?;
    let headers = loaded.forwarding.apply(client_headers);
    Ok(Ready { loaded, prepared, variables, headers })
}

/// Runs a query or mutation to its end.
///
/// # Errors
/// A subscription: its answer is a stream, which `hub` makes.
pub(crate) async fn run(router: &Router, ready: &Ready) -> Result<Payload, Vec<GraphqlError>> {
    if ready.prepared.kind == OperationKind::Subscription {
        return Err(vec![GraphqlError::new(
            ErrorCode::BadRequest,
            "a subscription is answered by a stream: ask with `Accept: text/event-stream`, or over a \
             WebSocket with the subprotocol graphql-transport-ws",
        )]);
    }
    let started = Instant::now();
    let introspection = ready.prepared.introspect(&ready.variables);
    let introspection = introspection.map_err(|error| refusal::errors(&error))?;
    let context = RequestContext {
        generation: Arc::clone(&ready.loaded.generation),
        headers: Arc::clone(&ready.headers),
        deadline: started + router.config.limits.time,
    };
    let executable = &ready.prepared.executable;
    let payload =
        execute::execute(executable, &ready.variables, introspection, Seed::Nothing, &context)
            .await;
    router.metrics.operation(ready.prepared.kind, payload.errors > 0, started.elapsed());
    Ok(payload)
}
