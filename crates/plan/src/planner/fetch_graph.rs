//! The fetch graph: conversion of a solution to fetch nodes, with their selections, representations and dependencies.

use std::{collections::BTreeSet, rc::Rc};

use foldhash::HashMap;
use graph::{FieldId, SubgraphId, Supergraph, TypeId};

use super::{
    conditions::{add_condition, conjunction, merge_any_of},
    context_arguments,
    data_keys::{DataKeys, PlaceId},
    selection_tree::{CollectedField, FieldArguments},
    solution::{FieldChoice, ObjectSolution, Solution, SolutionKind},
};
use crate::{
    Condition, ContextSource, EventField, OperationKind, Path, PathStep, RepresentationField,
};

/// The index of a node in [`FetchGraph::nodes`].
pub(super) type FetchNodeId = usize;

/// An index into [`Selections`].
pub(super) type SelectionId = usize;

/// One request before merging.
#[derive(Debug)]
pub(super) struct FetchNode {
    pub(super) subgraph: SubgraphId,
    pub(super) kind: FetchNodeKind,
    /// The path to the objects; the empty path for root fields.
    pub(super) target: Path,
    /// The identity of `target` in [`DataKeys`].
    pub(super) place: PlaceId,
    /// The type of the objects.
    pub(super) ty: TypeId,
    pub(super) depends_on: BTreeSet<FetchNodeId>,
    /// The wave of the request, later than the waves of all its dependencies. Events are in wave 0.
    pub(super) level: u32,
    pub(super) selection: SelectionId,
    pub(super) representation: Vec<RepresentationField>,
    /// The need of the client for the fields that this request selects directly.
    pub(super) need: Need,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum FetchNodeKind {
    Root(OperationKind),
    /// Query root fields of objects below other fields.
    RootBelow,
    Entity,
    Publish(EventField),
    Request(EventField),
    /// The event of a subscription, which is in the tree before any request.
    Event,
}

/// The circumstances under which a request is needed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Need {
    Always,
    AnyOf(Vec<Condition>),
}

impl Need {
    pub(super) const NEVER: Self = Self::AnyOf(Vec::new());

    /// Adds a disjunction in the form that fields have: empty means always.
    pub(super) fn add_any_of(&mut self, any_of: &[Condition]) {
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
            Self::AnyOf(conditions) => self.add_any_of(conditions),
        }
    }

    /// Returns the disjunction in the form that fetches have: empty means always.
    pub(super) fn into_any_of(self) -> Vec<Condition> {
        match self {
            Self::Always => Vec::new(),
            Self::AnyOf(conditions) => conditions,
        }
    }
}

/// All selection sets of all nodes.
pub(super) type Selections = Vec<SubgraphSelection>;

/// A selection set for one subgraph.
#[derive(Clone, Debug)]
pub(super) struct SubgraphSelection {
    /// The type in that subgraph.
    pub(super) ty: TypeId,
    /// True if the type is abstract to clients, so that `__typename` must be selected.
    pub(super) selects_type: bool,
    entries: Vec<SelectedField>,
    /// The positions of entries, maintained only when there are many.
    index: HashMap<(Option<TypeId>, Rc<str>), usize>,
}

/// The number of entries up to which a linear search is faster than a map.
const SCANNED_MAX: usize = 16;

impl SubgraphSelection {
    fn new(ty: TypeId, selects_type: bool) -> Self {
        Self { ty, selects_type, entries: Vec::new(), index: HashMap::default() }
    }

    pub(super) fn entries(&self) -> &[SelectedField] {
        &self.entries
    }

    pub(super) fn entry_mut(
        &mut self,
        on: Option<TypeId>,
        data_key: &Rc<str>,
    ) -> Option<&mut SelectedField> {
        let at = match self.entries.len() {
            ..=SCANNED_MAX => {
                self.entries.iter().position(|entry| entry.on == on && entry.data_key == *data_key)
            }
            _ => self.index.get(&(on, data_key.clone())).copied(),
        };
        at.map(|at| &mut self.entries[at])
    }

