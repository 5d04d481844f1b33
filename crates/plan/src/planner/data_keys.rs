//! The assignment of keys of the data tree to fields. The response keys of the client have priority; members that the
//! planner adds reuse an equal selection or get a free name. Payloads of events have field names as keys, so those are
//! reserved at the places of events' objects.

use std::rc::Rc;

use foldhash::HashMap;
use graph::{FieldId, SubgraphId, Supergraph, TypeId, TypeRef, TypeRefShape};

use super::selection_tree::{CollectedField, CollectedTarget, FieldArguments, SetItem, SetNode};
use crate::FieldTarget;

/// The identity of a place in the data tree, independent of the types on its path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PlaceId(u32);

impl PlaceId {
    pub(super) const ROOT: Self = Self(0);
}

/// All keys of all places.
pub(super) struct DataKeys<'a> {
    graph: &'a Supergraph,
    places: Vec<DataPlace<'a>>,
}

#[derive(Default)]
struct DataPlace<'a> {
    /// The event subgraph if objects here are payloads of it or parts of them.
    payload: Option<SubgraphId>,
    /// True if objects here may have one of several types.
    is_abstract: bool,
    /// The interface as which objects here are printed, if no request selects their type.
    untyped: Option<TypeId>,
    children: HashMap<Rc<str>, PlaceId>,
    /// The fields of each response key and their data keys, as far as assigned.
    client: HashMap<Rc<str>, Vec<(FieldId, Rc<str>)>>,
    /// The data key of each field with arguments that the planner added.
    internal: HashMap<(FieldId, Rc<FieldArguments>), Rc<str>>,
    /// The uses of each data key.
    claims: HashMap<Rc<str>, Vec<KeyClaim<'a>>>,
    /// The names that payloads may contain.
    payload_names: Vec<&'a str>,
}

/// A use of a data key.
#[derive(Clone, PartialEq, Eq)]
struct KeyClaim<'a> {
    /// The client's response key; `None` if the planner added the field.
    response_key: Option<Rc<str>>,
    name: &'a str,
    arguments: Rc<FieldArguments>,
    /// The form on which merged selections must agree (FieldsInSetCanMerge, GraphQL specification, section 5.3.2);
    /// `None` if the key is reserved for the client but not assigned yet.
    shape: Option<Vec<u32>>,
}

impl<'a> DataKeys<'a> {
    pub(super) fn new(graph: &'a Supergraph) -> Self {
        Self { graph, places: vec![DataPlace::default()] }
    }

    /// Declares the client's selections under a root field; `payload` is the event subgraph that serves it, if any.
    pub(super) fn declare_root_field(
        &mut self,
        wanted: &CollectedField,
        payload: Option<SubgraphId>,
    ) {
        let (CollectedTarget::Field(field), Some(key)) = (wanted.target, &wanted.key) else {
            return;
        };
        self.reserve_key(PlaceId::ROOT, key, field, &wanted.arguments);
        let place = self.child(PlaceId::ROOT, key);
        self.place(place).payload = payload;
        for part in wanted.parts.iter() {
            self.declare_set(place, &part.set);
        }
    }

    /// Reserves the keys of `set` at `at`, and below it.
    fn declare_set(&mut self, at: PlaceId, set: &SetNode) {
        self.note_payload_names(at, set.on);
        for item in &set.items {
            match item {
                SetItem::Fragment { set, .. } => self.declare_set(at, set),
                SetItem::Field(select) => {
                    let FieldTarget::Field(field) = select.target else { continue };
                    let Some(key) = &select.key else { continue };
                    let is_payload = self.is_payload(at, field);
                    self.reserve_key(at, key, field, &select.arguments);
                    if let Some(set) = &select.set {
                        let child = match is_payload {
                            true => self.child(at, &self.graph.field(field).name.as_ref().into()),
                            false => self.child(at, key),
                        };
                        if is_payload {
                            self.place(child).payload = self.places[at.0 as usize].payload;
                        }
                        self.declare_set(child, set);
                    }
                }
            }
        }
    }

    fn reserve_key(
        &mut self,
        at: PlaceId,
        response_key: &Rc<str>,
        field: FieldId,
        arguments: &Rc<FieldArguments>,
    ) {
        let claim = KeyClaim {
            response_key: Some(response_key.clone()),
            name: &self.graph.field(field).name,
            arguments: arguments.clone(),
            shape: None,
        };
        self.place(at).add_claim(response_key, claim);
    }

