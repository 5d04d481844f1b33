//! The check of entities that a request knows from another place. The values of that place replace the whole response
//! of a batch, so each field of the batch needs one, and it must be the same field with the same arguments.

use apollo_compiler::ast::{Field, Selection};
use graph::{Supergraph, TypeId};
use plan::{Operation, OperationKind, Plan, ReusePlace};

use crate::{
    arguments::{self, Arguments},
    requests::response_key,
    symbolic_tree::{FieldFacts, ObjectFacts, coordinate},
    violation::{Unsound, unsound},
};

/// Checks that a place has a value for each field of a batch. `selections` are those below its `_entities` field.
pub(crate) fn check_values(
    plan: &Plan,
    place: &ReusePlace,
    selections: &[Selection],
) -> Result<(), Unsound> {
    if plan.kind == OperationKind::Mutation {
        unsound!("a mutation copies entities from another place");
    }
    for field in batch_fields(selections)? {
        let key = response_key(field);
        let is_plain = field.directives.is_empty() && field.selection_set.is_empty();
        if !is_plain || !place.values.iter().any(|value| *value.response_key == *key) {
            unsound!("`{key}` of a batch is not copied with its other fields");
        }
    }
    Ok(())
}

/// Checks one object of a place, which has type `ty`. Values that it lacks are fetched.
pub(crate) fn check_object(
    graph: &Supergraph,
    operation: &Operation,
    place: &ReusePlace,
    selections: &[Selection],
    ty: TypeId,
    known: &mut ObjectFacts,
) -> Result<(), Unsound> {
    for key in &place.representation.fields {
        if let Some(entry) = known.entry(graph, ty, &key.data_key) {
            check_same(graph, entry, &key.name, &Vec::new())?;
        }
    }
    for field in batch_fields(selections)? {
        let key = response_key(field);
        let values = place.values.iter().filter(|value| *value.response_key == *key);
        for value in values.filter(|_| field.name != "__typename") {
            if let Some(entry) = known.entry(graph, ty, &value.data_key) {
                let given = arguments::subgraph_arguments(field.arguments.iter(), operation);
                check_same(graph, entry, &field.name, &given)?;
            }
        }
    }
    Ok(())
}

fn batch_fields<'a>(selections: &'a [Selection]) -> Result<Vec<&'a Field>, Unsound> {
    let [Selection::InlineFragment(fragment)] = selections else {
        unsound!("entities of several types are copied from another place")
    };
    let field = |selection: &'a Selection| match selection {
        Selection::Field(field) => Ok(&**field),
        _ => unsound!("fields in fragments are copied from another place"),
    };
    fragment.selection_set.iter().map(field).collect()
}

fn check_same(
    graph: &Supergraph,
    entry: &FieldFacts,
    name: &str,
    given: &Arguments,
) -> Result<(), Unsound> {
    let has_arguments = entry.arguments.as_ref().is_none_or(|known| known == given);
    if *graph.field(entry.field).name != *name || !has_arguments {
        unsound!("`{}` is copied as another `{name}`", coordinate(graph, entry.field));
    }
    Ok(())
}