    /// Adds an entry. The set must not contain it yet.
    pub(super) fn push(&mut self, entry: SelectedField) {
        self.entries.push(entry);
        let first = match self.entries.len() {
            ..=SCANNED_MAX => return,
            len if len == SCANNED_MAX + 1 => 0,
            len => len - 1,
        };
        for (at, entry) in self.entries.iter().enumerate().skip(first) {
            self.index.insert((entry.on, entry.data_key.clone()), at);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SelectedField {
    /// The object type to which the entry is restricted; `None` if it applies to all.
    pub(super) on: Option<TypeId>,
    pub(super) data_key: Rc<str>,
    pub(super) field: FieldId,
    pub(super) arguments: Rc<FieldArguments>,
    /// The field is selected if any of these conditions holds, or always if there are none. They include the conditions
    /// of the client's selections further up, because those objects may be fetched for a requirement although the
    /// client skips them.
    pub(super) any_of: Vec<Condition>,
    pub(super) child: Option<SelectionId>,
    /// Additional arguments that are read from objects further up.
    pub(super) context: Vec<ContextUse>,
}

/// An argument that is read from an object further up.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ContextUse {
    pub(super) argument: Box<str>,
    pub(super) ty: Box<str>,
    pub(super) sources: Rc<[ContextSource]>,
}

/// The nodes of a plan before merging.
pub(super) struct FetchGraph {
    pub(super) nodes: Vec<FetchNode>,
    pub(super) selections: Selections,
    /// Pairs of (supplier, consumer): the supplier selects fields directly for the consumer's representation.
    pub(super) supplies: Vec<(FetchNodeId, FetchNodeId)>,
    /// The conditions under which objects may be at a place, for places below fields.
    pub(super) reached: HashMap<PlaceId, Need>,
}

pub(super) struct FetchGraphBuilder<'a> {
    graph: &'a Supergraph,
    keys: DataKeys<'a>,
    fetch_graph: FetchGraph,
    steps: u64,
    /// The limit of steps. Beyond it no node is added any more, and the caller that reads [`FetchGraphBuilder::steps`]
    /// gives up.
    steps_max: u64,
    /// The nodes that select the values that objects further down read, by place.
    readers: HashMap<PlaceId, BTreeSet<FetchNodeId>>,
    problem: Option<String>,
}

/// A holder at a position: the node and its selection set there.
#[derive(Clone, Copy)]
struct HolderPlace {
    node: FetchNodeId,
    selection: SelectionId,
    /// The object type to which added entries are restricted.
    on: Option<TypeId>,
}

/// A position in the data tree.
#[derive(Clone)]
struct TreePosition {
    id: PlaceId,
    /// The last step of the path to this position; `None` at the root.
    step: Option<Rc<TreeStep>>,
    /// The condition under which the client selects this position.
    guard: Rc<Condition>,
    /// True below fields that the planner has added for a request.
    is_added: bool,
}

/// A step of a path, linked to the previous steps.
struct TreeStep {
    before: Option<Rc<TreeStep>>,
    data_key: Rc<str>,
    /// The only object type to which the path continues, if restricted.
    ty: Option<TypeId>,
}

impl TreePosition {
    fn root() -> Self {
        Self { id: PlaceId::ROOT, step: None, guard: Rc::default(), is_added: false }
    }

    fn below(&self, keys: &mut DataKeys<'_>, data_key: &Rc<str>, wanted: &CollectedField) -> Self {
        let step = TreeStep { before: self.step.clone(), data_key: data_key.clone(), ty: None };
        let guard = match (&wanted.key, &*wanted.any_of) {
            // If there are several conditions, the selections below carry them themselves.
            (Some(_), [only]) => conjunction(&self.guard, only).map(Rc::new),
            _ => None,
        };
        Self {
            id: keys.child(self.id, data_key),
            step: Some(Rc::new(step)),
            guard: guard.unwrap_or_else(|| self.guard.clone()),
            is_added: self.is_added || wanted.key.is_none(),
        }
    }

    /// Returns the conditions under which the object at this position is selected, in the form that fields have.
    fn selected_here(&self) -> Vec<Condition> {
        if self.guard.is_always() { Vec::new() } else { vec![(*self.guard).clone()] }
    }

