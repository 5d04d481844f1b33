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
    /// (response key, field name, from the payload) to data key.
    client: HashMap<(Box<str>, Box<str>, bool), Box<str>>,
    /// Data key to what stands there.
    taken: HashMap<Box<str>, Vec<Identity>>,
    /// Names that payloads may contain.
    reserved: Vec<Box<str>>,
}

/// What makes two selections of one place interchangeable.
#[derive(Clone, PartialEq, Eq)]
struct Identity {
    name: Box<str>,
    arguments: Box<str>,
    /// Lists and nulls of the type, and the leaf type: what must agree where selections merge.
    shape: Vec<u32>,
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
        let data_key = self.declare(graph, PathId::ROOT, key, field, &wanted.arguments);
        let place = self.child(PathId::ROOT, &data_key);
        self.places[place.0 as usize].payload = payload;
        for part in &wanted.parts {
            self.declare_set(graph, place, &part.set);
        }
    }

    /// Adds the keys of `set` at `at`, and below it.
    fn declare_set(&mut self, graph: &Supergraph, at: PathId, set: &Set) {
        self.reserve_payload_names(graph, at, set.on);
        for item in &set.items {
            match item {
                Item::Fragment { set, .. } => self.declare_set(graph, at, set),
                Item::Field(select) => {
                    let FieldTarget::Field(field) = select.target else { continue };
                    let Some(key) = &select.key else { continue };
                    let data_key = self.declare(graph, at, key, field, &select.arguments);
                    if let Some(set) = &select.set {
                        let child = self.child(at, &data_key);
                        if self.is_payload(graph, at, field) {
                            self.places[child.0 as usize].payload =
                                self.places[at.0 as usize].payload;
                        }
                        self.declare_set(graph, child, set);
                    }
                }
            }
        }
    }

    fn reserve_payload_names(&mut self, graph: &Supergraph, at: PathId, on: TypeId) {
        let Some(events) = self.places[at.0 as usize].payload else { return };
        for &ty in std::iter::once(&on).chain(&graph.ty(on).possible) {
            for &field in &graph.ty(ty).fields {
                let field = graph.field(field);
                if field.subgraphs.iter().any(|there| there.subgraph == events) {
                    let reserved = &mut self.places[at.0 as usize].reserved;
                    if !reserved.contains(&field.name) {
                        reserved.push(field.name.clone());
                    }
                }
            }
        }
    }

    fn is_payload(&self, graph: &Supergraph, at: PathId, field: FieldId) -> bool {
        self.places[at.0 as usize]
            .payload
            .is_some_and(|events| graph.field(field).resolved_by.contains(events))
    }

    fn declare(
        &mut self,
        graph: &Supergraph,
        at: PathId,
        response_key: &str,
        field: FieldId,
        arguments: &Arguments,
    ) -> Box<str> {
        let is_payload = self.is_payload(graph, at, field);
        let name = &graph.field(field).name;
        let identity = Identity::of(graph, field, arguments);
        let place = &mut self.places[at.0 as usize];
        let key = (response_key.into(), name.clone(), is_payload);
        let data_key = match place.client.get(&key) {
            Some(data_key) => data_key.clone(),
            None if is_payload => name.clone(),
            None => {
                let is_free = response_key != "__typename"
                    && !place.reserved.iter().any(|name| **name == *response_key)
                    && !(response_key.starts_with("__s") && place.taken.contains_key(response_key));
                if is_free { response_key.into() } else { place.free_name() }
            }
        };
        place.client.insert(key, data_key.clone());
        place.take(&data_key, identity);
        data_key
    }

    /// The key of a wanted field, chosen on the spot if the planner adds the field.
    pub(super) fn data_key(&mut self, graph: &Supergraph, at: PathId, wanted: &Wanted) -> Box<str> {
        let WantedTarget::Field(field) = wanted.target else { return "__typename".into() };
        match &wanted.key {
            Some(key) => self.declare(graph, at, key, field, &wanted.arguments),
            None => self.internal(graph, at, field, &wanted.arguments),
        }
    }

    /// The key of a field that the client wants, as it was declared.
    pub(super) fn client_key(
        &self,
        graph: &Supergraph,
        at: PathId,
        response_key: &str,
        field: FieldId,
    ) -> Box<str> {
        let is_payload = self.is_payload(graph, at, field);
        let key = (response_key.into(), graph.field(field).name.clone(), is_payload);
        // Whatever is wanted was declared; the response key itself is the sane rest.
        self.places[at.0 as usize].client.get(&key).cloned().unwrap_or_else(|| response_key.into())
    }

    fn internal(
        &mut self,
        graph: &Supergraph,
        at: PathId,
        field: FieldId,
        arguments: &Arguments,
    ) -> Box<str> {
        let is_payload = self.is_payload(graph, at, field);
        let identity = Identity::of(graph, field, arguments);
        let place = &mut self.places[at.0 as usize];
        if is_payload {
            place.take(&identity.name.clone(), identity.clone());
            return identity.name;
        }
        let mut equal: Vec<&Box<str>> = place
            .taken
            .iter()
            .filter(|(_, there)| there.iter().all(|other| *other == identity))
            .map(|(key, _)| key)
            .filter(|key| !place.reserved.contains(key))
            .collect();
        // The field's own name first, then by name: hash maps have no order of their own.
        equal.sort_by_key(|key| (**key != identity.name, (*key).clone()));
        let data_key = match equal.first() {
            Some(key) => (*key).clone(),
            None if !place.taken.contains_key(&identity.name)
                && !place.reserved.contains(&identity.name) =>
            {
                identity.name.clone()
            }
            None => place.free_name(),
        };
        place.take(&data_key, identity);
        data_key
    }

    /// The place under `data_key`.
    pub(super) fn child(&mut self, at: PathId, data_key: &str) -> PathId {
        if let Some(&child) = self.places[at.0 as usize].children.get(data_key) {
            return child;
        }
        let child = PathId(self.places.len() as u32);
        self.places.push(Place::default());
        self.places[at.0 as usize].children.insert(data_key.into(), child);
        child
    }

    /// The place under `data_key`, if anything is wanted there.
    pub(super) fn existing_child(&self, at: PathId, data_key: &str) -> Option<PathId> {
        self.places[at.0 as usize].children.get(data_key).copied()
    }
}

impl Place {
    fn take(&mut self, data_key: &str, identity: Identity) {
        let there = self.taken.entry(data_key.into()).or_default();
        if !there.contains(&identity) {
            there.push(identity);
        }
    }

    /// A name that nobody uses here.
    fn free_name(&self) -> Box<str> {
        let mut number = 0;
        loop {
            let name = format!("__s{number}");
            if !self.taken.contains_key(&*name) && !self.reserved.iter().any(|r| **r == *name) {
                return name.into();
            }
            number += 1;
        }
    }
}

impl Identity {
    fn of(graph: &Supergraph, field: FieldId, arguments: &Arguments) -> Self {
        fn shape(graph: &Supergraph, ty: &TypeRef, into: &mut Vec<u32>) {
            into.push(u32::from(ty.nullable));
            match &ty.shape {
                TypeRefShape::List(inner) => {
                    into.push(2);
                    shape(graph, inner, into);
                }
                // Objects merge whatever their types are; leaves do not.
                TypeRefShape::Named(id) if graph.ty(*id).kind.is_composite() => into.push(3),
                TypeRefShape::Named(id) => into.push(4 + id.0),
            }
        }
        let definition = graph.field(field);
        let mut list = Vec::new();
        shape(graph, &definition.ty, &mut list);
        Self { name: definition.name.clone(), arguments: arguments.text.clone(), shape: list }
    }
}
