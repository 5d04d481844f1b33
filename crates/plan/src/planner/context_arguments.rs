//! Arguments that are read from objects further up (`@fromContext`). Before solving, the values that they read are
//! added to the selections on the types that set the context; afterwards the place of the value in the data tree is
//! determined for each such argument.

use graph::{ContextArgument, FieldId, FieldSet, FieldSetItem, Supergraph, TypeId};

use super::{
    data_keys::{DataKeys, PlaceId},
    selection_tree::{SelectionTree, SetItem, SetNode, SetRef},
};
use crate::{ContextSource, FieldTarget, Path};

/// The arguments below a position that read values of objects at or above it.
#[derive(Clone, Default)]
struct ContextNeeds<'a> {
    /// Arguments that read objects above this one.
    of_parents: Vec<&'a ContextArgument>,
    /// Arguments further down that read this object or those above it.
    of_this: Vec<&'a ContextArgument>,
}

/// Returns the selections with all fields added that arguments read from further up.
pub(super) fn add_context_fields(
    graph: &Supergraph,
    tree: &mut SelectionTree,
    root: SetRef,
) -> SetRef {
    let has_contexts = graph.types.iter().any(|ty| !ty.contexts.is_empty());
    match has_contexts {
        true => add_to_set(graph, tree, &root, &mut ContextNeeds::default()),
        false => root,
    }
}

fn add_to_set<'a>(
    graph: &'a Supergraph,
    tree: &mut SelectionTree,
    set: &SetNode,
    needs: &mut ContextNeeds<'a>,
) -> SetRef {
    let mut of_this: Vec<&'a ContextArgument> = Vec::new();
    let mut items = Vec::with_capacity(set.items.len());
    for item in &set.items {
        match item {
            SetItem::Field(select) => {
                let mut select = select.clone();
                if let FieldTarget::Field(field) = select.target {
                    for argument in arguments_of(graph, field) {
                        push(&mut needs.of_parents, argument);
                    }
                }
                if let Some(below) = &select.set {
                    let mut inner = ContextNeeds::default();
                    select.set = Some(add_to_set(graph, tree, below, &mut inner));
                    inner.of_parents.into_iter().for_each(|it| push(&mut of_this, it));
                    inner.of_this.into_iter().for_each(|it| push(&mut of_this, it));
                }
                items.push(SetItem::Field(select));
            }
            SetItem::Fragment { on, condition, set } => {
                // The fragment is about the same object as another type.
                let mut inner = ContextNeeds::default();
                let set = add_to_set(graph, tree, set, &mut inner);
                inner.of_parents.into_iter().for_each(|it| push(&mut needs.of_parents, it));
                inner.of_this.into_iter().for_each(|it| push(&mut of_this, it));
                items.push(SetItem::Fragment { on: *on, condition: condition.clone(), set });
            }
        }
    }
    let mut added: Vec<SetItem> = Vec::new();
    for argument in of_this {
        let is_settled = select_value(graph, tree, argument, set.on, &mut added);
        if !is_settled {
            push(&mut needs.of_this, argument);
        }
    }
    // The added fields come first, so that they are already selected when anything below is planned.
    added.extend(items);
    tree.share_set(SetNode { on: set.on, items: added })
}

fn push<'a>(needs: &mut Vec<&'a ContextArgument>, argument: &'a ContextArgument) {
    if !needs.iter().any(|known| std::ptr::eq(*known, argument)) {
        needs.push(argument);
    }
}

/// Returns the context arguments that a field has on any of the object types on which it may be selected.
fn arguments_of(graph: &Supergraph, field: FieldId) -> impl Iterator<Item = &ContextArgument> {
    let definition = graph.field(field);
    let members = graph.ty(definition.parent).possible.iter();
    let own = members.filter_map(move |&member| graph.field_named(member, &definition.name));
    own.chain([field])
        .flat_map(move |field| &graph.field(field).subgraphs)
        .flat_map(|there| &there.context)
}

