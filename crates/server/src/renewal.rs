//! Live operations: how they are made of prepared ones, and how a new graph takes them over. Each is prepared anew
//! while the old graph still serves, and replaces the old one between two events (`hub::Hub::advance`). Subscribers
//! notice nothing, unless their operation is not valid any more.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{ClaimValues, Claims, ErrorCode, GraphqlError};
use hub::{EventResolver, GroupId, GroupKey, LiveOperation, Renewal};
use plan::SubscriptionRoot;
use prepare::{OperationRequest, PrepareError};

use crate::authentication::Identity;
use crate::forwarding;
use crate::loaded::Loaded;
use crate::operation::Ready;
use crate::refusal;
use crate::router::Router;

/// How long a new graph waits for operations to be prepared before it serves. What is left follows while it does.
const RENEWING_TIME_MAX: Duration = Duration::from_secs(10);

/// Operations prepared before others get their turn. One that the preparer knows takes some microseconds.
const RENEWED_PER_TURN: usize = 64;

/// Operations that are handed to the hub together while the new graph serves already, but not less than a sixteenth
/// of what is left: each call looks at all groups.
const PORTION_MIN: usize = 1024;

/// How long to wait when requests of clients keep the preparer busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The claims of a client that a subscription depends on, on this graph.
pub(crate) fn claims_of(ready: &Ready) -> ClaimValues {
    let loaded = &ready.loaded;
    let read = match &ready.prepared.plan.subscription {
        Some(SubscriptionRoot::Event(field)) => loaded.bindings.claims(field.field),
        Some(SubscriptionRoot::Upstream { .. }) | None => &[],
    };
    Claims::select(ready.identity.claims(), read.iter().chain(&loaded.cursor_claims))
}

/// What a prepared subscription listens to, with whom it shares, and how it resolves events within `timeout` each, for
/// somebody with these claims.
///
/// # Errors
/// `FORBIDDEN`, and where the operation's root field has no source here.
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
        // What has a source has one.
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

/// The same operation on the graph of `loaded`.
///
/// # Errors
/// `GRAPH_RELOADED`, with the reason, if it is not valid there; `FORBIDDEN`, if its subscribers may not have it there.
pub(crate) async fn renew(
    loaded: &Arc<Loaded>,
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
    // All members are equal in these, and nobody knows in what else.
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

/// The same operation, with what is to be dropped with its group.
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
        "the graph was replaced, and this subscription cannot go on with the new one: {reason}"
    );
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}

/// Puts `loaded` into service, and every live operation on it.
pub(crate) async fn take_over(router: &Router, loaded: Loaded) {
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
        // What it returns is the rest, and who has gone since.
        router.hub.advance(number, renewals).await;
        left = rest;
    }
    tracing::debug!(groups = count, elapsed = ?started.elapsed(), "live operations are on the new supergraph");
}

/// Prepares `old` for a new graph, until `deadline`. Requests come first: this takes half of one CPU at most.
async fn renew_all(
    loaded: &Arc<Loaded>,
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
