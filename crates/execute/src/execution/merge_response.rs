//! Merges responses into the tree, and adds their errors at the paths of the client's response.

use std::borrow::Cow;
use std::time::Instant;

use astjson::{Kind, NodeId, Shape};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt, HashSet};
use http::{HeaderMap, StatusCode};
use plan::{Fetch, FetchKind, Path};

use super::Execution;
use super::cached_requests::Look;
use super::in_flight::{OutgoingRequest, RequestOutcome, SentRequest, StoredForm, StoredResponse};
use super::request_splitting::{is_overload, may_succeed_smaller};
use crate::bounds::ERROR_PLACES_MAX;
use crate::document_pool::PooledDocument;
use crate::error_list::TreePath;
use crate::error_path::{self, Position, ResponsePlace};
use crate::representations::CollectedBatch;
use crate::response::{self, ParsedResponse};
use crate::{ErrorCode, FetchError, GraphqlError, PathSegment, event};

impl<'a> Execution<'a> {
    /// Handles the outcome of a request. Requests to repeat are added to `calls`.
    pub(super) fn handle_outcome(
        &mut self,
        request: usize,
        outcome: RequestOutcome,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let index = self.sent[request].fetch;
        let fetch = &self.executable.plan().fetches[index];
        self.sent[request].is_finished = true;
        self.note_concerned_keys(request);
        let sent = match outcome {
            RequestOutcome::Response(Ok(sent)) => sent,
            RequestOutcome::Stored(stored) => return self.merge_stored(request, fetch, *stored),
            RequestOutcome::Awaited => return self.look_again(request, Look::Again, calls),
            RequestOutcome::LookedUpShared(guard, locks) => {
                return self.look_again(request, Look::AfterShared(guard, locks), calls);
            }
            RequestOutcome::Response(Err(error)) => {
                self.policies.forbid();
                if !may_succeed_smaller(&error) || !self.retry_aliases_alone(request, calls) {
                    self.fail_request(request, fetch, &error);
                }
                return;
            }
            RequestOutcome::Published(Ok(success)) => {
                self.policies.forbid();
                if let FetchKind::Publish(event) = &fetch.kind {
                    let result = self.document.new_object();
                    let success = self.document.new_bool(success);
                    self.document.set(result, "success", success);
                    self.document.set(self.root, &event.data_key, result);
                }
                return;
            }
            RequestOutcome::Requested(Ok(response)) => {
                self.policies.forbid();
                return self.merge_broker_response(index, fetch, response);
            }
            RequestOutcome::Published(Err(error)) | RequestOutcome::Requested(Err(error)) => {
                return self.fail_with(index, fetch, &[], error);
            }
        };
        match &sent.policy {
            Some(policy) => self.policies.merge(policy),
            None => self.policies.forbid(),
        }
        let memory = &self.context.generation.memory;
        let reserved = self.memory.reserve(memory, &self.document, sent.body.len());
        // A mutation was executed: the error would say that it may be repeated.
        if reserved.is_err() && !self.is_mutation(fetch) {
            return self.fail_request(request, fetch, &FetchError::MemoryUsedUp);
        }
        let shape = &self.executable.fetches[index].response;
        let (status, headers) = (sent.status, sent.headers);
        let response = response::read_response(&mut self.document, status, sent.body, shape);
        self.memory.update(&self.document);
        let has_data = matches!(&response, Ok(response) if response.data.is_some());
        if !has_data && !is_overload(status) && self.retry_aliases_alone(request, calls) {
            return;
        }
        if self.context.generation.disclosure.headers.is_some() {
            self.response_headers.push(((index, request), headers));
        }
        let collected = std::mem::take(&mut self.sent[request].collected);
        match response {
            Ok(response) => self.merge_response(index, fetch, &collected, &response),
            Err(problem) => self.reject_response(index, fetch, &collected, &problem),
        }
    }

