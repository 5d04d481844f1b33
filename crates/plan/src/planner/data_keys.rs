//! Which key of the data tree belongs to which field. Keys of the client's answer come first;
//! members that the planner adds reuse an equal selection or get a free name. Payloads of events
//! come with field names as keys, so those are reserved where an event's object stands.

use std::collections::HashMap;

use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeRef, TypeRefShape};

use super::tree::{Arguments, Item, Set, Wanted, WantedTarget};
use crate::FieldTarget;

/// A place in the data tree, whatever the types on the way are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PathId(u32);

impl PathId {
    pub(super) const ROOT: Self = Self(0);
}

/// All keys of all places.
pub(super) struct DataKeys {
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    /// Objects here are (parts of) payloads of that event subgraph.
    payload: Option<SubgraphId>,
    children: HashMap<Box<str>, PathId>,
    /// Response key and field to data key, as far as picked.
    client: HashMap<(Box<str>, FieldId), Box<str>>,
    /// Field and arguments to data key, for members that the planner added.
    internal: HashMap<(FieldId, Box<str>), Box<str>>,
    /// Data key to those who use it.
    claims: HashMap<Box<str>, Vec<Claim>>,
    /// Names that payloads may contain.
    payload_names: Vec<Box<str>>,
}

/// A use of a data key.
#[derive(Clone, PartialEq, Eq)]
struct Claim {
    /// The client's response key; `None`: the planner's.
    response_key: Option<Box<str>>,
    name: Box<str>,
    arguments: Box<str>,
    /// What must agree where selections merge (FieldsInSetCanMerge, GraphQL specification, section
    /// 5.3.2); `None`: reserved for the client, but nobody picked it yet.
    shape: Option<Vec<u32>>,
}

impl Default for DataKeys {
    fn default() -> Self {
        Self { places: vec![Place::default()] }
    }
}

impl DataKeys {
    /// Declares what the client wants under a root field; `payload`: it is served by that event subgraph.
    pub(super) fn declare_root_field(
        &mut self,
        graph: &Supergraph,
        wanted: &Wanted,
        payload: Option<SubgraphId>,
    ) {
        let (WantedTarget::Field(field), Some(key)) = (wanted.target, &wanted.key) else { return };
        self.reserve(graph, PathId::ROOT, key, field, &wanted.arguments);
        let place = self.child(PathId::ROOT, key);
        self.place(place).payload = payload;
        for part in &wanted.parts {
            self.declare_set(graph, place, &part.set);
        }
    }

    /// Reserves the keys of `set` at `at`, and below it.
    fn declare_set(&mut self, graph: &Supergraph, at: PathId, set: &Set) {
        self.note_payload_names(graph, at, set.on);
        for item in &set.items {
            match item {
                Item::Fragment { set, .. } => self.declare_set(graph, at, set),
                Item::Field(select) => {
                    let FieldTarget::Field(field) = select.target else { continue };
                    let Some(key) = &select.key else { continue };
                    let is_payload = self.is_payload(graph, at, field);
                    let data_key = match is_payload {
                        true => graph.field(field).name.clone(),
                        false => key.clone(),
                    };
                    self.reserve(graph, at, key, field, &select.arguments);
                    if let Some(set) = &select.set {
                        let child = self.child(at, &data_key);
                        if is_payload {
                            self.place(child).payload = self.places[at.0 as usize].payload;
                        }
                        self.declare_set(graph, child, set);
                    }
                }
            }
        }
    }

    fn reserve(
        &mut self,
        graph: &Supergraph,
        at: PathId,
        response_key: &str,
        field: FieldId,
        arguments: &Arguments,
    ) {
        let claim = Claim {
            response_key: Some(response_key.into()),
            name: graph.field(field).name.clone(),
            arguments: arguments.text.clone(),
            shape: None,
        };
        self.place(at).claim(response_key, claim);
    }

    fn note_payload_names(&mut self, graph: &Supergraph, at: PathId, on: TypeId) {
        let Some(events) = self.places[at.0 as usize].payload else { return };
        for &ty in std::iter::once(&on).chain(&graph.ty(on).possible) {
            for &field in &graph.ty(ty).fields {
                let name = &graph.field(field).name;
                let place = self.place(at);
                if graph.field_in(field, events).is_some() && !place.payload_names.contains(name) {
                    place.payload_names.push(name.clone());
                }
            }
        }
    }

    fn is_payload(&self, graph: &Supergraph, at: PathId, field: FieldId) -> bool {
        self.places[at.0 as usize]
            .payload
            .is_some_and(|events| graph.field(field).resolved_by.contains(events))
    }

    /// The key of a field that `subgraph` is asked for.
    pub(super) fn data_key(
        &mut self,
        graph: &Supergraph,
        at: PathId,
        wanted: &Wanted,
        subgraph: SubgraphId,
    ) -> Box<str> {
        let WantedTarget::Field(field) = wanted.target else { return TYPENAME.into() };
        let definition = graph.field(field);
        let there = graph.field_in(field, subgraph).and_then(|there| there.ty.as_ref());
        let claim = Claim {
            response_key: wanted.key.clone(),
            name: definition.name.clone(),
            arguments: wanted.arguments.text.clone(),
            shape: Some(shape_of(graph, there.unwrap_or(&definition.ty))),
        };
        let is_payload = self.is_payload(graph, at, field);
        let place = self.place(at);
        match &wanted.key {
            Some(key) => {
                let id = (key.clone(), field);
                if let Some(known) = place.client.get(&id) {
                    return known.clone();
                }
                let data_key = if is_payload {
                    definition.name.clone()
                } else {
                    place.client_name(key, &claim)
                };
                place.claim(&data_key, claim);
                place.client.insert(id, data_key.clone());
                data_key
            }
            None => {
                let id = (field, wanted.arguments.text.clone());
                if let Some(known) = place.internal.get(&id) {
                    return known.clone();
                }
                let data_key =
                    if is_payload { definition.name.clone() } else { place.internal_name(&claim) };
                place.claim(&data_key, claim);
                place.internal.insert(id, data_key.clone());
                data_key
            }
        }
    }

