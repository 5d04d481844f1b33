//! The requests of an execution: requests, their outcomes, and the progress of fetches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::PolicyFold;
use plan::{EventField, Fetch, OperationKind, SubgraphOperation};
use telemetry::spans::OutgoingSpan;

use crate::caching::{
    AssembledResponse, FetchLocks, FetchesInFlight, FlightGuard, InFlight, MutationChanges,
    NewResponse, ResponseStoring, SharedCache, WantedEntry,
};
use crate::fetch_times::FetchTimes;
use crate::representations::CollectedBatch;
use crate::{
    EventRequest, FetchError, FetchPlace, GraphqlError, MessageTrace, RequestContext,
    SubgraphResponse, shared_fetch,
};

/// The progress of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FetchState {
    Waiting,
    InFlight,
    Done,
}

/// A request in flight.
pub(super) enum OutgoingRequest<'a> {
    Subgraph {
        body: Bytes,
        is_mutation: bool,
        /// Stores the response, if that is allowed.
        storing: Option<Box<ResponseStoring>>,
        /// The response from the cache that is used if the request fails.
        backup: Option<Box<Backup>>,
        /// The entities in the response that are stale then, or stored.
        changes: MutationChanges<'a>,
    },
    /// A response from the cache.
    Stored(Box<StoredResponse>),
    /// Waits for requests of other operations, which will store what this one needs.
    Await(Vec<InFlight>),
    /// Looks up entries in the store that several routers share. The guard has what the request will store if they are
    /// not there.
    LookUpShared {
        shared: Arc<dyn SharedCache>,
        wanted: Vec<WantedEntry>,
        guard: FlightGuard,
    },
    Publish {
        event: &'a EventField,
        arguments: Bytes,
    },
    Request {
        event: &'a EventField,
        arguments: Bytes,
        is_mutation: bool,
    },
}

/// Stored entries in place of the response to a request.
pub(super) struct StoredResponse {
    pub(super) form: StoredForm,
    /// The policies of the entries.
    pub(super) policy: PolicyFold,
}

/// The response that the subgraph would have sent.
pub(super) enum StoredForm {
    /// The body.
    Text(Bytes),
    /// The body. It is kept with its nodes when it has been parsed.
    New(Bytes, NewResponse),
    /// The body with its nodes.
    Known(Arc<AssembledResponse>),
}

/// Stored entries that are served if a request fails.
pub(super) struct Backup {
    /// The entries as the response that the subgraph would have sent.
    pub(super) response: SubgraphResponse,
    /// The index of the fetch.
    pub(super) fetch: usize,
    /// The number of entries.
    pub(super) entries: usize,
    /// The age of the oldest one.
    pub(super) oldest: Duration,
}

impl OutgoingRequest<'_> {
    /// Creates the request that sends `body` for `operation`.
    pub(super) fn subgraph(operation: &SubgraphOperation, body: Bytes) -> Self {
        let is_mutation = operation.kind == OperationKind::Mutation;
        Self::Subgraph {
            body,
            is_mutation,
            storing: None,
            backup: None,
            changes: MutationChanges::default(),
        }
    }
}

/// The result of a request.
pub(super) enum RequestOutcome {
    Response(Result<SubgraphResponse, FetchError>),
    /// A response from the cache.
    Stored(Box<StoredResponse>),
    /// The requests of other operations have ended.
    Awaited,
    /// The entries of the shared store are in the store of the process.
    LookedUpShared(FlightGuard, FetchLocks),
    Published(Result<bool, GraphqlError>),
    Requested(Result<Bytes, GraphqlError>),
}