    /// Merges stored entries.
    fn merge_stored(&mut self, request: usize, fetch: &'a Fetch, stored: StoredResponse) {
        let StoredResponse { form, policy } = stored;
        self.policies.merge(&policy);
        let index = self.sent[request].fetch;
        let shape = &self.executable.fetches[index].response;
        let caches = self.context.generation.caches.as_ref();
        let document = &mut self.document;
        let root = match form {
            StoredForm::Text(text) => document.parse_shaped(text, shape),
            StoredForm::Known(known) => document.append(&known.text, shape),
            StoredForm::New(text, place) => {
                document.parse_shaped_to_share(text, shape).map(|(root, parsed)| {
                    if let Some((parsed, caches)) = parsed.zip(caches) {
                        caches.memory.keep_response(place, parsed);
                    }
                    root
                })
            }
        };
        if self.context.generation.disclosure.headers.is_some() {
            self.response_headers.push(((index, request), HeaderMap::new()));
        }
        let collected = std::mem::take(&mut self.sent[request].collected);
        let read = root.map_err(|error| format!("has stored entries that are not valid: {error}"));
        let read = read
            .map_err(Cow::from)
            .and_then(|root| response::read_root(&self.document, root, StatusCode::OK));
        match read {
            Ok(response) => self.merge_response(index, fetch, &collected, &response),
            Err(problem) => self.reject_response(index, fetch, &collected, &problem),
        }
    }

    /// Notes the root fields that a request is about, for the places of its errors.
    pub(super) fn note_concerned_keys(&mut self, request: usize) {
        let SentRequest { fetch, fields, .. } = &self.sent[request];
        let caching = self.executable.fetches[*fetch].caching.as_ref();
        let root = caching.and_then(|caching| caching.root.as_ref());
        self.concerned_keys = root.filter(|_| !fields.is_empty()).map(|root| {
            let all = fields.iter().filter_map(|number| root.fields().get(usize::from(*number)));
            all.map(|field| &*field.data_key).collect()
        });
    }

    /// Handles the response to a request over a broker, which is the value of the root field, like
    /// an event.
    fn merge_broker_response(&mut self, index: usize, fetch: &'a Fetch, response: Bytes) {
        let FetchKind::Request(event) = &fetch.kind else { return };
        let Some(field) = self.root_field(&event.data_key) else { return };
        let plan = &**self.executable.plan();
        let checked = match self.document.parse(response) {
            Ok(value) if field.value.nullable && self.document.is_null(value) => Ok(value),
            Ok(value) => {
                let graph = &self.context.generation.graph;
                event::complete_payload(&mut self.document, graph, plan, field, value)
                    .map(|()| value)
            }
            Err(error) => Err(format!("is not valid JSON: {error}")),
        };
        match checked {
            Ok(value) => self.document.set(self.root, &event.data_key, value),
            Err(problem) => {
                let message = format!("The response {problem}.");
                self.fail_fetch(index, fetch, &[], ErrorCode::InvalidEvent, message);
            }
        }
    }

    fn fail_request(&mut self, request: usize, fetch: &'a Fetch, error: &FetchError) {
        let collected = std::mem::take(&mut self.sent[request].collected);
        if let FetchError::Status { body: Some(body), .. } = error {
            let errors = response::failure_errors(&mut self.document, body.clone());
            if !errors.is_empty() {
                return self.add_failure_errors(
                    self.sent[request].fetch,
                    fetch,
                    &collected,
                    &errors,
                );
            }
        }
        let is_late = matches!(error, FetchError::Timeout(_));
        let (code, message) = if is_late && Instant::now() >= self.context.deadline {
            (ErrorCode::Timeout, self.timeout_message(fetch))
        } else {
            let name = self.subgraph_name(fetch);
            let message = format!("Request to subgraph \"{name}\" failed: {error}.");
            let code = match error {
                FetchError::Unavailable(_) => ErrorCode::SubgraphUnavailable,
                FetchError::Overloaded | FetchError::MemoryUsedUp => ErrorCode::Overloaded,
                _ => ErrorCode::SubgraphRequestFailed,
            };
            (code, message)
        };
        self.fail_fetch(self.sent[request].fetch, fetch, &collected, code, message);
    }

