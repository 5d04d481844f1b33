//! Migration of live subscriptions to a new graph. Each operation is prepared again while the old graph serves, and
//! replaces the old one between two events (`hub::Hub::advance`). Subscribers notice nothing, unless their operation is
//! not valid any more. The module also creates live operations from prepared ones.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{ClaimValues, Claims, ErrorCode, GraphqlError};
use hub::{EventResolver, GroupId, GroupKey, LiveOperation, Renewal};
use plan::SubscriptionRoot;
use prepare::{OperationRequest, PrepareError};

use crate::authentication::Identity;
use crate::forwarding;
use crate::generation::ServingGraph;
use crate::operation::Ready;
use crate::refusal;
use crate::router::Router;

/// The maximum time for which a new graph waits for operations to be prepared before it serves. The remaining ones
/// follow while it serves.
const RENEWING_TIME_MAX: Duration = Duration::from_secs(10);

/// The number of operations prepared before other tasks get their turn. One that the preparer knows takes some
/// microseconds.
const RENEWED_PER_TURN: usize = 64;

/// The minimum number of operations that are passed to the hub together while the new graph already serves, but not
/// less than a sixteenth of the remaining ones: each call visits all groups.
const PORTION_MIN: usize = 1024;

/// The pause when requests of clients keep the preparer busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the claims of a client that a subscription depends on, on this graph.
pub(crate) fn claims_of(ready: &Ready) -> ClaimValues {
    let loaded = &ready.loaded;
    let read = match &ready.prepared.plan.subscription {
        Some(SubscriptionRoot::Event(field)) => loaded.bindings.claims(field.field),
        Some(SubscriptionRoot::Upstream { .. }) | None => &[],
    };
    Claims::select(ready.identity.claims(), read.iter().chain(&loaded.cursor_claims))
}

/// Creates the live operation of a prepared subscription: its source, its group, and the resolver of its events with
/// `timeout` for each, for clients with these claims.
///
/// # Errors
/// `FORBIDDEN`, or the operation's root field has no source here.
pub(crate) fn live_operation(
    ready: Ready,
    claims: ClaimValues,
    timeout: Duration,
) -> Result<LiveOperation, GraphqlError> {
    let Ready { loaded, prepared, variables, variables_text, headers, identity: _, resume: _ } =
        ready;
    let field = match &prepared.plan.subscription {
        Some(SubscriptionRoot::Event(field)) => field,
        Some(SubscriptionRoot::Upstream { .. }) | None => {
            return Err(GraphqlError::new(
                ErrorCode::NotSupported,
                "subscriptions of subgraphs that have a server are not supported yet; bind the field to a \
                 topic in an event subgraph",
            ));
        }
    };
    loaded.bindings.authorize(field, &variables, &claims)?;
    let source = loaded.bindings.source(field, &variables, &claims)?;
    let filter = loaded.bindings.filter(field, &variables, &claims)?;
    let variables = Arc::new(variables);
    let mut bound_to = Vec::new();
    claims.only(&loaded.cursor_claims).append_canonical(&mut bound_to);
    let mut partition = forwarding::partition(&headers);
    claims.append_canonical(&mut partition);
    Ok(LiveOperation {
        generation: loaded.generation.number,
        source,
        // A field with a source has a coordinate.
        field: loaded.bindings.coordinate(field.field).unwrap_or_default(),
        bound_to: bound_to.into(),
        filter,
        group: GroupKey {
            operation_id: prepared.operation_id,
            variables: Arc::clone(&variables),
            partition: partition.into(),
        },
        resolve: Arc::new(EventResolver {
            executable: Arc::clone(&prepared.executable),
            state: prepared.state.clone(),
            variables,
            generation: Arc::clone(&loaded.generation),
            headers,
            claims,
            payload: loaded.bindings.payload_mapping(field.field),
            timeout,
            request: OperationRequest {
                query: prepared.query.clone(),
                operation_name: prepared.name.clone(),
                variables: variables_text,
                extensions: Default::default(),
            },
            held: None,
        }),
    })
}

