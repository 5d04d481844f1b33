//! One execution from its start to the printed payload: it decides when each fetch runs. Modules
//! below write requests, and handle responses and failures.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use astjson::{Kind, NodeId};
use bytes::Bytes;
use cache::{Dependencies, PolicyFold};
use http::{HeaderMap, StatusCode};
use plan::{Fetch, ShapeField, SubscriptionRoot, Variables};

use crate::bounds::{
    PAYLOAD_BYTES_MAX, PAYLOAD_ROOM_BYTES_MAX, REPRESENTATIONS_MAX, TURN_BYTES_MAX,
};
use crate::compiled::CompiledSubscription;
use crate::document_pool::PooledDocument;
use crate::error_list::ErrorList;
use crate::error_path;
use crate::executable::Executable;
use crate::print::print_errors;
use crate::projection::{self, PrintStop};
use crate::tree_memory::TreeMemory;
use crate::{
    DeniedPlaces, ErrorCode, GraphqlError, PathSegment, Payload, RequestContext, Seed, event,
    response,
};

mod apply_entity_cache;
mod batched_fetch;
mod cached_requests;
mod cached_root_fields;
pub(crate) mod execute_batch;
mod failure;
mod future_set;
mod in_flight;
mod item_parts;
mod merge_response;
mod request_splitting;
mod write_requests;

use future_set::FutureSet;
use in_flight::{FetchState, OutgoingRequest, RequestOutcome, SentRequest, send_request};

/// Executes an operation: runs its fetches, merges their responses, and prints the payload.
///
/// - `introspection`: JSON text of an object that holds the values of the operation's `__schema`
///   and `__type` fields by data key.
/// - `seed`: the event, for subscriptions.
/// - `context`: its generation must be the one that the plan was made for, because ids of the plan
///   have no meaning elsewhere.
///
/// Never fails: all errors are in the payload. Must run on a tokio runtime with timers. Dropping
/// the future cancels the requests in flight.
pub async fn execute(
    executable: &Executable,
    variables: &Variables,
    introspection: Option<Bytes>,
    seed: Seed,
    context: &RequestContext,
) -> Payload {
    let mut execution = Execution::new(executable, variables, context);
    if execution.insert_seed(introspection, seed) {
        execution.run().await;
        if execution.document.text_bytes() > TURN_BYTES_MAX {
            tokio::task::yield_now().await;
        }
    }
    execution.finish_recorded()
}

/// Executes a live query, as [`execute`] does. Also returns what makes the result stale, as far as the responses that
/// it was made of are known. `context` must have [`crate::RequestCaching::is_live`].
pub async fn execute_live(
    executable: &Executable,
    variables: &Variables,
    introspection: Option<Bytes>,
    context: &RequestContext,
) -> (Payload, Dependencies) {
    let mut execution = Execution::new(executable, variables, context);
    if execution.insert_seed(introspection, Seed::Nothing) {
        execution.run().await;
        if execution.document.text_bytes() > TURN_BYTES_MAX {
            tokio::task::yield_now().await;
        }
    }
    let dependencies = execution.policies.dependencies();
    (execution.finish_recorded(), dependencies)
}

pub(crate) struct Execution<'a> {
    executable: &'a Executable,
    variables: &'a Variables,
    context: &'a RequestContext,
    document: PooledDocument,
    memory: TreeMemory,
    root: NodeId,
    errors: ErrorList,
    states: Vec<FetchState>,
    waits_for: Vec<u32>,
    /// All requests, in the order sent.
    sent: Vec<SentRequest>,
    /// The root fields that the response in hand is about, if it is about some of its fetch only.
    concerned_keys: Option<Vec<&'a str>>,
    /// The number of requests without a response, by fetch.
    pending_requests: Vec<u32>,
    representations_left: u32,
    /// Headers of the responses, by fetch and request, if there are rules that may read them.
    response_headers: Vec<((usize, usize), HeaderMap)>,
    /// True if the object at the root is an entity of which only the keys are known, so that its
    /// existence must be found out.
    pub(crate) checks_existence: bool,
    /// The number of subgraphs that know the entity, and of those that do not.
    subgraphs_with_entity: u32,
    subgraphs_without_entity: u32,
    /// The policies of all responses so far.
    policies: PolicyFold,
    /// The number of requests to subgraphs so far.
    subgraph_requests: u32,
}