    /// Returns the conditions under which `wanted` is selected, counted from the root. Fields that the planner adds are
    /// selected for their consumers, independently of the client's conditions.
    fn selected(&self, wanted: &CollectedField) -> Vec<Condition> {
        if wanted.key.is_none() || self.guard.is_always() {
            return wanted.any_of.clone();
        }
        if wanted.any_of.is_empty() {
            return self.selected_here();
        }
        let mut any_of = Vec::new();
        for condition in wanted.any_of.iter().filter_map(|it| conjunction(&self.guard, it)) {
            add_condition(&mut any_of, &condition);
        }
        // The field is never selected; but an empty list would mean always.
        if any_of.is_empty() { wanted.any_of.clone() } else { any_of }
    }

    fn narrowed(&self, ty: TypeId) -> Self {
        let step = self.step.as_ref().map(|step| {
            let (before, data_key) = (step.before.clone(), step.data_key.clone());
            Rc::new(TreeStep { before, data_key, ty: Some(ty) })
        });
        Self { id: self.id, step, guard: self.guard.clone(), is_added: self.is_added }
    }

    fn path(&self, graph: &Supergraph) -> Path {
        let mut steps = Vec::new();
        let mut next = &self.step;
        while let Some(step) = next {
            let types = step.ty.iter().map(|&ty| graph.ty(ty).name.clone()).collect();
            steps.push(PathStep { data_key: step.data_key.as_ref().into(), types });
            next = &step.before;
        }
        steps.reverse();
        Path { steps }
    }
}

/// The number of comparisons of conditions that cost as much as adding a field.
const COMPARISONS_IN_STEP: u64 = 8;

impl<'a> FetchGraphBuilder<'a> {
    pub(super) fn new(graph: &'a Supergraph, keys: DataKeys<'a>) -> Self {
        let fetch_graph = FetchGraph {
            nodes: Vec::new(),
            selections: Vec::new(),
            supplies: Vec::new(),
            reached: HashMap::default(),
        };
        Self {
            graph,
            keys,
            fetch_graph,
            readers: HashMap::default(),
            problem: None,
            steps: 0,
            steps_max: 0,
        }
    }

    /// Returns the number of fields added so far, counted once for each place and object type. Solutions are shared
    /// between places and types but requests are not, so this may be much more than solving took.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the reason why there is no plan after all, if one was found.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn into_fetch_graph(self) -> (DataKeys<'a>, FetchGraph) {
        (self.keys, self.fetch_graph)
    }

    pub(super) fn node_ids(&self) -> std::ops::Range<FetchNodeId> {
        0..self.fetch_graph.nodes.len()
    }

    /// Adds the nodes of a solved root. Every root node waits for `before`.
    pub(super) fn add_root(
        &mut self,
        solution: &ObjectSolution,
        kind: FetchNodeKind,
        before: &[FetchNodeId],
        steps_max: u64,
    ) {
        self.steps_max = steps_max;
        let at = TreePosition::root();
        let mut places = Vec::new();
        let done = before.iter().map(|&node| self.fetch_graph.nodes[node].level).max().unwrap_or(0);
        let is_event = kind == FetchNodeKind::Event;
        for jump in &solution.jumps {
            let level = if is_event { 0 } else { done + jump.depth.max(1) };
            let node = self.add_node(jump.subgraph, kind.clone(), &at, solution.ty, level);
            self.fetch_graph.nodes[node].depends_on.extend(before);
            places.push(HolderPlace {
                node,
                selection: self.fetch_graph.nodes[node].selection,
                on: None,
            });
        }
        self.add_choices(&solution.choices, &places, &at, &mut BTreeSet::new());
    }

    fn add_node(
        &mut self,
        subgraph: SubgraphId,
        kind: FetchNodeKind,
        at: &TreePosition,
        ty: TypeId,
        level: u32,
    ) -> FetchNodeId {
        let selection = self.add_selection(ty, false);
        self.fetch_graph.nodes.push(FetchNode {
            subgraph,
            kind,
            target: at.path(self.graph),
            place: at.id,
            ty,
            depends_on: BTreeSet::new(),
            level,
            selection,
            representation: Vec::new(),
            need: Need::NEVER,
        });
        self.fetch_graph.nodes.len() - 1
    }

    fn add_selection(&mut self, ty: TypeId, selects_type: bool) -> SelectionId {
        self.fetch_graph.selections.push(SubgraphSelection::new(ty, selects_type));
        self.fetch_graph.selections.len() - 1
    }

