//! Traces: the spans of requests and events, recorded in one buffer for each and exported only if they are selected.
//!
//! - [`Tracer`] has the rules of sampling and the queue of traces that wait for the exporter.
//! - [`RequestSpans`] is the buffer of one request or event. It ends with its last reference, and decides then: by the
//!   draw at its beginning, by its duration, and by its failure. What is not exported is never converted to spans.
//! - [`FlightRecorder`] keeps the last slow and failed ones for operators, exported or not.
//! - [`SpanSource`] is a compact record that becomes spans at the export.
//! - [`OutgoingSpan`] is the span of a request to another server, which gets its identity in headers.
//! - [`Propagation`] reads and writes those headers, in the formats of several systems.
//!
//! This module sends nothing: the crate `otlp` does. It knows neither GraphQL nor HTTP.

mod exemplar_span;
mod flight_recorder;
mod identity;
mod outgoing_span;
mod propagation;
mod request_spans;
mod span;
mod span_queue;
mod tracer;

pub use exemplar_span::ExemplarSpan;
pub use flight_recorder::{
    FlightRecorder, RECORDER_METRICS, RecordReason, RecordedTrace, RecorderSettings, RecorderStats,
};
pub use identity::{SpanId, TraceId};
pub use outgoing_span::{MessageDestination, OutgoingSpan};
pub use propagation::{
    IncomingContext, Propagation, PropagationFormat, RemoteParent, TraceContext,
};
pub use request_spans::{RequestSpans, RootSpan, SOURCES_MAX, SpanSource};
pub use span::{Attribute, AttributeValue, FinishedTrace, Span, SpanKind, SpanList};
pub use span_queue::{SPAN_METRICS, SpanStats};
pub use tracer::{SamplingRules, Tracer, TracerSettings};
