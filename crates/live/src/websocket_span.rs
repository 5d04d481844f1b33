//! The trace of one operation that a client has sent over a WebSocket. It continues no trace of the client: the headers
//! of the handshake are not kept for it, because they would make the context of each connection different from all
//! others.

use std::sync::Arc;

use serving::operation_spans::OperationSpans;
use telemetry::spans::{Attribute, IncomingContext, RequestSpans, RootSpan, SpanKind, Tracer};

/// The span of the operation's message. It ends when it is dropped.
pub(crate) struct WebSocketSpan {
    spans: Arc<RequestSpans>,
    path: Box<str>,
    transport: &'static str,
}

impl WebSocketSpan {
    /// Begins the span. `path` is that of the endpoint.
    pub(crate) fn begin(tracer: &Arc<Tracer>, path: &str, transport: &'static str) -> Self {
        Self {
            spans: RequestSpans::start(tracer, IncomingContext::default()),
            path: path.into(),
            transport,
        }
    }

    /// Begins the record of the operation.
    pub(crate) fn begin_operation(&self) -> Arc<OperationSpans> {
        OperationSpans::begin(&self.spans)
    }
}

impl Drop for WebSocketSpan {
    fn drop(&mut self) {
        let (path, transport) = (std::mem::take(&mut self.path), self.transport);
        self.spans.finish(false, move || RootSpan {
            name: "WebSocket operation".into(),
            kind: SpanKind::Server,
            attributes: vec![
                Attribute::text("network.protocol.name", transport),
                Attribute::text("url.path", String::from(path)),
            ],
            error: None,
        });
    }
}
