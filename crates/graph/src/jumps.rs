//! Jumps: which keys lead from the holders of an object to another subgraph, and what can be
//! reached in the end. Serves planning now and satisfiability checks of composition later.
//!
//! A *holder* is a subgraph that has an object in hand. Reachability is the least fixpoint of
//! "holders of (type, start) include U": monotone over finite sets, so polynomial by construction.

use std::collections::HashMap;

use crate::{
    FieldId, FieldSet, FieldSetItem, Key, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId,
};

impl Supergraph {
    /// What `subgraph` says of a field, if it mentions it.
    pub fn field_in(
        &self,
        field: FieldId,
        subgraph: SubgraphId,
    ) -> Option<&crate::FieldInSubgraph> {
        self.field(field).subgraphs.iter().find(|there| there.subgraph == subgraph)
    }

    /// What `subgraph` says of a type, if it defines it.
    pub fn type_in(&self, ty: TypeId, subgraph: SubgraphId) -> Option<&crate::TypeInSubgraph> {
        self.ty(ty).subgraphs.iter().find(|there| there.subgraph == subgraph)
    }

    /// The named type that `field` has in `subgraph`, which may narrow the supergraph's.
    pub fn field_type_in(&self, field: FieldId, subgraph: SubgraphId) -> TypeId {
        let there = self.field_in(field, subgraph).and_then(|there| there.ty.as_ref());
        there.unwrap_or(&self.field(field).ty).named()
    }

    /// The object types that `subgraph` can return where the type is `ty`, in schema order.
    pub fn possible_in(&self, ty: TypeId, subgraph: SubgraphId) -> &[TypeId] {
        if !self.ty(ty).kind.is_abstract() {
            return &self.ty(ty).possible;
        }
        self.type_in(ty, subgraph).map_or(&[], |there| &there.possible)
    }

    /// Is `ty` an object type in `subgraph` that stands for all implementations of an interface
    /// (`@interfaceObject`)? Such a subgraph does not know what an object is.
    pub fn is_interface_object(&self, ty: TypeId, subgraph: SubgraphId) -> bool {
        self.type_in(ty, subgraph).is_some_and(|there| there.interface_object)
    }

    /// The type that objects of type `ty` have in `subgraph`: the interface where it has an interface
    /// object, `ty` itself elsewhere.
    pub fn type_there(&self, ty: TypeId, subgraph: SubgraphId) -> TypeId {
        let stands_for = self.ty(ty).interface_objects.iter().find(|(there, _)| *there == subgraph);
        stands_for.map_or(ty, |&(_, interface)| interface)
    }

    /// Is `ty` the type of the query, and does `subgraph` answer queries? There is one such object, so root
    /// fields can be asked for wherever it stands.
    pub fn has_query_root(&self, ty: TypeId, subgraph: SubgraphId) -> bool {
        ty == self.query && self.subgraph(subgraph).kind == SubgraphKind::Server
    }

    /// The keys by which the router may ask `subgraph` for objects of type `ty`, in representations
    /// of [`Supergraph::type_there`]. None lead to an event subgraph, which has no server.
    pub fn keys_into(&self, ty: TypeId, subgraph: SubgraphId) -> impl Iterator<Item = &Key> {
        let is_server = self.subgraph(subgraph).kind == SubgraphKind::Server;
        self.type_in(self.type_there(ty, subgraph), subgraph)
            .filter(move |_| is_server)
            .into_iter()
            .flat_map(|there| &there.keys)
            .filter(|key| key.resolvable)
    }

    /// True if `holders` together resolve every field of `set` on an object of type `on`. Nested fields are looked up
    /// in those of them that give the object, without further requests.
    pub fn resolves_set(&self, set: &FieldSet, on: TypeId, holders: SubgraphSet) -> bool {
        self.obtains(set, on, holders, &|_, carriers| carriers)
    }