    fn note_payload_names(&mut self, at: PlaceId, on: TypeId) {
        let graph = self.graph;
        let Some(events) = self.places[at.0 as usize].payload else { return };
        for &ty in std::iter::once(&on).chain(&graph.ty(on).possible) {
            for &field in &graph.ty(ty).fields {
                let name = &*graph.field(field).name;
                let place = self.place(at);
                if graph.field_in(field, events).is_some() && !place.payload_names.contains(&name) {
                    place.payload_names.push(name);
                }
            }
        }
    }

    fn is_payload(&self, at: PlaceId, field: FieldId) -> bool {
        self.places[at.0 as usize]
            .payload
            .is_some_and(|events| self.graph.field(field).resolved_by.contains(events))
    }

    /// Returns the data key of a field that is fetched from `subgraph`, and assigns one if needed.
    pub(super) fn data_key(
        &mut self,
        at: PlaceId,
        wanted: &CollectedField,
        subgraph: SubgraphId,
    ) -> Rc<str> {
        let CollectedTarget::Field(field) = wanted.target else { return TYPENAME.into() };
        if let Some(known) = self.places[at.0 as usize].find_known_key(wanted, field) {
            return known.clone();
        }
        let definition = self.graph.field(field);
        let there = self.graph.field_in(field, subgraph).and_then(|there| there.ty.as_ref());
        let claim = KeyClaim {
            response_key: wanted.key.clone(),
            name: &definition.name,
            arguments: wanted.arguments.clone(),
            shape: Some(shape_of(self.graph, there.unwrap_or(&definition.ty))),
        };
        let is_payload = self.is_payload(at, field);
        let place = self.place(at);
        let data_key = match &wanted.key {
            _ if is_payload => definition.name.as_ref().into(),
            Some(key) => place.client_name(key, &claim),
            None => place.internal_name(&claim),
        };
        place.add_claim(&data_key, claim);
        match &wanted.key {
            Some(key) => {
                place.client.entry(key.clone()).or_default().push((field, data_key.clone()));
            }
            None => {
                place.internal.insert((field, wanted.arguments.clone()), data_key.clone());
            }
        }
        data_key
    }

    /// Returns the data key of the client's field for the object type that `field` belongs to.
    pub(super) fn client_key(&self, at: PlaceId, response_key: &str, field: FieldId) -> Box<str> {
        let place = &self.places[at.0 as usize];
        let picked = place.client.get(response_key).map_or(&[][..], Vec::as_slice);
        if let Some((_, known)) = picked.iter().find(|(own, _)| *own == field) {
            return known.as_ref().into();
        }
        // The key may have been assigned on an interface, for all object types at once.
        let graph = self.graph;
        let definition = graph.field(field);
        let of_interface = picked.iter().find(|(other, _)| {
            let other = graph.field(*other);
            other.name == definition.name
                && graph.ty(other.parent).possible.contains(&definition.parent)
        });
        // The type of the object may be unknown, so that an interface is looked up for a key that was assigned on an
        // object type.
        let of_member = picked.iter().filter(|(other, _)| {
            let other = graph.field(*other);
            other.name == definition.name
                && graph.ty(definition.parent).possible.contains(&other.parent)
        });
        let of_member = of_member.min_by_key(|(other, _)| *other);
        match of_interface.or(of_member) {
            Some((_, data_key)) => data_key.as_ref().into(),
            // No request returns this object type here.
            None if self.is_payload(at, field) => definition.name.clone(),
            None => response_key.into(),
        }
    }

    /// Records that objects at this place may have one of several types and select their `__typename`.
    pub(super) fn set_abstract(&mut self, at: PlaceId) {
        self.place(at).is_abstract = true;
    }

    /// True if objects at this place may have one of several types.
    pub(super) fn is_abstract(&self, at: PlaceId) -> bool {
        self.places[at.0 as usize].is_abstract
    }

    /// Returns the key of a member that the planner added.
    pub(super) fn internal_key(
        &self,
        at: PlaceId,
        field: FieldId,
        arguments: &str,
    ) -> Option<&Rc<str>> {
        let internal = &self.places[at.0 as usize].internal;
        let arguments = FieldArguments { text: arguments.into(), ..FieldArguments::default() };
        internal.get(&(field, Rc::new(arguments)))
    }

    /// Records that the types of objects at this place are not selected, as long as nothing depends on them.
    pub(super) fn set_untyped(&mut self, at: PlaceId, interface: TypeId) {
        self.place(at).untyped = Some(interface);
    }

