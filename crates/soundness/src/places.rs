//! The data tree of an execution, with object types instead of objects.

use std::collections::{BTreeMap, BTreeSet};

use graph::{FieldId, SubgraphId, Supergraph, TypeId};

use crate::arguments::Arguments;

/// Who put something where it is: the index of a fetch, or [`SEED`].
pub(crate) type Producer = u32;

/// The event of a subscription, which is there before all fetches.
pub(crate) const SEED: Producer = u32::MAX;

/// Where an object, or each object of a list, may stand.
#[derive(Clone, Default, Debug)]
pub(crate) struct Place {
    /// What is known of it, by the object type that it may have.
    pub(crate) types: BTreeMap<TypeId, Known>,
}

/// What is known of an object of one type.
#[derive(Clone, Default, Debug)]
pub(crate) struct Known {
    /// Who said which type it is.
    pub(crate) typename: Vec<Producer>,
    /// By data key.
    pub(crate) fields: BTreeMap<Box<str>, Entry>,
    /// Keys under which an interface object's own name stands, for want of anything to select: nobody may
    /// read it.
    pub(crate) unread: BTreeSet<Box<str>>,
    /// It is (part of) the payload of this event subgraph: what the subgraph declares may be there.
    pub(crate) payload: Option<SubgraphId>,
}

/// The value under a data key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The object type's own field.
    pub(crate) field: FieldId,
    /// `None`: whatever the client gave, because events have no arguments.
    pub(crate) arguments: Option<Arguments>,
    pub(crate) producers: Vec<Producer>,
    /// Of composite types.
    pub(crate) below: Place,
}

impl Place {
    /// Payloads of `subgraph` of type `ty`.
    pub(crate) fn payload(graph: &Supergraph, ty: TypeId, subgraph: SubgraphId) -> Self {
        let known = Known { typename: vec![SEED], payload: Some(subgraph), ..Known::default() };
        let possible = graph.possible_in(ty, subgraph);
        Self { types: possible.iter().map(|&member| (member, known.clone())).collect() }
    }
}

impl Known {
    /// What stands under `key` of an object of type `ty`.
    pub(crate) fn entry(
        &mut self,
        graph: &Supergraph,
        ty: TypeId,
        key: &str,
    ) -> Option<&mut Entry> {
        if !self.fields.contains_key(key)
            && let Some(subgraph) = self.payload
        {
            let field = graph.field_named(ty, key)?;
            graph.field_in(field, subgraph)?;
            let below = Place::payload(graph, graph.field_type_in(field, subgraph), subgraph);
            let entry = Entry { field, arguments: None, producers: vec![SEED], below };
            self.fields.insert(key.into(), entry);
        }
        self.fields.get_mut(key)
    }
}

/// `Type.field`
pub(crate) fn coordinate(graph: &Supergraph, field: FieldId) -> String {
    let definition = graph.field(field);
    format!("{}.{}", graph.ty(definition.parent).name, definition.name)
}
