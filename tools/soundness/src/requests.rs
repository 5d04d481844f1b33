//! The texts of a plan's subgraph operations: parsing, and validation against the schemas of their subgraphs.

use apollo_compiler::ast::{Definition, Document, Field, OperationDefinition, Selection};
use apollo_compiler::validation::Valid;
use apollo_compiler::{Node, Schema};
use graph::{SubgraphId, Supergraph};
use plan::{EntityBatch, FetchKind, Operation, Plan, SubgraphOperation, SubscriptionRoot};

use crate::{
    subgraph_schema::SubgraphSchemas,
    violation::{Unsound, unsound},
};

/// The number of bytes of subgraph operations in one plan that are validated against the subgraphs' schemas, which
/// costs more than all other checks: enough for operations of 1,700 lines over many subgraphs. Operations beyond the
/// limit are only parsed and executed, which also finds fields that a subgraph does not resolve.
const VALIDATED_BYTES_MAX: usize = 256 << 10;

/// The parsed operations that a plan sends.
pub(crate) struct Requests {
    /// The operation of each fetch; `None` where no operation is sent to a server.
    pub(crate) fetches: Vec<Option<Node<OperationDefinition>>>,
    /// The subscription that is sent to a subgraph.
    pub(crate) subscription: Option<Node<OperationDefinition>>,
}

/// Returns the total length of the operations that `plan` sends.
pub(crate) fn total_bytes(plan: &Plan) -> usize {
    let of_fetch = |kind: &FetchKind| match kind {
        FetchKind::Root { operation: sent, .. }
        | FetchKind::RootBelow { operation: sent, .. }
        | FetchKind::Entities { operation: sent, .. } => sent.text.len(),
        FetchKind::Publish(_) | FetchKind::Request(_) => 0,
    };
    let subscription = match &plan.subscription {
        Some(SubscriptionRoot::Upstream { operation, .. }) => operation.text.len(),
        _ => 0,
    };
    subscription + plan.fetches.iter().map(|fetch| of_fetch(&fetch.kind)).sum::<usize>()
}

/// Parses all operations that `plan` sends, and validates them up to [`VALIDATED_BYTES_MAX`].
pub(crate) fn parse_requests(
    graph: &Supergraph,
    schemas: &SubgraphSchemas,
    operation: &Operation,
    plan: &Plan,
) -> Result<Requests, Unsound> {
    let mut requests = Requests { fetches: Vec::new(), subscription: None };
    let mut validated = 0;
    let mut read = |subgraph, sent: &SubgraphOperation, batches| {
        validated += sent.text.len();
        let schema = match validated <= VALIDATED_BYTES_MAX {
            true => Some(schemas.of(graph, subgraph)?),
            false => None,
        };
        read_operation(graph, schema, operation, subgraph, sent, batches)
    };
    if let Some(SubscriptionRoot::Upstream { subgraph, operation }) = &plan.subscription {
        requests.subscription = Some(read(*subgraph, operation, &[])?);
    }
    for fetch in &plan.fetches {
        requests.fetches.push(match &fetch.kind {
            FetchKind::Root { operation: sent, data_keys } => {
                let parsed = read(fetch.subgraph, sent, &[])?;
                check_root_keys(&parsed, data_keys)?;
                Some(parsed)
            }
            FetchKind::RootBelow { operation: sent, .. } => Some(read(fetch.subgraph, sent, &[])?),
            FetchKind::Entities { operation: sent, batches } => {
                Some(read(fetch.subgraph, sent, batches)?)
            }
            FetchKind::Publish(_) | FetchKind::Request(_) => None,
        });
    }
    Ok(requests)
}

fn read_operation(
    graph: &Supergraph,
    schema: Option<&Valid<Schema>>,
    operation: &Operation,
    subgraph: SubgraphId,
    sent: &SubgraphOperation,
    batches: &[EntityBatch],
) -> Result<Node<OperationDefinition>, Unsound> {
    let text = &sent.text;
    let document = match Document::parse(text.to_string(), "subgraph.graphql") {
        Ok(document) => document,
        Err(failed) => unsound!("a subgraph operation does not parse: {}\n{text}", failed.errors),
    };
    let [Definition::OperationDefinition(parsed)] = &*document.definitions else {
        unsound!("a subgraph operation is not one operation: {text}")
    };
    if let Some(schema) = schema
        && let Err(failed) = document.to_executable_validate(schema)
    {
        unsound!(
            "an operation is not valid for subgraph `{}`: {}\n{text}",
            graph.subgraph(subgraph).name,
            failed.errors
        );
    }
    if sent.name.as_deref() != parsed.name.as_ref().map(apollo_compiler::Name::as_str) {
        unsound!("an operation is sent under a name other than its own: {text}");
    }
    let declared = parsed.variables.iter().map(|variable| variable.name.as_str());
    let own = batches.iter().map(|batch| &*batch.variable);
    let context = batches.iter().flat_map(|batch| &batch.context).map(|it| &*it.variable);
    let listed = own.chain(context).chain(sent.variables.iter().map(|(name, _)| &**name));
    if !declared.eq(listed) {
        unsound!("the declared variables differ from those sent: {text}");
    }
    for (name, id) in &sent.variables {
        let of_client = operation.variables.get(usize::from(id.0));
        if of_client.is_none_or(|variable| variable.name != *name) {
            unsound!("`${name}` is not the client's variable of that name: {text}");
        }
    }
    if !batches.is_empty() {
        let aliases: Vec<&str> = parsed.selection_set.iter().filter_map(entities_key).collect();
        let wanted: Vec<&str> = batches.iter().map(|batch| &*batch.data_key).collect();
        if aliases != wanted || aliases.len() != parsed.selection_set.len() {
            unsound!("the operation does not have one `_entities` for each batch: {text}");
        }
    }
    Ok(parsed.clone())
}

/// Checks that `data_keys` are the response keys of the root fields, in their order and without duplicates.
fn check_root_keys(parsed: &OperationDefinition, data_keys: &[Box<str>]) -> Result<(), Unsound> {
    fn collect_keys<'a>(selections: &'a [Selection], keys: &mut Vec<&'a str>) {
        for selection in selections {
            match selection {
                Selection::Field(field) if !keys.contains(&response_key(field)) => {
                    keys.push(response_key(field));
                }
                Selection::InlineFragment(fragment) => collect_keys(&fragment.selection_set, keys),
                Selection::Field(_) | Selection::FragmentSpread(_) => {}
            }
        }
    }
    let mut keys = Vec::new();
    collect_keys(&parsed.selection_set, &mut keys);
    if !keys.iter().copied().eq(data_keys.iter().map(|key| &**key)) {
        unsound!("the root keys {data_keys:?} differ from those of the operation: {parsed}");
    }
    Ok(())
}

fn entities_key(selection: &Selection) -> Option<&str> {
    match selection {
        Selection::Field(field) if field.name == "_entities" => Some(response_key(field)),
        _ => None,
    }
}

pub(crate) fn response_key(field: &Field) -> &str {
    field.alias.as_ref().unwrap_or(&field.name).as_str()
}
