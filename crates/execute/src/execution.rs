//! One execution: which fetch runs when, what its request is, and where its answer goes.
//! Reading answers, writing representations and printing have modules of their own.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::pin;
use std::time::Instant;

use astjson::NodeId;
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plan::{EventField, Fetch, FetchKind, OperationKind, SubgraphOperation, Variables};

use crate::answer::{self, Answer};
use crate::argument_text::print_arguments;
use crate::bounds::{ERROR_PLACES_MAX, PAYLOAD_BYTES_MAX, REPRESENTATIONS_MAX, TARGET_OBJECTS_MAX};
use crate::client_path::{self, Place, Position};
use crate::document_pool::PooledDocument;
use crate::error_list::ErrorList;
use crate::executable::Executable;
use crate::print::{print_errors, request_error};
use crate::projection::{self, Stop};
use crate::representations::{CollectError, Collected, objects_at, write_representations};
use crate::{
    ErrorCode, FetchError, GraphqlError, PathSegment, Payload, RequestContext, Seed,
    SubgraphAnswer, SubgraphRequest, event,
};

/// Executes an operation: runs its fetches, merges what they answer, and prints the payload.
///
/// - `introspection`: JSON text of an object that holds the values of the operation's `__schema`
///   and `__type` fields by data key.
/// - `seed`: the event, for subscriptions.
///
/// Never fails: whatever goes wrong is in the payload. Must run on a tokio runtime with timers.
/// Dropping the future cancels what is in flight.
pub async fn execute(
    executable: &Executable,
    variables: &Variables,
    introspection: Option<Bytes>,
    seed: Seed,
    context: &RequestContext,
) -> Payload {
    let mut execution = Execution::new(executable, variables, context);
    if execution.plant(introspection, seed) {
        execution.run().await;
    }
    execution.finish()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    InFlight,
    Done,
}

struct Execution<'a> {
    executable: &'a Executable,
    variables: &'a Variables,
    context: &'a RequestContext,
    document: PooledDocument,
    root: NodeId,
    errors: ErrorList,
    states: Vec<State>,
    waits_for: Vec<u32>,
    /// By fetch, while it is in flight: the objects of each batch.
    collected: Vec<Vec<Collected>>,
    representations_left: u32,
}

/// What a fetch in flight waits for.
enum Call<'a> {
    Subgraph { request: SubgraphRequest<'a> },
    Publish { event: &'a EventField, arguments: Bytes },
}

enum Outcome {
    Answer(Result<SubgraphAnswer, FetchError>),
    Published(Result<bool, GraphqlError>),
}

async fn call<'a>(
    index: usize,
    fetch: &'a Fetch,
    call: Call<'a>,
    context: &'a RequestContext,
) -> (usize, Outcome) {
    let generation = &*context.generation;
    let outcome = match call {
        Call::Subgraph { request } => {
            Outcome::Answer(generation.subgraph(fetch.subgraph).fetch(request).await)
        }
        Call::Publish { event, arguments } => Outcome::Published(
            generation.publisher.publish(event.field, arguments, context.deadline).await,
        ),
    };
    (index, outcome)
}