/// Prepares the same operation on the graph of `loaded`.
///
/// # Errors
/// `GRAPH_RELOADED`, with the reason, if the operation is not valid there; `FORBIDDEN`, if its subscribers are not
/// authorized there.
pub(crate) async fn renew(
    loaded: &Arc<ServingGraph>,
    operation: &LiveOperation,
) -> Result<LiveOperation, GraphqlError> {
    let resolver = (&*operation.resolve as &dyn Any).downcast_ref::<EventResolver>();
    let Some(EventResolver { request, headers, claims, timeout, held, .. }) = resolver else {
        return Err(invalid("it cannot be prepared again"));
    };
    let prepared = loop {
        match loaded.preparer.prepare(request).await {
            Ok(prepared) => break prepared,
            Err(PrepareError::Overloaded) => tokio::time::sleep(BUSY_PAUSE).await,
            Err(error) => return Err(refused(&error)),
        }
    };
    let variables = prepared.coerce(&request.variables).map_err(|error| refused(&error))?;
    let ready = Ready {
        headers: loaded.forwarding.renumbered(headers),
        loaded: Arc::clone(loaded),
        prepared,
        variables,
        variables_text: request.variables.clone(),
        identity: Identity::ANONYMOUS,
        resume: None,
    };
    // All members are equal in these claims; their other claims are unknown here.
    if !claims_of(&ready).paths().all(|path| claims.knows(path)) {
        return Err(invalid("it depends on other claims of the token; subscribe again"));
    }
    let renewed = live_operation(ready, claims.clone(), *timeout);
    let renewed = renewed.map(|renewed| holding(renewed, held.clone()));
    renewed.map_err(|error| match error.code {
        ErrorCode::Forbidden => error,
        _ => invalid(&error.message),
    })
}

/// Returns the same operation with an object that is dropped together with its group.
pub(crate) fn holding(
    mut operation: LiveOperation,
    held: Option<Arc<dyn Any + Send + Sync>>,
) -> LiveOperation {
    let resolver = (&*operation.resolve as &dyn Any).downcast_ref::<EventResolver>();
    if let Some(resolver) = resolver {
        operation.resolve = Arc::new(EventResolver { held, ..resolver.clone() });
    }
    operation
}

fn refused(error: &PrepareError) -> GraphqlError {
    let errors = refusal::errors(error);
    invalid(errors.first().map_or("it is not valid", |first| &*first.message))
}

fn invalid(reason: &str) -> GraphqlError {
    let message = format!(
        "the graph was replaced, and this subscription cannot continue on the new one: {reason}"
    );
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}

/// Puts `loaded` into service, and migrates every live operation to it.
pub(crate) async fn take_over(router: &Router, loaded: ServingGraph) {
    let loaded = Arc::new(loaded);
    let number = loaded.generation.number;
    let started = Instant::now();
    let old = router.hub.operations_before(number).await;
    let count = old.len();
    let renewals = renew_all(&loaded, &old, Some(started + RENEWING_TIME_MAX)).await;
    drop(old);
    let mut left = router.hub.advance(number, renewals).await;
    router.serve(Arc::clone(&loaded));
    tracing::info!(generation = number, "a new supergraph serves now");
    while !left.is_empty() {
        let portion = PORTION_MIN.max(left.len() / 16).min(left.len());
        let rest = left.split_off(portion);
        let renewals = renew_all(&loaded, &left, None).await;
        // The result contains the remaining groups, and those that have ended since.
        router.hub.advance(number, renewals).await;
        left = rest;
    }
    tracing::debug!(groups = count, elapsed = ?started.elapsed(), "live operations have moved to the new supergraph");
}

/// Prepares `old` for a new graph, until `deadline`. Requests have priority: this takes at most half of one CPU.
async fn renew_all(
    loaded: &Arc<ServingGraph>,
    old: &[(GroupId, Arc<LiveOperation>)],
    deadline: Option<Instant>,
) -> Vec<Renewal> {
    let mut renewals = Vec::with_capacity(old.len());
    for turn in old.chunks(RENEWED_PER_TURN) {
        let began = Instant::now();
        if deadline.is_some_and(|deadline| began >= deadline) {
            break;
        }
        for (group, operation) in turn {
            renewals.push((*group, renew(loaded, operation).await.map_err(Box::new)));
        }
        tokio::time::sleep(began.elapsed()).await;
    }
    renewals
}
