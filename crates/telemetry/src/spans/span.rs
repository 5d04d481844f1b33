//! Spans in the form in which they are exported.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::spans::{RemoteParent, SpanId, TraceContext};

/// One step of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// The id.
    pub id: SpanId,
    /// The span that this one is a part of.
    pub parent: Option<SpanId>,
    /// The name: of few different values, so that collectors can group by it.
    pub name: Cow<'static, str>,
    /// The kind.
    pub kind: SpanKind,
    /// The beginning, in nanoseconds since 1970.
    pub began: u64,
    /// The end, in nanoseconds since 1970.
    pub ended: u64,
    /// The attributes, after OpenTelemetry's semantic conventions where there is one.
    pub attributes: Vec<Attribute>,
    /// The reason of the failure, if the step has failed.
    pub error: Option<Box<str>>,
    /// A span of another trace that caused this one.
    pub link: Option<Box<RemoteParent>>,
}

/// The kind of a span (OpenTelemetry specification, section "SpanKind").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SpanKind {
    /// A step inside the router.
    #[default]
    Internal,
    /// A request that the router serves.
    Server,
    /// A request that the router sends.
    Client,
    /// A message that the router sends.
    Producer,
    /// A message that the router receives.
    Consumer,
}

/// A property of a span.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    /// The name.
    pub name: Cow<'static, str>,
    /// The value.
    pub value: AttributeValue,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// A truth value.
    Flag(bool),
}

impl Attribute {
    /// Creates an attribute with a text.
    pub fn text(name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), value: AttributeValue::Text(value.into()) }
    }

    /// Creates an attribute with a number. A number that does not fit is the largest one that does.
    pub fn number(name: &'static str, value: impl TryInto<i64>) -> Self {
        let value = value.try_into().unwrap_or(i64::MAX);
        Self { name: name.into(), value: AttributeValue::Number(value) }
    }

    /// Creates an attribute with a truth value.
    pub fn flag(name: &'static str, value: bool) -> Self {
        Self { name: name.into(), value: AttributeValue::Flag(value) }
    }

    fn text_bytes(&self) -> usize {
        let value = match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Number(_) | AttributeValue::Flag(_) => 0,
        };
        self.name.len() + value
    }
}

impl Span {
    /// Returns the memory of the span, by estimate.
    pub(crate) fn bytes(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(Attribute::text_bytes).sum();
        let texts = self.name.len() + self.error.as_ref().map_or(0, |it| it.len()) + attributes;
        let state_bytes = |link: &RemoteParent| link.state.as_deref().map_or(0, str::len);
        let link = self.link.as_ref().map_or(0, |it| size_of::<RemoteParent>() + state_bytes(it));
        size_of::<Self>() + texts + link + self.attributes.capacity() * size_of::<Attribute>()
    }
}

/// The spans of a trace that are being collected for the export.
#[derive(Debug)]
pub struct SpanList {
    pub(crate) spans: Vec<Span>,
    pub(crate) spans_max: usize,
    /// The number of spans that were left out.
    pub(crate) left_out: u64,
    pub(crate) clock: TraceClock,
}

impl SpanList {
    /// Adds a span, unless the trace has as many as it may have.
    pub fn push(&mut self, span: Span) {
        match self.spans.len() < self.spans_max {
            true => self.spans.push(span),
            false => self.left_out += 1,
        }
    }

    /// Returns a point in time in nanoseconds since 1970.
    pub fn time(&self, instant: Instant) -> u64 {
        self.clock.time(instant)
    }

    /// Creates a span of a step inside the router, without attributes.
    pub fn internal(
        &self,
        parent: SpanId,
        name: Cow<'static, str>,
        (began, ended): (Instant, Instant),
    ) -> Span {
        Span {
            id: SpanId::random(),
            parent: Some(parent),
            name,
            kind: SpanKind::Internal,
            began: self.time(began),
            ended: self.time(ended),
            attributes: Vec::new(),
            error: None,
            link: None,
        }
    }
}

/// Converts instants, which only grow, to the time of the day. All spans of a trace use one clock, so that a change of
/// the system's time does not tear them apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceClock {
    began: Instant,
    began_at: u64,
}

impl TraceClock {
    pub(crate) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_at = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Self { began: Instant::now(), began_at }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn time(&self, instant: Instant) -> u64 {
        let nanos =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match instant.checked_duration_since(self.began) {
            Some(after) => self.began_at.saturating_add(nanos(after)),
            None => self.began_at.saturating_sub(nanos(self.began.duration_since(instant))),
        }
    }
}

/// A trace that waits for the exporter.
#[derive(Clone, Debug)]
pub struct FinishedTrace {
    /// The identity of the trace.
    pub context: Arc<TraceContext>,
    /// The spans of this process; the first one is the root.
    pub spans: Vec<Span>,
}

impl FinishedTrace {
    pub(crate) fn bytes(&self) -> usize {
        let TraceContext { state, baggage, .. } = &*self.context;
        let texts = [state, baggage].map(|text| text.as_deref().map_or(0, str::len));
        let context = size_of::<TraceContext>() + texts.iter().sum::<usize>();
        size_of::<Self>() + context + self.spans.iter().map(Span::bytes).sum::<usize>()
    }
}
