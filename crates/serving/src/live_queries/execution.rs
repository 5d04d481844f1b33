//! One live query on one graph: the source that the hub opens, the execution of the query, and the resolver of the
//! subscribers, who all get the latest result.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bindings::StateSource;
use cache::Dependencies;
use clients::error_mapping;
use events::{EventFuture, EventStream, SourceError};
use execute::{
    ErrorCode, ForwardedHeaders, Generation, GraphqlError, LocalFuture, Payload, RequestCaching,
    RequestContext, Revision, Sharing,
};
use hub::{Resolve, TriggerEvent};
use plan::Variables;
use prepare::{DecidedRequirements, OperationRequest, Prepared};

use super::LiveQueries;

/// A live query on one graph.
pub(crate) struct LiveExecution {
    /// The table that it joins when it is opened.
    pub(crate) queries: Arc<LiveQueries>,
    /// Everything that its results depend on, in a canonical form.
    pub(crate) identity: Box<[u8]>,
    /// The coordinate of its first root field.
    pub(crate) field: Box<str>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) variables: Arc<Variables>,
    pub(crate) generation: Arc<Generation>,
    /// The headers of the first watcher. Others may have different ones for subgraphs that the query does not use.
    pub(crate) headers: Arc<ForwardedHeaders>,
    /// The places of the rules for single subgraphs with headers that all watchers have in common.
    pub(crate) header_rules: Box<[usize]>,
    pub(crate) caching: RequestCaching,
    /// The maximum time of one execution.
    pub(crate) timeout: Duration,
    /// The minimum time between two results that the client asks for.
    pub(crate) throttle: Duration,
    /// True if the client asks for results as patches.
    pub(crate) wants_patches: bool,
}

impl LiveExecution {
    /// Executes the query. Never fails: errors are in the payload.
    pub(super) async fn execute(&self, sharing: Option<Arc<Sharing>>) -> (Payload, Dependencies) {
        let introspection = match self.prepared.introspect(&self.variables) {
            Ok(introspection) => introspection,
            Err(error) => {
                let payload = execute::request_error(&error_mapping::errors(&error));
                return (payload, Dependencies::default());
            }
        };
        let context = RequestContext {
            generation: Arc::clone(&self.generation),
            headers: Arc::clone(&self.headers),
            deadline: Instant::now() + self.timeout,
            // A request that is in flight may be older than the invalidation.
            sharing,
            trace: None,
            // Fields that depend on claims are refused.
            claims: None,
            uploads: None,
            caching: Some(self.caching),
        };
        let executable = &self.prepared.executable;
        let (payload, dependencies) =
            execute::execute_live(executable, &self.variables, introspection, &context).await;
        // A stream has no headers of subgraphs, and its results are not stored.
        (Payload { headers: None, caching: None, ..payload }, dependencies)
    }

    /// Checks that another live query may begin, unless an equal one is there.
    ///
    /// # Errors
    /// `OVERLOADED`
    pub(crate) fn check_room(&self) -> Result<(), GraphqlError> {
        self.queries.check_room(&self.identity)
    }
}

impl StateSource for LiveExecution {
    fn name(&self) -> &str {
        "live query"
    }

    fn identity(&self) -> &[u8] {
        &self.identity
    }

    fn topics(&self) -> &[Box<str>] {
        std::slice::from_ref(&self.field)
    }

    fn open(self: Arc<Self>) -> EventFuture<'static, Result<EventStream, SourceError>> {
        Box::pin(async move {
            let stream = self.queries.begin(Arc::clone(&self));
            // Subscribers wait for the first result here, where they take the place of no event that could be resolved.
            self.queries.wait_for_result(&self.identity).await;
            Ok(stream)
        })
    }
}

/// Gives the latest result of a live query to the subscribers of a group.
#[derive(Clone)]
pub(crate) struct LiveResolver {
    /// The query. Another equal one may be the one that was opened.
    pub(crate) execution: Arc<LiveExecution>,
    /// The decisions about the requirements of the operation.
    pub(crate) decided: DecidedRequirements,
    /// The client's request, which is prepared again when the graph is replaced.
    pub(crate) request: OperationRequest,
    /// A guard for the group's share of a limit.
    pub(crate) held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Resolve for LiveResolver {
    fn resolve(self: Arc<Self>, _: TriggerEvent) -> LocalFuture<'static, Payload> {
        Box::pin(async move {
            let state = self.state(None).await;
            state.unwrap_or_else(|| {
                let message = "The live query has ended.";
                execute::request_error(&[GraphqlError::new(ErrorCode::ShuttingDown, message)])
            })
        })
    }

    fn operation_name(&self) -> Option<&str> {
        self.request.operation_name.as_deref()
    }

    fn has_state(&self) -> bool {
        true
    }

    fn state(self: Arc<Self>, known: Option<Revision>) -> LocalFuture<'static, Option<Payload>> {
        Box::pin(async move {
            let LiveExecution { queries, identity, .. } = &*self.execution;
            queries.next_payload(identity, known).await
        })
    }
}
