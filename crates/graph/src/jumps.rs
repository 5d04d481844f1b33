//! Jumps: the keys that lead from the holders of an object to another subgraph, and the subgraphs that are reachable in
//! the end. Planning uses them, and the satisfiability check of composition.
//!
//! A *holder* is a subgraph that has an object in hand. Reachability is the least fixpoint of "holders of (type, start)
//! include U": monotone over finite sets, so polynomial by construction.

use std::collections::HashMap;

use crate::{
    FieldId, FieldSet, FieldSetItem, Key, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId,
};

impl Supergraph {
    /// Returns the mention of a field in `subgraph`, if it has one.
    pub fn field_in(
        &self,
        field: FieldId,
        subgraph: SubgraphId,
    ) -> Option<&crate::FieldInSubgraph> {
        self.field(field).subgraphs.iter().find(|there| there.subgraph == subgraph)
    }

    /// Returns the definition of a type in `subgraph`, if it has one.
    pub fn type_in(&self, ty: TypeId, subgraph: SubgraphId) -> Option<&crate::TypeInSubgraph> {
        self.ty(ty).subgraphs.iter().find(|there| there.subgraph == subgraph)
    }

    /// Returns the named type that `field` has in `subgraph`, which may be narrower than in the supergraph.
    pub fn field_type_in(&self, field: FieldId, subgraph: SubgraphId) -> TypeId {
        let there = self.field_in(field, subgraph).and_then(|there| there.ty.as_ref());
        there.unwrap_or(&self.field(field).ty).named()
    }

    /// Returns the object types that `subgraph` can return where the type is `ty`, in schema order.
    pub fn possible_in(&self, ty: TypeId, subgraph: SubgraphId) -> &[TypeId] {
        if !self.ty(ty).kind.is_abstract() {
            return &self.ty(ty).possible;
        }
        self.type_in(ty, subgraph).map_or(&[], |there| &there.possible)
    }

    /// True if `ty` is an object type in `subgraph` that stands for all implementations of an interface
    /// (`@interfaceObject`). Such a subgraph does not know the types of its objects.
    pub fn is_interface_object(&self, ty: TypeId, subgraph: SubgraphId) -> bool {
        self.type_in(ty, subgraph).is_some_and(|there| there.interface_object)
    }

    /// Returns the type that objects of type `ty` have in `subgraph`: the interface where the subgraph has an interface
    /// object, `ty` itself elsewhere.
    pub fn local_type(&self, ty: TypeId, subgraph: SubgraphId) -> TypeId {
        let stands_for = self.ty(ty).interface_objects.iter().find(|(there, _)| *there == subgraph);
        stands_for.map_or(ty, |&(_, interface)| interface)
    }

    /// True if `ty` is the query root and `subgraph` serves queries. There is only one such object, so its root fields
    /// can be fetched wherever it occurs.
    pub fn is_query_root_in(&self, ty: TypeId, subgraph: SubgraphId) -> bool {
        ty == self.query && self.subgraph(subgraph).kind == SubgraphKind::Server
    }

    /// Returns the keys by which the router may fetch objects of type `ty` from `subgraph`, in representations of
    /// [`Supergraph::local_type`]. No key leads to an event subgraph, which has no server.
    pub fn keys_into(&self, ty: TypeId, subgraph: SubgraphId) -> impl Iterator<Item = &Key> {
        let is_server = self.subgraph(subgraph).kind == SubgraphKind::Server;
        self.type_in(self.local_type(ty, subgraph), subgraph)
            .filter(move |_| is_server)
            .into_iter()
            .flat_map(|there| &there.keys)
            .filter(|key| key.resolvable)
    }

    /// True if `field` is a member of a key on a type extension of Federation 1 in `subgraph`: the subgraph refers to
    /// objects by it, so it gives the value although the field is external there.
    pub fn is_key_reference(&self, field: FieldId, subgraph: SubgraphId) -> bool {
        let there = self.types.iter().flat_map(|ty| &ty.subgraphs);
        let there = there.filter(|there| there.subgraph == subgraph);
        let mut keys = there.flat_map(|there| &there.keys).filter(|key| key.is_extension);
        keys.any(|key| key.fields.mentions(field))
    }

    /// True if `holders` together resolve every field of `set` on an object of type `on`. Nested fields are resolved by
    /// those holders that give the nested object, without further requests.
    pub fn resolves_set(&self, set: &FieldSet, on: TypeId, holders: SubgraphSet) -> bool {
        self.resolves_set_through(set, on, holders, &|_, carriers| carriers)
    }

    /// Implements [`Supergraph::resolves_set`]; `holders_of` widens the subgraphs that give a nested object to all that
    /// hold it in the end.
    fn resolves_set_through(
        &self,
        set: &FieldSet,
        on: TypeId,
        holders: SubgraphSet,
        holders_of: &impl Fn(TypeId, SubgraphSet) -> SubgraphSet,
    ) -> bool {
        set.items.iter().all(|item| match item {
            FieldSetItem::Fragment { on, fields } => {
                self.resolves_set_through(fields, *on, holders, holders_of)
            }
            FieldSetItem::Field { field, fields, .. } => {
                // A set written on an interface means the object type's own field of that name.
                let own = match self.ty(on).fields.contains(field) {
                    true => Some(*field),
                    false => self.field_named(on, &self.field(*field).name),
                };
                let Some(own) = own else { return false };
                let carriers = self.field(own).resolved_by.intersection(holders);
                let below = self.field(own).ty.named();
                !carriers.is_empty()
                    && (fields.items.is_empty()
                        || self.resolves_set_through(
                            fields,
                            below,
                            holders_of(below, carriers),
                            holders_of,
                        ))
            }
        })
    }
}

/// All jumps of a supergraph, compiled once.
#[derive(Debug)]
pub struct Jumps {
    /// The subgraphs that resolvable keys lead to, for each object type that has such keys. The query root needs no
    /// key, because there is only one.
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
                    supergraph.is_query_root_in(id, subgraph)
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

    /// Returns the subgraphs from which objects of type `ty` can be fetched if one of their keys is available.
    pub fn targets(&self, ty: TypeId) -> SubgraphSet {
        self.targets.get(&ty).copied().unwrap_or_default()
    }

    /// Returns the subgraphs that can hold an object of type `ty` in the end if `holders` have it now.
    pub fn reachable(&self, ty: TypeId, holders: SubgraphSet) -> SubgraphSet {
        self.reachable.reached_by(ty, holders)
    }
}

/// The fixpoint of reachability: the subgraphs that can hold an object in the end.
#[derive(Debug, Default)]
pub struct Reachable {
    /// The subgraphs reached from a single holder. An absent entry means that no other subgraph is reached.
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
                    let leads = supergraph.is_query_root_in(ty, to)
                        || supergraph.keys_into(ty, to).any(|key| {
                            supergraph.resolves_set_through(&key.fields, ty, grown, &reached_by)
                        });
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

    /// Returns the subgraphs that can hold the object in the end. Several holders reach at least the union of what each
    /// reaches alone.
    fn reached_by(&self, ty: TypeId, holders: SubgraphSet) -> SubgraphSet {
        holders.iter().map(|start| self.reached_from(ty, start)).fold(holders, SubgraphSet::union)
    }
}