    /// Handles the errors of a response with a status of failure. Their paths are not used: with
    /// such a status nothing but the errors themselves is reliable (GraphQL over HTTP, section
    /// 6.4.1), and no data was merged.
    fn add_failure_errors(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        errors: &[NodeId],
    ) {
        self.note_reported(fetch, errors);
        let mut is_first = true;
        for &node in errors {
            self.push_unplaced_error(index, fetch, collected, node, &mut is_first);
        }
        self.errors.explain_keys(fetch.kind.root_keys());
        self.explain_objects(collected);
    }

    pub(super) fn merge_response(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        response: &ParsedResponse,
    ) {
        self.note_reported(fetch, &response.errors);
        match &fetch.kind {
            FetchKind::Publish(_) | FetchKind::Request(_) => {}
            FetchKind::Root { .. } => {
                // If one side is null and the other is not, the other stays: a subgraph that does
                // not know a shared value does not remove it from one that does.
                if let Some(data) = response.data
                    && self.document.merge_filling(self.root, data).is_err()
                {
                    let problem = "sent lists that do not fit what other subgraphs sent";
                    self.reject_part(index, fetch, collected, problem);
                }
                self.add_root_errors(index, fetch, response);
            }
            FetchKind::RootBelow { target, .. } => {
                if let Some(data) = response.data {
                    self.link_root_fields(index, fetch, collected, data);
                }
                self.add_errors_below(index, fetch, target, collected, response);
            }
            FetchKind::Entities { .. } => {
                if let Some(data) = response.data {
                    self.link_entities(index, fetch, collected, data, !response.errors.is_empty());
                }
                self.add_entity_errors(index, fetch, collected, response);
            }
        }
    }

    /// Links the root fields of a response into all objects that they are for.
    fn link_root_fields(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        data: NodeId,
    ) {
        let Some(below) = &self.executable.fetches[index].below else { return };
        let mut copies = below.one_each.then(EntityCopies::new);
        let mut fits = true;
        for (number, object) in collected.iter().flat_map(|it| &it.objects).enumerate() {
            let data = match &mut copies {
                Some(copies) => copies.of(&mut self.document, data, number as u32, &below.object),
                None => data,
            };
            fits &= self.document.merge_filling(object.node, data).is_ok();
        }
        if !fits {
            let problem = "sent lists that do not fit what other subgraphs sent";
            self.reject_part(index, fetch, collected, problem);
        }
    }

    /// Adds each error at every object that the root fields are for.
    fn add_errors_below(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        target: &'a Path,
        collected: &[CollectedBatch],
        response: &ParsedResponse,
    ) {
        let shape = &self.executable.plan().shape;
        let objects = collected.iter().flat_map(|it| &it.objects);
        let nodes: HashSet<NodeId> = objects.map(|object| object.node).collect();
        let mut is_first = response.data.is_none();
        for &node in &response.errors {
            let path = response::error_path(&self.document, node);
            if path.is_empty() || response.data.is_none() {
                self.explain_objects(collected);
            }
            if path.is_empty() {
                self.push_unplaced_error(index, fetch, collected, node, &mut is_first);
                continue;
            }
            let wanted = |node| nodes.contains(&node);
            let (document, limit) = (&self.document, ERROR_PLACES_MAX);
            let places = error_path::find_places(document, shape, self.root, target, limit, wanted);
            for place in places {
                let place = error_path::extend_path(&self.document, shape, place, &path);
                self.push_placed_error(index, fetch, node, place);
            }
        }
    }

