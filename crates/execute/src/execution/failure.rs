//! Handles fetches that fail as a whole: adds one error at each place that the fetch concerns, up
//! to a bound.

use std::borrow::Cow;

use astjson::NodeId;
use foldhash::HashSet;
use plan::{Fetch, FetchKind, OperationKind, Path, ShapeField};

use super::Execution;
use super::in_flight::{FetchState, SentRequest};
use crate::bounds::{
    CONTEXTS_MAX, ERRORS_MAX, LOGGED_ERRORS_MAX, REPRESENTATIONS_MAX, TARGET_OBJECTS_MAX,
};
use crate::error_path::{self, Position};
use crate::representations::{CollectError, CollectedBatch, TargetWalk};
use crate::{
    ErrorCode, GraphqlError, HiddenErrors, MessageRule, PathSegment, error_masking, response,
};

/// The places of the client's response that a failed fetch concerns.
#[derive(Default)]
struct AffectedPlaces {
    paths: Vec<Vec<PathSegment>>,
    /// The number of concerned objects without a place in `paths`.
    left_out: usize,
}

impl<'a> Execution<'a> {
    /// Records a response that cannot be used: one error at each place concerned.
    pub(super) fn reject_response(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        problem: &str,
    ) {
        let error = self.unusable_response(fetch, problem);
        self.fail_with(index, fetch, collected, error);
    }

    /// Records a response that could be used in part: one error at the first place concerned.
    pub(super) fn reject_part(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        problem: &str,
    ) {
        let place = self.first_place(fetch, collected);
        let error = self.unusable_response(fetch, problem).at(place);
        self.fail_with(index, fetch, collected, error);
    }

    /// Returns the error of a response that cannot be used, which is also logged.
    fn unusable_response(&self, fetch: &Fetch, problem: &str) -> GraphqlError {
        self.context.generation.subgraph(fetch.subgraph).note_unusable_response(problem);
        let message = format!("Subgraph \"{}\" {problem}.", self.subgraph_name(fetch));
        self.subgraph_failure(fetch, ErrorCode::SubgraphRequestFailed, message)
    }

    /// Returns an error that names the subgraph of a fetch, without a path.
    fn subgraph_failure(
        &self,
        fetch: &Fetch,
        code: ErrorCode,
        message: impl Into<Cow<'static, str>>,
    ) -> GraphqlError {
        let mut error = GraphqlError::new(code, message);
        error.subgraph = Some(self.subgraph_name(fetch).into());
        error
    }

    pub(super) fn exceed_bound(&mut self, index: usize, fetch: &'a Fetch, error: CollectError) {
        let message = match error {
            CollectError::Objects => format!(
                "The operation asks subgraph \"{}\" about more than {TARGET_OBJECTS_MAX} objects.",
                self.subgraph_name(fetch)
            ),
            CollectError::Contexts => format!(
                "Subgraph \"{}\" would be asked with more than {CONTEXTS_MAX} different values of context arguments.",
                self.subgraph_name(fetch)
            ),
            CollectError::Representations => {
                format!(
                    "The operation asks subgraphs about more than {REPRESENTATIONS_MAX} entities."
                )
            }
        };
        let error = GraphqlError::new(ErrorCode::OperationLimitExceeded, message);
        self.errors.push(index as u32, error);
        self.errors.explained_all = true;
    }

    /// Records that a fetch has failed as a whole: one error at each place concerned.
    pub(super) fn fail_fetch(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        code: ErrorCode,
        message: impl Into<Cow<'static, str>>,
    ) {
        let error = self.subgraph_failure(fetch, code, message);
        self.fail_with(index, fetch, collected, error);
    }

    pub(super) fn fail_with(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        error: GraphqlError,
    ) {
        let code = error.code.as_str();
        let error = self.disclose_error(fetch, error, Some(code));
        if error.path.is_empty() {
            self.push_at_affected_places(index, fetch, collected, error);
        } else {
            self.errors.push(index as u32, error);
        }
        self.errors.explain_keys(fetch.kind.root_keys());
        self.explain_objects(collected);
    }

    /// Repeats an error at every place that the fetch concerns, so that each null has one. The
    /// first place has one regardless of the bound on such places.
    pub(super) fn push_at_affected_places(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        error: GraphqlError,
    ) {
        let limit = self.errors.failure_places_left().max(1);
        let AffectedPlaces { paths, left_out } = self.affected_places(fetch, collected, limit);
        self.errors.push_failure(index as u32, error, paths, left_out);
    }