impl<'a> Execution<'a> {
    fn new(
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
            root,
            errors: ErrorList::default(),
            states: vec![State::Waiting; count],
            waits_for: executable.fetches.iter().map(|fetch| fetch.dependencies).collect(),
            collected: std::iter::repeat_with(Vec::new).take(count).collect(),
            representations_left: REPRESENTATIONS_MAX,
        }
    }

    /// Puts introspection and the event into the tree. `false`: there is nothing to fetch for.
    fn plant(&mut self, introspection: Option<Bytes>, seed: Seed) -> bool {
        if let Some(text) = introspection {
            let planted = self.document.parse(text).map(|it| self.document.merge(self.root, it));
            if !matches!(planted, Ok(Ok(()))) {
                self.errors.push(GraphqlError::new(
                    ErrorCode::InternalServerError,
                    "the result of introspection is not valid",
                ));
            }
        }
        let Seed::Event(payload) = seed else { return true };
        let plan = &**self.executable.plan();
        let Some(root) = &plan.subscription else { return true };
        let (data_key, what) = match root {
            plan::SubscriptionRoot::Event(event) => (Some(&event.data_key), "The event"),
            plan::SubscriptionRoot::Upstream { .. } => (None, "The subgraph's event"),
        };
        let fields = plan
            .shape
            .objects
            .get(plan.shape.root.0 as usize)
            .and_then(|object| object.variants.first())
            .map_or(&[][..], |variant| &variant.fields);
        let field =
            fields.iter().find(|field| data_key.is_none_or(|data_key| field.data_key == *data_key));
        let Some(field) = field else { return true };
        let checked = match self.document.parse(payload) {
            Ok(payload) => event::check(&self.document, plan, field, payload).map(|()| payload),
            Err(error) => Err(format!("is not valid JSON: {error}")),
        };
        match checked {
            Ok(payload) => {
                self.document.set(self.root, &field.data_key, payload);
                true
            }
            Err(problem) => {
                let path = vec![PathSegment::Key(field.response_key.clone())];
                let message = format!("{what} {problem}.");
                self.errors.push(GraphqlError::new(ErrorCode::InvalidEvent, message).at(path));
                self.errors.explain_keys(std::slice::from_ref(&field.data_key));
                false
            }
        }
    }

    async fn run(&mut self) {
        let executable = self.executable;
        let context = self.context;
        let plan = &**executable.plan();
        let mut ready: VecDeque<usize> =
            (0..self.waits_for.len()).filter(|&index| self.waits_for[index] == 0).collect();
        let mut in_flight = FuturesUnordered::new();
        let mut deadline = pin!(tokio::time::sleep_until(context.deadline.into()));
        loop {
            while let Some(index) = ready.pop_front() {
                let fetch = &plan.fetches[index];
                if let Some(request) = self.start(index, fetch) {
                    self.states[index] = State::InFlight;
                    in_flight.push(call(index, fetch, request, context));
                } else {
                    self.complete(index, &mut ready);
                }
            }
            tokio::select! {
                biased;
                answered = in_flight.next() => {
                    let Some((index, outcome)) = answered else { return };
                    self.absorb(index, outcome);
                    self.complete(index, &mut ready);
                }
                () = &mut deadline => {
                    self.cut_off();
                    return;
                }
            }
        }
    }

    /// Marks a fetch as done; the fetches that waited for it only are ready.
    fn complete(&mut self, index: usize, ready: &mut VecDeque<usize>) {
        self.states[index] = State::Done;
        for &dependent in &self.executable.fetches[index].dependents {
            let waits_for = &mut self.waits_for[dependent as usize];
            *waits_for -= 1;
            if *waits_for == 0 {
                ready.push_back(dependent as usize);
            }
        }
    }

    fn is_wanted(&self, fetch: &Fetch) -> bool {
        fetch.any_of.is_empty() || fetch.any_of.iter().any(|it| it.holds(self.variables))
    }

    /// Builds the request of a fetch. `None`: there is nothing to ask.
    fn start(&mut self, index: usize, fetch: &'a Fetch) -> Option<Call<'a>> {
        if !self.is_wanted(fetch) {
            return None;
        }
        let compiled = &self.executable.fetches[index];
        match &fetch.kind {
            FetchKind::Root(operation) => {
                let mut body = Vec::with_capacity(compiled.head.len() + 64);
                body.extend_from_slice(&compiled.head);
                self.write_variables(operation, &mut body);
                body.extend_from_slice(b"}}");
                Some(self.subgraph_call(fetch, operation, body))
            }
            FetchKind::Entities { operation, batches } => {
                let mut body = Vec::with_capacity(compiled.head.len() + 1024);
                body.extend_from_slice(&compiled.head);
                let mut separator = self.write_variables(operation, &mut body);
                let mut all = Vec::with_capacity(batches.len());
                for (batch, compiled) in batches.iter().zip(&compiled.batches) {
                    body.extend_from_slice(separator);
                    separator = b",";
                    body.push(b'"');
                    body.extend_from_slice(batch.variable.as_bytes());
                    body.extend_from_slice(b"\":");
                    let written = write_representations(
                        &self.document,
                        self.root,
                        batch,
                        compiled,
                        &mut self.representations_left,
                        &mut body,
                    );
                    match written {
                        Ok(collected) => all.push(collected),
                        Err(error) => {
                            self.over_bound(fetch, error);
                            return None;
                        }
                    }
                }
                if all.iter().all(|collected| collected.items == 0) {
                    return None;
                }
                body.extend_from_slice(b"}}");
                self.collected[index] = all;
                Some(self.subgraph_call(fetch, operation, body))
            }
            FetchKind::Publish(event) => {
                let mut arguments = Vec::with_capacity(128);
                print_arguments(&event.arguments, self.variables, &mut arguments);
                Some(Call::Publish { event, arguments: Bytes::from(arguments) })
            }
        }
    }

    /// Writes the client's variables that the operation declares; returns what separates the next
    /// member from them.
    fn write_variables(&self, operation: &SubgraphOperation, body: &mut Vec<u8>) -> &'static [u8] {
        let mut separator: &'static [u8] = b"";
        for (name, id) in &operation.variables {
            let Some(value) = self.variables.get(*id) else { continue };
            body.extend_from_slice(separator);
            separator = b",";
            body.push(b'"');
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(b"\":");
            body.extend_from_slice(value.as_bytes());
        }
        separator
    }

    fn subgraph_call(
        &self,
        fetch: &'a Fetch,
        operation: &SubgraphOperation,
        body: Vec<u8>,
    ) -> Call<'a> {
        Call::Subgraph {
            request: SubgraphRequest {
                body: Bytes::from(body),
                is_mutation: operation.kind == OperationKind::Mutation,
                headers: self.context.headers.of(fetch.subgraph),
                deadline: self.context.deadline,
            },
        }
    }

    /// Takes in what came of a fetch.
    fn absorb(&mut self, index: usize, outcome: Outcome) {
        let fetch = &self.executable.plan().fetches[index];
        let collected = std::mem::take(&mut self.collected[index]);
        match outcome {
            Outcome::Published(Ok(success)) => {
                if let FetchKind::Publish(event) = &fetch.kind {
                    let result = self.document.new_object();
                    let success = self.document.new_bool(success);
                    self.document.set(result, "success", success);
                    self.document.set(self.root, &event.data_key, result);
                }
            }
            Outcome::Published(Err(error)) => self.fail_with(index, fetch, &collected, error),
            Outcome::Answer(Err(error)) => {
                let (code, message) = if matches!(error, FetchError::Timeout(_))
                    && Instant::now() >= self.context.deadline
                {
                    (ErrorCode::Timeout, self.timeout_message(fetch))
                } else {
                    let name = self.subgraph_name(fetch);
                    let message = format!("Request to subgraph \"{name}\" failed: {error}.");
                    (ErrorCode::SubgraphRequestFailed, message)
                };
                self.fail(index, fetch, &collected, code, message);
            }
            Outcome::Answer(Ok(answered)) => {
                match answer::read(&mut self.document, answered.status, answered.body) {
                    Ok(answer) => self.take_answer(index, fetch, &collected, &answer),
                    Err(problem) => self.bad_answer(index, fetch, &collected, &problem),
                }
            }
        }
    }

    fn take_answer(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        answer: &Answer,
    ) {
        match &fetch.kind {
            FetchKind::Publish(_) => {}
            FetchKind::Root(_) => {
                if let Some(data) = answer.data
                    && answer::merge(&mut self.document, self.root, data).is_err()
                {
                    let problem = "sent lists that do not fit what other subgraphs sent";
                    self.bad_answer(index, fetch, collected, problem);
                }
                self.root_errors(index, fetch, answer);
            }
            FetchKind::Entities { .. } => {
                if let Some(data) = answer.data {
                    self.scatter(index, fetch, collected, data, !answer.errors.is_empty());
                }
                self.entity_errors(index, fetch, collected, answer);
            }
        }
    }

    /// Links the entities of an answer into the objects that asked for them.
    fn scatter(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        data: NodeId,
        has_errors: bool,
    ) {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return };
        let compiled = &self.executable.fetches[index];
        let mut problem: Option<Cow<'static, str>> = None;
        for ((batch, compiled), collected) in batches.iter().zip(&compiled.batches).zip(collected) {
            let entities = self
                .document
                .get(data, &batch.data_key)
                .filter(|&entities| !self.document.is_null(entities));
            let Some(entities) = entities else {
                if !has_errors && collected.items > 0 {
                    problem = Some("sent no entities and no error that says why".into());
                }
                continue;
            };
            let is_list = self.document.kind(entities) == astjson::Kind::Array;
            let count = self.document.len(entities);
            if !is_list || count != collected.items as usize {
                problem = Some(if is_list {
                    format!("was asked for {} entities and sent {count}", collected.items).into()
                } else {
                    "sent entities that are not a list".into()
                });
                continue;
            }
            let items: Vec<NodeId> = self.document.elements(entities).collect();
            let mut copies = compiled.several_groups.then(Copies::new);
            for object in &collected.objects {
                let mut item = items[object.item as usize];
                match self.document.kind(item) {
                    astjson::Kind::Object => {}
                    // The subgraph does not know this entity.
                    astjson::Kind::Null => continue,
                    _ => {
                        problem = Some("sent an entity that is not an object".into());
                        continue;
                    }
                }
                if let Some(copies) = &mut copies {
                    let group = compiled.targets[object.target as usize].group;
                    item = copies.of(&mut self.document, item, group);
                }
                if answer::merge(&mut self.document, object.node, item).is_err() {
                    problem = Some("sent lists that do not fit what other subgraphs sent".into());
                }
            }
        }
        if let Some(problem) = problem {
            self.bad_answer(index, fetch, collected, &problem);
        }
    }

    fn root_errors(&mut self, index: usize, fetch: &'a Fetch, answer: &Answer) {
        let shape = &self.executable.plan().shape;
        for &node in &answer.errors {
            let path = answer::error_path(&self.document, node);
            let start =
                Place { node: self.root, path: Vec::new(), position: Position::root(shape) };
            let mut place = client_path::extend(&self.document, shape, start, &path);
            if place.is_empty() {
                self.errors.explain_keys(&self.executable.fetches[index].root_keys);
                if answer.data.is_none() {
                    place = self.first_place(index, fetch, &[]);
                }
            }
            self.push_subgraph_error(fetch, node, place);
        }
    }

    fn entity_errors(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        answer: &Answer,
    ) {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return };
        let shape = &self.executable.plan().shape;
        for &node in &answer.errors {
            let path = answer::error_path(&self.document, node);
            // [data key of the batch, index of the representation, …]
            let batch = path.first().and_then(|&key| {
                batches.iter().position(|batch| self.document.str_eq(key, &batch.data_key))
            });
            let item = path.get(1).and_then(|&item| {
                if self.document.kind(item) == astjson::Kind::Number {
                    self.document.raw(item).parse::<u32>().ok()
                } else {
                    None
                }
            });
            let mut found: Vec<Place<'_>> = Vec::new();
            if let (Some(batch), Some(item)) = (batch, item)
                && let Some(collected) = collected.get(batch)
            {
                for (target, steps) in batches[batch].targets.iter().enumerate() {
                    let nodes: foldhash::HashSet<NodeId> = collected
                        .objects
                        .iter()
                        .filter(|it| it.item == item && it.target as usize == target)
                        .map(|it| it.node)
                        .collect();
                    let limit = ERROR_PLACES_MAX - found.len();
                    if nodes.is_empty() || limit == 0 {
                        continue;
                    }
                    found.extend(client_path::places(
                        &self.document,
                        shape,
                        self.root,
                        steps,
                        limit,
                        |node| nodes.contains(&node),
                    ));
                    self.errors.explained_objects.extend(nodes);
                }
            }
            if found.is_empty() {
                self.explain_objects(collected);
                let place = self.first_place(index, fetch, collected);
                self.push_subgraph_error(fetch, node, place);
                continue;
            }
            for place in found {
                let place = client_path::extend(&self.document, shape, place, &path[2..]);
                self.push_subgraph_error(fetch, node, place);
            }
        }
    }

    fn push_subgraph_error(&mut self, fetch: &Fetch, node: NodeId, path: Vec<PathSegment>) {
        if self.errors.is_full() {
            self.errors.count_left_out();
            return;
        }
        let error = answer::error_of(&self.document, node, self.subgraph_name(fetch));
        self.errors.push(error.at(path));
    }

    fn bad_answer(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        problem: &str,
    ) {
        let message = format!("Subgraph \"{}\" {problem}.", self.subgraph_name(fetch));
        self.fail(index, fetch, collected, ErrorCode::SubgraphRequestFailed, message);
    }

    fn over_bound(&mut self, fetch: &'a Fetch, error: CollectError) {
        let message = match error {
            CollectError::Objects => format!(
                "The operation asks subgraph \"{}\" about more than {TARGET_OBJECTS_MAX} objects.",
                self.subgraph_name(fetch)
            ),
            CollectError::Representations => {
                format!(
                    "The operation asks subgraphs about more than {REPRESENTATIONS_MAX} entities."
                )
            }
        };
        self.errors.push(GraphqlError::new(ErrorCode::OperationLimitExceeded, message));
    }

    /// Records that a fetch has failed as a whole: one error, at the first place concerned.
    fn fail(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        code: ErrorCode,
        message: impl Into<Cow<'static, str>>,
    ) {
        let mut error = GraphqlError::new(code, message);
        error.subgraph = Some(self.subgraph_name(fetch).into());
        self.fail_with(index, fetch, collected, error);
    }

    fn fail_with(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        mut error: GraphqlError,
    ) {
        if error.path.is_empty() {
            error.path = self.first_place(index, fetch, collected);
        }
        self.errors.push(error);
        self.errors.explain_keys(&self.executable.fetches[index].root_keys);
        self.explain_objects(collected);
    }

    fn explain_objects(&mut self, collected: &[Collected]) {
        let objects = collected.iter().flat_map(|batch| &batch.objects);
        self.errors.explained_objects.extend(objects.map(|object| object.node));
    }

    /// The first place in the client's answer that a fetch is about.
    fn first_place(
        &self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
    ) -> Vec<PathSegment> {
        let shape = &self.executable.plan().shape;
        if let FetchKind::Entities { batches, .. } = &fetch.kind {
            let first = batches
                .iter()
                .zip(collected)
                .find_map(|(batch, collected)| Some((batch, collected.objects.first()?)));
            let Some((batch, object)) = first else { return Vec::new() };
            let path = &batch.targets[object.target as usize];
            let wanted = |node| node == object.node;
            let places = client_path::places(&self.document, shape, self.root, path, 1, wanted);
            return places.into_iter().next().map(|place| place.path).unwrap_or_default();
        }
        let keys = &self.executable.fetches[index].root_keys;
        let Position::Object(root) = Position::root(shape) else { return Vec::new() };
        let mut fields = root.variants.iter().flat_map(|variant| &variant.fields);
        let first = fields.find(|field| {
            keys.contains(&field.data_key)
                && (field.any_of.is_empty()
                    || field.any_of.iter().any(|it| it.holds(self.variables)))
        });
        first.map(|field| vec![PathSegment::Key(field.response_key.clone())]).unwrap_or_default()
    }

    /// The deadline has passed: what is in flight or still waits will not be known.
    fn cut_off(&mut self) {
        let plan = &**self.executable.plan();
        for (index, fetch) in plan.fetches.iter().enumerate() {
            match (self.states[index], &fetch.kind) {
                (State::Done, _) => {}
                (State::InFlight, _) => {
                    let collected = std::mem::take(&mut self.collected[index]);
                    let message = self.timeout_message(fetch);
                    self.fail(index, fetch, &collected, ErrorCode::Timeout, message);
                }
                (State::Waiting, _) if !self.is_wanted(fetch) => {}
                // What it waited for has its error; here only nulls need no more of them.
                (State::Waiting, FetchKind::Entities { batches, .. }) => {
                    let mut objects = Vec::new();
                    let compiled = &self.executable.fetches[index].batches;
                    for (batch, compiled) in batches.iter().zip(compiled) {
                        for (path, target) in batch.targets.iter().zip(&compiled.targets) {
                            let walked = objects_at(
                                &self.document,
                                self.root,
                                path,
                                target.shared_from,
                                &mut objects,
                            );
                            if walked.is_ok() {
                                self.errors.explained_objects.extend(objects.iter().copied());
                            }
                        }
                    }
                }
                (State::Waiting, FetchKind::Root(_) | FetchKind::Publish(_)) => {
                    let message = "Not executed: the request's time was up before its turn came.";
                    self.fail(index, fetch, &[], ErrorCode::Timeout, message);
                }
            }
        }
    }

    fn timeout_message(&self, fetch: &Fetch) -> String {
        let name = self.subgraph_name(fetch);
        let is_mutation = match &fetch.kind {
            FetchKind::Root(operation) => operation.kind == OperationKind::Mutation,
            FetchKind::Publish(_) => true,
            FetchKind::Entities { .. } => false,
        };
        let warning = if is_mutation { " The mutation may have taken effect." } else { "" };
        format!("Subgraph \"{name}\" did not answer before the request's time was up.{warning}")
    }

    fn subgraph_name(&self, fetch: &Fetch) -> &'a str {
        &self.context.generation.graph.subgraph(fetch.subgraph).name
    }

    /// Checks and prints what is in the tree.
    fn finish(mut self) -> Payload {
        let plan = &**self.executable.plan();
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(b"{\"data\":");
        let mark = out.len();
        let printed = projection::print_data(
            &self.document,
            self.root,
            &plan.shape,
            self.variables,
            &mut self.errors,
            &mut out,
        );
        match printed {
            Ok(()) => {}
            Err(Stop::Null) => {
                out.truncate(mark);
                out.extend_from_slice(b"null");
            }
            Err(Stop::TooLarge) => {
                return request_error(&[GraphqlError::new(
                    ErrorCode::OperationLimitExceeded,
                    format!("The answer is larger than {PAYLOAD_BYTES_MAX} bytes."),
                )]);
            }
        }
        let errors = self.errors.into_errors();
        if !errors.is_empty() {
            out.extend_from_slice(b",\"errors\":");
            print_errors(&errors, &mut out);
        }
        let splice = out.len();
        out.push(b'}');
        Payload {
            bytes: Bytes::from(out),
            splice,
            has_data: true,
            errors: u32::try_from(errors.len()).unwrap_or(u32::MAX),
        }
    }
}

/// One entity per group of target paths: see [`crate::executable::CompiledTarget::group`].
struct Copies {
    first_group: HashMap<NodeId, u32>,
    others: HashMap<(NodeId, u32), NodeId>,
}

impl Copies {
    fn new() -> Self {
        Self { first_group: HashMap::new(), others: HashMap::new() }
    }

    /// The item itself for the group that asks first, a copy for every other.
    fn of(&mut self, document: &mut PooledDocument, item: NodeId, group: u32) -> NodeId {
        if *self.first_group.entry(item).or_insert(group) == group {
            return item;
        }
        *self.others.entry((item, group)).or_insert_with(|| {
            let mut text = Vec::new();
            document.print(item, &mut text);
            // What has just been printed parses again.
            document.parse(Bytes::from(text)).unwrap_or(item)
        })
    }
}
