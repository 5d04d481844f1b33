//! The identity of a span that was measured, for the exemplars of metrics.

use crate::spans::{SpanId, TraceId};

/// The span of an observation, in a trace that is exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExemplarSpan {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}