/// Selects the value that `argument` reads of an object of type `on`. Returns true if every such object sets the
/// context, so that no object further up is read.
fn select_value(
    graph: &Supergraph,
    tree: &mut SelectionTree,
    argument: &ContextArgument,
    on: TypeId,
    into: &mut Vec<SetItem>,
) -> bool {
    let members = &graph.ty(on).possible;
    let sets = |setter: TypeId, ty: TypeId| setter == ty || graph.ty(setter).possible.contains(&ty);
    if let Some((setter, set)) = argument.selections.iter().find(|(setter, _)| sets(*setter, on)) {
        let read = tree.of_field_set(set, *setter, graph);
        into.extend(read.items.iter().cloned());
        return true;
    }
    let mut is_settled = true;
    for &member in members {
        match argument.selections.iter().find(|(setter, _)| sets(*setter, member)) {
            Some((_, set)) => into.push(SetItem::Fragment {
                on: member,
                condition: crate::Condition::default(),
                set: tree.of_field_set(set, member, graph),
            }),
            None => is_settled = false,
        }
    }
    is_settled
}

/// Returns the places of the value of `argument` for objects at `path`, nearest first.
pub(super) fn find_sources(
    graph: &Supergraph,
    keys: &DataKeys<'_>,
    argument: &ContextArgument,
    path: &Path,
) -> Vec<ContextSource> {
    let mut places = vec![PlaceId::ROOT];
    for step in &path.steps {
        let here = places[places.len() - 1];
        let Some(below) = keys.existing_child(here, &step.data_key) else { break };
        places.push(below);
    }
    let mut found = Vec::new();
    for steps in (0..path.steps.len().min(places.len())).rev() {
        let place = places[steps];
        // Data keys, and the types with the value under them.
        type KeysAndTypes = (Vec<Box<str>>, Vec<Box<str>>);
        let mut by_keys: Vec<KeysAndTypes> = Vec::new();
        for (setter, set) in &argument.selections {
            // The value may have been selected on the interface, for all its objects at once.
            let types = std::iter::once(setter).chain(&graph.ty(*setter).possible);
            for &ty in types {
                let mut data_keys = Vec::new();
                if !collect_leaf_keys(graph, keys, place, set, ty, &mut data_keys) {
                    continue;
                }
                let names = graph.ty(ty).possible.iter().map(|&it| graph.ty(it).name.clone());
                match by_keys.iter_mut().find(|(known, _)| *known == data_keys) {
                    Some((_, types)) => types.extend(names),
                    None => by_keys.push((data_keys, names.collect())),
                }
            }
        }
        for (data_keys, mut types) in by_keys {
            types.sort_unstable();
            types.dedup();
            // The path may continue to objects of some types only.
            let through = steps.checked_sub(1).map_or(&[][..], |last| &path.steps[last].types);
            if !through.is_empty() {
                types.retain(|ty| through.contains(ty));
                if types.is_empty() {
                    continue;
                }
            }
            // Objects of a single type have no `__typename`, and types that the path requires need no second check.
            if !keys.is_abstract(place) || types.len() == through.len() {
                types.clear();
            }
            found.push(ContextSource { steps: steps as u32, types, data_keys });
        }
    }
    found
}

/// Collects the data keys from an object to the leaf of a field set. Returns false if the leaf was not selected there.
fn collect_leaf_keys(
    graph: &Supergraph,
    keys: &DataKeys<'_>,
    place: PlaceId,
    set: &FieldSet,
    ty: TypeId,
    data_keys: &mut Vec<Box<str>>,
) -> bool {
    for item in &set.items {
        match item {
            FieldSetItem::Fragment { on, fields } => {
                let applies = *on == ty || graph.ty(*on).possible.contains(&ty);
                if applies && collect_leaf_keys(graph, keys, place, fields, ty, data_keys) {
                    return true;
                }
            }
            FieldSetItem::Field { field, arguments, fields } => {
                let own = graph.field_named(ty, &graph.field(*field).name);
                let Some(key) = own.and_then(|own| keys.internal_key(place, own, arguments)) else {
                    continue;
                };
                data_keys.push(key.as_ref().into());
                if fields.items.is_empty() {
                    return true;
                }
                let below = graph.field(*field).ty.named();
                if let Some(place) = keys.existing_child(place, key)
                    && collect_leaf_keys(graph, keys, place, fields, below, data_keys)
                {
                    return true;
                }
                data_keys.pop();
            }
        }
    }
    false
}
