//! The trace of one operation that a client has sent over a WebSocket. It continues no trace of the client: the headers
//! of the handshake are not kept for it, because they would make the context of each connection different from all
//! others.

use std::sync::Arc;

use serving::operation_spans::OperationSpans;
use serving::serving::Serving;
use telemetry::spans::{
    Attribute, IncomingContext, RequestSpans, RootSpan, SpanKind, TraceId, Tracer,
};

/// The span of the operation's message. It ends when it is dropped.
pub(crate) struct WebSocketSpan {
    spans: Arc<RequestSpans>,
    path: Box<str>,
    /// The name of the graph, if there are several.
    graph: Option<Arc<str>>,
    transport: &'static str,
}

impl WebSocketSpan {
    /// Begins the span of an operation on the graph that `serving` has.
    pub(crate) fn begin(tracer: &Arc<Tracer>, serving: &Serving, transport: &'static str) -> Self {
        Self {
            spans: RequestSpans::start(tracer, IncomingContext::default()),
            path: serving.path.clone(),
            graph: serving.graph_name.clone(),
            transport,
        }
    }

    /// Returns the id of the trace.
    pub(crate) fn trace(&self) -> TraceId {
        self.spans.context().trace
    }

    /// Begins the record of the operation.
    pub(crate) fn begin_operation(&self) -> Arc<OperationSpans> {
        OperationSpans::begin(&self.spans)
    }
}

impl Drop for WebSocketSpan {
    fn drop(&mut self) {
        let (path, transport) = (std::mem::take(&mut self.path), self.transport);
        let graph = self.graph.take();
        self.spans.finish(false, move || {
            let mut attributes = vec![
                Attribute::text("network.protocol.name", transport),
                Attribute::text("url.path", String::from(path)),
            ];
            let graph = graph.map(|it| Attribute::text("starling.graph.name", String::from(&*it)));
            attributes.extend(graph);
            let (name, kind) = ("WebSocket operation".into(), SpanKind::Server);
            RootSpan { name, kind, attributes, error: None }
        });
    }
}
