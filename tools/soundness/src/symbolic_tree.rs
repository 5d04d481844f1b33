//! The symbolic data tree of an execution, with object types instead of objects.

use std::collections::{BTreeMap, BTreeSet};

use graph::{FieldId, SubgraphId, Supergraph, TypeId};

use crate::arguments::Arguments;

/// The producer of a part of the tree: the index of a fetch, or [`SEED`].
pub(crate) type Producer = u32;

/// The producer of a subscription's event, which precedes all fetches.
pub(crate) const SEED: Producer = u32::MAX;

/// The objects at one position of the tree: a single object, or any object of a list.
#[derive(Clone, Default, Debug)]
pub(crate) struct ObjectsAt {
    /// The known facts, for each object type that the object may have.
    pub(crate) types: BTreeMap<TypeId, ObjectFacts>,
}

/// The known facts about an object of one type.
#[derive(Clone, Default, Debug)]
pub(crate) struct ObjectFacts {
    /// The producers that selected `__typename` of the object.
    pub(crate) typename: Vec<Producer>,
    /// The fields of the object, by data key.
    pub(crate) fields: BTreeMap<Box<str>, FieldFacts>,
    /// The data keys that contain the name of an interface object, selected because a selection set must not be empty.
    /// No part of the response may be read from them.
    pub(crate) unread: BTreeSet<Box<str>>,
    /// The event subgraph if the object is the payload of an event or part of one: any field that the subgraph declares
    /// may be present.
    pub(crate) payload: Option<SubgraphId>,
}

/// The field under a data key.
#[derive(Clone, Debug)]
pub(crate) struct FieldFacts {
    /// The object type's own field.
    pub(crate) field: FieldId,
    /// The arguments of the field. `None` matches any arguments of the client, because events have none.
    pub(crate) arguments: Option<Arguments>,
    pub(crate) producers: Vec<Producer>,
    /// The objects below; empty for leaves.
    pub(crate) below: ObjectsAt,
}

impl ObjectsAt {
    /// Creates the objects of a payload of `subgraph` with type `ty`.
    pub(crate) fn payload(graph: &Supergraph, ty: TypeId, subgraph: SubgraphId) -> Self {
        let known =
            ObjectFacts { typename: vec![SEED], payload: Some(subgraph), ..ObjectFacts::default() };
        let possible = graph.possible_in(ty, subgraph);
        Self { types: possible.iter().map(|&member| (member, known.clone())).collect() }
    }
}

impl ObjectFacts {
    /// Returns the field under `key` of an object of type `ty`.
    pub(crate) fn entry(
        &mut self,
        graph: &Supergraph,
        ty: TypeId,
        key: &str,
    ) -> Option<&mut FieldFacts> {
        if !self.fields.contains_key(key)
            && let Some(subgraph) = self.payload
        {
            let field = graph.field_named(ty, key)?;
            graph.field_in(field, subgraph)?;
            let below = ObjectsAt::payload(graph, graph.field_type_in(field, subgraph), subgraph);
            let entry = FieldFacts { field, arguments: None, producers: vec![SEED], below };
            self.fields.insert(key.into(), entry);
        }
        self.fields.get_mut(key)
    }
}

/// Returns the coordinate of a field, `Type.field`.
pub(crate) fn coordinate(graph: &Supergraph, field: FieldId) -> String {
    let definition = graph.field(field);
    format!("{}.{}", graph.ty(definition.parent).name, definition.name)
}
