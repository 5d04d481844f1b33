//! How an event becomes a payload, and where. The hub itself knows nothing of plans.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{
    ClaimValues, Executable, ForwardedHeaders, Generation, LocalFuture, Payload, RequestContext,
    Seed, StatePlan,
};
use plan::{SubscriptionRoot, Variables};
use prepare::OperationRequest;

use crate::binding::trace;
use crate::{PayloadMapping, Resolve, TriggerEvent};

/// A job that starts on another thread and stays there.
pub type Job = Box<dyn FnOnce() -> LocalFuture<'static, ()> + Send>;

/// The threads that execute operations. Only what is `Send` crosses: the closure in, bytes out.
pub trait Cores: Send + Sync {
    /// Places the job on a core and returns at once. A job that cannot be placed is dropped.
    fn run(&self, job: Job);
}

/// Resolves by executing the subscription's plan.
#[derive(Clone, Debug)]
pub struct EventResolver {
    /// The plan.
    pub executable: Arc<Executable>,
    /// How the current state is asked for, where the field has one.
    pub state: Option<Arc<StatePlan>>,
    /// The values of the operation's variables.
    pub variables: Arc<Variables>,
    /// The graph it runs on.
    pub generation: Arc<Generation>,
    /// To send along; part of the group's partition.
    pub headers: Arc<ForwardedHeaders>,
    /// The claims that decided about it, and those that its cursors are bound to; part of the group's partition.
    pub claims: ClaimValues,
    /// What becomes of an event before it is the value of the root field; see [`crate::Bindings::payload_mapping`].
    pub payload: Option<Arc<PayloadMapping>>,
    /// How long one event may take. What is not there by then is null and has an error.
    pub timeout: Duration,
    /// What the client asked for: to be prepared again when the graph is replaced.
    pub request: OperationRequest,
    /// A guard that is dropped with the group that the operation makes, on whatever graph: the place that it takes.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl EventResolver {
    /// What the execution for an event starts from, and what travels with it.
    fn begin(&self, event: &TriggerEvent) -> (Seed, RequestContext) {
        let payload = match (event.too_large, &self.payload) {
            (Some(bytes), _) => Err(format!("has {bytes} bytes, which is more than is accepted")),
            (None, Some(mapping)) => mapping.apply(&event.event),
            (None, None) => Ok(event.event.payload.clone()),
        };
        let context = RequestContext {
            generation: Arc::clone(&self.generation),
            headers: trace::with_context_of(&event.event, &self.headers),
            deadline: Instant::now() + self.timeout,
            // An event says that something has changed: a query that is older than it would not know.
            sharing: event.sharing.clone(),
            trace: None,
            // Fields that read them are roots of queries and mutations.
            claims: None,
        };
        (payload.map_or_else(Seed::BadEvent, Seed::Event), context)
    }
}

impl Resolve for EventResolver {
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
        Box::pin(async move {
            let (seed, context) = self.begin(&event);
            execute::execute(&self.executable, &self.variables, None, seed, &context).await
        })
    }

    fn operation_name(&self) -> Option<&str> {
        self.request.operation_name.as_deref()
    }

    fn takes_batches(&self) -> bool {
        // Without anything to ask for, events have nothing in common.
        !self.executable.plan().fetches.is_empty()
    }

    fn resolve_batch(
        self: Arc<Self>,
        events: Vec<TriggerEvent>,
    ) -> LocalFuture<'static, Vec<Payload>> {
        Box::pin(async move {
            let events = events.iter().map(|event| self.begin(event)).collect();
            execute::execute_together(&self.executable, &self.variables, events).await
        })
    }

    fn has_state(&self) -> bool {
        self.state.is_some()
    }

    fn state(self: Arc<Self>) -> LocalFuture<'static, Option<Payload>> {
        Box::pin(async move {
            let plan = self.state.as_ref()?;
            let Some(SubscriptionRoot::Event(root)) = &self.executable.plan().subscription else {
                return None;
            };
            let context = RequestContext {
                generation: Arc::clone(&self.generation),
                headers: Arc::clone(&self.headers),
                deadline: Instant::now() + self.timeout,
                // It must not be older than the subscription.
                sharing: None,
                trace: None,
                // As above: what depends on them is refused.
                claims: None,
            };
            execute::state(plan, &root.arguments, &self.variables, &context).await
        })
    }
}
