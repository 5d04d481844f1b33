//! How an event becomes a payload, and where. The hub itself knows nothing of plans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{
    ErrorCode, Executable, ForwardedHeaders, Generation, GraphqlError, LocalFuture, Payload,
    RequestContext, Seed,
};
use plan::Variables;
use prepare::OperationRequest;

use crate::{Resolve, TriggerEvent};

/// Largest event in bytes that is resolved. Brokers that allow more are rare (NATS takes 1 MiB unless told
/// otherwise), and an event is meant to carry keys, not documents.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A job that starts on another thread and stays there.
pub type Job = Box<dyn FnOnce() -> LocalFuture<'static, ()> + Send>;

/// The threads that execute operations. Only what is `Send` crosses: the closure in, bytes out.
pub trait Cores: Send + Sync {
    /// Places the job on a core and returns at once. A job that cannot be placed is dropped.
    fn run(&self, job: Job);
}

/// Resolves by executing the subscription's plan.
#[derive(Debug)]
pub struct EventResolver {
    /// The plan.
    pub executable: Arc<Executable>,
    /// The values of the operation's variables.
    pub variables: Arc<Variables>,
    /// The graph it runs on.
    pub generation: Arc<Generation>,
    /// To send along; part of the group's partition.
    pub headers: Arc<ForwardedHeaders>,
    /// How long one event may take. What is not there by then is null and has an error.
    pub timeout: Duration,
    /// What the client asked for: to be prepared again when the graph is replaced.
    pub request: OperationRequest,
}

impl Resolve for EventResolver {
    fn resolve(self: Arc<Self>, event: TriggerEvent) -> LocalFuture<'static, Payload> {
        Box::pin(async move {
            if event.event.payload.len() > EVENT_BYTES_MAX {
                let message = "The event is larger than 8 MiB.";
                let error = GraphqlError::new(ErrorCode::InvalidEvent, message);
                return execute::request_error(&[error]);
            }
            let context = RequestContext {
                generation: Arc::clone(&self.generation),
                headers: Arc::clone(&self.headers),
                deadline: Instant::now() + self.timeout,
                // An event says that something has changed: a query that is older than it would not know.
                sharing: event.sharing,
                trace: None,
            };
            let seed = Seed::Event(event.event.payload.clone());
            execute::execute(&self.executable, &self.variables, None, seed, &context).await
        })
    }
}