    /// Adds the nodes of a solution at a position. `touched` collects every node that was given a field to select.
    fn add_position(
        &mut self,
        solution: &Solution,
        places: &[HolderPlace],
        at: &TreePosition,
        touched: &mut BTreeSet<FetchNodeId>,
    ) {
        let base =
            places.iter().map(|place| self.fetch_graph.nodes[place.node].level).min().unwrap_or(0);
        match &solution.kind {
            SolutionKind::Object(object) => {
                self.add_object(object, places, at, base, touched);
            }
            SolutionKind::Abstract { common, members, untyped } => {
                match untyped {
                    Some(interface) => self.keys.set_untyped(at.id, *interface),
                    None => self.keys.set_abstract(at.id),
                }
                let places = match common {
                    Some(common) => self.add_object(common, places, at, base, touched),
                    None => places.to_vec(),
                };
                for (knowing, object) in members {
                    let narrowed: Vec<HolderPlace> = knowing
                        .iter()
                        .map(|&index| HolderPlace { on: Some(object.ty), ..places[index] })
                        .collect();
                    let at = at.narrowed(object.ty);
                    self.add_object(object, &narrowed, &at, base, touched);
                }
            }
        }
    }

    /// Adds the nodes of a solution for one object type, and returns the holders of the object including the new ones.
    fn add_object(
        &mut self,
        solution: &ObjectSolution,
        places: &[HolderPlace],
        at: &TreePosition,
        base: u32,
        touched: &mut BTreeSet<FetchNodeId>,
    ) -> Vec<HolderPlace> {
        let mut places = places.to_vec();
        for (index, jump) in solution.jumps.iter().enumerate() {
            let mut depends_on = BTreeSet::new();
            let mut suppliers = Vec::new();
            let mut representation = Vec::new();
            let added_before = self.fetch_graph.nodes.len();
            for input in &jump.inputs {
                for &carrier in input.choice.carriers.iter() {
                    let place = places[carrier];
                    if self.fetch_graph.nodes[place.node].selection == place.selection {
                        suppliers.push(place.node);
                    }
                }
                let member =
                    self.add_input(&input.choice, input.is_key, &places, at, &mut depends_on);
                // A key and a requirement may be different parts of one object.
                merge_representation_field(&mut representation, member);
            }
            // A request that is sent only for these requirements is needed when this request is.
            suppliers.extend(added_before..self.fetch_graph.nodes.len());
            if self.has_context_arguments(solution, index, places.len()) {
                let readers = self.readers_above(at);
                suppliers.extend(&readers);
                depends_on.extend(readers);
            }
            let is_root = solution.ty == self.graph.query;
            if is_root {
                // A root request has no representation, but the object must be in the tree before it.
                let held = places[..places.len() - index].iter().map(|place| place.node);
                depends_on.extend(held.min_by_key(|&node| self.fetch_graph.nodes[node].level));
            }
            let before =
                depends_on.iter().map(|&node| self.fetch_graph.nodes[node].level + 1).max();
            let level = (base + jump.depth).max(before.unwrap_or(0));
            let ty = self.graph.local_type(solution.ty, jump.subgraph);
            let kind = if is_root { FetchNodeKind::RootBelow } else { FetchNodeKind::Entity };
            let node = self.add_node(jump.subgraph, kind, at, ty, level);
            debug_assert!(
                depends_on.iter().all(|&before| self.fetch_graph.nodes[before].level < level)
            );
            suppliers.dedup();
            self.fetch_graph
                .supplies
                .extend(suppliers.into_iter().map(|supplier| (supplier, node)));
            touched.extend(&depends_on);
            touched.insert(node);
            let added = &mut self.fetch_graph.nodes[node];
            added.depends_on = depends_on;
            added.representation = representation;
            places.push(HolderPlace { node, selection: added.selection, on: None });
        }
        self.add_choices(&solution.choices, &places, at, touched);
        places
    }

