//! The execution of a prepared operation on its graph, and the storing of its response.

use std::sync::Arc;
use std::time::Instant;

use admission::{Class, UNITS};
use clients::error_mapping;
use execute::{GraphqlError, Payload, RequestContext, Seed};
use graph::SubgraphId;

use super::response_lookup::cached_query;
use crate::caching::{ResponseRefresh, ResponseSlot};
use crate::overload::bulkheads::PlanPlaces;
use crate::overload::work_ticket::WorkTicket;
use crate::prepared_request::PreparedRequest;

/// The limits of one execution.
pub(super) struct ExecutionLimits {
    pub(super) deadline: Instant,
    /// The subgraphs that it must do without.
    pub(super) closed_subgraphs: Option<Arc<[SubgraphId]>>,
}

/// Takes the places of an operation in the shares of its subgraphs, if those have shares.
pub(super) fn subgraph_places(
    ready: &PreparedRequest,
    ticket: Option<&WorkTicket>,
) -> Option<PlanPlaces> {
    let bulkheads = ready.loaded.bulkheads.as_ref()?;
    let limit = ready.loaded.overload.as_ref()?.limit();
    // The operations of a batch have one ticket together; each counts as an average operation.
    let (class, weight) = ticket.map_or((Class::Normal, UNITS), WorkTicket::class_and_weight);
    Some(bulkheads.enter(&ready.prepared.plan, class, weight, limit))
}

/// Executes an operation, and stores its whole response in `slot`.
pub(super) async fn execute_and_store(
    ready: &PreparedRequest,
    slot: Option<ResponseSlot>,
    sharing: Arc<execute::Sharing>,
    trace: Option<Arc<execute::Trace>>,
    limits: ExecutionLimits,
) -> Result<Payload, Vec<GraphqlError>> {
    let payload = execute_now(ready, sharing, trace, limits).await?;
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
    limits: ExecutionLimits,
) -> Result<Payload, Vec<GraphqlError>> {
    let introspection = ready.prepared.introspect(&ready.variables);
    let introspection = introspection.map_err(|error| error_mapping::errors(&error))?;
    let context = RequestContext {
        generation: Arc::clone(&ready.loaded.generation),
        headers: Arc::clone(&ready.headers),
        deadline: limits.deadline,
        sharing: Some(sharing),
        trace,
        claims: ready.identity.claims().cloned(),
        uploads: ready.uploads.clone(),
        closed_subgraphs: limits.closed_subgraphs,
        // The text of a request does not tell apart the files that it names.
        caching: ready.caching.filter(|_| ready.uploads.is_none()),
    };
    let executable = &ready.prepared.executable;
    let seed = Seed::Nothing;
    Ok(execute::execute(executable, &ready.variables, introspection, seed, &context).await)
}

/// Executes an operation in the background after its stored response was served, and stores the new one. Parts of it
/// that end with the old response are fetched, also if they may still be used.
pub(super) fn refresh(
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
        let limits = ExecutionLimits { deadline, closed_subgraphs: None };
        let _ = execute_and_store(&ready, Some(slot), subgraphs, None, limits).await;
        drop(claim);
    });
}