    /// Returns an error as the client may see it. `code` is the code of the subgraph, or of the router if the error is
    /// its own.
    pub(super) fn disclose_error(
        &self,
        fetch: &Fetch,
        error: GraphqlError,
        code: Option<&str>,
    ) -> GraphqlError {
        let replacement = match self.message_rule(fetch, code, &error.message) {
            MessageRule::Show => return error,
            MessageRule::Hide => None,
            MessageRule::Replace(text) => Some(&**text),
        };
        let name = self.subgraph_name(fetch);
        tracing::debug!(
            subgraph = name,
            code,
            reason = &*error.message,
            extensions = error.extensions.as_deref(),
            "an error whose message is hidden from clients (include_subgraph_errors)"
        );
        let shown = self.context.generation.disclosure.names_subgraphs.then_some(name);
        error_masking::mask_error(error, shown, self.is_mutation(fetch), replacement)
    }

    /// Decides about the message of an error. Errors of publications and of requests over a broker are the router's own
    /// and always shown.
    fn message_rule(&self, fetch: &Fetch, code: Option<&str>, message: &str) -> &MessageRule {
        match &fetch.kind {
            FetchKind::Publish(_) | FetchKind::Request(_) => &MessageRule::Show,
            FetchKind::Root { .. } | FetchKind::RootBelow { .. } | FetchKind::Entities { .. } => {
                let disclosure = &self.context.generation.disclosure;
                disclosure.message_rule(fetch.subgraph, code, message)
            }
        }
    }

    /// Counts a response with errors, and logs the errors, whether clients see them or not.
    pub(super) fn note_reported(&self, fetch: &Fetch, errors: &[NodeId]) {
        let document = &self.document;
        let Some(first) = errors.first() else { return };
        let subgraph = self.context.generation.subgraph(fetch.subgraph);
        subgraph.note_errors(response::code_of(document, *first).as_deref());
        if tracing::enabled!(tracing::Level::DEBUG) {
            for &error in errors.iter().take(LOGGED_ERRORS_MAX) {
                tracing::debug!(
                    subgraph = self.subgraph_name(fetch),
                    code = response::code_of(document, error),
                    reason = &*response::message_of(document, error),
                    extensions = response::extensions_text(document, error),
                    "a subgraph reported an error"
                );
            }
        }
        // Clients that see the messages can act on them.
        if self.context.generation.disclosure.shows_all_errors(fetch.subgraph) {
            return;
        }
        let is_hidden = |error: &NodeId| {
            let code = response::code_of(document, *error);
            let message = response::message_of(document, *error);
            *self.message_rule(fetch, code.as_deref(), &message) != MessageRule::Show
        };
        let mut hidden = errors.iter().copied().take(ERRORS_MAX).filter(is_hidden);
        let Some(first) = hidden.next() else { return };
        let path = || response::path_text(document, first);
        self.context.generation.subgraph(fetch.subgraph).note_hidden_errors(&HiddenErrors {
            // Those above the bound do not reach clients either.
            count: 1 + hidden.count() + errors.len().saturating_sub(ERRORS_MAX),
            code: response::code_of(document, first).as_deref(),
            path: &path,
        });
    }

    pub(super) fn explain_objects(&mut self, collected: &[CollectedBatch]) {
        let objects = collected.iter().flat_map(|batch| &batch.objects);
        self.errors.explained_objects.extend(objects.map(|object| object.node));
    }

    /// Returns the first place in the client's response that a fetch concerns.
    pub(super) fn first_place(
        &self,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
    ) -> Vec<PathSegment> {
        let places = self.affected_places(fetch, collected, 1);
        places.paths.into_iter().next().unwrap_or_default()
    }

