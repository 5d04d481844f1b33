//! Sends identical queries to subgraphs that are in flight at the same time only once.
//!
//! Two queries are identical if they go to the same subgraph of the same generation with the same
//! body and the same headers; clients that a subgraph can distinguish never fetch_or_join. Mutations are
//! never shared, and an operation that begins after a mutation has ended never gets a response from
//! before: see [`Epoch`].
//!
//! Whole operations are shared above this crate, with the same [`Epoch`].

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flights::{Broken, Flights, Role};
use graph::SubgraphId;

use crate::{
    EventMemo, FetchError, FetchTrace, ForwardedHeaders, RequestContext, SubgraphAnswer,
    SubgraphRequest,
};

/// State that operations fetch_or_join: those of a whole process, or those that resolve one event. Outlives
/// generations.
#[derive(Debug, Default)]
pub struct Sharing {
    /// Counts mutations.
    pub epoch: Epoch,
    /// Queries to subgraphs in flight; `None` if each operation sends its own.
    pub subgraph_queries: Option<SubgraphFlights>,
    /// Responses for the event that the operations resolve. If set, nothing else is shared.
    pub event: Option<EventMemo>,
}

/// Queries to subgraphs in flight.
#[derive(Clone, Debug, Default)]
pub struct SubgraphFlights(Arc<Flights<QueryKey, Result<SubgraphAnswer, FetchError>>>);

impl SubgraphFlights {
    /// The counters of the shared queries.
    pub fn stats(&self) -> &flights::FlightStats {
        self.0.stats()
    }
}

/// The number of mutations that have ended. It is a part of every key, so that a client that sends
/// a mutation and then a query never gets the response to an earlier query.
#[derive(Debug, Default)]
pub struct Epoch(AtomicU64);

impl Epoch {
    /// Returns the current epoch.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Advances the epoch, because data may have changed at a subgraph.
    fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Advances the epoch when a change is over, also if its request was cancelled: the change may have
/// happened.
pub(crate) struct EpochGuard<'a>(Option<&'a Epoch>);

impl Drop for EpochGuard<'_> {
    fn drop(&mut self) {
        if let Some(epoch) = self.0 {
            epoch.advance();
        }
    }
}

/// Returns a guard that must be held during a mutation or a publication.
pub(crate) fn guard_epoch(context: &RequestContext) -> EpochGuard<'_> {
    EpochGuard(context.sharing.as_deref().map(|sharing| &sharing.epoch))
}

/// Sends one request to a subgraph, shared if that is allowed, and traced if requested.
pub(crate) async fn fetch(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: Bytes,
    is_mutation: bool,
) -> Result<SubgraphAnswer, FetchError> {
    let Some(trace) = &context.trace else {
        return fetch_or_join(context, subgraph, body, is_mutation).await.0;
    };
    let (began, request_bytes) = (trace.now(), body.len());
    let (result, role) = fetch_or_join(context, subgraph, body, is_mutation).await;
    let response = result.as_ref().ok().map(|it| (it.status.as_u16(), it.body.len()));
    let took = trace.now().saturating_sub(began);
    trace.record(FetchTrace { subgraph, began, took, request_bytes, answer: response, role });
    result
}

async fn fetch_or_join(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: Bytes,
    is_mutation: bool,
) -> (Result<SubgraphAnswer, FetchError>, Option<Role>) {
    let (generation, deadline) = (&context.generation, context.deadline);
    let sharing = context.sharing.as_deref();
    if !is_mutation && event_cache(context, subgraph).is_some() {
        let headers = context.headers.of(subgraph);
        let request = SubgraphRequest { body: body.clone(), is_mutation, headers, deadline };
        let fetch = || generation.subgraph(subgraph).fetch(request);
        return (fetch_for_event(context, subgraph, body, fetch).await, None);
    }
    if let Some(Sharing { epoch, subgraph_queries: Some(flights), .. }) = sharing
        && !is_mutation
        && generation.disclosure.may_share(subgraph)
    {
        let key = QueryKey {
            epoch: epoch.now(),
            generation: generation.number,
            subgraph,
            body: body.clone(),
            headers: Arc::clone(&context.headers),
        };
        let result = flights.0.join(key, deadline, || {
            let server = Arc::clone(&generation.subgraphs[usize::from(subgraph.0)]);
            let headers = Arc::clone(&context.headers);
            async move {
                let headers = headers.of(subgraph);
                server.fetch(SubgraphRequest { body, is_mutation, headers, deadline }).await
            }
        });
        return match result.await {
            Ok((response, role)) => (response, Some(role)),
            Err(Broken) => {
                let reason = "the request was aborted inside the router";
                (Err(FetchError::Closed(reason.into())), None)
            }
        };
    }
    let _guard = is_mutation.then(|| guard_epoch(context));
    let headers = context.headers.of(subgraph);
    let request = SubgraphRequest { body, is_mutation, headers, deadline };
    (generation.subgraph(subgraph).fetch(request).await, None)
}

/// The cache of responses for the event that is being resolved, if responses of that subgraph may
/// be shared.
fn event_cache(context: &RequestContext, subgraph: SubgraphId) -> Option<&EventMemo> {
    let event_cache = context.sharing.as_deref()?.event.as_ref()?;
    context.generation.disclosure.may_share(subgraph).then_some(event_cache)
}

/// The key of a query in the cache of an event.
fn event_key(context: &RequestContext, subgraph: SubgraphId, body: Bytes) -> QueryKey {
    // Mutations do not affect the responses for an event.
    let (epoch, generation) = (0, context.generation.number);
    QueryKey { epoch, generation, subgraph, body, headers: Arc::clone(&context.headers) }
}

/// Returns the response to a query that an event causes: that of another group, or that of `fetch`.
pub(crate) async fn fetch_for_event<F: Future<Output = Result<SubgraphAnswer, FetchError>>>(
    context: &RequestContext,
    subgraph: SubgraphId,
    body: Bytes,
    fetch: impl FnOnce() -> F,
) -> Result<SubgraphAnswer, FetchError> {
    match event_cache(context, subgraph) {
        Some(event_cache) => {
            event_cache.fetch_once(event_key(context, subgraph, body), fetch).await
        }
        None => fetch().await,
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

/// The identity of a query.
#[derive(Clone, Debug)]
pub(crate) struct QueryKey {
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) subgraph: SubgraphId,
    pub(crate) body: Bytes,
    /// The headers for all subgraphs; only those for this one count.
    pub(crate) headers: Arc<ForwardedHeaders>,
}

impl PartialEq for QueryKey {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch
            && self.generation == other.generation
            && self.subgraph == other.subgraph
            && self.body == other.body
            && self.headers.of(self.subgraph) == other.headers.of(other.subgraph)
    }
}

impl Eq for QueryKey {}

impl Hash for QueryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.epoch.hash(state);
        self.generation.hash(state);
        self.subgraph.hash(state);
        self.body.hash(state);
        self.headers.of(self.subgraph).hash(state);
    }
}
