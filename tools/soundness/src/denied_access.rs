//! The check that nothing is fetched that the client may not use, unless a key, a requirement or a context needs it.

use std::collections::BTreeSet;

use graph::{FieldId, FieldSet, FieldSetItem, Supergraph};
use plan::Operation;

use crate::symbolic_tree::{ObjectsAt, coordinate};
use crate::violation::{Unsound, unsound};

/// Checks all fields that were fetched into the tree below `root`.
pub(crate) fn check_fetched(
    graph: &Supergraph,
    operation: &Operation,
    root: &ObjectsAt,
) -> Result<(), Unsound> {
    if operation.denied.is_empty() {
        return Ok(());
    }
    check_objects(graph, operation, &needed_fields(graph), root)
}

fn check_objects(
    graph: &Supergraph,
    operation: &Operation,
    needed: &BTreeSet<FieldId>,
    objects: &ObjectsAt,
) -> Result<(), Unsound> {
    for (ty, known) in &objects.types {
        // An event contains what its publisher has put into it.
        if known.payload.is_some() {
            continue;
        }
        for entry in known.fields.values() {
            let denied = &operation.denied;
            let is_denied = denied.has_field(entry.field) || denied.has_type(*ty);
            if is_denied && !needed.contains(&entry.field) {
                unsound!(
                    "`{}` is fetched although the client may not use it",
                    coordinate(graph, entry.field)
                );
            }
            check_objects(graph, operation, needed, &entry.below)?;
        }
    }
    Ok(())
}

/// Returns the fields that some key, requirement or context names, also under the interfaces and the implementations
/// of their types.
fn needed_fields(graph: &Supergraph) -> BTreeSet<FieldId> {
    let keys = graph.types.iter().flat_map(|ty| &ty.subgraphs).flat_map(|there| &there.keys);
    let mentions = || graph.fields.iter().flat_map(|field| &field.subgraphs);
    let required = mentions().filter_map(|there| there.requires.as_ref());
    let contexts = mentions().flat_map(|there| &there.context);
    let read = contexts.flat_map(|argument| argument.selections.iter().map(|(_, set)| set));
    let mut needed = BTreeSet::new();
    for set in keys.map(|key| &key.fields).chain(required).chain(read) {
        add_fields(graph, set, &mut needed);
    }
    needed
}

fn add_fields(graph: &Supergraph, set: &FieldSet, needed: &mut BTreeSet<FieldId>) {
    for item in &set.items {
        match item {
            FieldSetItem::Field { field, fields, .. } => {
                let definition = graph.field(*field);
                let parent = graph.ty(definition.parent);
                let alike = parent.possible.iter().chain(&parent.implements);
                needed.insert(*field);
                needed.extend(alike.filter_map(|&ty| graph.field_named(ty, &definition.name)));
                add_fields(graph, fields, needed);
            }
            FieldSetItem::Fragment { fields, .. } => add_fields(graph, fields, needed),
        }
    }
}
