//! The resolution of events by executing the subscription's plan, and the interface to the threads that execute it. The
//! hub itself knows nothing of plans.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bindings::PayloadMapping;
use execute::{
    ClaimValues, Executable, ForwardedHeaders, Generation, LocalFuture, Payload, RequestContext,
    Revision, Seed, StatePlan,
};
use plan::{SubscriptionRoot, Variables};
use prepare::{DecidedRequirements, OperationRequest};
use telemetry::spans::RemoteParent;

use crate::{GroupSpans, Resolve, TriggerEvent};

/// A job that starts on another thread and stays there.
pub type Job = Box<dyn FnOnce() -> LocalFuture<'static, ()> + Send>;

/// The threads that execute operations. Only `Send` values cross: the closure in one direction, bytes in the other.
pub trait Workers: Send + Sync {
    /// Schedules the job on a core and returns at once. A job that cannot be scheduled is dropped.
    fn run(&self, job: Job);
}

/// Resolves events by executing the subscription's plan.
#[derive(Clone, Debug)]
pub struct EventResolver {
    /// The plan.
    pub executable: Arc<Executable>,
    /// The plan that fetches the current state, where the field has one.
    pub state: Option<Arc<StatePlan>>,
    /// The values of the operation's variables.
    pub variables: Arc<Variables>,
    /// The graph that the operation runs on.
    pub generation: Arc<Generation>,
    /// The headers that are forwarded; part of the group's partition.
    pub headers: Arc<ForwardedHeaders>,
    /// True if the headers are those of one member only and others may have different ones: no subgraph is asked with
    /// them.
    pub has_mixed_headers: bool,
    /// The claims that authorized the operation, and the claims that its cursors are bound to; part of the group's
    /// partition.
    pub claims: ClaimValues,
    /// The decisions about the requirements of the operation (`@authenticated`, `@requiresScopes`, `@policy`). They are
    /// equal for all subscribers of the group, because they are part of the operation's identity.
    pub decided: DecidedRequirements,
    /// The mapping from an event to the value of the root field; see [`bindings::Bindings::payload_mapping`].
    pub payload: Option<Arc<PayloadMapping>>,
    /// The maximum time for one event. A field that is not resolved by then is null, with an error.
    pub timeout: Duration,
    /// The client's request, which is prepared again when the graph is replaced.
    pub request: OperationRequest,
    /// The span of the client's operation, if it has a trace and the field has a current state.
    pub cause: Option<Arc<RemoteParent>>,
    /// A guard for the group's share of a limit. It is dropped with the last group that the operation makes, on any
    /// graph.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl EventResolver {
    /// Returns the seed and the context of the execution for an event.
    fn begin(&self, event: &TriggerEvent) -> (Seed, RequestContext) {
        let payload = match (event.too_large, &self.payload) {
            (Some(bytes), _) => Err(format!("has {bytes} bytes, which is more than is accepted")),
            (None, Some(mapping)) => mapping.apply(&event.event),
            (None, None) => Ok(event.event.payload.clone()),
        };
        let trace = event.spans.as_ref();
        let trace = trace.map(|it| it.begin_execution(self.executable.plan(), &self.generation));
        let headers = match trace {
            // Subgraphs get the identity of the event's own trace.
            Some(_) => Arc::clone(&self.headers),
            None => bindings::with_event_trace_context(&event.event, &self.headers),
        };
        let context = RequestContext {
            uploads: None,
            closed_subgraphs: None,
            caching: None,
            generation: Arc::clone(&self.generation),
            headers,
            deadline: Instant::now() + self.timeout,
            // An event reports a change, so a query from before the event must not be shared.
            sharing: event.sharing.clone(),
            trace,
            // Only root fields of queries and mutations read claims.
            claims: None,
        };
        (payload.map_or_else(Seed::BadEvent, Seed::Event), context)
    }
}

/// Notes the end of the resolution in the traces of events.
fn note_resolved<'e>(events: impl IntoIterator<Item = &'e TriggerEvent>) {
    let mut now = None;
    for spans in events.into_iter().filter_map(|event| event.spans.as_ref()) {
        spans.note_resolved(*now.get_or_insert_with(Instant::now));
    }
}

impl Resolve for EventResolver {
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
        Box::pin(async move {
            let (seed, context) = self.begin(&event);
            let executing =
                execute::execute(&self.executable, &self.variables, None, seed, &context);
            let payload = executing.await;
            note_resolved([&event]);
            payload
        })
    }

    fn operation_name(&self) -> Option<&str> {
        self.request.operation_name.as_deref()
    }

    fn waits(&self) -> bool {
        !self.executable.plan().fetches.is_empty()
    }

    fn needs_slow_subgraph(&self) -> bool {
        self.generation.needs_slow_subgraph(self.executable.plan())
    }

    fn takes_batches(&self) -> bool {
        // Without a fetch, events have nothing in common.
        !self.executable.plan().fetches.is_empty()
    }

    fn resolve_batch(
        self: Arc<Self>,
        events: Vec<TriggerEvent>,
    ) -> LocalFuture<'static, Vec<Payload>> {
        Box::pin(async move {
            let seeds = events.iter().map(|event| self.begin(event)).collect();
            let executing = execute::execute_batch(&self.executable, &self.variables, seeds);
            let payloads = executing.await;
            note_resolved(&events);
            payloads
        })
    }

    fn has_state(&self) -> bool {
        self.state.is_some()
    }

    fn cause(&self) -> Option<&RemoteParent> {
        self.cause.as_deref()
    }

    fn state(
        self: Arc<Self>,
        _: Option<Revision>,
        spans: Option<Arc<GroupSpans>>,
    ) -> LocalFuture<'static, Option<Payload>> {
        Box::pin(async move {
            let plan = self.state.as_ref()?;
            let Some(SubscriptionRoot::Event(root)) = &self.executable.plan().subscription else {
                return None;
            };
            let trace = spans
                .as_ref()
                .zip(plan.plan())
                .map(|(spans, plan)| spans.begin_execution(plan, &self.generation));
            let context = RequestContext {
                uploads: None,
                closed_subgraphs: None,
                caching: None,
                generation: Arc::clone(&self.generation),
                headers: Arc::clone(&self.headers),
                deadline: Instant::now() + self.timeout,
                // The state must not be older than the subscription.
                sharing: None,
                trace,
                // As above: fields that depend on claims are refused.
                claims: None,
            };
            let fetching =
                execute::fetch_current_state(plan, &root.arguments, &self.variables, &context);
            let payload = fetching.await;
            if let Some(spans) = spans {
                spans.note_resolved(Instant::now());
            }
            payload
        })
    }
}
