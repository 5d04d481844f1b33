//! The trace of one operation that a client has sent over a WebSocket. It continues the trace that the operation names
//! in its `extensions`. The headers of the handshake are not kept for it: they would make the context of each
//! connection different from all others, and one trace would have all operations of a connection.

use std::sync::Arc;

use bytes::Bytes;
use clients::trace_headers::read_trace_extensions;
use serving::operation_spans::OperationSpans;
use serving::serving::Serving;
use telemetry::spans::{Attribute, RequestSpans, RootSpan, SpanKind, TraceId, Tracer};

/// The span of the operation's message. It ends when it is dropped.
pub(crate) struct WebSocketSpan {
    spans: Arc<RequestSpans>,
    path: Box<str>,
    /// The name of the graph, if there are several.
    graph: Option<Arc<str>>,
    transport: &'static str,
}

impl WebSocketSpan {
    /// Begins the span of an operation with these `extensions` on the graph that `serving` has.
    pub(crate) fn begin(
        tracer: &Arc<Tracer>,
        serving: &Serving,
        transport: &'static str,
        extensions: &Bytes,
    ) -> Self {
        let incoming = read_trace_extensions(tracer.propagation(), extensions);
        Self {
            spans: RequestSpans::start(tracer, incoming),
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