/// Sends a request, and returns its result with its number. `place` is for the trace, and `times` has those of the
/// fetch.
pub(super) async fn send_request<'a>(
    request: usize,
    (fetch, place, times): (&'a Fetch, FetchPlace, &'a FetchTimes),
    call: OutgoingRequest<'a>,
    context: &'a RequestContext,
) -> (usize, RequestOutcome) {
    let publisher = &context.generation.publisher;
    let outcome = match call {
        OutgoingRequest::Subgraph { body, is_mutation, storing, backup, changes } => {
            let subgraph = fetch.subgraph;
            let running = times.begin();
            let result = shared_fetch::fetch(
                context,
                (subgraph, place),
                body,
                is_mutation,
                storing,
                changes,
            )
            .await;
            running.end_fetch(&result);
            RequestOutcome::Response(match backup {
                Some(backup) if has_failed(&result) => {
                    if let Some(trace) = &context.trace {
                        trace.record_use_of_backup(backup.fetch, backup.entries, backup.oldest);
                    }
                    Ok(backup.response)
                }
                _ => result,
            })
        }
        OutgoingRequest::Stored(response) => RequestOutcome::Stored(response),
        OutgoingRequest::Await(in_flight) => {
            FetchesInFlight::wait(in_flight).await;
            RequestOutcome::Awaited
        }
        OutgoingRequest::LookUpShared { shared, wanted, guard } => {
            let filled = shared.fill(wanted).await;
            RequestOutcome::LookedUpShared(guard, filled.locks)
        }
        OutgoingRequest::Publish { event, arguments } => {
            let _guard = shared_fetch::guard_epoch(context);
            let (sending, running) = (MessageSending::begin(context, event), times.begin());
            let result = publisher.publish(sending.request(arguments)).await;
            running.end();
            sending.end(!matches!(result, Ok(true)));
            RequestOutcome::Published(result)
        }
        OutgoingRequest::Request { event, arguments, is_mutation } => {
            let _guard = is_mutation.then(|| shared_fetch::guard_epoch(context));
            let (sending, running) = (MessageSending::begin(context, event), times.begin());
            let result = publisher.request(sending.request(arguments)).await;
            running.end();
            sending.end(result.is_err());
            RequestOutcome::Requested(result)
        }
    };
    (request, outcome)
}

/// A message that is being sent.
struct MessageSending<'a> {
    context: &'a RequestContext,
    event: &'a EventField,
    /// The span and the start, if the operation has a trace with spans.
    span: Option<(Arc<OutgoingSpan>, Duration)>,
}

impl<'a> MessageSending<'a> {
    fn begin(context: &'a RequestContext, event: &'a EventField) -> Self {
        let trace = context.trace.as_ref();
        let span = trace.and_then(|it| Some((it.outgoing_span()?, it.now())));
        Self { context, event, span }
    }

    fn request(&self, arguments: Bytes) -> EventRequest<'_> {
        EventRequest {
            field: self.event.field,
            arguments,
            headers: self.context.headers.of(self.event.subgraph).forwarded,
            claims: self.context.claims.as_ref(),
            deadline: self.context.deadline,
            span: self.span.as_ref().map(|(span, _)| &**span),
        }
    }

    /// Records the end.
    fn end(self, has_failed: bool) {
        if let (Some(trace), Some((span, began))) = (&self.context.trace, self.span) {
            let took = trace.now().saturating_sub(began);
            let field = self.event.field;
            trace.record_message(MessageTrace { field, began, took, has_failed, span });
        }
    }
}

/// True if a stored response may be used in place of this one (`stale-if-error`, RFC 5861, section 4).
fn has_failed(result: &Result<SubgraphResponse, FetchError>) -> bool {
    match result {
        Ok(response) => response.status.is_server_error(),
        Err(_) => true,
    }
}

/// A request that was sent.
pub(super) struct SentRequest {
    /// The index of its fetch.
    pub(super) fetch: usize,
    /// The objects of each batch; empty if the request is not for entities.
    pub(super) collected: Vec<CollectedBatch>,
    /// The body, for requests with several aliases that have not been repeated yet, and for those that wait for others
    /// or for the shared store.
    pub(super) body: Bytes,
    /// The numbers of the root fields that it is about, if it is not about all of its fetch.
    pub(super) fields: Vec<u16>,
    /// True if its response has come.
    pub(super) is_finished: bool,
}

impl SentRequest {
    /// Returns the place of the request in its execution.
    pub(super) fn place(&self) -> FetchPlace {
        let entities = self.collected.iter().map(|batch| batch.items).sum();
        let deduplicated = self.collected.iter().map(CollectedBatch::deduplicated).sum();
        FetchPlace { fetch: self.fetch, entities, deduplicated }
    }

    /// Creates a request that is never repeated in parts.
    pub(super) fn whole(fetch: usize) -> Self {
        Self::entities(fetch, Vec::new(), Bytes::new())
    }

    /// Creates a request for entities. It can be repeated in parts if `body` is not empty.
    pub(super) fn entities(fetch: usize, collected: Vec<CollectedBatch>, body: Bytes) -> Self {
        Self { fetch, collected, body, fields: Vec::new(), is_finished: false }
    }
}