impl<'a> Execution<'a> {
    pub(crate) fn new(
        executable: &'a Executable,
        variables: &'a Variables,
        context: &'a RequestContext,
    ) -> Self {
        let mut document = PooledDocument::take();
        let root = document.new_object();
        let count = executable.fetches.len();
        Self {
            executable,
            variables,
            context,
            document,
            memory: TreeMemory::default(),
            root,
            errors: ErrorList::default(),
            states: vec![FetchState::Waiting; count],
            waits_for: executable.fetches.iter().map(|fetch| fetch.dependencies).collect(),
            sent: Vec::with_capacity(count),
            concerned_keys: None,
            pending_requests: vec![0; count],
            representations_left: REPRESENTATIONS_MAX,
            response_headers: Vec::new(),
            checks_existence: false,
            subgraphs_with_entity: 0,
            subgraphs_without_entity: 0,
            policies: PolicyFold::default(),
            subgraph_requests: 0,
        }
    }

    /// Adds introspection and the event to the tree. Returns false if nothing needs to be fetched.
    pub(crate) fn insert_seed(&mut self, introspection: Option<Bytes>, seed: Seed) -> bool {
        if let Some(text) = introspection {
            match self.document.parse(text) {
                Ok(values) if self.document.kind(values) == Kind::Object => {
                    self.root = values;
                }
                _ => {
                    let message = "The result of introspection cannot be read.";
                    let error = GraphqlError::new(ErrorCode::InternalServerError, message);
                    self.errors.push(0, error);
                }
            }
        }
        let payload = match seed {
            Seed::Nothing => return true,
            Seed::Event(payload) => Ok(payload),
            Seed::BadEvent(problem) => Err(problem),
        };
        let plan = &**self.executable.plan();
        let event = match &plan.subscription {
            None => return true,
            Some(SubscriptionRoot::Upstream { .. }) => return self.insert_result(payload),
            Some(SubscriptionRoot::Event(event)) => event,
        };
        let Some(field) = self.root_field(&event.data_key) else { return true };
        let parsed = payload.and_then(|payload| {
            self.document.parse(payload).map_err(|error| format!("is not valid JSON: {error}"))
        });
        let checked = parsed.and_then(|payload| {
            let graph = &self.context.generation.graph;
            event::complete_payload(&mut self.document, graph, plan, field, payload)
                .map(|()| payload)
        });
        match checked {
            Ok(payload) => {
                self.document.set(self.root, &field.data_key, payload);
                true
            }
            Err(problem) => {
                let path = vec![PathSegment::Key(field.response_key.clone())];
                let message = format!("The event {problem}.");
                let error = GraphqlError::new(ErrorCode::InvalidEvent, message).at(path);
                self.errors.push(0, error);
                self.errors.explain_keys(std::slice::from_ref(&field.data_key));
                false
            }
        }
    }

    /// Adds a result of a subgraph's subscription, which is a response like any other. Returns false if nothing needs
    /// to be fetched.
    fn insert_result(&mut self, payload: Result<Bytes, String>) -> bool {
        let Some(subscription) = &self.executable.subscription else { return true };
        let CompiledSubscription { fetch, response: shape, .. } = subscription;
        let response = match payload {
            Ok(text) => response::read_response(&mut self.document, StatusCode::OK, text, shape),
            Err(problem) => Err(format!("sent an event that {problem}").into()),
        };
        // Errors are sorted by fetch, so those of the event come before those of all fetches.
        match response {
            Ok(response) => {
                self.merge_response(0, fetch, &[], &response);
                response.data.is_some()
            }
            Err(problem) => {
                self.reject_response(0, fetch, &[], &problem);
                false
            }
        }
    }

