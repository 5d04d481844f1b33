//! The spans of one request or event: a buffer of compact records that ends with its last reference.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::spans::span::TraceClock;
use crate::spans::tracer::SampleDraw;
use crate::spans::{
    Attribute, ExemplarSpan, FinishedTrace, IncomingContext, RecordReason, RemoteParent, Span,
    SpanId, SpanKind, SpanList, TraceContext, TraceId, Tracer,
};

/// The maximum number of records of one request or event, such as the operations of a batch. Further ones are left out.
pub const SOURCES_MAX: usize = 128;

/// A record that becomes spans if its trace is exported.
pub trait SpanSource: Send {
    /// Adds the spans. `root` is the span of the request.
    fn write_spans(&self, root: SpanId, spans: &mut SpanList);

    /// Returns attributes for the span of the request, which has them if this is its only record.
    fn root_attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }
}

/// The facts about the span of the request itself.
#[derive(Clone, PartialEq, Debug)]
pub struct RootSpan {
    /// The name.
    pub name: Cow<'static, str>,
    /// The kind.
    pub kind: SpanKind,
    /// The attributes.
    pub attributes: Vec<Attribute>,
    /// The reason of the failure, for the status of the span.
    pub error: Option<Box<str>>,
}

/// The buffer of one request or event. It is shared by the parts that record; the last one of them that ends decides
/// whether it is exported.
pub struct RequestSpans {
    tracer: Arc<Tracer>,
    context: Arc<TraceContext>,
    /// The identity with another decision than `context` has, once a condition has made one.
    decided: OnceLock<Arc<TraceContext>>,
    /// The number that decides about the share of traces. `None` if the client has decided.
    draw: Option<SampleDraw>,
    /// The id of the request's span.
    root: SpanId,
    /// The span of the client.
    parent: Option<SpanId>,
    /// The span that caused the trace without being a part of it, such as that which published the event.
    link: Option<Box<RemoteParent>>,
    clock: TraceClock,
    /// True if a part of the request has failed.
    has_failed: AtomicBool,
    /// True if a condition has selected the request for the flight recorder.
    is_selected: AtomicBool,
    /// `None` if nothing can be exported: the trace is not selected, and will not be selected later.
    state: Option<Mutex<BufferState>>,
}

#[derive(Default)]
struct BufferState {
    sources: Vec<Box<dyn SpanSource>>,
    left_out: u64,
    end: Option<RequestEnd>,
}

/// The end of a request that was selected.
struct RequestEnd {
    at: Instant,
    /// Makes the span of the request if the trace is exported.
    root: Box<dyn FnOnce() -> RootSpan + Send>,
    is_exported: bool,
    /// The reason for which the flight recorder keeps it.
    recorded: Option<RecordReason>,
}

impl RequestSpans {
    /// Starts the trace of a request, or continues that of its client. hot path: each request while tracing is on.
    pub fn start(tracer: &Arc<Tracer>, incoming: IncomingContext) -> Arc<Self> {
        let decision = tracer.decision_of(incoming.parent.as_ref());
        let (trace, span, state) = match incoming.parent {
            Some(RemoteParent { trace, span, state, .. }) => (trace, Some(span), state),
            None => (TraceId::random(), None, None),
        };
        let propagation = tracer.propagation();
        let (is_sampled, baggage) = (false, incoming.baggage);
        let context = TraceContext { trace, is_sampled, state, baggage, propagation };
        let may_change = decision.is_none() && tracer.has_conditions();
        Arc::new(Self::begin(tracer, context, (span, None), decision, may_change))
    }

    /// Starts a trace with an identity of its own, and a link to the span that caused it, if that is known: the trace
    /// of an event is linked to its publisher. hot path: each event while tracing is on.
    pub fn start_linked(tracer: &Arc<Tracer>, incoming: IncomingContext) -> Arc<Self> {
        let decision = tracer.decision_of(incoming.parent.as_ref());
        Self::begin_linked(tracer, incoming, decision)
    }

    /// Starts a trace with an identity of its own, and a link to the span of this router that caused it. It follows the
    /// decision about the trace of that span, also where those of clients do not count.
    pub fn start_caused(tracer: &Arc<Tracer>, cause: Option<RemoteParent>) -> Arc<Self> {
        let decision = cause.as_ref().and_then(|it| it.is_sampled);
        Self::begin_linked(tracer, IncomingContext { parent: cause, baggage: None }, decision)
    }

