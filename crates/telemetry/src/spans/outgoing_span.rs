//! The span of one request to another server, or of one message to a broker.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::spans::{ExemplarSpan, SpanId, TraceContext};

/// A span that another server continues. The sender writes its identity into the headers, and notes its own facts here.
#[derive(Debug)]
pub struct OutgoingSpan {
    /// The trace.
    pub context: Arc<TraceContext>,
    /// The id of the span.
    pub id: SpanId,
    retries: AtomicU32,
    destination: OnceLock<MessageDestination>,
}

/// The destination of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageDestination {
    /// The name of the broker in the configuration, with its kind: `nats/default`.
    pub provider: Box<str>,
    /// The name of the topic, or its template, such as `moved.{{args.id}}`, if it contains values of the request.
    pub topic: Box<str>,
    /// True if `topic` is a template.
    pub is_template: bool,
}

impl OutgoingSpan {
    /// Creates a span with a new id.
    pub fn new(context: &Arc<TraceContext>) -> Self {
        Self {
            context: Arc::clone(context),
            id: SpanId::random(),
            retries: AtomicU32::new(0),
            destination: OnceLock::new(),
        }
    }

    /// Calls `write` with each header for the other server, by name and value.
    pub fn write_headers(&self, write: impl FnMut(&'static str, &str)) {
        self.context.write_headers(self.id, write);
    }

    /// Returns the identity for an exemplar, if the trace is exported. Traces that are selected at their end have none
    /// here: the request to the other server ends before that.
    pub fn exemplar(&self) -> Option<ExemplarSpan> {
        let (trace, span) = (self.context.trace, self.id);
        self.context.is_sampled.then_some(ExemplarSpan { trace, span })
    }

    /// Notes that the request is sent again.
    pub fn note_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the request was sent again.
    pub fn retries(&self) -> u32 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Notes where the message goes. Only the first call counts.
    pub fn note_destination(&self, destination: MessageDestination) {
        let _ = self.destination.set(destination);
    }

    /// Returns where the message went, if that is known.
    pub fn destination(&self) -> Option<&MessageDestination> {
        self.destination.get()
    }
}
