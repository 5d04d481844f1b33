//! Construction of the model of an operation.

use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use graph::{FieldSetItem, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId};

use super::model::{CoverField, CoverModel, CoverNode, JumpType, Mask, SUBGRAPHS_MAX};
use crate::planner::{
    selection_tree::{CollectedField, CollectedFields, CollectedTarget, GuardedSets},
    solver::Solver,
};

/// The maximum number of positions and fields in a model.
const FIELDS_MAX: usize = 40_000;

/// Builds the model of an operation. `None` if the operation has a feature that models do not represent, or is too
/// large.
pub(super) fn build_model(
    solver: &mut Solver<'_>,
    fields: &Rc<CollectedFields>,
    among: Option<SubgraphSet>,
) -> Option<CoverModel> {
    let mut builder = CoverModelBuilder {
        solver,
        bits: HashMap::default(),
        model: CoverModel::default(),
        types: HashMap::default(),
        nodes: HashMap::default(),
        fields: 0,
    };
    let built = builder.add_roots(fields, among);
    builder.solver.steps += builder.fields as u64;
    built.map(|()| builder.model)
}

struct CoverModelBuilder<'s, 'a> {
    solver: &'s mut Solver<'a>,
    bits: HashMap<SubgraphId, usize>,
    model: CoverModel,
    types: HashMap<TypeId, usize>,
    /// The nodes by selections and type.
    nodes: HashMap<(u32, TypeId), usize>,
    fields: usize,
}

impl<'a> CoverModelBuilder<'_, 'a> {
    fn add_roots(
        &mut self,
        fields: &Rc<CollectedFields>,
        among: Option<SubgraphSet>,
    ) -> Option<()> {
        let graph = self.solver.graph;
        self.declare_subgraphs(fields)?;
        for wanted in &fields.fields {
            if wanted.field().is_none() {
                continue;
            }
            let mut found = Vec::new();
            self.add_field(wanted, &mut found)?;
            let among = among.map_or(Mask::MAX, |among| self.mask_of(among));
            found.iter_mut().for_each(|field| {
                field.by = (field.by | field.requiring) & among;
                field.requiring = 0;
            });
            self.model.roots.extend(found);
        }
        for (index, &subgraph) in self.model.subgraphs.iter().enumerate() {
            if graph.subgraph(subgraph).kind == SubgraphKind::Events {
                self.model.events |= 1 << index;
            }
        }
        for (&ty, &index) in &self.types {
            self.model.types[index] = jump_type(graph, ty, &self.model.subgraphs);
        }
        let mut first_class = 0;
        for ty in &mut self.model.types {
            ty.first_class = first_class;
            first_class += ty.classes.len();
        }
        self.flatten_values();
        self.model.nodes.iter_mut().for_each(separate_leaves);
        Some(())
    }

    /// Assigns a bit to every subgraph that resolves any field below `fields`.
    fn declare_subgraphs(&mut self, fields: &Rc<CollectedFields>) -> Option<()> {
        let mut seen: HashSet<(u32, TypeId)> = HashSet::default();
        let mut pending = vec![fields.clone()];
        let mut resolvers = SubgraphSet::EMPTY;
        while let Some(collected) = pending.pop() {
            self.fields += 1 + collected.fields.len();
            if self.fields > FIELDS_MAX {
                return None;
            }
            for wanted in &collected.fields {
                let graph = self.solver.graph;
                let Some(field) = wanted.field() else { continue };
                resolvers = resolvers.union(graph.field(field).resolved_by);
                if wanted.parts.is_empty() {
                    continue;
                }
                let below = graph.field(field).ty.named();
                for &member in &graph.ty(below).possible {
                    if seen.insert((wanted.parts.id(), member)) {
                        pending.push(self.solver.collect(&wanted.parts, member));
                    }
                }
            }
        }
        for subgraph in resolvers.iter() {
            self.bits.insert(subgraph, self.model.subgraphs.len());
            self.model.subgraphs.push(subgraph);
        }
        (self.model.subgraphs.len() <= SUBGRAPHS_MAX).then_some(())
    }

    fn mask_of(&self, subgraphs: SubgraphSet) -> Mask {
        subgraphs.iter().filter_map(|it| self.bits.get(&it)).fold(0, |known, bit| known | 1 << bit)
    }

    /// Adds the node of the selections on an object, and returns its index.
    fn add_node(&mut self, parts: &GuardedSets, ty: TypeId) -> Option<usize> {
        if let Some(&known) = self.nodes.get(&(parts.id(), ty)) {
            return Some(known);
        }
        let graph = self.solver.graph;
        let definition = graph.ty(ty);
        let has_interface_object = definition.subgraphs.iter().any(|there| there.interface_object);
        if has_interface_object || !definition.interface_objects.is_empty() {
            return None;
        }
        let node = if definition.kind.is_abstract() {
            let mut members = Vec::new();
            for (member, knowing) in find_members(graph, ty) {
                let knowing = self.mask_of(knowing);
                if knowing != 0 {
                    members.push((knowing, self.add_node(parts, member)?));
                }
            }
            CoverNode::Abstract { members }
        } else {
            let mut fields = Vec::new();
            for wanted in &self.solver.collect(parts, ty).fields {
                self.add_field(wanted, &mut fields)?;
            }
            let knows = definition.subgraphs.iter().map(|there| there.subgraph).collect();
            let (ty, knows) = (self.add_type(ty), self.mask_of(knows));
            CoverNode::Object { ty, knows, leaves: Vec::new(), fields }
        };
        let index = self.model.nodes.len();
        self.model.nodes.push(node);
        self.nodes.insert((parts.id(), ty), index);
        Some(index)
    }

    fn add_type(&mut self, ty: TypeId) -> usize {
        let next = self.types.len();
        let index = *self.types.entry(ty).or_insert(next);
        if index == self.model.types.len() {
            self.model.types.push(JumpType::default());
        }
        index
    }

    /// Adds a field to the fields of its object.
    fn add_field(&mut self, wanted: &CollectedField, into: &mut Vec<CoverField>) -> Option<()> {
        let graph = self.solver.graph;
        let CollectedTarget::Field(id) = wanted.target else { return Some(()) };
        let definition = graph.field(id);
        let by = self.mask_of(wanted.unconditional_resolvers);
        let requiring =
            self.mask_of(definition.resolved_by.difference(wanted.unconditional_resolvers));
        let mut needs = Vec::new();
        if requiring != 0 {
            let required = definition.subgraphs.iter().find_map(|there| there.requires.as_ref());
            for item in required.iter().flat_map(|set| &set.items) {
                if let FieldSetItem::Field { field, .. } = item {
                    needs.push(self.mask_of(graph.field(*field).resolved_by));
                }
            }
        }
        let child = match wanted.parts.is_empty() {
            true => None,
            false => Some(self.add_node(&wanted.parts, definition.ty.named())?),
        };
        into.push(CoverField { by, requiring, needs, child });
        Some(())
    }

    /// Moves the fields of objects without keys to the objects above: each subgraph that has the object above resolves
    /// its part of them, so that several subgraphs may carry one value together.
    fn flatten_values(&mut self) {
        let types = &self.model.types;
        let is_value = |node: &CoverNode| match node {
            CoverNode::Object { ty, .. } => types[*ty].classes.iter().all(|&(_, row)| row == 0),
            CoverNode::Abstract { .. } => false,
        };
        let values: Vec<bool> = self.model.nodes.iter().map(is_value).collect();
        for index in 0..self.model.nodes.len() {
            let (below, rest) = self.model.nodes.split_at_mut(index);
            if let CoverNode::Object { fields, .. } = &mut rest[0] {
                *fields = flatten_fields(std::mem::take(fields), &values, below);
            }
        }
        let roots = std::mem::take(&mut self.model.roots);
        self.model.roots = flatten_fields(roots, &values, &self.model.nodes);
    }
}

