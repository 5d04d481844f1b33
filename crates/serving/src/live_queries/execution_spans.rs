//! The trace of one execution of a live query.
//!
//! No request of a client causes an execution, and its result is for all watchers. So each has a trace of its own, with
//! a link to the operation that began the query.

use std::sync::Arc;

use execute::Trace;
use telemetry::spans::{
    Attribute, IncomingContext, RequestSpans, RootSpan, SpanId, SpanKind, SpanList, SpanSource,
    Tracer,
};

use super::execution::LiveExecution;
use crate::operation_spans::{identity, shorten};

/// The trace of an execution in progress. It is dropped without a span if the execution has no result.
pub(super) struct ExecutionSpans {
    spans: Arc<RequestSpans>,
    /// The requests to subgraphs, which get the identity of the trace.
    pub(super) trace: Arc<Trace>,
}

/// The facts about an execution that has ended.
struct ExecutionRecord {
    execution: Arc<LiveExecution>,
    trace: Arc<Trace>,
}

impl ExecutionSpans {
    /// Begins the trace of an execution.
    pub(super) fn begin(tracer: &Arc<Tracer>, execution: &LiveExecution) -> Self {
        // The baggage of one watcher concerns no other one.
        let incoming = IncomingContext { parent: execution.cause.clone(), baggage: None };
        let spans = RequestSpans::start_linked(tracer, incoming);
        let trace = Arc::new(Trace::with_spans(spans.context()));
        Self { spans, trace }
    }

    /// Ends the trace. An execution with errors has failed.
    pub(super) fn finish(self, execution: &Arc<LiveExecution>, has_failed: bool) {
        let Self { spans, trace } = self;
        if !spans.is_recorded() {
            return;
        }
        let name = match execution.prepared.name.as_deref() {
            Some(name) => format!("live query {}", shorten(name)).into(),
            None => "live query".into(),
        };
        spans.add(Box::new(ExecutionRecord { execution: Arc::clone(execution), trace }));
        spans.finish(has_failed, move || RootSpan {
            name,
            kind: SpanKind::Internal,
            // The record adds those of the operation.
            attributes: Vec::new(),
            error: has_failed.then(|| "the result has errors".into()),
        });
    }
}

impl SpanSource for ExecutionRecord {
    fn write_spans(&self, root: SpanId, list: &mut SpanList) {
        let LiveExecution { prepared, generation, .. } = &*self.execution;
        execute::write_spans(&self.trace, &prepared.plan, generation, root, list);
    }

    fn root_attributes(&self) -> Vec<Attribute> {
        identity(&self.execution.prepared)
    }
}
