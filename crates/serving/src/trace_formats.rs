//! The formats of trace identities in headers, from the configuration, and headers in these formats.

use std::sync::Arc;

use config::{TraceFormat, Tracing};
use http::{HeaderName, HeaderValue};
use telemetry::spans::{Propagation, PropagationFormat, SpanId, TraceContext};
use upstream::write_trace_headers;

/// Returns the formats that the configuration lists.
pub fn propagation(settings: &Tracing) -> Propagation {
    Propagation::new(settings.propagation.iter().map(|format| match format {
        TraceFormat::TraceContext => PropagationFormat::TraceContext,
        TraceFormat::Baggage => PropagationFormat::Baggage,
        TraceFormat::B3 => PropagationFormat::B3,
        TraceFormat::B3Multi => PropagationFormat::B3Multi,
        TraceFormat::Jaeger => PropagationFormat::Jaeger,
        TraceFormat::Datadog => PropagationFormat::Datadog,
    }))
}

/// Returns the headers with which a subgraph continues a trace, with `span` as the parent.
pub(crate) fn trace_headers(
    context: &TraceContext,
    span: SpanId,
) -> Arc<[(HeaderName, HeaderValue)]> {
    let mut headers = Vec::new();
    write_trace_headers(context, span, |name, value| headers.push((name, value)));
    headers.into()
}
