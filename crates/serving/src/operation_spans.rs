//! The spans of one operation: the operation itself, the steps of preparing it, its requests to subgraphs, its messages
//! to brokers, and the printing of its response.
//!
//! While the operation runs, only facts are kept that exist anyway. They become spans if the trace is exported, after
//! OpenTelemetry's semantic conventions for GraphQL, HTTP and messages. Attributes without a convention begin with
//! `starling.`. Nothing that a client or a subgraph sends as a value becomes an attribute: neither variables nor the
//! text of an operation, nor messages of errors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clients::error_mapping::is_fault;
use clients::request_source::OperationTrace;
use execute::{ErrorCode, Generation, GraphqlError, Payload};
use plan::OperationKind;
use prepare::{PrepareStep, PrepareSteps, Prepared, StepRecorder};
use single_flight::Role;
use telemetry::ExemplarSpan;
use telemetry::spans::{Attribute, RequestSpans, Span, SpanId, SpanList, SpanSource};

use crate::stream_cause::StreamCause;
use crate::trace::ResponseSource;

/// The maximum length of an operation's name in a span. Longer ones are cut.
const NAME_BYTES_MAX: usize = 128;

/// The record of one operation of a request. It adds itself to the request at its end.
#[derive(Debug)]
pub struct OperationSpans {
    request: Arc<RequestSpans>,
    steps: StepRecorder,
    record: Mutex<OperationRecord>,
}

/// The facts about an operation.
#[derive(Clone, Debug)]
struct OperationRecord {
    id: SpanId,
    began: Instant,
    ended: Instant,
    steps: PrepareSteps,
    prepared: Option<Arc<Prepared>>,
    generation: Option<Arc<Generation>>,
    execution: Option<Arc<execute::Trace>>,
    role: Option<Role>,
    source: Option<ResponseSource>,
    cost: Option<u64>,
    errors: usize,
    code: Option<ErrorCode>,
}

impl OperationSpans {
    /// Begins the record of an operation.
    pub fn begin(request: &Arc<RequestSpans>) -> Arc<Self> {
        let now = Instant::now();
        let record = OperationRecord {
            id: SpanId::random(),
            began: now,
            ended: now,
            steps: PrepareSteps::default(),
            prepared: None,
            generation: None,
            execution: None,
            role: None,
            source: None,
            cost: None,
            errors: 0,
            code: None,
        };
        Arc::new(Self {
            request: Arc::clone(request),
            steps: StepRecorder::default(),
            record: Mutex::new(record),
        })
    }

