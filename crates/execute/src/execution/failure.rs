//! Fetches that fail as a whole: one error each, at the first place concerned.

use std::borrow::Cow;

use plan::{Fetch, FetchKind, OperationKind, Path};

use super::{Execution, State};
use crate::bounds::{CONTEXTS_MAX, REPRESENTATIONS_MAX, TARGET_OBJECTS_MAX};
use crate::client_path::{self, Position};
use crate::representations::{CollectError, Collected, Walk};
use crate::{ErrorCode, GraphqlError, PathSegment, disclosure};

impl<'a> Execution<'a> {
    pub(super) fn bad_answer(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        problem: &str,
    ) {
        let message = format!("Subgraph \"{}\" {problem}.", self.subgraph_name(fetch));
        self.fail(index, fetch, collected, ErrorCode::SubgraphRequestFailed, message);
    }

    pub(super) fn over_bound(&mut self, index: usize, fetch: &'a Fetch, error: CollectError) {
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

    /// Records that a fetch has failed as a whole: one error, at the first place concerned.
    pub(super) fn fail(
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

    pub(super) fn fail_with(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
        mut error: GraphqlError,
    ) {
        if error.path.is_empty() {
            error.path = self.first_place(index, fetch, collected);
        }
        let error = self.disclosed(fetch, error);
        self.errors.push(index as u32, error);
        self.errors.explain_keys(&self.executable.fetches[index].root_keys);
        self.explain_objects(collected);
    }

    /// An error as the client may see it.
    pub(super) fn disclosed(&self, fetch: &Fetch, error: GraphqlError) -> GraphqlError {
        if !self.context.generation.disclosure.hides_errors(fetch.subgraph) {
            return error;
        }
        tracing::debug!(
            subgraph = self.subgraph_name(fetch),
            code = error.code.as_str(),
            message = &*error.message,
            extensions = error.extensions.as_deref(),
            "an error that clients are not told (include_subgraph_errors)"
        );
        disclosure::hidden(error)
    }

    pub(super) fn explain_objects(&mut self, collected: &[Collected]) {
        let objects = collected.iter().flat_map(|batch| &batch.objects);
        self.errors.explained_objects.extend(objects.map(|object| object.node));
    }

    /// The first place in the client's answer that a fetch is about.
    pub(super) fn first_place(
        &self,
        index: usize,
        fetch: &'a Fetch,
        collected: &[Collected],
    ) -> Vec<PathSegment> {
        let shape = &self.executable.plan().shape;
        let targets: Option<Vec<&'a [Path]>> = match &fetch.kind {
            FetchKind::Entities { batches, .. } => {
                Some(batches.iter().map(|batch| &batch.targets[..]).collect())
            }
            FetchKind::RootBelow { target, .. } => Some(vec![std::slice::from_ref(target)]),
            FetchKind::Root(_) | FetchKind::Publish(_) | FetchKind::Request(_) => None,
        };
        if let Some(targets) = targets {
            let first = targets
                .into_iter()
                .zip(collected)
                .find_map(|(targets, collected)| Some((targets, collected.objects.first()?)));
            let Some((targets, object)) = first else { return Vec::new() };
            let path = &targets[object.target as usize];
            let wanted = |node| node == object.node;
            let places = client_path::places(&self.document, shape, self.root, path, 1, wanted);
            return places.into_iter().next().map(|place| place.path).unwrap_or_default();
        }
        let keys = &self.executable.fetches[index].root_keys;
        let Position::Object(root) = Position::root(shape) else { return Vec::new() };
        let mut fields = root.variants.iter().flat_map(|variant| &variant.fields);
        let first =
            fields.find(|field| keys.contains(&field.data_key) && field.is_shown(self.variables));
        first.map(|field| vec![PathSegment::Key(field.response_key.clone())]).unwrap_or_default()
    }

    /// The deadline has passed: what is in flight or still waits will not be known.
    pub(super) fn cut_off(&mut self) {
        let plan = &**self.executable.plan();
        for (index, fetch) in plan.fetches.iter().enumerate() {
            match (self.states[index], &fetch.kind) {
                (State::Done, _) => {}
                (State::InFlight, _) => {
                    let mut late = Vec::new();
                    for sent in &mut self.sent {
                        if sent.fetch == index && !sent.is_answered {
                            late.push(std::mem::take(&mut sent.collected));
                        }
                    }
                    // One error for all of its requests.
                    for collected in late.iter().skip(1) {
                        self.explain_objects(collected);
                    }
                    let message = self.timeout_message(fetch);
                    let first = late.first().map_or(&[][..], Vec::as_slice);
                    self.fail(index, fetch, first, ErrorCode::Timeout, message);
                }
                (State::Waiting, _) if !self.is_wanted(fetch) => {}
                // What it waited for has its error; here only nulls need no more of them.
                (State::Waiting, FetchKind::Entities { batches, .. }) => {
                    let mut walk = Walk::default();
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
                (State::Waiting, FetchKind::RootBelow { target, .. }) => {
                    let Some(below) = &self.executable.fetches[index].below else { continue };
                    let mut walk = Walk::default();
                    let (document, shape) = (&self.document, &below.object);
                    let walked = walk.objects_at(document, self.root, shape, target, &below.target);
                    if let Ok(objects) = walked {
                        self.errors.explained_objects.extend(objects);
                    }
                }
                (
                    State::Waiting,
                    FetchKind::Root(_) | FetchKind::Publish(_) | FetchKind::Request(_),
                ) => {
                    let message = "Not executed: the request's time was up before its turn came.";
                    self.fail(index, fetch, &[], ErrorCode::Timeout, message);
                }
            }
        }
    }

    pub(super) fn timeout_message(&self, fetch: &Fetch) -> String {
        let name = self.subgraph_name(fetch);
        let is_mutation = match &fetch.kind {
            FetchKind::Root(operation) => operation.kind == OperationKind::Mutation,
            FetchKind::Publish(_) => true,
            FetchKind::Request(_) => self.executable.plan().kind == OperationKind::Mutation,
            FetchKind::RootBelow { .. } | FetchKind::Entities { .. } => false,
        };
        let warning = if is_mutation { " The mutation may have taken effect." } else { "" };
        format!("Subgraph \"{name}\" did not answer before the request's time was up.{warning}")
    }

    pub(super) fn subgraph_name(&self, fetch: &Fetch) -> &'a str {
        &self.context.generation.graph.subgraph(fetch.subgraph).name
    }
}
