//! The identity of a trace, and the formats in which it is read and written.

use crate::spans::identity::{SpanId, TraceId};

/// A way to write the identity of a trace into headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropagationFormat {
    /// `traceparent` and `tracestate` (W3C Trace Context).
    TraceContext,
    /// `baggage` (W3C Baggage): no identity, but values that are passed on unchanged.
    Baggage,
    /// `b3`, the single header of Zipkin.
    B3,
    /// `x-b3-traceid`, `x-b3-spanid` and `x-b3-sampled`, the several headers of Zipkin.
    B3Multi,
    /// `uber-trace-id` of Jaeger.
    Jaeger,
    /// `x-datadog-trace-id`, `x-datadog-parent-id`, `x-datadog-sampling-priority` and `x-datadog-tags`.
    Datadog,
}

impl PropagationFormat {
    const ALL: [Self; 6] =
        [Self::TraceContext, Self::Baggage, Self::B3, Self::B3Multi, Self::Jaeger, Self::Datadog];
}

/// The formats that a router reads and writes, each at most once, the preferred ones first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Propagation {
    formats: [Option<PropagationFormat>; PropagationFormat::ALL.len()],
}

/// The part of a trace's identity that all its spans share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: TraceId,
    /// True if the trace was selected at its beginning. The headers for other servers contain it.
    pub is_sampled: bool,
    /// The header `tracestate`, which is passed on unchanged.
    pub state: Option<Box<str>>,
    /// The header `baggage`, which is passed on unchanged.
    pub baggage: Option<Box<str>>,
    /// The headers in which other servers get this identity.
    pub propagation: Propagation,
}

/// The span of a client that a request belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteParent {
    /// The id of its trace.
    pub trace: TraceId,
    /// Its own id.
    pub span: SpanId,
    /// True if the client has selected the trace, false if not; `None` if it leaves that to the router.
    pub is_sampled: Option<bool>,
    /// The value of `tracestate`.
    pub state: Option<Box<str>>,
}

/// The facts about traces in the headers of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IncomingContext {
    /// The span of the client.
    pub parent: Option<RemoteParent>,
    /// The value of `baggage`.
    pub baggage: Option<Box<str>>,
}

impl Default for Propagation {
    /// W3C Trace Context only.
    fn default() -> Self {
        Self::new([PropagationFormat::TraceContext])
    }
}

impl Propagation {
    /// Creates a list of formats. Repetitions are left out.
    pub fn new(formats: impl IntoIterator<Item = PropagationFormat>) -> Self {
        let mut list = [None; PropagationFormat::ALL.len()];
        for format in formats {
            if !list.contains(&Some(format))
                && let Some(free) = list.iter_mut().find(|it| it.is_none())
            {
                *free = Some(format);
            }
        }
        Self { formats: list }
    }

    /// Iterates over the formats.
    pub fn formats(&self) -> impl Iterator<Item = PropagationFormat> + '_ {
        self.formats.iter().flatten().copied()
    }
}