    fn root_fields(&self) -> &'a [ShapeField] {
        let shape = &self.executable.plan().shape;
        let root = shape.objects.get(shape.root.0 as usize);
        root.and_then(|object| object.variants.first()).map_or(&[], |variant| &variant.fields)
    }

    fn root_field(&self, data_key: &str) -> Option<&'a ShapeField> {
        self.root_fields().iter().find(|field| *field.data_key == *data_key)
    }

    /// Runs the fetches of the plan. Returns without waiting if there are none.
    pub(crate) async fn run(&mut self) {
        let executable = self.executable;
        // hot path: events without fetches. The hub counts on it that they are executed in one poll.
        if executable.fetches.is_empty() {
            return;
        }
        let context = self.context;
        let plan = &**executable.plan();
        let mut ready = self.initial_fetches();
        let mut in_flight = FutureSet::new();
        let mut calls: Vec<(usize, OutgoingRequest<'_>)> = Vec::new();
        let mut deadline = pin!(tokio::time::sleep_until(context.deadline.into()));
        loop {
            for (request, it) in calls.drain(..) {
                let place = self.sent[request].place();
                let (fetch, times) = (&plan.fetches[place.fetch], &executable.times[place.fetch]);
                in_flight.push(send_request(request, (fetch, place, times), it, context));
            }
            if let Some(index) = ready.pop_front() {
                self.start_fetch(index, &plan.fetches[index], &mut ready, &mut calls);
                continue;
            }
            tokio::select! {
                biased;
                finished = in_flight.next() => {
                    let Some((request, outcome)) = finished else { return };
                    self.finish_request(request, outcome, &mut ready, &mut calls);
                }
                () = &mut deadline => {
                    self.end_at_deadline();
                    return;
                }
            }
        }
    }

    /// Counts the requests that are sent to subgraphs now.
    fn count_requests(&mut self, calls: &[(usize, OutgoingRequest<'_>)]) {
        let fetches = &self.executable.plan().fetches;
        let is_open = |request: usize| {
            let fetch = self.sent.get(request).and_then(|sent| fetches.get(sent.fetch));
            fetch.is_some_and(|fetch| !self.context.is_closed(fetch.subgraph))
        };
        let is_sent = |(request, it): &&(usize, _)| {
            matches!(it, OutgoingRequest::Subgraph { .. }) && is_open(*request)
        };
        self.subgraph_requests += calls.iter().filter(is_sent).count() as u32;
    }

    /// The fetches that depend on no other.
    fn initial_fetches(&self) -> VecDeque<usize> {
        (0..self.waits_for.len()).filter(|&index| self.waits_for[index] == 0).collect()
    }

    /// Starts a fetch and adds its requests to `calls`. A fetch without requests is complete.
    fn start_fetch(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        ready: &mut VecDeque<usize>,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        self.write_requests(index, fetch, calls);
        if calls.is_empty() {
            return self.complete_fetch(index, ready);
        }
        self.states[index] = FetchState::InFlight;
        self.pending_requests[index] = calls.len() as u32;
        self.count_requests(calls);
    }

    /// Handles the outcome of a request. Requests to repeat are added to `calls`. If there are none
    /// and it was the last one, its fetch is complete.
    fn finish_request(
        &mut self,
        request: usize,
        outcome: RequestOutcome,
        ready: &mut VecDeque<usize>,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        self.handle_outcome(request, outcome, calls);
        self.count_requests(calls);
        let index = self.sent[request].fetch;
        self.pending_requests[index] = self.pending_requests[index] - 1 + calls.len() as u32;
        if self.pending_requests[index] == 0 {
            self.complete_fetch(index, ready);
        }
    }

    /// Marks a fetch as complete. Fetches that waited only for it become ready.
    fn complete_fetch(&mut self, index: usize, ready: &mut VecDeque<usize>) {
        self.states[index] = FetchState::Done;
        for &dependent in &self.executable.fetches[index].dependents {
            let waits_for = &mut self.waits_for[dependent as usize];
            *waits_for -= 1;
            if *waits_for == 0 {
                ready.push_back(dependent as usize);
            }
        }
    }

    /// The headers of responses that reach the client, in the order of the plan: the order of
    /// arrival is random.
    fn disclosed_headers(&mut self) -> Option<Arc<HeaderMap>> {
        let rules = self.context.generation.disclosure.headers.as_ref()?;
        let mut collected = HeaderMap::new();
        self.response_headers.sort_by_key(|(place, _)| *place);
        for ((index, _), headers) in self.response_headers.drain(..) {
            let subgraph = self.executable.plan().fetches[index].subgraph;
            rules.collect(subgraph, &headers, &mut collected);
        }
        (!collected.is_empty()).then(|| Arc::new(collected))
    }

    fn is_wanted(&self, fetch: &Fetch) -> bool {
        error_path::any_holds(&fetch.any_of, self.variables)
    }

    /// Like [`Self::finish`], for the one root field of a current state. `None` if there is no
    /// state, and the field must not be null.
    pub(crate) fn finish_state(mut self) -> Option<Payload> {
        if let Some(field) = self.root_fields().first()
            && self.errors.is_empty()
        {
            if self.subgraphs_without_entity > 0 && self.subgraphs_with_entity == 0 {
                let nothing = self.document.new_null();
                self.document.set(self.root, &field.data_key, nothing);
            }
            let value = self.document.get(self.root, &field.data_key);
            let is_null = value.is_none_or(|value| self.document.is_null(value));
            if is_null && !field.value.nullable {
                return None;
            }
        }
        Some(self.finish_recorded())
    }

    /// Prints the payload, and records that in the trace of the operation, if it has one.
    fn finish_recorded(self) -> Payload {
        let Some(trace) = &self.context.trace else { return self.finish() };
        let began = trace.now();
        let payload = self.finish();
        trace.record_printing(began, payload.bytes.len());
        payload
    }

    /// Checks and prints the tree.
    fn finish(mut self) -> Payload {
        let headers = self.disclosed_headers();
        let plan = &**self.executable.plan();
        // Growing to a large payload step by step would copy it twice, and leave as much memory
        // behind. The payload is seldom larger than the responses.
        let last = self.executable.payload_bytes.load(Ordering::Relaxed);
        let read = self.document.text_bytes();
        let room = if read > PAYLOAD_ROOM_BYTES_MAX {
            read.min(PAYLOAD_BYTES_MAX)
        } else {
            (last + last / 16).min(PAYLOAD_ROOM_BYTES_MAX)
        };
        let mut out = Vec::with_capacity(room);
        out.extend_from_slice(b"{\"data\":");
        let mark = out.len();
        self.errors.keep_inside(|path| {
            error_path::find_exit(&self.document, plan, self.variables, self.root, path)
        });
        self.errors.sort();
        let printed = projection::print_data(
            &self.document,
            self.root,
            &plan.shape,
            &self.executable.printing,
            self.variables,
            &mut self.errors,
            &mut out,
        );
        match printed {
            Ok(()) => {}
            Err(PrintStop::Null) => {
                out.truncate(mark);
                out.extend_from_slice(b"null");
            }
            Err(PrintStop::TooLarge) => {
                out = Vec::from(&b"{\"data\":null"[..]);
                self.errors = ErrorList::default();
                let message = format!("The response is larger than {PAYLOAD_BYTES_MAX} bytes.");
                let error = GraphqlError::new(ErrorCode::OperationLimitExceeded, message);
                self.errors.push(0, error);
            }
        }
        let cost = self.executable.cost.as_ref();
        let cost = cost.map(|it| it.measure(&self.document, self.root, self.variables));
        let mut denied = self.errors.take_denied();
        let mut errors = self.errors.into_errors();
        if self.context.generation.disclosure.denied_places == DeniedPlaces::Errors {
            errors.append(&mut denied);
        }
        // The clients of a response with errors should try again.
        let is_complete = errors.is_empty() && denied.is_empty();
        let caching = self.policies.finish().filter(|_| is_complete).map(Arc::new);
        if !errors.is_empty() {
            out.extend_from_slice(b",\"errors\":");
            print_errors(&errors, &mut out);
        }
        let mut splice = out.len();
        if !denied.is_empty()
            && self.context.generation.disclosure.denied_places == DeniedPlaces::Extensions
        {
            out.extend_from_slice(b",\"extensions\":{");
            splice = out.len();
            out.extend_from_slice(b"\"authorizationErrors\":");
            print_errors(&denied, &mut out);
            out.push(b'}');
        }
        out.push(b'}');
        self.executable.payload_bytes.store(out.len(), Ordering::Relaxed);
        if out.capacity() - out.len() > PAYLOAD_ROOM_BYTES_MAX {
            out.shrink_to_fit();
        }
        Payload {
            bytes: Bytes::from(out),
            splice,
            has_data: true,
            errors: u32::try_from(errors.len()).unwrap_or(u32::MAX),
            first_error: errors.first().map(|error| error.code),
            subgraph_requests: self.subgraph_requests,
            headers,
            cost,
            caching,
            revision: None,
        }
    }
}