    fn begin_linked(
        tracer: &Arc<Tracer>,
        incoming: IncomingContext,
        decision: Option<bool>,
    ) -> Arc<Self> {
        let context = TraceContext {
            trace: TraceId::random(),
            is_sampled: false,
            state: None,
            baggage: incoming.baggage,
            propagation: tracer.propagation(),
        };
        let link = incoming.parent.map(Box::new);
        Arc::new(Self::begin(tracer, context, (None, link), decision, false))
    }

    /// Begins a trace with that identity, and decides about it. `decision` is that of the client. The trace is recorded
    /// if it may be exported: with `may_change` the decision may become another one.
    fn begin(
        tracer: &Arc<Tracer>,
        context: TraceContext,
        (parent, link): (Option<SpanId>, Option<Box<RemoteParent>>),
        decision: Option<bool>,
        may_change: bool,
    ) -> Self {
        let draw = decision.is_none().then(SampleDraw::random);
        let is_sampled = decision.unwrap_or_else(|| draw.is_some_and(|draw| tracer.is_drawn(draw)));
        let is_recorded = is_sampled || may_change || tracer.selects_late();
        Self {
            tracer: Arc::clone(tracer),
            context: Arc::new(TraceContext { is_sampled, ..context }),
            decided: OnceLock::new(),
            draw,
            root: SpanId::random(),
            parent,
            link,
            clock: TraceClock::start(),
            has_failed: AtomicBool::new(false),
            is_selected: AtomicBool::new(false),
            state: is_recorded.then(Mutex::default),
        }
    }

    /// Decides again about a request when its operation is known: its share of traces is `ratio`, from 0 to 1, in place
    /// of that of all requests. Without effect if its client has decided, or for a second call. Must be called before
    /// other servers get the identity of the trace.
    pub fn choose_ratio(&self, ratio: f64) {
        let Some(draw) = self.draw else { return };
        let is_sampled = draw.is_within(ratio);
        self.decided.get_or_init(|| match is_sampled == self.context.is_sampled {
            true => Arc::clone(&self.context),
            false => Arc::new(TraceContext { is_sampled, ..TraceContext::clone(&self.context) }),
        });
    }

    /// Returns the identity of the trace, for other servers.
    pub fn context(&self) -> &Arc<TraceContext> {
        self.decided.get().unwrap_or(&self.context)
    }

    /// Returns the id of the request's span.
    pub fn root(&self) -> SpanId {
        self.root
    }

    /// The beginning of the request.
    pub fn began(&self) -> Instant {
        self.clock.began()
    }

    /// True if the trace may be exported. Otherwise nothing needs to be recorded, and the identity is passed on only.
    pub fn is_recorded(&self) -> bool {
        self.state.is_some()
    }

    /// Notes that a part of the request has failed, so that all of it counts as failed.
    pub fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Selects the request for the flight recorder, if there is one: it is kept whatever its duration is.
    pub fn select_for_recorder(&self) {
        self.is_selected.store(true, Ordering::Relaxed);
    }

    /// Returns the identity of a span of this trace for an exemplar, if the trace is exported. A trace that is selected
    /// at its end has one as soon as it is certain: once it has been slow, or has failed. `has_failed` says whether the
    /// measured part has failed.
    pub fn exemplar(&self, span: SpanId, has_failed: bool) -> Option<ExemplarSpan> {
        let is_selected = || {
            let has_failed = has_failed || self.has_failed.load(Ordering::Relaxed);
            self.context().is_sampled || self.tracer.selects(self.clock.began(), has_failed)
        };
        let is_exported = self.is_recorded() && is_selected();
        is_exported.then(|| ExemplarSpan { trace: self.context.trace, span })
    }

    /// Adds a record.
    pub fn add(&self, source: Box<dyn SpanSource>) {
        let Some(mut state) = self.lock() else { return };
        match state.sources.len() < SOURCES_MAX {
            true => state.sources.push(source),
            false => state.left_out += 1,
        }
    }

    /// Notes that so many records were left out.
    pub fn leave_out(&self, records: u64) {
        if records > 0
            && let Some(mut state) = self.lock()
        {
            state.left_out += records;
        }
    }

    /// Ends the request. `root` describes it if the trace is exported, which is decided now: further parts only delay
    /// it. `has_failed` says whether the request counts as failed.
    pub fn finish(&self, has_failed: bool, root: impl FnOnce() -> RootSpan + Send + 'static) {
        if self.is_recorded() {
            self.finish_at(Instant::now(), has_failed, root);
        }
    }

