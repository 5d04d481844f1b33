//! Writes the requests of a fetch: request bodies, or the arguments of publications.

use astjson::NodeId;
use bytes::Bytes;
use plan::{EntityBatch, Fetch, FetchKind, OperationKind, Path, SubgraphOperation};

use super::Execution;
use super::cached_requests::Look;
use super::in_flight::{OutgoingRequest, SentRequest};
use super::request_splitting::{ListStart, split_body};
use crate::argument_text::print_arguments;
use crate::context_values;
use crate::error_path::any_holds;
use crate::executable::write_variables;
use crate::representations::{CollectedBatch, CollectedObject, TargetWalk, write_representations};

impl<'a> Execution<'a> {
    /// Adds the requests of a fetch to `calls`: mostly one, none if there is nothing to fetch.
    pub(super) fn write_requests(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        if !self.is_wanted(fetch) {
            return;
        }
        let compiled = &self.executable.fetches[index];
        match &fetch.kind {
            FetchKind::Root { operation, .. } if operation.variables.is_empty() => {
                let body = compiled.constant_body.clone();
                self.send_root(index, operation, body, Vec::new(), Look::First, calls);
            }
            FetchKind::Root { operation, .. } => {
                let mut body = Vec::with_capacity(compiled.head.len() + 64);
                body.extend_from_slice(&compiled.head);
                self.write_variables(operation, &mut body);
                body.extend_from_slice(b"}}");
                self.send_root(index, operation, body.into(), Vec::new(), Look::First, calls);
            }
            FetchKind::RootBelow { operation, target } => {
                self.write_root_below(index, fetch, operation, target, calls);
            }
            FetchKind::Entities { operation, batches }
                if batches.iter().any(|batch| !batch.context.is_empty()) =>
            {
                self.start_groups(index, fetch, operation, calls);
            }
            FetchKind::Entities { operation, batches } => {
                self.write_entities(index, fetch, operation, batches, calls);
            }
            FetchKind::Publish(event) => {
                let mut arguments = Vec::with_capacity(128);
                print_arguments(&event.arguments, self.variables, &mut arguments);
                let call = OutgoingRequest::Publish { event, arguments: Bytes::from(arguments) };
                self.send(SentRequest::whole(index), call, calls);
            }
            FetchKind::Request(event) => {
                let mut arguments = Vec::with_capacity(128);
                print_arguments(&event.arguments, self.variables, &mut arguments);
                let is_mutation = self.executable.plan().kind == OperationKind::Mutation;
                let call = OutgoingRequest::Request {
                    event,
                    arguments: Bytes::from(arguments),
                    is_mutation,
                };
                self.send(SentRequest::whole(index), call, calls);
            }
        }
    }

    /// Starts a fetch of root fields for objects below others: one request for all objects, none if there
    /// are no objects.
    fn write_root_below(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        operation: &'a SubgraphOperation,
        target: &'a Path,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let compiled = &self.executable.fetches[index];
        let Some(below) = &compiled.below else { return };
        let mut walk = TargetWalk::default();
        let shape = &below.object;
        let found = walk.objects_at(&self.document, self.root, shape, target, &below.target);
        let objects = match found {
            Ok(objects) => objects,
            Err(error) => return self.exceed_bound(index, fetch, error),
        };
        if objects.is_empty() {
            return;
        }
        let collected = |&node: &NodeId| CollectedObject { node, item: 0, target: 0 };
        let objects = objects.iter().map(collected).collect();
        let collected = CollectedBatch { objects, items: 1, ..CollectedBatch::default() };
        let mut body = Vec::with_capacity(compiled.head.len() + 64);
        body.extend_from_slice(&compiled.head);
        self.write_variables(operation, &mut body);
        body.extend_from_slice(b"}}");
        let call = OutgoingRequest::subgraph(operation, Bytes::from(body));
        let sent = SentRequest::entities(index, vec![collected], Bytes::new());
        self.send(sent, call, calls);
    }

