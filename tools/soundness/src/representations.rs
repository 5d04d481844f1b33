//! Checks of representations, which identify the objects of an entity fetch for its subgraph.

use std::collections::BTreeSet;

use graph::{FieldId, FieldSet, FieldSetItem, Key, SubgraphId, Supergraph, TypeId};
use plan::{EntityBatch, RepresentationField};

use crate::{
    arguments,
    symbolic_tree::{ObjectFacts, Producer, coordinate},
    violation::{Unsound, unsound},
};

/// Checks the representation of an object of type `ty` about which `known` is known.
pub(crate) fn check_representation(
    graph: &Supergraph,
    subgraph: SubgraphId,
    batch: &EntityBatch,
    ty: TypeId,
    known: &mut ObjectFacts,
    before: &BTreeSet<Producer>,
) -> Result<(), Unsound> {
    let subgraph_name = &graph.subgraph(subgraph).name;
    let object = &graph.ty(ty).name;
    let fields = &batch.representation.fields;
    let named = match &batch.representation.typename {
        Some(name) => graph.type_named(name),
        None => Some(ty),
    };
    let is_named = named.is_some_and(|named| {
        // The name of an interface is allowed towards an interface object, and towards a subgraph that resolves the
        // real type of an object from an interface object.
        let has_keys = graph.type_in(named, subgraph).is_some_and(|there| !there.keys.is_empty());
        named == ty || (has_keys && graph.ty(named).possible.contains(&ty))
    });
    let Some(named) = named.filter(|_| is_named) else {
        let name = batch.representation.typename.as_deref().unwrap_or_default();
        unsound!("a `{object}` is represented to subgraph `{subgraph_name}` as `{name}`")
    };
    if batch.representation.typename.is_none()
        && !known.typename.iter().any(|producer| before.contains(producer))
    {
        unsound!(
            "no earlier fetch selects the type of the objects sent to subgraph `{subgraph_name}`"
        );
    }
    check_produced(graph, fields, ty, known, before)
        .map_err(|missing| Unsound::new(format!("for subgraph `{subgraph_name}`: {missing}")))?;
    let keys = graph.type_in(named, subgraph).map_or(&[][..], |there| &there.keys);
    let is_whole = |key: &Key| {
        key.resolvable
            && check_covers(graph, &key.fields, fields, ty, known, &mut FieldSetUse::Key).is_ok()
    };
    if !keys.iter().any(is_whole) {
        unsound!(
            "no key of `{object}` in subgraph `{subgraph_name}` is complete in its representation"
        );
    }
    Ok(())
}

/// Checks that the representations of `batch` contain the fields that `own` requires in that subgraph.
pub(crate) fn check_required(
    graph: &Supergraph,
    batch: &EntityBatch,
    own: FieldId,
    set: &FieldSet,
    ty: TypeId,
    known: &mut ObjectFacts,
) -> Result<(), Unsound> {
    let fields = &batch.representation.fields;
    check_covers(graph, set, fields, ty, known, &mut FieldSetUse::Required).map_err(|missing| {
        Unsound::new(format!("`{}` requires more: {missing}", coordinate(graph, own)))
    })
}

/// Returns the field as which a subgraph knows `own`: its own field, or the field of an interface object.
pub(crate) fn mentioned_field(
    graph: &Supergraph,
    ty: TypeId,
    own: FieldId,
    subgraph: SubgraphId,
) -> FieldId {
    if graph.field_in(own, subgraph).is_some() {
        return own;
    }
    let name = &graph.field(own).name;
    let of_object = graph.ty(ty).implements.iter().find_map(|&interface| {
        let there = graph.type_in(interface, subgraph)?;
        let field = graph.field_named(interface, name)?;
        (there.interface_object && graph.field_in(field, subgraph).is_some()).then_some(field)
    });
    of_object.unwrap_or(own)
}

/// Checks that every member was stored by an earlier fetch, as the field that its name states.
fn check_produced(
    graph: &Supergraph,
    fields: &[RepresentationField],
    ty: TypeId,
    known: &mut ObjectFacts,
    before: &BTreeSet<Producer>,
) -> Result<(), Unsound> {
    for field in fields {
        if !field.types.is_empty() && !field.types.contains(&graph.ty(ty).name) {
            continue;
        }
        let is_before = |producers: &[Producer]| producers.iter().any(|it| before.contains(it));
        if &*field.name == "__typename" {
            if !is_before(&known.typename) {
                unsound!("no earlier fetch selects the type of a `{}`", graph.ty(ty).name);
            }
            continue;
        }
        let entry = known.entry(graph, ty, &field.data_key);
        let Some(entry) = entry.filter(|entry| is_before(&entry.producers)) else {
            unsound!("`{}.{}` was not fetched before", graph.ty(ty).name, field.data_key)
        };
        if graph.field(entry.field).name != field.name {
            unsound!("`{}` is sent as `{}`", coordinate(graph, entry.field), field.name);
        }
        for (&member, below) in &mut entry.below.types {
            check_produced(graph, &field.fields, member, below, before)?;
        }
    }
    Ok(())
}

/// The purpose of a field set in a representation.
enum FieldSetUse {
    /// A key, in which null members identify nothing.
    Key,
    Required,
}

/// Checks that the members of a representation contain all of `set`.
fn check_covers(
    graph: &Supergraph,
    set: &FieldSet,
    fields: &[RepresentationField],
    ty: TypeId,
    known: &mut ObjectFacts,
    part: &mut FieldSetUse,
) -> Result<(), Unsound> {
    for item in &set.items {
        match item {
            FieldSetItem::Fragment { on, fields: inner } => {
                if *on == ty || graph.ty(*on).possible.contains(&ty) {
                    check_covers(graph, inner, fields, ty, known, part)?;
                }
            }
            FieldSetItem::Field { field, arguments: given, fields: inner } => {
                let name = &graph.field(*field).name;
                let type_name = &graph.ty(ty).name;
                let sent = fields.iter().find(|sent| {
                    sent.name == *name && (sent.types.is_empty() || sent.types.contains(type_name))
                });
                let Some(sent) = sent else { unsound!("`{type_name}.{name}` is not sent") };
                if matches!(part, FieldSetUse::Key) && !sent.key {
                    unsound!("`{type_name}.{name}` is sent although it may be null");
                }
                let Some(entry) = known.entry(graph, ty, &sent.data_key) else {
                    unsound!("`{type_name}.{name}` was not fetched")
                };
                let wanted = arguments::field_set_arguments(given);
                if entry.arguments.is_some() && entry.arguments != wanted {
                    unsound!("`{type_name}.{name}` is sent with other arguments than `{given}`");
                }
                for (&member, below) in &mut entry.below.types {
                    check_covers(graph, inner, &sent.fields, member, below, part)?;
                }
            }
        }
    }
    Ok(())
}