    /// Does the same as [`RequestSpans::finish`] for a request or event that ended at `at`.
    pub fn finish_at(
        &self,
        at: Instant,
        has_failed: bool,
        root: impl FnOnce() -> RootSpan + Send + 'static,
    ) {
        let Some(mut state) = self.lock() else { return };
        let has_failed = has_failed || self.has_failed.load(Ordering::Relaxed);
        let duration = at.saturating_duration_since(self.clock.began());
        let is_sampled = self.context().is_sampled;
        if is_sampled {
            self.tracer.count_sampled();
        }
        let is_exported = is_sampled || self.tracer.is_selected_late(duration, has_failed);
        let is_selected = self.is_selected.load(Ordering::Relaxed);
        let recorded = self.tracer.record_reason(duration, has_failed, is_selected);
        if is_exported || recorded.is_some() {
            state.end = Some(RequestEnd { at, root: Box::new(root), is_exported, recorded });
        } else {
            state.sources = Vec::new();
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, BufferState>> {
        // Each change is one step, so the state behind a poisoned lock is sound.
        Some(self.state.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RequestSpans {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = state.end else { return };
        let mut list = SpanList {
            spans: Vec::with_capacity(1 + 4 * state.sources.len()),
            spans_max: self.tracer.spans_max(),
            left_out: state.left_out,
            clock: self.clock,
        };
        let RootSpan { name, kind, mut attributes, error } = (end.root)();
        if let [only] = &*state.sources {
            attributes.extend(only.root_attributes());
        }
        list.push(Span {
            id: self.root,
            parent: self.parent,
            name,
            kind,
            began: list.time(self.clock.began()),
            ended: list.time(end.at),
            attributes,
            error,
            link: self.link.take(),
        });
        for source in &state.sources {
            source.write_spans(self.root, &mut list);
        }
        let SpanList { spans, left_out, .. } = list;
        let context = Arc::clone(self.context());
        let trace = FinishedTrace { context, spans };
        match (end.is_exported, end.recorded) {
            (true, Some(reason)) => {
                self.tracer.record(trace.clone(), left_out, reason);
                self.tracer.export(trace, left_out);
            }
            (false, Some(reason)) => self.tracer.record(trace, left_out, reason),
            (_, None) => self.tracer.export(trace, left_out),
        }
    }
}

impl std::fmt::Debug for RequestSpans {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("RequestSpans");
        out.field("context", self.context()).field("root", &self.root).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::read;
    use crate::spans::{Propagation, SamplingRules, TracerSettings};

    const NEVER: SamplingRules = SamplingRules {
        ratio: 0.0,
        follows_parent: true,
        slow: None,
        failed: false,
        has_conditions: false,
    };

    fn tracer(sampling: SamplingRules) -> Arc<Tracer> {
        Arc::new(Tracer::new(settings(sampling)))
    }

    fn settings(sampling: SamplingRules) -> TracerSettings {
        TracerSettings {
            sampling,
            propagation: Propagation::default(),
            queue_bytes_max: 1 << 20,
            spans_max: 4,
            batch_spans: 100,
        }
    }

    fn root() -> RootSpan {
        let (attributes, error) = (vec![Attribute::number("n", 7)], None);
        RootSpan { name: "root".into(), kind: SpanKind::Server, attributes, error }
    }

    fn parent(is_sampled: bool) -> Option<RemoteParent> {
        let (trace, span) = (TraceId::random(), SpanId::random());
        Some(RemoteParent { trace, span, is_sampled: Some(is_sampled), state: Some("a=1".into()) })
    }

    /// Runs a request with `steps` further spans, and returns the names of the exported ones.
    fn exported(
        tracer: &Arc<Tracer>,
        parent: Option<RemoteParent>,
        steps: usize,
        has_failed: bool,
    ) -> Vec<String> {
        let request = RequestSpans::start(tracer, IncomingContext { parent, baggage: None });
        for _ in 0..steps {
            request.add(Box::new(Step(SpanId::random())));
        }
        request.finish(has_failed, root);
        drop(request);
        let traces = tracer.take_batch();
        traces.iter().flat_map(|it| &it.spans).map(|it| it.name.to_string()).collect()
    }

    struct Step(SpanId);

    impl SpanSource for Step {
        fn write_spans(&self, root: SpanId, spans: &mut SpanList) {
            let at = spans.time(Instant::now());
            spans.push(Span {
                id: self.0,
                parent: Some(root),
                name: "step".into(),
                kind: SpanKind::Internal,
                began: at,
                ended: at,
                attributes: Vec::new(),
                error: None,
                link: None,
            });
        }
    }

    #[test]
    fn the_ratio_decides_unless_the_client_has_decided() {
        let always = tracer(SamplingRules { ratio: 1.0, ..NEVER });
        assert_eq!(exported(&always, None, 1, false), ["root", "step"]);
        assert_eq!(exported(&always, parent(false), 1, false), [""; 0]);
        let never = tracer(NEVER);
        assert_eq!(exported(&never, None, 1, true), [""; 0]);
        assert_eq!(exported(&never, parent(true), 1, false), ["root", "step"]);
        let alone = tracer(SamplingRules { follows_parent: false, ..NEVER });
        assert_eq!(exported(&alone, parent(true), 1, false), [""; 0]);
        assert_eq!((read(&always.stats.sampled), read(&never.stats.sampled)), (1, 1));
    }

    #[test]
    fn slow_and_failed_requests_are_selected_at_their_end() {
        let failed = tracer(SamplingRules { failed: true, ..NEVER });
        assert_eq!(exported(&failed, None, 0, false), [""; 0]);
        assert_eq!(exported(&failed, parent(false), 0, true), ["root"]);
        let slow = tracer(SamplingRules { slow: Some(Duration::ZERO), ..NEVER });
        assert_eq!(exported(&slow, None, 1, false), ["root", "step"]);
        let later = tracer(SamplingRules { slow: Some(Duration::from_secs(3600)), ..NEVER });
        assert_eq!(exported(&later, None, 1, true), [""; 0]);
        assert_eq!((read(&failed.stats.failed), read(&slow.stats.slow)), (1, 1));
    }

    #[test]
    fn a_request_without_a_chance_records_nothing_and_still_has_an_identity() {
        let tracer = tracer(NEVER);
        let request =
            RequestSpans::start(&tracer, IncomingContext { parent: parent(false), baggage: None });
        assert!(!request.is_recorded() && !request.context().is_sampled);
        assert_eq!(request.context().state.as_deref(), Some("a=1"));
    }

    #[test]
    fn only_a_trace_that_is_exported_has_exemplars() {
        let span = SpanId::random();
        let exemplar = |rules, has_failed| {
            let request = RequestSpans::start(&tracer(rules), IncomingContext::default());
            let exemplar = request.exemplar(span, has_failed);
            assert!(
                exemplar.is_none_or(|it| it.trace == request.context().trace && it.span == span)
            );
            exemplar.is_some()
        };
        assert!(exemplar(SamplingRules { ratio: 1.0, ..NEVER }, false));
        assert!(!exemplar(NEVER, true));
        let failed = SamplingRules { failed: true, ..NEVER };
        assert_eq!((exemplar(failed, true), exemplar(failed, false)), (true, false));
        let slow = |slow| SamplingRules { slow: Some(slow), ..NEVER };
        assert!(exemplar(slow(Duration::ZERO), false));
        assert!(!exemplar(slow(Duration::from_secs(3600)), false));
    }

    #[test]
    fn a_condition_decides_in_place_of_the_ratio_unless_the_client_has_decided() {
        for (ratio, chosen) in [(0.0, 1.0), (1.0, 0.0)] {
            let tracer = tracer(SamplingRules { ratio, has_conditions: true, ..NEVER });
            let start =
                |parent| RequestSpans::start(&tracer, IncomingContext { parent, baggage: None });
            let exported = |request: Arc<RequestSpans>| {
                request.finish(false, root);
                let is_sampled = request.context().is_sampled;
                drop(request);
                (is_sampled, tracer.take_batch().len())
            };
            assert_eq!(exported(start(None)), (ratio == 1.0, ratio as usize));
            let request = start(None);
            request.choose_ratio(chosen);
            request.choose_ratio(ratio);
            assert_eq!(
                exported(request),
                (chosen == 1.0, chosen as usize),
                "the first call counts"
            );
            let request = start(parent(ratio == 1.0));
            request.choose_ratio(chosen);
            assert_eq!(exported(request), (ratio == 1.0, ratio as usize));
        }
    }

    #[test]
    fn an_event_has_a_trace_of_its_own_with_a_link_and_follows_the_decision_of_its_publisher() {
        let tracer = tracer(NEVER);
        let publisher = parent(true).expect("a parent");
        let incoming = |is_sampled| IncomingContext {
            parent: Some(RemoteParent { is_sampled, ..publisher.clone() }),
            baggage: Some("user=7".into()),
        };
        let event = RequestSpans::start_linked(&tracer, incoming(Some(true)));
        assert_eq!(event.context().baggage.as_deref(), Some("user=7"));
        assert_eq!(event.context().state, None);
        let end = event.began() + Duration::from_millis(7);
        event.leave_out(1);
        event.finish_at(end, false, root);
        drop(event);
        let trace = tracer.take_batch().remove(0);
        let span = &trace.spans[0];
        assert_ne!(trace.context.trace, publisher.trace);
        assert_eq!((span.parent, span.link.as_deref()), (None, Some(&publisher)));
        assert_eq!(span.ended - span.began, 7_000_000);
        assert_eq!(read(&tracer.stats.left_out), 1);
        for is_sampled in [Some(false), None] {
            let event = RequestSpans::start_linked(&tracer, incoming(is_sampled));
            assert!(!event.is_recorded() && !event.context().is_sampled, "{is_sampled:?}");
        }
    }

    #[test]
    fn a_trace_with_a_cause_in_the_router_follows_the_decision_about_that_and_has_no_baggage() {
        let cause = parent(true).expect("a parent");
        let cases = [(0.0, Some(true)), (1.0, Some(false)), (0.0, None), (1.0, None)];
        for (ratio, is_sampled) in cases {
            let tracer = tracer(SamplingRules { ratio, follows_parent: false, ..NEVER });
            let cause = RemoteParent { is_sampled, ..cause.clone() };
            let caused = RequestSpans::start_caused(&tracer, Some(cause.clone()));
            let is_exported = is_sampled.unwrap_or(ratio == 1.0);
            assert_eq!(caused.context().is_sampled, is_exported, "{ratio} {is_sampled:?}");
            assert_eq!(caused.context().baggage, None);
            assert_ne!(caused.context().trace, cause.trace);
            caused.finish(false, root);
            drop(caused);
            let links: Vec<_> =
                tracer.take_batch().into_iter().map(|it| it.spans[0].link.clone()).collect();
            let expected = is_exported.then(|| Some(Box::new(cause)));
            assert_eq!(links, Vec::from_iter(expected), "{ratio} {is_sampled:?}");
        }
    }

    #[test]
    fn a_part_that_ends_after_the_request_is_exported_too() {
        let tracer = tracer(SamplingRules { ratio: 1.0, ..NEVER });
        let request = RequestSpans::start(&tracer, IncomingContext::default());
        let part = Arc::clone(&request);
        request.finish(false, root);
        drop(request);
        assert!(tracer.take_batch().is_empty());
        part.add(Box::new(Step(SpanId::random())));
        drop(part);
        assert_eq!(tracer.take_batch()[0].spans.len(), 2);
    }

    #[test]
    fn spans_and_traces_beyond_the_bounds_are_dropped_and_counted() {
        let always = SamplingRules { ratio: 1.0, ..NEVER };
        let many = tracer(always);
        assert_eq!(exported(&many, None, 10, false).len(), 4);
        assert_eq!(read(&many.stats.left_out), 7);
        let small = TracerSettings { queue_bytes_max: 2_000, ..settings(always) };
        let small = Arc::new(Tracer::new(small));
        for _ in 0..100 {
            RequestSpans::start(&small, IncomingContext::default()).finish(false, root);
        }
        let (dropped, bytes) = (read(&small.stats.queue_full), read(&small.stats.queued_bytes));
        assert!(dropped > 90 && bytes <= 2_000, "{dropped} {bytes}");
        let kept = small.take_batch().len() as u64;
        assert_eq!(kept + dropped, 100);
        assert_eq!(read(&small.stats.queued_bytes), 0);
    }

    #[test]
    fn the_times_of_spans_are_those_of_the_day() {
        let tracer = tracer(SamplingRules { ratio: 1.0, ..NEVER });
        let now = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            u64::try_from(now.expect("after 1970").as_nanos()).expect("before 2554")
        };
        let before = now();
        exported_once(&tracer);
        let span = tracer.take_batch().remove(0).spans.remove(0);
        assert!(before <= span.began && span.began <= span.ended, "{before} {span:?}");
    }

    fn exported_once(tracer: &Arc<Tracer>) {
        RequestSpans::start(tracer, IncomingContext::default()).finish(false, root);
    }
}