    /// Returns the interface as which objects here are printed if their types are not selected.
    pub(super) fn untyped_interface(&self, at: PlaceId) -> Option<TypeId> {
        self.places[at.0 as usize].untyped
    }

    /// Returns the place under `data_key`, and creates it if needed.
    pub(super) fn child(&mut self, at: PlaceId, data_key: &Rc<str>) -> PlaceId {
        if let Some(child) = self.existing_child(at, data_key) {
            return child;
        }
        let child = PlaceId(self.places.len() as u32);
        self.places.push(DataPlace::default());
        self.place(at).children.insert(data_key.clone(), child);
        child
    }

    /// Returns the place under `data_key`, if any field is selected there.
    pub(super) fn existing_child(&self, at: PlaceId, data_key: &str) -> Option<PlaceId> {
        self.places[at.0 as usize].children.get(data_key).copied()
    }

    fn place(&mut self, at: PlaceId) -> &mut DataPlace<'a> {
        &mut self.places[at.0 as usize]
    }
}

/// The key under which abstract positions store the type of the object.
const TYPENAME: &str = "__typename";

impl<'a> DataPlace<'a> {
    /// Returns the key that was assigned to an equal field before.
    fn find_known_key(&self, wanted: &CollectedField, field: FieldId) -> Option<&Rc<str>> {
        match &wanted.key {
            Some(key) => {
                let picked = self.client.get(key)?;
                picked.iter().find(|(own, _)| *own == field).map(|(_, data_key)| data_key)
            }
            None => self.internal.get(&(field, wanted.arguments.clone())),
        }
    }

    fn add_claim(&mut self, data_key: &Rc<str>, claim: KeyClaim<'a>) {
        match self.claims.get_mut(data_key) {
            Some(there) if there.contains(&claim) => {}
            Some(there) => there.push(claim),
            None => {
                self.claims.insert(data_key.clone(), vec![claim]);
            }
        }
    }

    /// Returns the response key if it is free, otherwise a key that other object types use for it, or a new name.
    fn client_name(&self, response_key: &Rc<str>, claim: &KeyClaim<'a>) -> Rc<str> {
        let is_forbidden = **response_key == *TYPENAME || self.is_payload_name(response_key);
        let picked = self.client.get(response_key).map_or(&[][..], Vec::as_slice);
        let mut others: Vec<&Rc<str>> = picked
            .iter()
            .map(|(_, data_key)| data_key)
            .filter(|data_key| *data_key != response_key)
            .collect();
        others.sort_unstable();
        others.dedup();
        let own = (!is_forbidden).then_some(response_key);
        own.into_iter()
            .chain(others)
            .find(|data_key| {
                self.claims.get(*data_key).into_iter().flatten().all(|other| {
                    match &other.response_key {
                        Some(key) => {
                            key == response_key
                                && (other.shape.is_none() || other.shape == claim.shape)
                        }
                        None => other.is_same_field(claim) && other.shape == claim.shape,
                    }
                })
            })
            .map_or_else(|| self.free_name(), Clone::clone)
    }

    /// Returns the key of an equal selection, or the field's name, or a new name.
    fn internal_name(&self, claim: &KeyClaim<'a>) -> Rc<str> {
        let mut equal: Vec<&Rc<str>> = self
            .claims
            .iter()
            .filter(|(_, there)| {
                there.iter().all(|other| {
                    other.is_same_field(claim)
                        && (other.shape.is_none() || other.shape == claim.shape)
                })
            })
            .map(|(data_key, _)| data_key)
            .filter(|data_key| ***data_key != *TYPENAME && !self.is_payload_name(data_key))
            .collect();
        // The field's own name has priority, the others are sorted, because hash maps are not ordered.
        equal.sort_unstable_by_key(|data_key| (&***data_key != claim.name, *data_key));
        match equal.first() {
            Some(data_key) => (*data_key).clone(),
            None if !self.claims.contains_key(claim.name) && !self.is_payload_name(claim.name) => {
                claim.name.into()
            }
            None => self.free_name(),
        }
    }

    fn is_payload_name(&self, name: &str) -> bool {
        self.payload_names.contains(&name)
    }

    /// Returns a name that is not used here.
    fn free_name(&self) -> Rc<str> {
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

impl KeyClaim<'_> {
    fn is_same_field(&self, other: &Self) -> bool {
        self.name == other.name && self.arguments == other.arguments
    }
}

/// Returns the lists and nulls of a type, and the leaf type. Objects merge independently of their types.
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