    fn add_choices(
        &mut self,
        choices: &[FieldChoice],
        places: &[HolderPlace],
        at: &TreePosition,
        touched: &mut BTreeSet<FetchNodeId>,
    ) {
        // Values that objects further down read are selected before those objects are fetched. Fields below an added
        // field belong to that value or are required, so no object further down reads them.
        let is_read = |choice: &&FieldChoice| {
            !at.is_added && choice.wanted.key.is_none() && choice.wanted.field().is_some()
        };
        for choice in choices.iter().filter(is_read) {
            let mut readers = BTreeSet::new();
            self.add_choice(choice, places, at, &mut readers);
            touched.extend(&readers);
            self.readers.entry(at.id).or_default().extend(readers);
        }
        for choice in choices.iter().filter(|choice| !is_read(choice)) {
            self.add_choice(choice, places, at, touched);
        }
    }

    /// True if the jump at index `jump`, which becomes the holder at index `holder`, resolves fields with arguments
    /// from further up.
    fn has_context_arguments(&self, solution: &ObjectSolution, jump: usize, holder: usize) -> bool {
        let subgraph = solution.jumps[jump].subgraph;
        let later = solution.jumps[jump..].iter().flat_map(|jump| &jump.inputs);
        later.map(|input| &input.choice).chain(&solution.choices).any(|choice| {
            choice.carriers.contains(&holder)
                && choice
                    .wanted
                    .field()
                    .and_then(|field| self.graph.field_in(field, subgraph))
                    .is_some_and(|there| !there.context.is_empty())
        })
    }

    /// Returns the nodes that select values read from the objects above a position.
    fn readers_above(&self, at: &TreePosition) -> BTreeSet<FetchNodeId> {
        let mut readers = BTreeSet::new();
        let mut place = PlaceId::ROOT;
        for step in &at.path(self.graph).steps {
            readers.extend(self.readers.get(&place).into_iter().flatten());
            match self.keys.existing_child(place, &step.data_key) {
                Some(below) => place = below,
                None => break,
            }
        }
        readers
    }

    fn context_uses(
        &mut self,
        field: FieldId,
        subgraph: SubgraphId,
        at: &TreePosition,
    ) -> Vec<ContextUse> {
        let graph = self.graph;
        let Some(there) = graph.field_in(field, subgraph) else { return Vec::new() };
        let mut uses = Vec::new();
        for argument in &there.context {
            let sources =
                context_arguments::find_sources(graph, &self.keys, argument, &at.path(graph));
            if sources.is_empty() {
                let definition = graph.field(field);
                self.problem.get_or_insert_with(|| {
                    format!(
                        "no object above `{}.{}` sets the context of its argument `{}`",
                        graph.ty(definition.parent).name,
                        definition.name,
                        argument.name
                    )
                });
            }
            let (argument, ty) = (argument.name.clone(), argument.ty.clone());
            uses.push(ContextUse { argument, ty, sources: sources.into() });
        }
        uses
    }

    fn add_choice(
        &mut self,
        choice: &FieldChoice,
        places: &[HolderPlace],
        at: &TreePosition,
        touched: &mut BTreeSet<FetchNodeId>,
    ) {
        let Some(&first) = choice.carriers.first() else { return };
        let Some(field) = choice.wanted.field() else {
            // The holder selects `__typename` without an entry.
            let place = places[first];
            touched.insert(place.node);
            // Below an added field, the requests that need the field determine the need.
            if !at.is_added && self.fetch_graph.nodes[place.node].selection == place.selection {
                self.fetch_graph.nodes[place.node].need.add_any_of(&at.selected_here());
            }
            return;
        };
        // Each condition is compared with those that are already present.
        let compared = (choice.wanted.any_of.len() as u64).pow(2) / COMPARISONS_IN_STEP;
        self.steps += choice.carriers.len() as u64 + compared;
        if self.steps > self.steps_max {
            self.steps = self.steps_max + 1;
            return;
        }
        let subgraph = self.fetch_graph.nodes[places[first].node].subgraph;
        let data_key = self.keys.data_key(at.id, &choice.wanted, subgraph);
        let selected = at.selected(&choice.wanted);
        let mut below = Vec::with_capacity(choice.carriers.len());
        for &carrier in choice.carriers.iter() {
            let place = places[carrier];
            touched.insert(place.node);
            if choice.wanted.key.is_some()
                && self.fetch_graph.nodes[place.node].selection == place.selection
            {
                self.fetch_graph.nodes[place.node].need.add_any_of(&selected);
            }
            let child = self.add_entry(place, &data_key, field, choice, &selected, at);
            below.extend(child.map(|selection| HolderPlace { selection, on: None, ..place }));
        }
        if let Some(child) = &choice.child {
            let at = at.below(&mut self.keys, &data_key, &choice.wanted);
            self.fetch_graph.reached.entry(at.id).or_insert(Need::NEVER).add_any_of(&selected);
            self.add_position(child, &below, &at, touched);
        }
    }

