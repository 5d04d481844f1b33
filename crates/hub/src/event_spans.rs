//! The spans of one event, from its receipt to the last socket: one for the event, one for each group that resolves it,
//! and below that the requests to subgraphs, the printing and the broadcast. An initial state has the same spans, for
//! the one group that begins with it.
//!
//! [`EventSpans`] begins when the task of a shard receives the event, or a subscriber that may cause an initial state.
//! [`GroupSpans`] begins when a group starts to resolve it. Both keep facts that exist anyway, and end with their last
//! reference; the facts become spans if the trace is exported. Only the beginning of a trace reads a clock. The other
//! times come from the task of the shard, from the worker that resolves the event, and from the outlets.
//!
//! A stored event that is read again has one more trace: one for the groups that a side reader brings it to, or one for
//! each group that takes it from the ring of its trigger.
//!
//! A trace costs a decrement per subscriber at most: an outlet reports only the time at which it had served the last
//! recipient of a result.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use events::Event;
use execute::{Generation, Trace};
use plan::Plan;
use telemetry::spans::{
    Attribute, RemoteParent, RequestSpans, RootSpan, SOURCES_MAX, Span, SpanId, SpanKind, SpanList,
    SpanSource, Tracer,
};

use crate::{LiveOperation, TriggerEvent};

/// The maximum number of groups that a trace contains. One record of the trace is that of the filters.
const GROUPS_MAX: usize = SOURCES_MAX - 1;

/// The maximum length of a topic or an operation's name in a span. Longer ones are cut.
const TEXT_BYTES_MAX: usize = 256;

/// Records the traces of events and initial states.
#[derive(Clone, Debug)]
pub struct EventTracer {
    /// The rules of sampling, and the traces that wait for the exporter.
    pub tracer: Arc<Tracer>,
    /// The name of the graph, which the spans of events have; `None` if the process serves one graph only.
    pub graph: Option<Arc<str>>,
}

/// The trace of one event, or of an initial state. It ends with the last group that holds it.
pub(crate) struct EventSpans {
    spans: Arc<RequestSpans>,
    graph: Option<Arc<str>>,
    subject: TraceSubject,
    /// The time at which the event had been offered to all groups that it concerns, and their number.
    offered: OnceLock<(Instant, usize)>,
    /// The operation of the first group that resolves or drops it. `None`: it concerns no group, and is not exported.
    first: OnceLock<Arc<LiveOperation>>,
    /// The number of groups that resolve it.
    groups: AtomicUsize,
    /// The number of groups that dropped it because they were behind.
    dropped: AtomicUsize,
    /// The latest time that is known to belong to it, in nanoseconds since its receipt.
    ended: AtomicU64,
}

/// The subject of a trace.
enum TraceSubject {
    /// An event. `is_catching_up` is true if it was read again for groups that are behind.
    Event { topic: Arc<str>, payload_bytes: usize, is_catching_up: bool },
    /// The initial state for a new subscriber, and for those that share it.
    State,
}

impl EventSpans {
    /// Begins the trace of an event that has just been received. hot path: each event while tracing is on.
    pub(crate) fn begin(tracer: &EventTracer, event: &Event) -> Arc<Self> {
        Self::begin_event(tracer, event, event.payload.len(), false)
    }

    /// Begins the trace of a stored event that has just been read again, for groups that are behind.
    pub(crate) fn begin_catching_up(tracer: &EventTracer, event: &TriggerEvent) -> Arc<Self> {
        let payload_bytes = event.too_large.unwrap_or(event.event.payload.len());
        Self::begin_event(tracer, &event.event, payload_bytes, true)
    }

    fn begin_event(
        tracer: &EventTracer,
        event: &Event,
        payload_bytes: usize,
        is_catching_up: bool,
    ) -> Arc<Self> {
        let incoming = bindings::read_event_trace(tracer.tracer.propagation(), event);
        let spans = RequestSpans::start_linked(&tracer.tracer, incoming);
        let topic = Arc::clone(&event.topic);
        Self::new(tracer, spans, TraceSubject::Event { topic, payload_bytes, is_catching_up })
    }

    /// Begins the trace of the initial state for a subscriber that has just come. `cause` is the span of its operation.
    /// If the subscriber shares the state of another one, the trace is dropped.
    pub(crate) fn begin_state(tracer: &EventTracer, cause: Option<&RemoteParent>) -> Arc<Self> {
        let spans = RequestSpans::start_caused(&tracer.tracer, cause.cloned());
        Self::new(tracer, spans, TraceSubject::State)
    }

