//! From a solution to fetch nodes: what each request selects, what it is sent, whom it waits for.

use std::{collections::BTreeSet, rc::Rc};

use graph::{FieldId, SubgraphId, Supergraph, TypeId};

use super::{
    data_keys::{DataKeys, PathId},
    solution::{ObjectSolution, Pick, Solution, SolutionKind},
    tree::{Arguments, Wanted},
};
use crate::{Condition, EventField, OperationKind, Path, PathStep, RepresentationField};

/// Index of a node.
pub(super) type NodeId = usize;

/// Index into [`Selections`].
pub(super) type SelectionId = usize;

/// One request before merging.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) subgraph: SubgraphId,
    pub(super) kind: NodeKind,
    /// Where the objects are; the root for roots.
    pub(super) target: Path,
    /// The type that is asked for.
    pub(super) ty: TypeId,
    pub(super) depends_on: BTreeSet<NodeId>,
    /// The wave it belongs to; later than those of all it depends on. Events come in wave 0.
    pub(super) level: u32,
    pub(super) selection: SelectionId,
    pub(super) representation: Vec<RepresentationField>,
    /// When the client wants any of what it selects directly.
    pub(super) need: Need,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum NodeKind {
    Root(OperationKind),
    Entity,
    Publish(EventField),
    /// The event of a subscription: in the tree before any request.
    Event,
}

/// When something is needed: if any of these holds.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Need {
    Always,
    AnyOf(Vec<Condition>),
}

impl Need {
    pub(super) const NEVER: Self = Self::AnyOf(Vec::new());

    /// `any_of` as fields have it: empty means always.
    pub(super) fn add(&mut self, any_of: &[Condition]) {
        if any_of.is_empty() {
            *self = Self::Always;
        } else if let Self::AnyOf(known) = self {
            any_of.iter().for_each(|condition| add_condition(known, condition));
        }
    }

    pub(super) fn add_need(&mut self, other: &Self) {
        match other {
            Self::Always => *self = Self::Always,
            Self::AnyOf(conditions) if conditions.is_empty() => {}
            Self::AnyOf(conditions) => self.add(conditions),
        }
    }
}

/// All selection sets of all nodes.
pub(super) type Selections = Vec<SelectionNode>;

/// A selection set in a subgraph's terms.
#[derive(Clone, Debug)]
pub(super) struct SelectionNode {
    /// The type in that subgraph.
    pub(super) ty: TypeId,
    /// The type is abstract to clients, so the object must say what it is.
    pub(super) says_type: bool,
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Only for this object type; `None`: whatever it is.
    pub(super) on: Option<TypeId>,
    pub(super) data_key: Box<str>,
    pub(super) field: FieldId,
    pub(super) arguments: Rc<Arguments>,
    /// Selected if any of these holds; empty: always.
    pub(super) any_of: Vec<Condition>,
    pub(super) child: Option<SelectionId>,
}

/// The nodes of a plan before merging.
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    pub(super) selections: Selections,
    /// (supplier, who needs it): what the supplier selects directly for the other one's representation.
    pub(super) supplies: Vec<(NodeId, NodeId)>,
}

pub(super) struct Builder<'a> {
    graph: &'a Supergraph,
    keys: DataKeys,
    nodes: Nodes,
}

/// A holder at a position: the node and its selection set there.
#[derive(Clone, Copy)]
struct Place {
    node: NodeId,
    selection: SelectionId,
    /// Entries are for this object type only.
    on: Option<TypeId>,
}

/// A position in the data tree.
#[derive(Clone)]
struct At {
    id: PathId,
    path: Path,
}

impl At {
    fn below(&self, keys: &mut DataKeys, data_key: &str) -> Self {
        let mut path = self.path.clone();
        path.steps.push(PathStep { data_key: data_key.into(), types: Vec::new() });
        Self { id: keys.child(self.id, data_key), path }
    }