    /// Returns up to `limit` places in the client's response that a fetch concerns; one without a path if none is
    /// found.
    fn affected_places(
        &self,
        fetch: &'a Fetch,
        collected: &[CollectedBatch],
        limit: usize,
    ) -> AffectedPlaces {
        let shape = &self.executable.plan().shape;
        let targets: Vec<&'a [Path]> = match &fetch.kind {
            FetchKind::Entities { batches, .. } => {
                batches.iter().map(|batch| &batch.targets[..]).collect()
            }
            FetchKind::RootBelow { target, .. } => vec![std::slice::from_ref(target)],
            FetchKind::Root { .. } | FetchKind::Publish(_) | FetchKind::Request(_) => {
                return self.affected_root_fields(fetch, limit);
            }
        };
        let mut affected = AffectedPlaces::default();
        for (targets, collected) in targets.into_iter().zip(collected) {
            for (number, path) in targets.iter().enumerate() {
                let objects = collected.objects.iter();
                let mut missing: HashSet<NodeId> = objects
                    .filter(|object| object.target as usize == number)
                    .map(|object| object.node)
                    .collect();
                let left = limit.saturating_sub(affected.paths.len());
                if left > 0 && !missing.is_empty() {
                    let wanted = |node| missing.contains(&node);
                    let places = error_path::find_places(
                        &self.document,
                        shape,
                        self.root,
                        path,
                        left,
                        wanted,
                    );
                    for place in places {
                        missing.remove(&place.node);
                        // Objects outside of the response end at one place inside.
                        if affected.paths.last() != Some(&place.path) {
                            affected.paths.push(place.path);
                        }
                    }
                }
                affected.left_out += missing.len();
            }
        }
        if affected.paths.is_empty() {
            affected.paths.push(Vec::new());
        }
        affected
    }

    /// Returns the root fields of the client's response that a fetch concerns.
    fn affected_root_fields(&self, fetch: &Fetch, limit: usize) -> AffectedPlaces {
        let shape = &self.executable.plan().shape;
        let keys = fetch.kind.root_keys();
        let Position::Object(root) = Position::root(shape) else {
            return AffectedPlaces { paths: vec![Vec::new()], left_out: 0 };
        };
        let is_concerned = |field: &&ShapeField| {
            let concerned = self.concerned_keys.as_ref();
            keys.contains(&field.data_key)
                && concerned.is_none_or(|keys| keys.contains(&&*field.data_key))
                && field.is_shown(self.variables)
        };
        let mut fields = root.variants.iter().flat_map(|it| &it.fields).filter(is_concerned);
        let path_of = |field: &ShapeField| vec![PathSegment::Key(field.response_key.clone())];
        let mut paths: Vec<_> = fields.by_ref().take(limit).map(path_of).collect();
        if paths.is_empty() {
            paths.push(Vec::new());
        }
        AffectedPlaces { paths, left_out: fields.count() }
    }

    /// Ends the execution at the deadline: fetches in flight and those that still wait get an
    /// error.
    pub(super) fn end_at_deadline(&mut self) {
        self.concerned_keys = None;
        let plan = &**self.executable.plan();
        for (index, fetch) in plan.fetches.iter().enumerate() {
            match (self.states[index], &fetch.kind) {
                (FetchState::Done, _) => {}
                (FetchState::InFlight, _) => {
                    let message = self.timeout_message(fetch);
                    let is_late = |sent: &SentRequest| sent.fetch == index && !sent.is_finished;
                    let late: Vec<usize> =
                        (0..self.sent.len()).filter(|it| is_late(&self.sent[*it])).collect();
                    for &request in &late {
                        self.note_concerned_keys(request);
                        let collected = std::mem::take(&mut self.sent[request].collected);
                        let message = message.clone();
                        self.fail_fetch(index, fetch, &collected, ErrorCode::Timeout, message);
                    }
                    self.concerned_keys = None;
                    if late.is_empty() {
                        self.fail_fetch(index, fetch, &[], ErrorCode::Timeout, message);
                    }
                }
                (FetchState::Waiting, _) if !self.is_wanted(fetch) => {}
                // The fetch that it waited for has an error; only the nulls of this one need no
                // further errors.
                (FetchState::Waiting, FetchKind::Entities { batches, .. }) => {
                    let mut walk = TargetWalk::default();
                    let compiled = &self.executable.fetches[index].batches;
                    for (batch, compiled) in batches.iter().zip(compiled) {
                        for (path, target) in batch.targets.iter().zip(&compiled.targets) {
                            let (document, shape) = (&self.document, &compiled.entity);
                            let walked = walk.objects_at(document, self.root, shape, path, target);
                            if let Ok(objects) = walked {
                                self.errors.explained_objects.extend(objects);
                            }
                        }
                    }
                }
                (FetchState::Waiting, FetchKind::RootBelow { target, .. }) => {
                    let Some(below) = &self.executable.fetches[index].below else { continue };
                    let mut walk = TargetWalk::default();
                    let (document, shape) = (&self.document, &below.object);
                    let walked = walk.objects_at(document, self.root, shape, target, &below.target);
                    if let Ok(objects) = walked {
                        self.errors.explained_objects.extend(objects);
                    }
                }
                (
                    FetchState::Waiting,
                    FetchKind::Root { .. } | FetchKind::Publish(_) | FetchKind::Request(_),
                ) => {
                    let message = "Not executed: the request's time was up before its turn came.";
                    self.fail_fetch(index, fetch, &[], ErrorCode::Timeout, message);
                }
            }
        }
    }

    pub(super) fn is_mutation(&self, fetch: &Fetch) -> bool {
        match &fetch.kind {
            FetchKind::Root { operation, .. } => operation.kind == OperationKind::Mutation,
            FetchKind::Publish(_) => true,
            FetchKind::Request(_) => self.executable.plan().kind == OperationKind::Mutation,
            FetchKind::RootBelow { .. } | FetchKind::Entities { .. } => false,
        }
    }

    pub(super) fn timeout_message(&self, fetch: &Fetch) -> String {
        let name = self.subgraph_name(fetch);
        let is_mutation = self.is_mutation(fetch);
        let warning = if is_mutation { " The mutation may have taken effect." } else { "" };
        format!("Subgraph \"{name}\" did not respond before the request's time was up.{warning}")
    }

    pub(super) fn subgraph_name(&self, fetch: &Fetch) -> &'a str {
        &self.context.generation.graph.subgraph(fetch.subgraph).name
    }
}
