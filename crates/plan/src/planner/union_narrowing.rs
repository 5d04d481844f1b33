//! Narrowing of unions with members that only some of the subgraphs resolving a field know. The planner chooses between
//! these subgraphs, so a selection on such a member would have a value on one route and not on another. Before solving,
//! selections are narrowed to the members that all of them know; the shape of the response keeps the other members,
//! with null for their fields.

use std::rc::Rc;

use foldhash::HashMap;
use graph::{FieldId, SubgraphId, SubgraphSet, Supergraph, TypeId, TypeKind};

use super::selection_tree::{FieldItem, SelectionTree, SetItem, SetNode, SetRef};
use crate::{Condition, FieldTarget};

/// Returns the selections of `root` without those on union members that not every subgraph of the field knows.
pub(super) fn narrow_unions(graph: &Supergraph, tree: &mut SelectionTree, root: SetRef) -> SetRef {
    let is_differing = |field: FieldId| {
        let field_type = graph.ty(graph.field(field).ty.named());
        field_type.kind == TypeKind::Union
            && shared_members(graph, field, find_resolvers(graph, field)).len()
                < field_type.possible.len()
    };
    if !tree.selected_fields().any(is_differing) {
        return root;
    }
    let all = graph.subgraph_ids().collect();
    let position = ObjectOrigin { field: None, holders: all, members: None };
    let mut narrowing =
        UnionNarrower { graph, tree, known: HashMap::default(), reachable: HashMap::default() };
    narrowing.narrow_set(&root, &position)
}

/// Returns the subgraphs that resolve a field; for a field of an interface, those that resolve it for any of its
/// members.
fn find_resolvers(graph: &Supergraph, field: FieldId) -> SubgraphSet {
    let definition = graph.field(field);
    let members = graph.ty(definition.parent).possible.iter();
    let own = members.filter_map(|&member| graph.field_named(member, &definition.name));
    own.map(|own| graph.field(own).resolved_by).fold(definition.resolved_by, SubgraphSet::union)
}

/// Returns the object types that each of `subgraphs` can return for `field`.
fn shared_members(graph: &Supergraph, field: FieldId, subgraphs: SubgraphSet) -> Vec<TypeId> {
    let mut members = graph.ty(graph.field(field).ty.named()).possible.clone();
    for subgraph in subgraphs.iter() {
        let there = graph.possible_in(graph.field_type_in(field, subgraph), subgraph);
        members.retain(|member| there.contains(member));
    }
    members
}

/// The origin of objects, as far as it determines the fields that can be selected on them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ObjectOrigin {
    /// The field that leads here; `None` at the root.
    field: Option<FieldId>,
    /// The subgraphs that may resolve that field here. Empty if they differ by type, in which case nothing below is
    /// narrowed.
    holders: SubgraphSet,
    /// The union members that all of them know; `None` if there is nothing to narrow.
    members: Option<Rc<[TypeId]>>,
}

struct UnionNarrower<'a> {
    graph: &'a Supergraph,
    tree: &'a mut SelectionTree,
    known: HashMap<(SetRef, ObjectOrigin), SetRef>,
    /// The subgraphs that can reach objects of a type that some subgraphs have.
    reachable: HashMap<(TypeId, SubgraphSet), SubgraphSet>,
}

