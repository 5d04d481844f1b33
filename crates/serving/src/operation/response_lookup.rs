//! Whether the whole response to an operation may be stored and shared, and the lookup of a stored one.

use plan::OperationKind;

use crate::caching::{CachedQuery, ResponseLookup};
use crate::prepared_request::PreparedRequest;

/// Looks up the whole response to a query. `None` if its response is not stored, or if it must be executed.
pub(super) fn stored_response(
    ready: &PreparedRequest,
    must_execute: bool,
) -> Option<ResponseLookup> {
    let caches = ready.loaded.caching.as_ref()?;
    let query = cached_query(ready)?;
    let is_query = ready.prepared.kind == OperationKind::Query;
    if !is_query || must_execute || ready.prepared.plan.fetches.is_empty() || !may_share(ready) {
        return None;
    }
    Some(caches.look_up(&query))
}

/// The query as the store of whole responses knows it. `None` if nothing is stored for the operation.
pub(super) fn cached_query(ready: &PreparedRequest) -> Option<CachedQuery<'_>> {
    Some(CachedQuery {
        name: ready.prepared.name.as_deref(),
        operation_id: ready.prepared.operation_id,
        variables: &ready.variables,
        headers: &ready.headers,
        caching: ready.caching?,
    })
}

/// True if several clients may get one response. False if the response could contain a cookie, or depends on claims
/// other than through forwarded headers. Files are sent once.
pub(super) fn may_share(ready: &PreparedRequest) -> bool {
    let disclosure = &ready.loaded.generation.disclosure;
    let fetches = &ready.prepared.plan.fetches;
    if ready.uploads.is_some() || ready.loaded.bindings.depends_on_claims(&ready.prepared.plan) {
        return false;
    }
    disclosure.personal.is_empty() || fetches.iter().all(|it| disclosure.may_share(it.subgraph))
}
