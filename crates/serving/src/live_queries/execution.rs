//! One live query on one graph, and its execution.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::Dependencies;
use clients::error_mapping;
use execute::{
    ForwardedHeaders, Generation, Payload, RequestCaching, RequestContext, Sharing, Trace,
};
use plan::Variables;
use prepare::Prepared;
use telemetry::spans::RemoteParent;

/// A live query on one graph.
pub(crate) struct LiveExecution {
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
    /// The span of the operation that began the query, if that has a trace. After a reload there is none.
    pub(crate) cause: Option<RemoteParent>,
}

impl LiveExecution {
    /// True if the query needs a subgraph that takes several times longer than usual at present.
    pub(super) fn needs_slow_subgraph(&self) -> bool {
        self.generation.needs_slow_subgraph(&self.prepared.plan)
    }

    /// Executes the query. Never fails: errors are in the payload. `trace` gets its requests to subgraphs.
    pub(super) async fn execute(
        &self,
        sharing: Option<Arc<Sharing>>,
        trace: Option<Arc<Trace>>,
    ) -> (Payload, Dependencies) {
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
            trace,
            // Fields that depend on claims are refused.
            claims: None,
            uploads: None,
            closed_subgraphs: None,
            caching: Some(self.caching),
        };
        let executable = &self.prepared.executable;
        let (payload, dependencies) =
            execute::execute_live(executable, &self.variables, introspection, &context).await;
        // A stream has no headers of subgraphs, and its results are not stored.
        (Payload { headers: None, caching: None, ..payload }, dependencies)
    }
}
