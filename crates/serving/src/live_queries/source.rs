//! A live query as the hub sees it: the source that it opens, and the resolver of the subscribers, which all get the
//! latest result.

use std::any::Any;
use std::sync::Arc;

use bindings::StateSource;
use events::{EventFuture, EventStream};
use execute::{ErrorCode, GraphqlError, LocalFuture, Payload, Revision};
use hub::{GroupSpans, Resolve, TriggerEvent};
use prepare::{DecidedRequirements, OperationRequest};

use super::execution::LiveExecution;
use super::query_table::LiveQueries;

/// The source of the results of a live query.
pub(crate) struct LiveSource {
    /// The table that the query joins when it is opened.
    pub(crate) queries: Arc<LiveQueries>,
    /// The query.
    pub(crate) execution: Arc<LiveExecution>,
}

impl LiveSource {
    /// Checks that another live query may begin, unless an equal one is there.
    ///
    /// # Errors
    /// `OVERLOADED`
    pub(crate) fn check_room(&self) -> Result<(), GraphqlError> {
        self.queries.check_room(&self.execution.identity)
    }
}

impl StateSource for LiveSource {
    fn name(&self) -> &str {
        "live query"
    }

    fn identity(&self) -> &[u8] {
        &self.execution.identity
    }

    fn topics(&self) -> &[Box<str>] {
        std::slice::from_ref(&self.execution.field)
    }

    fn open(self: Arc<Self>) -> EventFuture<'static, EventStream> {
        Box::pin(async move {
            let stream = self.queries.begin(Arc::clone(&self.execution));
            // Subscribers wait for the first result here, where they take the place of no event that could be resolved.
            self.queries.wait_for_result(&self.execution.identity).await;
            stream
        })
    }
}

/// Gives the latest result of a live query to the subscribers of a group.
#[derive(Clone)]
pub(crate) struct LiveResolver {
    /// The source of the query. That of another equal query may be the one that was opened.
    pub(crate) source: Arc<LiveSource>,
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
            let state = self.state(None, None).await;
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

    // The executions have traces of their own.
    fn state(
        self: Arc<Self>,
        known: Option<Revision>,
        _: Option<Arc<GroupSpans>>,
    ) -> LocalFuture<'static, Option<Payload>> {
        Box::pin(async move {
            let LiveSource { queries, execution } = &*self.source;
            queries.next_payload(&execution.identity, known).await
        })
    }
}