    /// Returns the trace for preparing the operation.
    pub fn trace(&self) -> OperationTrace<'_> {
        OperationTrace { steps: &self.steps, request: &self.request }
    }

    /// Notes the prepared operation.
    pub(crate) fn note_prepared(
        &self,
        prepared: &Arc<Prepared>,
        generation: &Arc<Generation>,
        cost: Option<u64>,
    ) {
        let mut record = self.lock();
        record.prepared = Some(Arc::clone(prepared));
        record.generation = Some(Arc::clone(generation));
        record.cost = cost;
    }

    /// Returns the trace for the execution, which gives each request to a subgraph a span of its own. It keeps the
    /// bodies of these requests if the trace of the client shows them.
    pub(crate) fn begin_execution(&self, keeps_bodies: bool) -> Arc<execute::Trace> {
        let trace = execute::Trace::with_spans(self.request.context());
        let trace = Arc::new(if keeps_bodies { trace.keeping_bodies() } else { trace });
        self.lock().execution = Some(Arc::clone(&trace));
        trace
    }

    /// Returns the span of the operation, for the stream that it begins.
    pub(crate) fn stream_cause(&self) -> StreamCause {
        StreamCause { context: Arc::clone(self.request.context()), span: self.lock().id }
    }

    /// Returns the identity of the operation's span for exemplars of metrics, if its trace is exported.
    pub(crate) fn exemplar(&self, has_failed: bool) -> Option<ExemplarSpan> {
        self.request.exemplar(self.lock().id, has_failed)
    }

    /// Notes how the response was shared, and where it came from.
    pub(crate) fn note_sharing(&self, role: Option<Role>, source: Option<ResponseSource>) {
        let mut record = self.lock();
        (record.role, record.source) = (role, source);
    }

    /// Notes the errors of an operation that did not run. Its request counts as failed if that is the router's fault,
    /// also where the status of the response is 200. What the overload protection refuses must stay cheap.
    pub fn note_refusal(&self, errors: &[GraphqlError]) {
        let code = errors.first().map(|it| it.code);
        if code.is_some_and(is_fault) {
            self.request.note_failure();
        }
        let mut record = self.lock();
        (record.errors, record.code) = (errors.len(), code);
    }

    /// Notes the outcome of an operation that ran. With errors its request counts as failed.
    pub(crate) fn note_payload(&self, payload: &Payload) {
        self.lock().errors = payload.errors as usize;
        if payload.errors > 0 {
            self.request.note_failure();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OperationRecord> {
        // Each change is one step, so the record behind a poisoned lock is sound.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OperationSpans {
    fn drop(&mut self) {
        if self.request.is_recorded() {
            let mut record = self.lock().clone();
            record.ended = Instant::now();
            record.steps = self.steps.take();
            self.request.add(Box::new(record));
        }
    }
}

impl OperationRecord {
    fn identity(&self) -> Vec<Attribute> {
        self.prepared.as_deref().map(identity).unwrap_or_default()
    }

    fn write_operation(&self, root: SpanId, list: &mut SpanList) {
        let prepared = self.prepared.as_ref();
        let name = match prepared.map(|it| (kind_name(it.kind), it.name.as_deref())) {
            Some((kind, Some(name))) => format!("{kind} {}", shorten(name)).into(),
            Some((kind, None)) => kind.into(),
            None => "GraphQL Operation".into(),
        };
        let mut attributes = self.identity();
        if prepared.is_some() {
            attributes.push(Attribute::flag("starling.plan.cached", self.steps.is_empty()));
        }
        let role = self
            .role
            .map(|it| Attribute::text("starling.operation.sharing", execute::role_name(it)));
        attributes.extend(role);
        attributes.extend(self.source.map(|it| {
            let source = match it {
                ResponseSource::Memory { is_stale: false, .. } => "hit",
                ResponseSource::Memory { is_stale: true, .. } => "stale",
                ResponseSource::Executed => "miss",
                ResponseSource::NotLookedUp => "skipped",
            };
            Attribute::text("starling.response.cache", source)
        }));
        attributes.extend(self.cost.map(|it| Attribute::number("starling.operation.cost", it)));
        if self.errors > 0 {
            attributes.push(Attribute::number("starling.response.errors", self.errors));
        }
        attributes.extend(self.code.map(|it| Attribute::text("error.type", it.as_str())));
        let error = match (self.errors, self.code) {
            (0, _) => None,
            (_, Some(code)) => Some(code.as_str().into()),
            (_, None) => Some("the response has errors".into()),
        };
        let span = list.internal(self.id, name, (self.began, self.ended));
        list.push(Span { id: self.id, parent: Some(root), attributes, error, ..span });
    }

    fn write_steps(&self, list: &mut SpanList) {
        for (step, began, ended) in self.steps.iter() {
            let name = match step {
                PrepareStep::Parse => "parse",
                PrepareStep::Validate => "validate",
                PrepareStep::Plan => "plan",
            };
            list.push(list.internal(self.id, name.into(), (began, ended)));
        }
    }
}

impl SpanSource for OperationRecord {
    fn write_spans(&self, root: SpanId, list: &mut SpanList) {
        self.write_operation(root, list);
        self.write_steps(list);
        if let (Some(prepared), Some(generation), Some(execution)) =
            (&self.prepared, &self.generation, &self.execution)
        {
            execute::write_spans(execution, &prepared.plan, generation, self.id, list);
        }
    }

    fn root_attributes(&self) -> Vec<Attribute> {
        self.identity()
    }
}

/// The attributes that name an operation (semantic conventions for GraphQL).
pub(crate) fn identity(prepared: &Prepared) -> Vec<Attribute> {
    let kind = kind_name(prepared.kind);
    let mut attributes = vec![Attribute::text("graphql.operation.type", kind)];
    let name = prepared.name.as_deref();
    attributes.extend(name.map(|it| Attribute::text("graphql.operation.name", shorten(it))));
    let id = format!("{:032x}", prepared.operation_id);
    attributes.push(Attribute::text("starling.operation.id", id));
    attributes
}

fn kind_name(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Query => "query",
        OperationKind::Mutation => "mutation",
        OperationKind::Subscription => "subscription",
    }
}

/// Returns the part of an operation's name that a span has.
pub(crate) fn shorten(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}