    /// The key under which the data of a field of the client's stands, for the object type `field` belongs to.
    pub(super) fn client_key(
        &self,
        graph: &Supergraph,
        at: PathId,
        response_key: &str,
        field: FieldId,
    ) -> Box<str> {
        let place = &self.places[at.0 as usize];
        if let Some(known) = place.client.get(&(response_key.into(), field)) {
            return known.clone();
        }
        // Picked on an interface, for all object types at once?
        let definition = graph.field(field);
        let of_interface = place.client.iter().find(|((key, other), _)| {
            let other = graph.field(*other);
            **key == *response_key
                && other.name == definition.name
                && graph.ty(other.parent).possible.contains(&definition.parent)
        });
        match of_interface {
            Some((_, data_key)) => data_key.clone(),
            // Nobody returns this object type here.
            None if self.is_payload(graph, at, field) => definition.name.clone(),
            None => response_key.into(),
        }
    }

    /// The place under `data_key`.
    pub(super) fn child(&mut self, at: PathId, data_key: &str) -> PathId {
        if let Some(child) = self.existing_child(at, data_key) {
            return child;
        }
        let child = PathId(self.places.len() as u32);
        self.places.push(Place::default());
        self.place(at).children.insert(data_key.into(), child);
        child
    }

    /// The place under `data_key`, if anything is wanted there.
    pub(super) fn existing_child(&self, at: PathId, data_key: &str) -> Option<PathId> {
        self.places[at.0 as usize].children.get(data_key).copied()
    }

    fn place(&mut self, at: PathId) -> &mut Place {
        &mut self.places[at.0 as usize]
    }
}

/// Abstract positions keep the type of the object under this key.
const TYPENAME: &str = "__typename";

impl Place {
    fn claim(&mut self, data_key: &str, claim: Claim) {
        let there = self.claims.entry(data_key.into()).or_default();
        if !there.contains(&claim) {
            there.push(claim);
        }
    }

    /// The response key, unless something else stands there; then what other object types use
    /// instead, or a new name.
    fn client_name(&self, response_key: &str, claim: &Claim) -> Box<str> {
        let is_forbidden = response_key == TYPENAME || self.is_payload_name(response_key);
        let mut others: Vec<&str> = self
            .client
            .iter()
            .filter(|((key, _), _)| **key == *response_key)
            .map(|(_, data_key)| &**data_key)
            .filter(|data_key| *data_key != response_key)
            .collect();
        others.sort_unstable();
        let own = (!is_forbidden).then_some(response_key);
        own.into_iter()
            .chain(others)
            .find(|data_key| {
                self.claims.get(*data_key).into_iter().flatten().all(|other| {
                    match &other.response_key {
                        Some(key) => {
                            **key == *response_key
                                && (other.shape.is_none() || other.shape == claim.shape)
                        }
                        None => other.is_same_field(claim) && other.shape == claim.shape,
                    }
                })
            })
            .map_or_else(|| self.free_name(), Into::into)
    }

    /// The key of an equal selection, or the field's name, or a new one.
    fn internal_name(&self, claim: &Claim) -> Box<str> {
        let mut equal: Vec<&str> = self
            .claims
            .iter()
            .filter(|(_, there)| {
                there.iter().all(|other| {
                    other.is_same_field(claim)
                        && (other.shape.is_none() || other.shape == claim.shape)
                })
            })
            .map(|(data_key, _)| &**data_key)
            .filter(|data_key| *data_key != TYPENAME && !self.is_payload_name(data_key))
            .collect();
        // The field's own name first, then by name: hash maps have no order of their own.
        equal.sort_unstable_by_key(|data_key| (**data_key != *claim.name, *data_key));
        match equal.first() {
            Some(data_key) => (*data_key).into(),
            None if !self.claims.contains_key(&claim.name)
                && !self.is_payload_name(&claim.name) =>
            {
                claim.name.clone()
            }
            None => self.free_name(),
        }
    }

    fn is_payload_name(&self, name: &str) -> bool {
        self.payload_names.iter().any(|known| **known == *name)
    }

    /// A name that nobody uses here.
    fn free_name(&self) -> Box<str> {
        let mut number = 0;
        loop {
            let name = format!("__s{number}");
            if !self.claims.contains_key(&*name) && !self.is_payload_name(&name) {
                return name.into();
            }
            number += 1;
        }
    }
}

impl Claim {
    fn is_same_field(&self, other: &Self) -> bool {
        self.name == other.name && self.arguments == other.arguments
    }
}

/// Lists and nulls of a type, and the leaf type. Objects merge whatever their types are.
fn shape_of(graph: &Supergraph, ty: &TypeRef) -> Vec<u32> {
    let mut shape = Vec::new();
    let mut here = ty;
    loop {
        shape.push(u32::from(here.nullable));
        match &here.shape {
            TypeRefShape::List(inner) => {
                shape.push(2);
                here = inner;
            }
            TypeRefShape::Named(id) => {
                shape.push(if graph.ty(*id).kind.is_composite() { 3 } else { 4 + id.0 });
                return shape;
            }
        }
    }
}