    /// Links the entities of a response into the objects that requested them.
    pub(super) fn link_entities(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        data: NodeId,
        has_errors: bool,
    ) {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return };
        let compiled = &self.executable.fetches[index];
        let mut problem: Option<Cow<'static, str>> = None;
        // The objects that the problem concerns, by batch.
        let mut concerned: Vec<CollectedBatch> = Vec::new();
        concerned.resize_with(collected.len(), CollectedBatch::default);
        let all = batches.iter().zip(&compiled.batches).zip(collected);
        for (((batch, compiled), collected), concerned) in all.zip(&mut concerned) {
            let entities = self
                .document
                .get(data, &batch.data_key)
                .filter(|&entities| !self.document.is_null(entities));
            let Some(entities) = entities else {
                if !has_errors && collected.items > 0 {
                    problem = Some("sent no entities and no error that explains it".into());
                    concerned.objects.clone_from(&collected.objects);
                }
                continue;
            };
            let is_list = self.document.kind(entities) == Kind::Array;
            let count = self.document.len(entities);
            if !is_list || count != collected.items as usize {
                problem = Some(if is_list {
                    format!("was asked for {} entities and sent {count}", collected.items).into()
                } else {
                    "sent entities that are not a list".into()
                });
                concerned.objects.clone_from(&collected.objects);
                continue;
            }
            let items: Vec<NodeId> = self.document.elements(entities).collect();
            if self.checks_existence {
                self.count_existence(batch, &items);
            }
            let has_copies = compiled.several_groups || compiled.one_each;
            let mut copies = has_copies.then(EntityCopies::new);
            for (number, object) in collected.objects.iter().enumerate() {
                let mut item = items[object.item as usize];
                match self.document.kind(item) {
                    Kind::Object => {}
                    // The subgraph does not know this entity.
                    Kind::Null => continue,
                    _ => {
                        problem = Some("sent an entity that is not an object".into());
                        concerned.objects.push(*object);
                        continue;
                    }
                }
                if let Some(copies) = &mut copies {
                    let group = match compiled.one_each {
                        true => number as u32,
                        false => compiled.targets[object.target as usize].group,
                    };
                    item = copies.of(&mut self.document, item, group, &compiled.entity);
                }
                if self.document.merge_filling(object.node, item).is_err() {
                    problem = Some("sent lists that do not fit what other subgraphs sent".into());
                    concerned.objects.push(*object);
                }
            }
        }
        if let Some(problem) = problem {
            self.reject_response(index, fetch, &concerned, &problem);
        }
    }

    /// Counts if the subgraph knows the entity at the root.
    fn count_existence(&mut self, batch: &plan::EntityBatch, items: &[NodeId]) {
        if batch.targets.iter().all(|path| path.steps.len() == 1) {
            let is_unknown = items.iter().all(|&item| self.document.is_null(item));
            self.subgraphs_without_entity += u32::from(is_unknown);
            self.subgraphs_with_entity += u32::from(!is_unknown);
        }
    }

    pub(super) fn add_root_errors(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        response: &ParsedResponse,
    ) {
        let shape = &self.executable.plan().shape;
        let mut is_first = true;
        for &node in &response.errors {
            let path = response::error_path(&self.document, node);
            let (path_to, beyond) = (Vec::new(), Vec::new());
            let position = Position::root(shape);
            let start = ResponsePlace { node: self.root, path: path_to, beyond, position };
            let (place, beyond) = error_path::extend_path(&self.document, shape, start, &path);
            if place.is_empty() {
                self.errors.explain_keys(fetch.kind.root_keys());
                if response.data.is_none() {
                    self.push_unplaced_error(index, fetch, &[], node, &mut is_first);
                } else {
                    self.push_subgraph_error(index, fetch, node, place);
                }
                continue;
            }
            self.push_placed_error(index, fetch, node, (place, beyond));
        }
    }

    pub(super) fn add_entity_errors(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        response: &ParsedResponse,
    ) {
        let FetchKind::Entities { batches, .. } = &fetch.kind else { return };
        let shape = &self.executable.plan().shape;
        let mut is_first = response.data.is_none();
        for &node in &response.errors {
            let path = response::error_path(&self.document, node);
            // The path is [data key of the batch, index of the representation, …].
            let batch = path.first().and_then(|&key| {
                batches.iter().position(|batch| self.document.str_eq(key, &batch.data_key))
            });
            let item = path.get(1).and_then(|&item| {
                if self.document.kind(item) == Kind::Number {
                    self.document.raw(item).parse::<u32>().ok()
                } else {
                    None
                }
            });
            let mut found: Vec<ResponsePlace<'_>> = Vec::new();
            if let (Some(batch), Some(item)) = (batch, item)
                && let Some(collected) = collected.get(batch)
            {
                for (target, steps) in batches[batch].targets.iter().enumerate() {
                    let nodes: HashSet<NodeId> = collected
                        .objects
                        .iter()
                        .filter(|it| it.item == item && it.target as usize == target)
                        .map(|it| it.node)
                        .collect();
                    let limit = ERROR_PLACES_MAX - found.len();
                    if nodes.is_empty() || limit == 0 {
                        continue;
                    }
                    found.extend(error_path::find_places(
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
                self.push_unplaced_error(index, fetch, collected, node, &mut is_first);
                continue;
            }
            for place in found {
                let place = error_path::extend_path(&self.document, shape, place, &path[2..]);
                self.push_placed_error(index, fetch, node, place);
            }
        }
    }

    /// Adds an error with a path from the subgraph.
    fn push_placed_error(
        &mut self,
        index: usize,
        fetch: &Fetch,
        node: NodeId,
        (path, beyond): (Vec<PathSegment>, TreePath),
    ) {
        if let Some(error) = self.subgraph_error(fetch, node, path) {
            self.errors.push_placed(index as u32, error, beyond);
        }
    }

    /// Adds an error without a path. If the whole fetch failed, the first such error (`is_first`,
    /// which this call resets) is added at every place that the fetch concerns, the others at the
    /// first place only.
    fn push_unplaced_error(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        node: NodeId,
        is_first: &mut bool,
    ) {
        if !std::mem::take(is_first) {
            let place = self.first_place(fetch, collected);
            return self.push_subgraph_error(index, fetch, node, place);
        }
        if let Some(error) = self.subgraph_error(fetch, node, Vec::new()) {
            self.push_at_affected_places(index, fetch, collected, error);
        }
    }

    pub(super) fn push_subgraph_error(
        &mut self,
        index: usize,
        fetch: &Fetch,
        node: NodeId,
        path: Vec<PathSegment>,
    ) {
        if let Some(error) = self.subgraph_error(fetch, node, path) {
            self.errors.push(index as u32, error);
        }
    }

    /// Returns the error, or `None` if there are too many already; it is counted then.
    fn subgraph_error(
        &mut self,
        fetch: &Fetch,
        node: NodeId,
        path: Vec<PathSegment>,
    ) -> Option<GraphqlError> {
        if self.errors.is_full() {
            self.errors.count_left_out();
            return None;
        }
        let name = self.subgraph_name(fetch);
        let disclosure = &self.context.generation.disclosure;
        let error = response::error_of(&self.document, node, name, &disclosure.error_extensions);
        let code = response::code_of(&self.document, node);
        Some(self.disclose_error(fetch, error.at(path), code.as_deref()))
    }
}

/// Copies of entities, one for each group of target paths: see
/// [`crate::compiled_objects::CompiledTarget::group`].
struct EntityCopies {
    first_group: HashMap<NodeId, u32>,
    others: HashMap<(NodeId, u32), NodeId>,
}

impl EntityCopies {
    fn new() -> Self {
        Self { first_group: HashMap::new(), others: HashMap::new() }
    }

    /// Returns the item itself for the group that needs it first, and a copy for every other group.
    fn of(
        &mut self,
        document: &mut PooledDocument,
        item: NodeId,
        group: u32,
        entity: &Shape,
    ) -> NodeId {
        if *self.first_group.entry(item).or_insert(group) == group {
            return item;
        }
        *self.others.entry((item, group)).or_insert_with(|| {
            let mut text = Vec::new();
            document.print(item, &mut text);
            // Text that was just printed can be parsed again.
            document.parse_shaped(Bytes::from(text), entity).unwrap_or(item)
        })
    }
}