    fn narrowed(&self, graph: &Supergraph, ty: TypeId) -> Self {
        let mut narrowed = self.clone();
        if let Some(last) = narrowed.path.steps.last_mut() {
            last.types = vec![graph.ty(ty).name.clone()];
        }
        narrowed
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(graph: &'a Supergraph, keys: DataKeys) -> Self {
        let nodes = Nodes { nodes: Vec::new(), selections: Vec::new(), supplies: Vec::new() };
        Self { graph, keys, nodes }
    }

    pub(super) fn into_nodes(self) -> (DataKeys, Nodes) {
        (self.keys, self.nodes)
    }

    pub(super) fn all_nodes(&self) -> std::ops::Range<NodeId> {
        0..self.nodes.nodes.len()
    }

    /// Adds the nodes of a solved root. Every root node waits for `before`.
    pub(super) fn root(&mut self, solution: &ObjectSolution, kind: NodeKind, before: &[NodeId]) {
        let at = At { id: PathId::ROOT, path: Path::default() };
        let mut places = Vec::new();
        let done = before.iter().map(|&node| self.nodes.nodes[node].level).max().unwrap_or(0);
        let is_event = kind == NodeKind::Event;
        for jump in &solution.jumps {
            let level = if is_event { 0 } else { done + jump.depth.max(1) };
            let node = self.node(jump.subgraph, kind.clone(), &at, solution.ty, level);
            self.nodes.nodes[node].depends_on.extend(before);
            places.push(Place { node, selection: self.nodes.nodes[node].selection, on: None });
        }
        self.picks(&solution.picks, &places, &at, &mut BTreeSet::new());
    }

    fn node(
        &mut self,
        subgraph: SubgraphId,
        kind: NodeKind,
        at: &At,
        ty: TypeId,
        level: u32,
    ) -> NodeId {
        let selection = self.selection(ty, false);
        self.nodes.nodes.push(Node {
            subgraph,
            kind,
            target: at.path.clone(),
            ty,
            depends_on: BTreeSet::new(),
            level,
            selection,
            representation: Vec::new(),
            need: Need::NEVER,
        });
        self.nodes.nodes.len() - 1
    }

    fn selection(&mut self, ty: TypeId, says_type: bool) -> SelectionId {
        self.nodes.selections.push(SelectionNode { ty, says_type, entries: Vec::new() });
        self.nodes.selections.len() - 1
    }

    /// Carries out a solution at a position. `touched` collects every node that was given something to select.
    fn position(
        &mut self,
        solution: &Solution,
        places: &[Place],
        at: &At,
        touched: &mut BTreeSet<NodeId>,
    ) {
        let base = places.iter().map(|place| self.nodes.nodes[place.node].level).min().unwrap_or(0);
        match &solution.kind {
            SolutionKind::Object(object) => self.object(object, places, at, base, touched),
            SolutionKind::Abstract { common, members } => {
                if let Some(common) = common {
                    self.object(common, places, at, base, touched);
                }
                for (knowing, object) in members {
                    let narrowed: Vec<Place> = knowing
                        .iter()
                        .map(|&index| Place { on: Some(object.ty), ..places[index] })
                        .collect();
                    let at = at.narrowed(self.graph, object.ty);
                    self.object(object, &narrowed, &at, base, touched);
                }
            }
        }
    }

    fn object(
        &mut self,
        solution: &ObjectSolution,
        places: &[Place],
        at: &At,
        base: u32,
        touched: &mut BTreeSet<NodeId>,
    ) {
        let mut places = places.to_vec();
        for jump in &solution.jumps {
            let mut depends_on = BTreeSet::new();
            let mut suppliers = Vec::new();
            let mut representation = Vec::new();
            for supply in &jump.supplies {
                for &carrier in &supply.pick.carriers {
                    let place = places[carrier];
                    if self.nodes.nodes[place.node].selection == place.selection {
                        suppliers.push(place.node);
                    }
                }
                representation.push(self.supply(
                    &supply.pick,
                    supply.is_key,
                    &places,
                    at,
                    &mut depends_on,
                ));
            }
            let level = base + jump.depth;
            let node = self.node(jump.subgraph, NodeKind::Entity, at, solution.ty, level);
            debug_assert!(depends_on.iter().all(|&before| self.nodes.nodes[before].level < level));
            suppliers.dedup();
            self.nodes.supplies.extend(suppliers.into_iter().map(|supplier| (supplier, node)));
            touched.extend(&depends_on);
            touched.insert(node);
            let added = &mut self.nodes.nodes[node];
            added.depends_on = depends_on;
            added.representation = representation;
            places.push(Place { node, selection: added.selection, on: None });
        }
        self.picks(&solution.picks, &places, at, touched);
    }

    fn picks(&mut self, picks: &[Pick], places: &[Place], at: &At, touched: &mut BTreeSet<NodeId>) {
        for pick in picks {
            self.pick(pick, places, at, touched);
        }
    }

    fn pick(&mut self, pick: &Pick, places: &[Place], at: &At, touched: &mut BTreeSet<NodeId>) {
        let (Some(field), Some(&first)) = (pick.wanted.field(), pick.carriers.first()) else {
            return;
        };
        let subgraph = self.nodes.nodes[places[first].node].subgraph;
        let data_key = self.keys.data_key(self.graph, at.id, &pick.wanted, subgraph);
        let mut below = Vec::with_capacity(pick.carriers.len());
        for &carrier in &pick.carriers {
            let place = places[carrier];
            touched.insert(place.node);
            if pick.wanted.key.is_some()
                && self.nodes.nodes[place.node].selection == place.selection
            {
                self.nodes.nodes[place.node].need.add(&pick.wanted.any_of);
            }
            let child = self.entry(place, &data_key, field, &pick.wanted, pick.child.is_some());
            below.extend(child.map(|selection| Place { selection, on: None, ..place }));
        }
        if let Some(child) = &pick.child {
            let at = at.below(&mut self.keys, &data_key);
            self.position(child, &below, &at, touched);
        }
    }

    fn entry(
        &mut self,
        place: Place,
        data_key: &str,
        field: FieldId,
        wanted: &Wanted,
        has_child: bool,
    ) -> Option<SelectionId> {
        let subgraph = self.nodes.nodes[place.node].subgraph;
        let entries = &mut self.nodes.selections[place.selection].entries;
        let known =
            entries.iter_mut().find(|entry| entry.on == place.on && *entry.data_key == *data_key);
        if let Some(entry) = known {
            merge_any_of(&mut entry.any_of, &wanted.any_of);
            return entry.child;
        }
        let child = has_child.then(|| {
            let says_type = self.graph.ty(self.graph.field(field).ty.named()).kind.is_abstract();
            self.selection(self.graph.field_type_in(field, subgraph), says_type)
        });
        self.nodes.selections[place.selection].entries.push(Entry {
            on: place.on,
            data_key: data_key.into(),
            field,
            arguments: wanted.arguments.clone(),
            any_of: wanted.any_of.clone(),
            child,
        });
        child
    }

    /// Selects a member of a representation; says where it is found afterwards.
    fn supply(
        &mut self,
        pick: &Pick,
        is_key: bool,
        places: &[Place],
        at: &At,
        depends_on: &mut BTreeSet<NodeId>,
    ) -> RepresentationField {
        self.pick(pick, places, at, depends_on);
        self.representation_field(pick, is_key, at.id, &[])
    }

    fn representation_field(
        &mut self,
        pick: &Pick,
        is_key: bool,
        at: PathId,
        types: &[Box<str>],
    ) -> RepresentationField {
        // It was picked just now, so its key is known and the subgraph does not matter any more.
        let data_key = self.keys.data_key(self.graph, at, &pick.wanted, SubgraphId(0));
        let name = match pick.wanted.field() {
            Some(field) => self.graph.field(field).name.clone(),
            None => "__typename".into(),
        };
        let mut fields = Vec::new();
        if let Some(child) = &pick.child {
            let below = self.keys.child(at, &data_key);
            match &child.kind {
                SolutionKind::Object(object) => {
                    for pick in &object.picks {
                        fields.push(self.representation_field(pick, is_key, below, &[]));
                    }
                }
                SolutionKind::Abstract { common, members } => {
                    fields.push(RepresentationField {
                        name: "__typename".into(),
                        data_key: "__typename".into(),
                        key: is_key,
                        types: Vec::new(),
                        fields: Vec::new(),
                    });
                    for pick in common.iter().flat_map(|common| &common.picks) {
                        fields.push(self.representation_field(pick, is_key, below, &[]));
                    }
                    for (_, object) in members {
                        let types = [self.graph.ty(object.ty).name.clone()];
                        for pick in &object.picks {
                            fields.push(self.representation_field(pick, is_key, below, &types));
                        }
                    }
                }
            }
        }
        RepresentationField { name, data_key, key: is_key, types: types.to_vec(), fields }
    }
}

/// Disjunction where empty means always.
pub(super) fn merge_any_of(into: &mut Vec<Condition>, other: &[Condition]) {
    if into.is_empty() || other.is_empty() {
        into.clear();
        return;
    }
    other.iter().for_each(|condition| add_condition(into, condition));
}

/// Adds to a disjunction what is not implied; takes out what is implied by the new one.
fn add_condition(into: &mut Vec<Condition>, condition: &Condition) {
    let implies = |a: &Condition, b: &Condition| b.all.iter().all(|needed| a.all.contains(needed));
    if !into.iter().any(|known| implies(condition, known)) {
        into.retain(|known| !implies(known, condition));
        into.push(condition.clone());
    }
}