    fn add_entry(
        &mut self,
        place: HolderPlace,
        data_key: &Rc<str>,
        field: FieldId,
        choice: &FieldChoice,
        selected: &[Condition],
        at: &TreePosition,
    ) -> Option<SelectionId> {
        let subgraph = self.fetch_graph.nodes[place.node].subgraph;
        let selection = &mut self.fetch_graph.selections[place.selection];
        if let Some(entry) = selection.entry_mut(place.on, data_key) {
            merge_any_of(&mut entry.any_of, selected);
            return entry.child;
        }
        let child = choice.child.is_some().then(|| {
            let ty = self.graph.field_type_in(field, subgraph);
            // An interface object would return the interface's name, which is not the type of any object.
            let selects_type = self.graph.ty(self.graph.field(field).ty.named()).kind.is_abstract()
                && !self.graph.is_interface_object(ty, subgraph);
            self.add_selection(ty, selects_type)
        });
        let context = self.context_uses(field, subgraph, at);
        self.fetch_graph.selections[place.selection].push(SelectedField {
            context,
            on: place.on,
            data_key: data_key.clone(),
            field,
            arguments: choice.wanted.arguments.clone(),
            any_of: selected.to_vec(),
            child,
        });
        child
    }

    /// Selects a member of a representation, and returns the member with its place in the data tree.
    fn add_input(
        &mut self,
        choice: &FieldChoice,
        is_key: bool,
        places: &[HolderPlace],
        at: &TreePosition,
        depends_on: &mut BTreeSet<FetchNodeId>,
    ) -> RepresentationField {
        self.add_choice(choice, places, at, depends_on);
        self.representation_field(choice, is_key, at.id, &[])
    }

    fn representation_field(
        &mut self,
        choice: &FieldChoice,
        is_key: bool,
        at: PlaceId,
        types: &[Box<str>],
    ) -> RepresentationField {
        // The field has just been selected, so its key is known and does not depend on the subgraph any more.
        let data_key = self.keys.data_key(at, &choice.wanted, SubgraphId(0));
        let name = match choice.wanted.field() {
            Some(field) => self.graph.field(field).name.clone(),
            None => "__typename".into(),
        };
        let mut fields = Vec::new();
        if let Some(child) = &choice.child {
            let below = self.keys.child(at, &data_key);
            match &child.kind {
                SolutionKind::Object(object) => {
                    for choice in &object.choices {
                        fields.push(self.representation_field(choice, is_key, below, &[]));
                    }
                }
                SolutionKind::Abstract { common, members, .. } => {
                    fields.push(RepresentationField {
                        name: "__typename".into(),
                        data_key: "__typename".into(),
                        key: is_key,
                        types: Vec::new(),
                        fields: Vec::new(),
                    });
                    let common = common.iter().flat_map(|common| &common.choices);
                    for choice in common.filter(|choice| choice.wanted.field().is_some()) {
                        fields.push(self.representation_field(choice, is_key, below, &[]));
                    }
                    for (_, object) in members {
                        let types = [self.graph.ty(object.ty).name.clone()];
                        for choice in &object.choices {
                            fields.push(self.representation_field(choice, is_key, below, &types));
                        }
                    }
                }
            }
        }
        let data_key = data_key.as_ref().into();
        RepresentationField { name, data_key, key: is_key, types: types.to_vec(), fields }
    }
}

/// Adds a member to a representation, or its fields to an equal member.
pub(super) fn merge_representation_field(
    into: &mut Vec<RepresentationField>,
    field: RepresentationField,
) {
    let same = into.iter_mut().find(|known| {
        known.name == field.name && known.data_key == field.data_key && known.types == field.types
    });
    match same {
        Some(known) => {
            known.key |= field.key;
            field
                .fields
                .into_iter()
                .for_each(|below| merge_representation_field(&mut known.fields, below));
        }
        None => into.push(field),
    }
}