fn flatten_fields(
    fields: Vec<CoverField>,
    values: &[bool],
    nodes: &[CoverNode],
) -> Vec<CoverField> {
    let mut flat = Vec::with_capacity(fields.len());
    for field in fields {
        let below = field.child.filter(|&child| values[child] && field.requiring == 0);
        match below.map(|child| &nodes[child]) {
            Some(CoverNode::Object { fields: inner, .. })
                if inner.iter().all(|it| it.requiring == 0) =>
            {
                flat.push(CoverField {
                    by: field.by,
                    requiring: 0,
                    needs: Vec::new(),
                    child: None,
                });
                flat.extend(inner.iter().map(|inner| CoverField {
                    by: inner.by & field.by,
                    requiring: 0,
                    needs: Vec::new(),
                    child: inner.child,
                }));
            }
            _ => flat.push(field),
        }
    }
    flat
}

/// Separates leaf fields from the others, and drops masks of leaves that contain another mask: any choice that
/// satisfies the narrower mask satisfies the wider one.
fn separate_leaves(node: &mut CoverNode) {
    let CoverNode::Object { leaves, fields, .. } = node else { return };
    let is_leaf = |field: &CoverField| field.child.is_none() && field.requiring == 0;
    leaves.extend(fields.iter().filter(|field| is_leaf(field)).map(|field| field.by));
    fields.retain(|field| !is_leaf(field));
    leaves.sort_unstable_by_key(|by| (by.count_ones(), *by));
    let mut kept: Vec<Mask> = Vec::new();
    for &by in leaves.iter() {
        if !kept.iter().any(|narrower| narrower & !by == 0) {
            kept.push(by);
        }
    }
    *leaves = kept;
}

/// Returns the jumps between these subgraphs for objects of one type. A jump is possible from a subgraph that resolves
/// all members of a key of the other.
fn jump_type(graph: &Supergraph, ty: TypeId, subgraphs: &[SubgraphId]) -> JumpType {
    let leads_to: Vec<Mask> = subgraphs
        .iter()
        .map(|&from| {
            let leads = |&to: &SubgraphId| {
                graph.is_query_root_in(ty, to)
                    || graph
                        .keys_into(ty, to)
                        .any(|key| graph.resolves_set(&key.fields, ty, SubgraphSet::of(from)))
            };
            let all = subgraphs.iter().enumerate().filter(|(_, to)| leads(to));
            all.fold(0, |known, (bit, _)| known | 1 << bit)
        })
        .collect();
    let mut classes: Vec<(Mask, Mask)> = Vec::new();
    for (bit, &row) in leads_to.iter().enumerate() {
        match classes.iter_mut().find(|(_, known)| *known == row) {
            Some((class, _)) => *class |= 1 << bit,
            None => classes.push((1 << bit, row)),
        }
    }
    JumpType { classes, first_class: 0 }
}

/// Returns the object types of an abstract type, with the subgraphs that can return them for it.
fn find_members(graph: &Supergraph, ty: TypeId) -> impl Iterator<Item = (TypeId, SubgraphSet)> {
    graph.ty(ty).possible.iter().map(move |&member| {
        let there = graph.ty(ty).subgraphs.iter();
        let knowing = there.filter(|there| there.possible.contains(&member));
        (member, knowing.map(|there| there.subgraph).collect())
    })
}