    /// Starts an entity fetch: one request, or several if there are too many representations, none if
    /// there are no representations.
    fn write_entities(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        operation: &'a SubgraphOperation,
        batches: &'a [EntityBatch],
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let compiled = &self.executable.fetches[index];
        let mut body = Vec::with_capacity(compiled.head.len() + 1024);
        body.extend_from_slice(&compiled.head);
        let mut separator = self.write_variables(operation, &mut body);
        let start = ListStart { at: body.len(), separator };
        let mut all = Vec::with_capacity(batches.len());
        for (batch, compiled) in batches.iter().zip(&compiled.batches) {
            body.extend_from_slice(separator);
            separator = b",";
            body.push(b'"');
            body.extend_from_slice(batch.variable.as_bytes());
            body.extend_from_slice(b"\":");
            if !any_holds(&batch.any_of, self.variables) {
                let start = body.len();
                body.extend_from_slice(b"[]");
                all.push(CollectedBatch { list: start..body.len(), ..CollectedBatch::default() });
                continue;
            }
            let written = write_representations(
                &self.document,
                self.root,
                batch,
                compiled,
                None,
                &mut self.representations_left,
                &mut body,
            );
            match written {
                Ok(collected) => all.push(collected),
                Err(error) => {
                    self.exceed_bound(index, fetch, error);
                    return;
                }
            }
        }
        for ((batch, compiled), collected) in batches.iter().zip(&compiled.batches).zip(&mut all) {
            self.apply_known_entities(batch, compiled, std::mem::take(&mut collected.remembered));
        }
        // Never more than the bound on representations of an operation.
        let items: u32 = all.iter().map(|collected| collected.items).sum();
        if items == 0 {
            return;
        }
        if items <= fetch.representations_max {
            body.extend_from_slice(b"}}");
            self.send_entities(index, operation, all, body.into(), Look::First, calls);
            return;
        }
        for (body, group) in split_body(&body, start, batches, all, fetch.representations_max) {
            self.send_entities(index, operation, group, body, Look::First, calls);
        }
    }

    /// Sends a request for entities, without those that are stored.
    pub(super) fn send_entities(
        &mut self,
        index: usize,
        operation: &'a SubgraphOperation,
        collected: Vec<CollectedBatch>,
        body: Bytes,
        look: Look,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let sent = self.send_missing_entities(index, operation, collected, body, look, calls);
        let Err((collected, body)) = sent else { return };
        let kept = if collected.len() > 1 { body.clone() } else { Bytes::new() };
        let call = OutgoingRequest::subgraph(operation, body);
        self.send(SentRequest::entities(index, collected, kept), call, calls);
    }

    /// Records a request and adds it to `calls`.
    pub(super) fn send(
        &mut self,
        sent: SentRequest,
        call: OutgoingRequest<'a>,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        calls.push((self.sent.len(), call));
        self.sent.push(sent);
    }

    /// Starts a fetch with context arguments: one request for all objects that share the values
    /// which arguments read further up. Such a fetch has a single batch.
    fn start_groups(
        &mut self,
        index: usize,
        fetch: &'a Fetch,
        operation: &'a SubgraphOperation,
        calls: &mut Vec<(usize, OutgoingRequest<'a>)>,
    ) {
        let compiled = &self.executable.fetches[index];
        let batches = fetch.kind.batches();
        let (Some(batch), Some(compiled_batch)) = (batches.first(), compiled.batches.first())
        else {
            return;
        };
        let groups = match context_values::group_by_context(&self.document, self.root, batch) {
            Ok(groups) => groups,
            Err(error) => return self.exceed_bound(index, fetch, error),
        };
        let mut requests = Vec::new();
        for group in groups {
            let mut body = Vec::with_capacity(compiled.head.len() + 1024);
            body.extend_from_slice(&compiled.head);
            let separator = self.write_variables(operation, &mut body);
            body.extend_from_slice(separator);
            body.extend_from_slice(&group.variables);
            let start = ListStart { at: body.len(), separator: b"," };
            body.extend_from_slice(b",\"");
            body.extend_from_slice(batch.variable.as_bytes());
            body.extend_from_slice(b"\":");
            let written = write_representations(
                &self.document,
                self.root,
                batch,
                compiled_batch,
                Some(&group.objects),
                &mut self.representations_left,
                &mut body,
            );
            match written {
                Ok(collected) if collected.items == 0 => {}
                Ok(collected) if collected.items > fetch.representations_max => {
                    let all = vec![collected];
                    requests.extend(split_body(
                        &body,
                        start,
                        batches,
                        all,
                        fetch.representations_max,
                    ));
                }
                Ok(collected) => {
                    body.extend_from_slice(b"}}");
                    requests.push((Bytes::from(body), vec![collected]));
                }
                Err(error) => return self.exceed_bound(index, fetch, error),
            }
        }
        for (body, collected) in requests {
            self.send_entities(index, operation, collected, body, Look::First, calls);
        }
    }

    /// Writes the client's variables that the operation declares. Returns the separator for the
    /// next member.
    pub(super) fn write_variables(
        &self,
        operation: &SubgraphOperation,
        body: &mut Vec<u8>,
    ) -> &'static [u8] {
        write_variables(operation, self.variables, body)
    }
}
