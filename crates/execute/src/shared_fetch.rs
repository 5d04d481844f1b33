//! Sends requests to subgraphs, shared with other operations where that is allowed: see
//! [`crate::sharing`].

use std::sync::Arc;
use std::time::Duration;

use admission::memory::{CHARGED_BYTES_MIN, MemoryCharge, MemoryKind};
use bytes::Bytes;
use graph::SubgraphId;
use single_flight::{Role, WorkFailed};
use telemetry::spans::OutgoingSpan;

use crate::caching::{MutationChanges, ResponseStoring, invalidate_by_response};
use crate::query_key::QueryKey;
use crate::sharing::EpochGuard;
use crate::{
    EventFetchCache, FetchError, FetchPlace, FetchTrace, RequestContext, Sharing, SubgraphHeaders,
    SubgraphRequest, SubgraphResponse, Trace,
};

/// Returns a guard that must be held during a mutation or a publication.
pub(crate) fn guard_epoch(context: &RequestContext) -> EpochGuard<'_> {
    EpochGuard(context.sharing.as_deref().map(|sharing| &sharing.epoch))
}

/// Sends one request to a subgraph, shared if that is allowed, traced if requested, and stored by `storing`. The
/// response to a mutation has made stale what it names when this returns, and the changed entities in it. A request to
/// a subgraph that is closed for the operation fails.
pub(crate) async fn fetch(
    context: &RequestContext,
    (subgraph, place): (SubgraphId, FetchPlace),
    body: Bytes,
    is_mutation: bool,
    storing: Option<Box<ResponseStoring>>,
    changes: MutationChanges<'_>,
) -> Result<SubgraphResponse, FetchError> {
    if context.is_closed(subgraph) {
        return Err(FetchError::Overloaded);
    }
    let _memory = charge_body(context, &body)?;
    let result = fetch_traced(context, (subgraph, place), body, is_mutation, storing).await;
    if is_mutation && let Ok(response) = &result {
        invalidate_by_response(context, subgraph, response, changes).await;
    }
    result
}

/// Counts the memory of a large body until its response has arrived.
fn charge_body(context: &RequestContext, body: &Bytes) -> Result<Option<MemoryCharge>, FetchError> {
    if body.len() < CHARGED_BYTES_MIN {
        return Ok(None);
    }
    let memory = &context.generation.memory;
    let charge = MemoryCharge::try_new(memory, MemoryKind::SubgraphRequests, body.len() as u64);
    charge.map(Some).map_err(|_| FetchError::MemoryUsedUp)
}

async fn fetch_traced(
    context: &RequestContext,
    (subgraph, place): (SubgraphId, FetchPlace),
    body: Bytes,
    is_mutation: bool,
    storing: Option<Box<ResponseStoring>>,
) -> Result<SubgraphResponse, FetchError> {
    let recorder = FetchRecorder::begin(context, (subgraph, place), &body);
    let span = recorder.as_ref().and_then(FetchRecorder::span);
    let fetched = fetch_or_join(context, subgraph, body, is_mutation, storing, span);
    let (result, role) = fetched.await;
    if let Some(recorder) = recorder {
        recorder.record(&result, role);
    }
    result
}

/// Records one request in the trace of its execution.
pub(crate) struct FetchRecorder<'a> {
    trace: &'a Trace,
    subgraph: SubgraphId,
    place: FetchPlace,
    began: Duration,
    request_bytes: usize,
    body: Option<Bytes>,
    span: Option<Arc<OutgoingSpan>>,
}

impl<'a> FetchRecorder<'a> {
    /// Begins the record of a request that is about to be sent; `None` if the execution has no trace.
    pub(crate) fn begin(
        context: &'a RequestContext,
        (subgraph, place): (SubgraphId, FetchPlace),
        body: &Bytes,
    ) -> Option<Self> {
        let trace = context.trace.as_deref()?;
        let (began, span) = (trace.now(), trace.outgoing_span());
        let (request_bytes, body) = (body.len(), trace.keep_body(body));
        Some(Self { trace, subgraph, place, began, request_bytes, body, span })
    }

    /// Returns the span of the request.
    pub(crate) fn span(&self) -> Option<Arc<OutgoingSpan>> {
        self.span.clone()
    }

    /// Ends the record with the response. `role` is that in a shared request.
    pub(crate) fn record(self, result: &Result<SubgraphResponse, FetchError>, role: Option<Role>) {
        let Self { trace, subgraph, place, began, request_bytes, body, span } = self;
        trace.record(FetchTrace {
            subgraph,
            place,
            began,
            took: trace.now().saturating_sub(began),
            request_bytes,
            body,
            response: result.as_ref().ok().map(|it| (it.status.as_u16(), it.body.len())),
            hedge: result.as_ref().ok().and_then(|it| it.hedge),
            failure: result.as_ref().err().cloned(),
            role,
            span,
        });
    }
}