impl UnionNarrower<'_> {
    fn narrow_set(&mut self, set: &SetRef, position: &ObjectOrigin) -> SetRef {
        let key = (set.clone(), position.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut items = Vec::with_capacity(set.items.len());
        for item in &set.items {
            match item {
                SetItem::Field(select) => {
                    let set = select.set.as_ref().map(|below| {
                        let position = self.position_below(select, set.on, position);
                        self.narrow_set(below, &position)
                    });
                    items.push(SetItem::Field(FieldItem { set, ..select.clone() }));
                }
                SetItem::Fragment { on, condition, set } => {
                    let narrowed = self.narrow_set(set, position);
                    let on = *on;
                    match self.members_in_fragment(on, position) {
                        None => {
                            let condition = condition.clone();
                            items.push(SetItem::Fragment { on, condition, set: narrowed });
                        }
                        Some(members) => {
                            for member in members {
                                let set = self.as_member(member, on, &narrowed);
                                let condition = condition.clone();
                                items.push(SetItem::Fragment { on: member, condition, set });
                            }
                        }
                    }
                }
            }
        }
        let narrowed = self.tree.share_set(SetNode { on: set.on, items });
        self.known.insert(key, narrowed.clone());
        narrowed
    }

    /// Returns the members to which a fragment on `on` is narrowed; `None` if it applies to shared members only.
    fn members_in_fragment(&self, on: TypeId, position: &ObjectOrigin) -> Option<Vec<TypeId>> {
        let shared = position.members.as_ref()?;
        let union = self.graph.field(position.field?).ty.named();
        let applies = |member: &TypeId| self.graph.ty(on).possible.contains(member);
        let all = self.graph.ty(union).possible.iter().filter(|member| applies(member)).count();
        let kept: Vec<TypeId> = shared.iter().copied().filter(applies).collect();
        (kept.len() < all).then_some(kept)
    }

    /// Returns the selections of `set`, written on `on`, for objects of type `member` only.
    fn as_member(&mut self, member: TypeId, on: TypeId, set: &SetRef) -> SetRef {
        if member == on {
            return set.clone();
        }
        let inner = SetItem::Fragment { on, condition: Condition::default(), set: set.clone() };
        self.tree.share_set(SetNode { on: member, items: vec![inner] })
    }

    /// Returns the position below a field that is selected on `on`.
    fn position_below(
        &mut self,
        select: &FieldItem,
        on: TypeId,
        position: &ObjectOrigin,
    ) -> ObjectOrigin {
        let graph = self.graph;
        let FieldTarget::Field(field) = select.target else {
            return ObjectOrigin { field: None, holders: SubgraphSet::EMPTY, members: None };
        };
        let name = &graph.field(field).name;
        let mut holders: Option<SubgraphSet> = None;
        for &member in &graph.ty(on).possible {
            let (Some(own), Some(here)) =
                (graph.field_named(member, name), self.holders_of(member, position))
            else {
                continue;
            };
            let resolving =
                graph.field(own).resolved_by.intersection(self.reachable_subgraphs(member, here));
            holders = Some(holders.map_or(resolving, |known| known.intersection(resolving)));
        }
        let holders = holders.unwrap_or_default();
        let field_type = graph.ty(graph.field(field).ty.named());
        let members = (field_type.kind == TypeKind::Union && !holders.is_empty())
            .then(|| shared_members(graph, field, holders))
            .filter(|members| members.len() < field_type.possible.len())
            .map(Rc::from);
        ObjectOrigin { field: Some(field), holders, members }
    }

    /// Returns the subgraphs that have an object here if it is a `member`; `None` if none of them knows the type.
    fn holders_of(&self, member: TypeId, position: &ObjectOrigin) -> Option<SubgraphSet> {
        let graph = self.graph;
        let Some(field) = position.field else { return Some(position.holders) };
        let knows = |&subgraph: &SubgraphId| {
            let there = graph.field_type_in(field, subgraph);
            graph.possible_in(there, subgraph).contains(&member)
        };
        let knowing: SubgraphSet = position.holders.iter().filter(knows).collect();
        (!knowing.is_empty()).then_some(knowing)
    }

    /// Returns the subgraphs that can have an object of type `ty` in the end if `holders` have it.
    fn reachable_subgraphs(&mut self, ty: TypeId, holders: SubgraphSet) -> SubgraphSet {
        if let Some(&known) = self.reachable.get(&(ty, holders)) {
            return known;
        }
        let graph = self.graph;
        let mut reached = holders;
        let mut has_grown = true;
        while has_grown {
            has_grown = false;
            for subgraph in graph.subgraph_ids() {
                let leads_there = |reached: SubgraphSet| {
                    graph.is_query_root_in(ty, subgraph)
                        || graph
                            .keys_into(ty, subgraph)
                            .any(|key| graph.resolves_set(&key.fields, ty, reached))
                };
                if !reached.contains(subgraph) && leads_there(reached) {
                    reached.insert(subgraph);
                    has_grown = true;
                }
            }
        }
        self.reachable.insert((ty, holders), reached);
        reached
    }
}
