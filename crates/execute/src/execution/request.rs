//! What a fetch sends: its request body, or the arguments of what it publishes.

use bytes::Bytes;
use plan::{Fetch, FetchKind, OperationKind, SubgraphOperation};

use super::{Call, Execution};
use crate::SubgraphRequest;
use crate::argument_text::print_arguments;
use crate::representations::write_representations;

impl<'a> Execution<'a> {
    /// Builds the request of a fetch. `None`: there is nothing to ask.
    pub(super) fn start(&mut self, index: usize, fetch: &'a Fetch) -> Option<Call<'a>> {
        if !self.is_wanted(fetch) {
            return None;
        }
        let compiled = &self.executable.fetches[index];
        match &fetch.kind {
            FetchKind::Root(operation) if operation.variables.is_empty() => {
                Some(self.subgraph_call(fetch, operation, compiled.constant_body.clone()))
            }
            FetchKind::Root(operation) => {
                let mut body = Vec::with_capacity(compiled.head.len() + 64);
                body.extend_from_slice(&compiled.head);
                self.write_variables(operation, &mut body);
                body.extend_from_slice(b"}}");
                Some(self.subgraph_call(fetch, operation, Bytes::from(body)))
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
                            self.over_bound(index, fetch, error);
                            return None;
                        }
                    }
                }
                if all.iter().all(|collected| collected.items == 0) {
                    return None;
                }
                body.extend_from_slice(b"}}");
                self.collected[index] = all;
                Some(self.subgraph_call(fetch, operation, Bytes::from(body)))
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
    pub(super) fn write_variables(
        &self,
        operation: &SubgraphOperation,
        body: &mut Vec<u8>,
    ) -> &'static [u8] {
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

    pub(super) fn subgraph_call(
        &self,
        fetch: &'a Fetch,
        operation: &SubgraphOperation,
        body: Bytes,
    ) -> Call<'a> {
        Call::Subgraph {
            request: SubgraphRequest {
                body,
                is_mutation: operation.kind == OperationKind::Mutation,
                headers: self.context.headers.of(fetch.subgraph),
                deadline: self.context.deadline,
            },
        }
    }
}
