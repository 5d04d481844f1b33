//! Live operations: created from prepared requests, and prepared again for a new graph.
//!
//! A reload prepares each live operation again while the old graph serves, and replaces the old one between two events
//! (`hub::Hub::advance`; see `reload`). Subscribers notice nothing, unless their operation is not valid any more.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use clients::authentication::Identity;
use clients::error_mapping;
use execute::{ClaimValues, Claims, ErrorCode, GraphqlError};
use hub::{EventResolver, GroupKey, LiveOperation};
use plan::SubscriptionRoot;
use prepare::{OperationRequest, PrepareError};

use crate::forwarding;
use crate::generation::ServingGraph;
use crate::prepared_request::PreparedRequest;

/// The pause when requests of clients keep the preparer busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the claims of a client that a subscription depends on, on this graph.
pub fn claims_of(ready: &PreparedRequest) -> ClaimValues {
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
pub fn live_operation(
    ready: PreparedRequest,
    claims: ClaimValues,
    timeout: Duration,
) -> Result<LiveOperation, GraphqlError> {
    let PreparedRequest {
        loaded,
        prepared,
        variables,
        variables_text,
        headers,
        identity: _,
        resume: _,
    } = ready;
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
pub async fn renew(
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
    let ready = PreparedRequest {
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
pub fn holding(
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
    let errors = error_mapping::errors(error);
    invalid(errors.first().map_or("it is not valid", |first| &*first.message))
}

fn invalid(reason: &str) -> GraphqlError {
    let message = format!(
        "the graph was replaced, and this subscription cannot continue on the new one: {reason}"
    );
    GraphqlError::new(ErrorCode::GraphReloaded, message)
}