    fn new(tracer: &EventTracer, spans: Arc<RequestSpans>, subject: TraceSubject) -> Arc<Self> {
        Arc::new(Self {
            spans,
            graph: tracer.graph.clone(),
            subject,
            offered: OnceLock::new(),
            first: OnceLock::new(),
            groups: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Notes that the event has been offered to all groups that it concerns.
    pub(crate) fn note_offered(&self, at: Instant, groups: usize) {
        let _ = self.offered.set((at, groups));
        self.extend_to(at);
    }

    /// Notes that a group with that operation has dropped the event because it is behind.
    pub(crate) fn note_dropped(&self, operation: &Arc<LiveOperation>) {
        self.first.get_or_init(|| Arc::clone(operation));
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Begins the spans of a group that resolves the event. `None` if they would serve no purpose: nothing is exported,
    /// and no subgraph gets the identity of the trace.
    pub(crate) fn begin_group(
        self: &Arc<Self>,
        operation: &Arc<LiveOperation>,
    ) -> Option<Arc<GroupSpans>> {
        let is_recorded = self.spans.is_recorded() && {
            self.first.get_or_init(|| Arc::clone(operation));
            self.groups.fetch_add(1, Relaxed) < GROUPS_MAX
        };
        let is_state = matches!(self.subject, TraceSubject::State);
        if !is_recorded && !is_state && !operation.resolve.waits() {
            return None;
        }
        let record = is_recorded.then(|| {
            Box::new(GroupRecord {
                operation: Arc::clone(operation),
                is_state,
                began: self.spans.began(),
                batch_events: AtomicUsize::new(1),
                execution: OnceLock::new(),
                resolved: OnceLock::new(),
                has_errors: AtomicBool::new(false),
                broadcast: OnceLock::new(),
            })
        });
        Some(Arc::new(GroupSpans { event: Arc::clone(self), record }))
    }

    fn extend_to(&self, at: Instant) {
        self.ended
            .fetch_max(nanoseconds(at.saturating_duration_since(self.spans.began())), Relaxed);
    }
}

impl Drop for EventSpans {
    fn drop(&mut self) {
        let Some(first) = self.first.take().filter(|_| self.spans.is_recorded()) else { return };
        let began = self.spans.began();
        let groups = *self.groups.get_mut();
        let offered = self.offered.take();
        if let Some((at, _)) = offered {
            self.spans.add(Box::new(FilterRecord { began, offered: at }));
        }
        self.spans.leave_out(groups.saturating_sub(GROUPS_MAX) as u64);
        let facts = EventFacts {
            graph: self.graph.take(),
            subject: std::mem::replace(&mut self.subject, TraceSubject::State),
            groups: offered.map_or(groups, |(_, offered)| offered),
            is_one_operation: groups == 1,
            dropped: *self.dropped.get_mut(),
            first,
        };
        let at = began + Duration::from_nanos(*self.ended.get_mut());
        self.spans.finish_at(at, false, move || facts.into_span());
    }
}

/// The facts about an event or initial state at the end of its trace.
struct EventFacts {
    graph: Option<Arc<str>>,
    subject: TraceSubject,
    groups: usize,
    /// True if one group has resolved it.
    is_one_operation: bool,
    dropped: usize,
    first: Arc<LiveOperation>,
}

impl EventFacts {
    /// Returns the span of the event or initial state.
    fn into_span(self) -> RootSpan {
        let field = field_name(&self.first);
        let (name, kind, mut attributes) = match &self.subject {
            TraceSubject::Event { topic, payload_bytes, is_catching_up: _ } => {
                let attributes = self.message_attributes(topic, *payload_bytes);
                (format!("process {field}"), SpanKind::Consumer, attributes)
            }
            TraceSubject::State => {
                (format!("initial state {field}"), SpanKind::Internal, Vec::new())
            }
        };
        attributes.push(Attribute::text("starling.field", field.to_owned()));
        let graph = self.graph.as_deref().map(String::from);
        attributes.extend(graph.map(|it| Attribute::text("starling.graph.name", it)));
        if let TraceSubject::Event { is_catching_up, .. } = self.subject {
            attributes.push(Attribute::number("starling.event.groups", self.groups));
            if is_catching_up {
                attributes.push(Attribute::flag("starling.event.catching_up", true));
            }
        }
        if self.dropped > 0 {
            attributes.push(Attribute::number("starling.event.groups_dropped", self.dropped));
        }
        if self.is_one_operation {
            attributes.extend(identity(&self.first));
        }
        RootSpan { name: name.into(), kind, attributes, error: None }
    }

    /// Returns the attributes of the event's message (semantic conventions for messaging).
    fn message_attributes(&self, topic: &str, payload_bytes: usize) -> Vec<Attribute> {
        let source = &self.first.source;
        let mut attributes = Vec::new();
        if source.is_of_subgraph() {
            let subgraph = source.name().trim_start_matches("subgraph/").to_owned();
            attributes.push(Attribute::text("starling.subgraph", subgraph));
        } else {
            // A rendered topic may contain values of clients.
            let destination = match source.topic_template(topic) {
                Some(template) => {
                    Attribute::text("messaging.destination.template", String::from(template))
                }
                None => Attribute::text("messaging.destination.name", shorten(topic)),
            };
            let system = source.name().split('/').next().unwrap_or_default().to_owned();
            attributes.extend([
                Attribute::text("messaging.system", system),
                Attribute::text("messaging.operation.type", "process"),
                Attribute::text("messaging.operation.name", "process"),
                destination,
                Attribute::text("starling.provider", source.name().to_owned()),
            ]);
        }
        attributes.push(Attribute::number("messaging.message.body.size", payload_bytes));
        attributes
    }
}

/// The time from the receipt of an event until it was offered to all groups that it concerns.
struct FilterRecord {
    began: Instant,
    offered: Instant,
}

impl SpanSource for FilterRecord {
    fn write_spans(&self, root: SpanId, list: &mut SpanList) {
        list.push(list.internal(root, "filter".into(), (self.began, self.offered)));
    }
}

/// The spans of one group that resolves an event or an initial state. Outlets report the end of the broadcast to it.
pub struct GroupSpans {
    event: Arc<EventSpans>,
    /// `None` if the group is left out of the trace. Its requests to subgraphs still belong to it.
    record: Option<Box<GroupRecord>>,
}

/// The facts about the way of an event or an initial state through one group.
struct GroupRecord {
    operation: Arc<LiveOperation>,
    /// True for an initial state.
    is_state: bool,
    /// The receipt of the event. Replaced by the time at which the event was offered, once that is known.
    began: Instant,
    /// The number of events that are resolved together.
    batch_events: AtomicUsize,
    execution: OnceLock<GroupExecution>,
    resolved: OnceLock<Instant>,
    has_errors: AtomicBool,
    broadcast: OnceLock<Broadcast>,
}

struct GroupExecution {
    trace: Arc<Trace>,
    plan: Arc<Plan>,
    generation: Arc<Generation>,
}

/// The delivery of the result to all outlets of a group.
struct Broadcast {
    began: Instant,
    subscribers: u64,
    /// The time at which the last outlet had written, in nanoseconds since the beginning.
    took: AtomicU64,
    /// The number of subscribers that did not take the bytes at once.
    queued: AtomicU64,
}

impl GroupSpans {
    /// Begins the execution of a plan. Its requests to subgraphs belong to the trace.
    pub(crate) fn begin_execution(
        &self,
        plan: &Arc<Plan>,
        generation: &Arc<Generation>,
    ) -> Arc<Trace> {
        let trace = Arc::new(Trace::with_spans(self.event.spans.context()));
        self.event.extend_to(trace.started());
        if let Some(record) = &self.record {
            let _ = record.execution.set(GroupExecution {
                trace: Arc::clone(&trace),
                plan: Arc::clone(plan),
                generation: Arc::clone(generation),
            });
        }
        trace
    }

    /// Notes that the event or state is resolved.
    pub(crate) fn note_resolved(&self, at: Instant) {
        if let Some(record) = &self.record {
            let _ = record.resolved.set(at);
        }
        self.event.extend_to(at);
    }

    /// Notes that the event is resolved together with others, `events` in all.
    pub(crate) fn note_batch(&self, events: usize) {
        if let Some(record) = &self.record {
            record.batch_events.store(events, Relaxed);
        }
    }

    /// Notes the number of errors in the result. With errors the event counts as failed.
    pub(crate) fn note_errors(&self, errors: u32) {
        if errors > 0 {
            self.event.spans.note_failure();
            if let Some(record) = &self.record {
                record.has_errors.store(true, Relaxed);
            }
        }
    }

    /// Notes that the result is about to be sent to so many subscribers.
    pub(crate) fn begin_broadcast(&self, began: Instant, subscribers: u64) {
        if let Some(record) = &self.record {
            let (took, queued) = (AtomicU64::new(0), AtomicU64::new(0));
            let _ = record.broadcast.set(Broadcast { began, subscribers, took, queued });
        }
        self.event.extend_to(began);
    }

    /// True if the trace of the event or state may be exported. Otherwise nothing reads the times of its steps, and an
    /// outlet need not report any.
    pub fn is_event_recorded(&self) -> bool {
        self.event.spans.is_recorded()
    }

    /// Notes that an outlet has passed the result on for all of its subscribers: the kernel has the bytes, or they wait
    /// in a queue of the router, as those for `queued` subscribers do. `at` is the time at which that was so for the
    /// last of them, and may be a while ago: an outlet that sends several results together reports them at the end.
    pub fn note_sent(&self, at: Instant, queued: usize) {
        if let Some(record) = &self.record
            && let Some(broadcast) = record.broadcast.get()
        {
            let took = at.saturating_duration_since(broadcast.began);
            broadcast.took.fetch_max(nanoseconds(took), Relaxed);
            broadcast.queued.fetch_add(queued as u64, Relaxed);
        }
        self.event.extend_to(at);
    }
}

impl Drop for GroupSpans {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if let Some((offered, _)) = self.event.offered.get() {
            record.began = *offered;
        }
        self.event.spans.add(record);
    }
}

impl std::fmt::Debug for GroupSpans {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GroupSpans")
            .field("event", &self.event.spans)
            .field("is_recorded", &self.record.is_some())
            .finish_non_exhaustive()
    }
}

impl GroupRecord {
    /// The end of the last step that is known.
    fn ended(&self) -> Instant {
        let sent = self.broadcast.get().map(Broadcast::ended);
        let started = self.execution.get().map(|it| it.trace.started());
        let steps = [sent, self.resolved.get().copied(), started];
        steps.into_iter().flatten().fold(self.began, Instant::max)
    }

    fn write_group(&self, id: SpanId, root: SpanId, list: &mut SpanList) {
        let name = match self.operation.resolve.operation_name() {
            Some(name) => format!("subscription {}", shorten(name)).into(),
            None => "subscription".into(),
        };
        let mut attributes = identity(&self.operation);
        let field = field_name(&self.operation).to_owned();
        attributes.push(Attribute::text("starling.field", field));
        let events = self.batch_events.load(Relaxed);
        if events > 1 {
            attributes.push(Attribute::number("starling.event.batch", events));
        }
        let has_errors = self.has_errors.load(Relaxed);
        let error = has_errors.then(|| "the result has errors".into());
        match self.broadcast.get() {
            Some(broadcast) => {
                let subscribers = broadcast.subscribers;
                attributes.push(Attribute::number("starling.subscribers", subscribers));
            }
            // There is no state to send, which is no failure.
            None if self.is_state && self.resolved.get().is_some() => {}
            // The subscribers have left, or the result was no news for them.
            None => attributes.push(Attribute::text("error.type", "cancelled")),
        }
        let span = list.internal(root, name, (self.began, self.ended()));
        list.push(Span { id, attributes, error, ..span });
    }
}

impl SpanSource for GroupRecord {
    fn write_spans(&self, root: SpanId, list: &mut SpanList) {
        let id = SpanId::random();
        self.write_group(id, root, list);
        if let Some(GroupExecution { trace, plan, generation }) = self.execution.get() {
            list.push(list.internal(id, "wait".into(), (self.began, trace.started())));
            execute::write_spans(trace, plan, generation, id, list);
        }
        if let Some(broadcast) = self.broadcast.get() {
            let times = (broadcast.began, broadcast.ended());
            let mut span = list.internal(id, "broadcast".into(), times);
            let queued = broadcast.queued.load(Relaxed);
            span.attributes.push(Attribute::number("starling.broadcast.queued", queued));
            list.push(span);
        }
    }
}

impl Broadcast {
    fn ended(&self) -> Instant {
        self.began + Duration::from_nanos(self.took.load(Relaxed))
    }
}

/// The attributes that name an operation (semantic conventions for GraphQL).
fn identity(operation: &LiveOperation) -> Vec<Attribute> {
    let mut attributes = vec![Attribute::text("graphql.operation.type", "subscription")];
    let name = operation.resolve.operation_name();
    attributes.extend(name.map(|it| Attribute::text("graphql.operation.name", shorten(it))));
    let id = format!("{:032x}", operation.group.operation_id);
    attributes.push(Attribute::text("starling.operation.id", id));
    attributes
}

/// Returns the name of the root field, without its type.
fn field_name(operation: &LiveOperation) -> &str {
    operation.field.rsplit('.').next().unwrap_or_default()
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