async fn fetch_or_join(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: Bytes,
    is_mutation: bool,
    storing: Option<Box<ResponseStoring>>,
    span: Option<Arc<OutgoingSpan>>,
) -> (Result<SubgraphResponse, FetchError>, Option<Role>) {
    let (generation, deadline) = (&context.generation, context.deadline);
    let own_headers = SubgraphHeaders { span: span.as_deref(), ..context.headers.of(subgraph) };
    let sharing = context.sharing.as_deref();
    if let Some(uploads) = &context.uploads {
        match uploads.claim(&body) {
            Ok(None) => {}
            Ok(Some(form)) => {
                let _guard = is_mutation.then(|| guard_epoch(context));
                let (headers, form) = (own_headers, Some(form));
                // Files are sent once, also with a query.
                let is_mutation = true;
                let request = SubgraphRequest { body, form, is_mutation, headers, deadline };
                return (generation.subgraph(subgraph).fetch(request).await, None);
            }
            Err(error) => return (Err(error), None),
        }
    }
    if !is_mutation && event_cache(context, subgraph).is_some() {
        let headers = own_headers;
        let request =
            SubgraphRequest { body: body.clone(), form: None, is_mutation, headers, deadline };
        let fetch = || generation.subgraph(subgraph).fetch(request);
        let (result, role) = fetch_for_event(context, subgraph, body, fetch).await;
        return (result, Some(role));
    }
    if let Some(Sharing { epoch, subgraph_queries: Some(flights), .. }) = sharing
        && !is_mutation
        && generation.disclosure.may_share(subgraph)
    {
        let key = QueryKey {
            epoch: epoch.now() + context.generation.invalidations(),
            generation: generation.number,
            subgraph,
            body: body.clone(),
            headers: Arc::clone(&context.headers),
        };
        let result = flights.0.join(key, deadline, || {
            let server = Arc::clone(&generation.subgraphs[usize::from(subgraph.0)]);
            let (headers, span) = (Arc::clone(&context.headers), span.clone());
            async move {
                let headers = SubgraphHeaders { span: span.as_deref(), ..headers.of(subgraph) };
                let request = SubgraphRequest { body, form: None, is_mutation, headers, deadline };
                store(server.fetch(request).await, storing)
            }
        });
        return match result.await {
            Ok((response, role)) => (response, Some(role)),
            Err(WorkFailed) => {
                let reason = "the request was aborted inside the router";
                (Err(FetchError::Closed(reason.into())), None)
            }
        };
    }
    let _guard = is_mutation.then(|| guard_epoch(context));
    let headers = own_headers;
    let request = SubgraphRequest { body, form: None, is_mutation, headers, deadline };
    (store(generation.subgraph(subgraph).fetch(request).await, storing), None)
}

/// Stores a response by `storing`, once for all operations that share it.
fn store(
    mut result: Result<SubgraphResponse, FetchError>,
    storing: Option<Box<ResponseStoring>>,
) -> Result<SubgraphResponse, FetchError> {
    if let (Ok(response), Some(storing)) = (&mut result, storing) {
        storing.store(response);
    }
    result
}

/// The cache of responses for the event that is being resolved, if responses of that subgraph may
/// be shared.
fn event_cache(context: &RequestContext, subgraph: SubgraphId) -> Option<&EventFetchCache> {
    let event_cache = context.sharing.as_deref()?.event.as_ref()?;
    context.generation.disclosure.may_share(subgraph).then_some(event_cache)
}

/// The key of a query in the cache of an event.
fn event_key(context: &RequestContext, subgraph: SubgraphId, body: Bytes) -> QueryKey {
    // Mutations do not affect the responses for an event.
    let (epoch, generation) = (0, context.generation.number);
    QueryKey { epoch, generation, subgraph, body, headers: Arc::clone(&context.headers) }
}

/// Returns the response to a query that an event causes: that of another group, or that of `fetch`. Also returns the
/// role in the shared request.
pub(crate) async fn fetch_for_event<F: Future<Output = Result<SubgraphResponse, FetchError>>>(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: Bytes,
    fetch: impl FnOnce() -> F,
) -> (Result<SubgraphResponse, FetchError>, Role) {
    match event_cache(context, subgraph) {
        Some(event_cache) => {
            event_cache.fetch_once(event_key(context, subgraph, body), fetch).await
        }
        None => (fetch().await, Role::Unshared),
    }
}

/// True if no other group sends this request for the event. The caller must then send it by
/// [`fetch_for_event`], because the others wait for it.
pub(crate) fn is_first_for_event(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: &Bytes,
) -> bool {
    event_cache(context, subgraph)
        .is_none_or(|event_cache| event_cache.is_first(&event_key(context, subgraph, body.clone())))
}
