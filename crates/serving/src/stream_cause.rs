//! The span of the operation that began a subscription or a live query, for the requests to subgraphs that follow.
//!
//! A stream outlives its request, and other clients may share it. So it keeps the identity of the trace, but not the
//! trace itself, which ends when the stream is open.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use telemetry::spans::{RemoteParent, SpanId, TraceContext};

use crate::trace_formats::trace_headers;

/// The span that began a stream.
#[derive(Clone, Debug)]
pub struct StreamCause {
    /// The trace of the operation.
    pub(crate) context: Arc<TraceContext>,
    /// The span of the operation.
    pub(crate) span: SpanId,
}

impl StreamCause {
    /// Returns the headers with which a subgraph continues the trace, as a part of the operation.
    pub(crate) fn headers(&self) -> Arc<[(HeaderName, HeaderValue)]> {
        trace_headers(&self.context, self.span)
    }

    /// Returns the span as a link of other traces. It decides nothing about them: each execution of a live query is
    /// drawn by itself, whatever was decided about the operation of the first client.
    pub(crate) fn link(&self) -> RemoteParent {
        let state = self.context.state.clone();
        RemoteParent { trace: self.context.trace, span: self.span, is_sampled: None, state }
    }

    /// Returns the same link with the decision about the operation. The trace of an initial state follows it, because
    /// the state is fetched for the operation.
    pub(crate) fn decided_link(&self) -> RemoteParent {
        RemoteParent { is_sampled: Some(self.context.is_sampled), ..self.link() }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::spans::{Propagation, PropagationFormat, TraceId};

    use super::*;

    #[test]
    fn the_headers_have_all_formats_and_the_span_of_the_operation() {
        let formats = [PropagationFormat::TraceContext, PropagationFormat::B3];
        let context = TraceContext {
            trace: TraceId::new(10).expect("not zero"),
            is_sampled: true,
            state: Some("a=1".into()),
            baggage: Some("user=7".into()),
            propagation: Propagation::new(formats),
        };
        let cause = StreamCause { context: Arc::new(context), span: SpanId::random() };
        let (trace, span) = ("0000000000000000000000000000000a", cause.span);
        let expected = [
            ("traceparent", format!("00-{trace}-{span}-01")),
            ("tracestate", "a=1".to_owned()),
            ("b3", format!("{trace}-{span}-1")),
        ];
        let headers = cause.headers();
        let headers =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap().to_owned()));
        assert_eq!(headers.collect::<Vec<_>>(), expected);
        assert_eq!((cause.link().span, cause.link().is_sampled), (span, None));
        let decided = RemoteParent { is_sampled: Some(true), ..cause.link() };
        assert_eq!(cause.decided_link(), decided);
    }
}