    /// As [`Supergraph::resolves_set`]; `holders_of` widens the subgraphs that give a nested object to all that have
    /// it in the end.
    fn obtains(
        &self,
        set: &FieldSet,
        on: TypeId,
        holders: SubgraphSet,
        holders_of: &impl Fn(TypeId, SubgraphSet) -> SubgraphSet,
    ) -> bool {
        set.items.iter().all(|item| match item {
            FieldSetItem::Fragment { on, fields } => self.obtains(fields, *on, holders, holders_of),
            FieldSetItem::Field { field, fields, .. } => {
                // A set that is written on an interface means the object type's own field of that name.
                let own = match self.ty(on).fields.contains(field) {
                    true => Some(*field),
                    false => self.field_named(on, &self.field(*field).name),
                };
                let Some(own) = own else { return false };
                let carriers = self.field(own).resolved_by.intersection(holders);
                let below = self.field(own).ty.named();
                !carriers.is_empty()
                    && (fields.items.is_empty()
                        || self.obtains(fields, below, holders_of(below, carriers), holders_of))
            }
        })
    }
}

/// All jumps of a supergraph, compiled once.
#[derive(Debug)]
pub struct Jumps {
    /// For each object type that has resolvable keys: the subgraphs they lead to. There is one query root, so
    /// no key is needed for it.
    targets: HashMap<TypeId, SubgraphSet>,
    reachable: Reachable,
}

impl Jumps {
    /// Compiles the jumps of `supergraph`.
    pub fn new(supergraph: &Supergraph) -> Self {
        let mut targets = HashMap::new();
        for (index, ty) in supergraph.types.iter().enumerate() {
            let id = TypeId(index as u32);
            let set: SubgraphSet = ty
                .subgraphs
                .iter()
                .map(|there| there.subgraph)
                .chain(ty.interface_objects.iter().map(|(subgraph, _)| *subgraph))
                .filter(|&subgraph| {
                    supergraph.has_query_root(id, subgraph)
                        || supergraph.keys_into(id, subgraph).next().is_some()
                })
                .collect();
            if !set.is_empty() {
                targets.insert(id, set);
            }
        }
        let reachable = Reachable::new(supergraph, &targets);
        Self { targets, reachable }
    }

    /// The subgraphs that can be asked for objects of type `ty`, if a key of theirs can be had.
    pub fn targets(&self, ty: TypeId) -> SubgraphSet {
        self.targets.get(&ty).copied().unwrap_or_default()
    }

    /// The subgraphs that can hold an object of type `ty` in the end, if `holders` have it now.
    pub fn reachable(&self, ty: TypeId, holders: SubgraphSet) -> SubgraphSet {
        self.reachable.reached_by(ty, holders)
    }
}

/// The fixpoint: who can hold an object in the end.
#[derive(Debug, Default)]
pub struct Reachable {
    /// Start with one holder; a missing entry: nobody else.
    from: HashMap<(TypeId, SubgraphId), SubgraphSet>,
}

impl Reachable {
    fn new(supergraph: &Supergraph, targets: &HashMap<TypeId, SubgraphSet>) -> Self {
        let mut reachable = Self::default();
        let mut starts: Vec<(TypeId, SubgraphId)> = targets
            .keys()
            .flat_map(|&ty| {
                let definition = supergraph.ty(ty);
                let through = definition.interface_objects.iter().map(|(subgraph, _)| *subgraph);
                let known = definition.subgraphs.iter().map(|there| there.subgraph);
                known.chain(through).map(move |subgraph| (ty, subgraph))
            })
            .collect();
        starts.sort_unstable();
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for &(ty, start) in &starts {
                let holders = reachable.reached_from(ty, start);
                let mut grown = holders;
                let reached_by = |ty, holders| reachable.reached_by(ty, holders);
                // Within one start the order does not matter: the outer loop runs until nothing changes.
                for to in targets[&ty].difference(holders).iter() {
                    let leads = supergraph.has_query_root(ty, to)
                        || supergraph
                            .keys_into(ty, to)
                            .any(|key| supergraph.obtains(&key.fields, ty, grown, &reached_by));
                    if leads {
                        grown.insert(to);
                    }
                }
                if grown != holders {
                    reachable.from.insert((ty, start), grown);
                    has_changed = true;
                }
            }
        }
        reachable
    }

    fn reached_from(&self, ty: TypeId, start: SubgraphId) -> SubgraphSet {
        self.from.get(&(ty, start)).copied().unwrap_or_else(|| SubgraphSet::of(start))
    }

    /// Who can hold it in the end. Several holders reach at least what each reaches alone.
    fn reached_by(&self, ty: TypeId, holders: SubgraphSet) -> SubgraphSet {
        holders.iter().map(|start| self.reached_from(ty, start)).fold(holders, SubgraphSet::union)
    }
}
